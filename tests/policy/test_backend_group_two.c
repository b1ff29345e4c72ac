/* SPDX-License-Identifier: MIT */
/* Processes that have different files of one group, and one of them is killed. */
#define _GNU_SOURCE 1
#include "group_others.h"

#include <pthread.h>

static void two_processes_with_files_of_a_group_commit_in_turn(void **state)
{
	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0), 0);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	for (uint8_t byte = '1'; byte <= '9'; byte++) {
		assert_int_equal(tell(&one, COMMIT, byte), 0);
		assert_int_equal(tell(&two, COMMIT, (uint8_t)(byte + 20)), 0);
		assert_int_equal(byte_of(file[0].path), byte);
		assert_int_equal(byte_of(file[2].path), byte + 20);
	}
	assert_int_equal(nentries(run_dir), 1);
	assert_int_equal(tell(&one, END, 0), 0);
	assert_int_equal(tell(&two, COMMIT, 'x'), 0);
	assert_int_equal(byte_of(file[2].path), 'x');
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* One is killed at each call of a commit; what the other commits is there, and then one's is whole, or none. */
static void a_process_is_killed_in_its_commit_and_the_other_goes_on(void **state)
{
	unsigned nbefore = 0, nin_place = 0;
	uint8_t n = 0;
	int answer;

	(void)state;
	start(&two, 4);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	do {
		uint8_t byte, at_once;

		start(&one, 3);
		assert_int_equal(tell(&one, LIVE, 0), 0);
		assert_true(tell(&one, COMMIT, '1') <= 1); /* 1: they were so */
		(void)tell(&one, DIE, ++n);
		answer = tell(&one, COMMIT, '2');
		stop(&one);
		at_once = byte_of(file[1].path);
		assert_int_equal(tell(&two, COMMIT, n), 0);
		assert_int_equal(byte_of(file[2].path), n);
		byte = byte_of(file[0].path);
		assert_true(byte == '1' || byte == '2');
		assert_int_equal(byte_of(file[1].path), byte);
		nbefore += byte == '1';
		nin_place += at_once != '2' && byte == '2';
	} while (answer < 0);
	assert_true(nbefore > 1 && nin_place > 3);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* The same, and then all are gone: recovery makes the same of it. */
static void what_the_killed_one_committed_is_recovered_when_all_are_dead(void **state)
{
	struct pol_journal_report rep;
	uint8_t n = 0;
	int answer;

	(void)state;
	do {
		uint8_t byte;

		start(&one, 3);
		start(&two, 4);
		assert_int_equal(tell(&two, LIVE, 0) | tell(&one, LIVE, 0), 0);
		make_file(2);
		assert_true(tell(&one, COMMIT, '1') <= 1);
		assert_int_equal(tell(&two, LAZY, '7'), 0);
		(void)tell(&one, DIE, ++n);
		answer = tell(&one, COMMIT, '2');
		stop(&two);
		stop(&one);
		assert_int_equal(pol_journal_check(file[2].path, NULL, &rep), 0);
		assert_int_equal(rep.state, POL_JOURNAL_REPLAY);
		assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), 0);
		byte = byte_of(file[0].path);
		assert_true(byte == '1' || byte == '2');
		assert_int_equal(byte_of(file[1].path), byte);
		assert_int_equal(byte_of(file[2].path), '7');
		for (unsigned i = 0; i < NFILES; i++)
			assert_false(box_has(file[i].stub));
		assert_false(box_has(group_journal));
	} while (answer < 0);
	assert_true(n > 5);
}

static int sync_and_die(int fd)
{
	(void)fd;
	_exit(7);
}

/* It was on the disk, and nobody saw it. */
static void what_a_killed_child_did_not_finish_does_not_come_back(void **state)
{
	struct pol_journal_report rep;
	int status;
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	pid = fork();
	if (!pid) {
		quick.fdatasync = sync_and_die;
		(void)try_commit(7, '2', VM_COMMIT_DURABLE);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_int_equal(ops->mend(&file[2].f), 0);
	assert_loads(0);
	crash_all();
	assert_int_equal(pol_journal_recover(file[1].path, NULL, NULL, NULL, &rep), 0);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(byte_of(file[i].path), '1');
}

enum { NROUNDS = 300 };

/* One file at all that can be done with it, while another thread commits the others. */
static void *use_the_third(void *arg)
{
	uint8_t buf[VM_BLKSIZE];
	uint64_t size;
	long nbad = 0;

	(void)arg;
	for (unsigned n = 0; n < NROUNDS; n++) {
		uint8_t byte = (uint8_t)('A' + n % 26);

		nbad += try_commit(4, byte, n % 2 ? VM_COMMIT_DURABLE : 0) != 0;
		nbad += ops->loadblk(&file[2].f, n % NPAGES, 1, buf) || buf[n] != byte;
		nbad += ops->changed(&file[2].f, 0) != 0;
		nbad += ops->getsize(&file[2].f, &size) || size != SIZE;
		if (n % 5 == 0)
			nbad += ops->checkpoint(&file[2].f) != 0;
		if (n % 17 == 0)
			nbad += ops->idle(&file[2].f) != 0;
	}
	return (void *)nbad;
}

static void threads_of_a_process_use_different_files_of_a_group(void **state)
{
	pthread_t thread;
	void *nbad;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	assert_int_equal(pthread_create(&thread, NULL, use_the_third, NULL), 0);
	for (unsigned n = 0; n < NROUNDS; n++) {
		assert_int_equal(try_commit(3, (uint8_t)('a' + n % 26), n % 3 ? VM_COMMIT_DURABLE : 0), 0);
		assert_loads(n % 2);
	}
	assert_int_equal(pthread_join(thread, &nbad), 0);
	assert_null(nbad);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		end(i);
		assert_int_equal(byte_of(file[i].path), file[i].now[0]);
	}
	assert_clean();
}

static void a_forked_child_commits_another_subset(void **state)
{
	uint8_t byte = 0;
	int status;
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	do {
		byte++;
		pid = fork();
		if (!pid) {
			die_at(byte);
			if (try_commit(5, 'c', VM_COMMIT_DURABLE))
				_exit(1);
			for (unsigned i = 0; i < NFILES; i++)
				ops->detach(&file[i].f);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(ops->mend(&file[i].f), 0);
		commit(2, byte);
		assert_int_equal(byte_of(file[1].path), byte);
		status = WEXITSTATUS(status);
		assert_int_equal(byte_of(file[0].path), byte_of(file[2].path));
		assert_true(byte_of(file[0].path) == 'c' || byte_of(file[0].path) == (byte == 1 ? '1' : 'p'));
		commit(5, 'p');
	} while (status == 9);
	assert_true(byte > 5);
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	assert_clean();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TWO(two_processes_with_files_of_a_group_commit_in_turn),
		TWO(a_process_is_killed_in_its_commit_and_the_other_goes_on),
		TWO(what_the_killed_one_committed_is_recovered_when_all_are_dead),
		TWO(what_a_killed_child_did_not_finish_does_not_come_back),
		TWO(threads_of_a_process_use_different_files_of_a_group),
		TWO(a_forked_child_commits_another_subset),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
