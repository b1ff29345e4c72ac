/* SPDX-License-Identifier: MIT */
/* A process with files that commit together is killed at each of its calls: all of them, or none. */
#define _GNU_SOURCE 1
#include "group_rig.h"
#include "dying.h"

static struct pol_journal_report rep;

static int setup_quick(void **state)
{
	be_quick();
	return setup(state);
}

/* Was it killed? */
static bool wait_for(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
	return WEXITSTATUS(status) == 9;
}

/* All files live and of byte 1; killed at the nth call of committing byte 2 (with the end of use). */
static bool die_in_commit(unsigned nth, unsigned flags)
{
	pid_t pid = fork();

	if (!pid) {
		for (unsigned i = 0; i < NFILES; i++)
			if (try_live(i))
				_exit(1);
		if (try_commit(7, '1', VM_COMMIT_DURABLE))
			_exit(2);
		die_at(nth);
		if (try_commit(7, '2', flags))
			_exit(3);
		for (unsigned i = 0; i < NFILES; i++)
			if (ops->close(&file[i].f))
				_exit(4);
		_exit(0);
	}
	return wait_for(pid);
}

/* All that any process does with them, from the beginning. */
static bool die_in_life(unsigned nth)
{
	pid_t pid = fork();

	if (!pid) {
		die_at(nth);
		for (unsigned i = 0; i < NFILES; i++)
			if (try_live(i))
				_exit(1);
		if (try_commit(7, '1', VM_COMMIT_DURABLE))
			_exit(2);
		for (unsigned i = 0; i < NFILES; i++)
			if (ops->close(&file[i].f))
				_exit(4);
		_exit(0);
	}
	return wait_for(pid);
}

static void make_files(void)
{
	for (unsigned i = 0; i < NFILES; i++) {
		memset(file[i].now, 'a', SIZE);
		box_put(file[i].path, file[i].now, SIZE);
	}
}

static void recover(const char *path)
{
	int err = pol_journal_recover(path, NULL, NULL, NULL, &rep);

	if (err)
		print_error("%s\n", rep.text);
	assert_int_equal(err, 0);
	assert_true(*rep.text && !strchr(rep.text, '\n'));
}

static uint8_t all_bytes(void)
{
	uint8_t byte = byte_of(file[0].path);

	assert_true(byte);
	for (unsigned i = 1; i < NFILES; i++)
		assert_int_equal(byte_of(file[i].path), byte);
	return byte;
}

/* By whichever name it is asked for. */
static void after_a_kill_all_files_have_the_commit_or_none(void **state)
{
	unsigned n = 0, nbefore = 0, nafter = 0, nlitter = 0;
	bool killed;

	(void)state;
	do {
		uint8_t byte;

		make_files();
		n++;
		killed = die_in_commit(n, n % 2 ? VM_COMMIT_DURABLE : 0);
		if (box_has(group_journal))
			recover(n % 4 == 3 ? group_journal : file[n % 4].path);
		byte = all_bytes();
		assert_true(byte == '1' || byte == '2');
		nbefore += byte == '1';
		nafter += byte == '2';
		for (unsigned i = 0; i < NFILES; i++) { /* one that ended before says nothing of the others */
			recover(file[i].path);
			assert_false(box_has(file[i].stub));
		}
		if (box_has(group_journal)) /* no stub tells of it any more */
			recover(group_journal);
		nlitter += (unsigned)box_has(group_journal);
		(void)unlink(group_journal);
	} while (killed);
	assert_true(nbefore > 1 && nafter > 10);
	assert_true(nlitter < 10); /* killed between the header of a generation and its names */
}

static void whoever_opens_one_of_them_next_recovers_all(void **state)
{
	unsigned n = 0, nafter = 0, nlitter = 0;
	bool killed;

	(void)state;
	do {
		uint8_t byte;

		make_files();
		killed = die_in_commit(++n, VM_COMMIT_DURABLE);
		go_live(n % NFILES); /* policy recovers before; this is the race with it */
		byte = all_bytes();
		nafter += byte == '2';
		end(n % NFILES);
		nlitter += (unsigned)box_has(group_journal);
		for (unsigned i = 0; i < NFILES; i++) {
			assert_true(box_has(group_journal) || !box_has(file[i].stub));
			go_live(i);
			end(i);
			assert_false(box_has(file[i].stub));
		}
		(void)unlink(group_journal);
	} while (killed);
	assert_true(nafter > 10 && nlitter < 10);
}

/* Wherever it was killed, the next ones work, and no stub tells of a journal that is not there. */
static void a_kill_at_any_time_loses_no_stub(void **state)
{
	unsigned n = 0, nlitter = 0;
	bool killed;

	(void)state;
	do {
		make_files();
		killed = die_in_life(++n);
		for (unsigned i = 0; i < NFILES; i++) {
			assert_int_equal(pol_journal_check(file[i].path, NULL, &rep), 0);
			assert_true(rep.state != POL_JOURNAL_DAMAGED && rep.state != POL_JOURNAL_FOREIGN);
		}
		recover(file[n % NFILES].path);
		for (unsigned i = 0; i < NFILES; i++)
			recover(file[i].path);
		assert_true(all_bytes() == '1' || byte_of(file[0].path) == 'a');
		for (unsigned i = 0; i < NFILES; i++)
			assert_false(box_has(file[i].stub));
		for (unsigned i = 0; i < NFILES; i++) {
			memset(file[i].now, byte_of(file[i].path), SIZE);
			go_live(i);
		}
		commit(7, '5');
		assert_int_equal(all_bytes(), '5');
		for (unsigned i = 0; i < NFILES; i++)
			end(i);
		for (unsigned i = 0; i < NFILES; i++)
			assert_false(box_has(file[i].stub));
		nlitter += (unsigned)box_has(group_journal);
		(void)unlink(group_journal);
	} while (killed);
	assert_true(n > 60 && nlitter < 10);
}

int main(void)
{
#define QUICK(fn) cmocka_unit_test_setup_teardown(fn, setup_quick, teardown)
	const struct CMUnitTest tests[] = {
		QUICK(after_a_kill_all_files_have_the_commit_or_none),
		QUICK(whoever_opens_one_of_them_next_recovers_all),
		QUICK(a_kill_at_any_time_loses_no_stub),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
