/* SPDX-License-Identifier: MIT */
/* What a crash of files that commit together left: checked and recovered by any name, or refused with a reason. */
#define _GNU_SOURCE 1
#include "group_rig.h"
#include "dying.h"

static struct pol_journal_report rep;

static bool says(const char *what)
{
	if (strstr(rep.text, what))
		return true;
	print_error("'%s' is not in: %s\n", what, rep.text);
	return false;
}

static int check(const char *path)
{
	int err = pol_journal_check(path, NULL, &rep);

	assert_true(*rep.text && !strchr(rep.text, '\n'));
	return err;
}

static int recover(const char *path)
{
	int err = pol_journal_recover(path, NULL, NULL, NULL, &rep);

	assert_true(*rep.text && !strchr(rep.text, '\n'));
	return err;
}

/* A process commits byte 1 to all, and byte 2 to the first two, and dies; nothing of it is in the files. */
static int setup_crash(void **state)
{
	int status;
	pid_t pid;

	be_quick();
	(void)setup(state);
	pid = fork();
	if (!pid) {
		for (unsigned i = 0; i < NFILES; i++)
			if (try_live(i))
				_exit(1);
		if (try_commit(7, '1', 0) || try_commit(3, '2', 0))
			_exit(2);
		_exit(0);
	}
	return waitpid(pid, &status, 0) != pid || status;
}

static void assert_nothing_changed(void)
{
	for (unsigned i = 0; i < NFILES; i++)
		if (box_has(file[i].path))
			assert_int_equal(byte_of(file[i].path), 'a' + i);
	assert_true(box_has(group_journal));
}

static void assert_recovered(void)
{
	assert_int_equal(byte_of(file[0].path), '2');
	assert_int_equal(byte_of(file[1].path), '2');
	assert_int_equal(byte_of(file[2].path), '1');
	for (unsigned i = 0; i < NFILES; i++)
		assert_false(box_has(file[i].stub));
	assert_false(box_has(group_journal));
}

static void any_name_tells_what_waits_and_changes_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(check(file[i].path), 0);
		assert_int_equal(rep.state, POL_JOURNAL_REPLAY);
		assert_true(says(file[i].path) && says(group_journal) && says("2 commits") && says("3 files"));
		assert_int_equal(rep.ncommits, 2);
	}
	assert_int_equal(check(group_journal), 0);
	assert_int_equal(rep.state, POL_JOURNAL_REPLAY);
	assert_nothing_changed();
}

static void a_member_recovers_all(void **state)
{
	(void)state;
	assert_int_equal(recover(file[2].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_REPLAY);
	assert_true(says("recovered") && says("3 files"));
	assert_recovered();
	assert_int_equal(recover(file[1].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_NONE);
}

static void the_groups_journal_recovers_all(void **state)
{
	(void)state;
	assert_int_equal(recover(group_journal), 0);
	assert_recovered();
}

static void a_missing_file_is_named_and_nothing_changes(void **state)
{
	char away[400];

	(void)state;
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[1].path, away), 0);
	assert_int_equal(recover(file[0].path), -EUCLEAN);
	assert_true(says("b.dat: is missing") && says(group_journal) && says("nothing was changed"));
	assert_int_equal(check(file[0].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_FOREIGN);
	assert_nothing_changed();
	assert_int_equal(rename(away, file[1].path), 0);
	assert_int_equal(recover(file[0].path), 0);
	assert_recovered();
}

static void a_replaced_file_is_named_and_nothing_changes(void **state)
{
	char away[400];

	(void)state;
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[1].path, away), 0);
	make_file(1);
	assert_int_equal(recover(file[0].path), -EUCLEAN);
	assert_true(says("b.dat: was replaced or copied since"));
	assert_int_equal(recover(file[1].path), -EUCLEAN);
	assert_nothing_changed();
	assert_int_equal(rename(away, file[1].path), 0);
	assert_int_equal(recover(group_journal), 0);
	assert_recovered();
}

static int no_writing(int dirfd, const char *path, int flags, mode_t mode)
{
	if ((flags & O_ACCMODE) == O_RDWR && strstr(path, "c.dat") && !strstr(path, ".txmap"))
		return -EROFS;
	return vm_sys_linux.openat(dirfd, path, flags, mode);
}

static void a_read_only_file_is_named_and_nothing_changes(void **state)
{
	struct vm_sys sys = vm_sys_linux;

	(void)state;
	sys.openat = no_writing;
	vm_sys = &sys;
	assert_int_equal(recover(file[0].path), -EROFS);
	assert_true(says("c.dat: is on a file system that is read-only"));
	assert_nothing_changed();
	vm_sys = &vm_sys_linux;
	assert_int_equal(recover(file[0].path), 0);
	assert_recovered();
}

static void a_truncated_file_gets_what_the_journal_has(void **state)
{
	(void)state;
	assert_int_equal(truncate(file[0].path, 100), 0);
	assert_int_equal(recover(file[2].path), 0);
	assert_recovered();
}

static void files_that_were_moved_with_their_directory_are_found(void **state)
{
	char from[400], to[400], path[500], cmd[3000];

	(void)state;
	(void)snprintf(from, sizeof(from), "%s/sub", box.dir);
	(void)snprintf(to, sizeof(to), "%s/other", box.dir);
	(void)snprintf(cmd, sizeof(cmd), "mkdir %s && mv %s/?.dat %s/.*.txmap %s && mv %s %s", from, box.dir,
		       box.dir, from, from, to);
	assert_int_equal(system(cmd), 0);
	(void)snprintf(path, sizeof(path), "%s/b.dat", to);
	assert_int_equal(recover(path), 0);
	assert_int_equal(byte_of(path), '2');
	assert_int_equal(nentries(to), 3);
}

static void a_stub_without_its_groups_journal_means_that_commits_may_be_lost(void **state)
{
	(void)state;
	assert_int_equal(unlink(group_journal), 0);
	assert_int_equal(check(file[0].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_DAMAGED);
	assert_int_equal(recover(file[0].path), -EUCLEAN);
	assert_true(says(group_journal) && says("is missing") && says("commits may be lost"));
	assert_int_equal(try_live(0), -EUCLEAN);
	assert_true(box_has(file[0].stub));
	/* a journal of others at its place is not taken for it */
	make_file(2);
	assert_int_equal(unlink(file[2].stub), 0);
	go_live(2);
	assert_int_equal(try_live(0), -EUCLEAN);
	end(2);
	assert_int_equal(byte_of(file[0].path), 'a');
}

static void an_unlinked_file_is_missed_by_nobody(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		for (unsigned i = 0; i < NFILES; i++)
			if (try_live(i))
				_exit(1);
		if (unlink(file[1].path) || try_commit(7, '4', 0) || try_commit(7, '5', VM_COMMIT_DURABLE))
			_exit(2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(recover(file[0].path), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[2].path), '5');
	assert_false(box_has(group_journal));
	assert_false(box_has(file[1].stub));
}

static void damage_is_refused(void **state)
{
	int fd = open(group_journal, O_RDWR);
	char byte = 0x55;

	(void)state;
	/* of what was durable: the names, before the commits */
	assert_int_equal(pwrite(fd, &byte, 1, VM_JOURNAL_START + 150), 1);
	close(fd);
	assert_int_equal(check(file[0].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_DAMAGED);
	assert_int_equal(recover(file[0].path), -EUCLEAN);
	assert_true(says("damaged"));
	assert_int_equal(try_live(0), -EUCLEAN);
	assert_nothing_changed();
}

static void a_live_group_is_in_use(void **state)
{
	(void)state;
	go_live(0); /* which recovers */
	assert_int_equal(byte_of(file[2].path), '1');
	commit(1, '6');
	assert_int_equal(check(file[0].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
	assert_int_equal(check(group_journal), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
	assert_int_equal(recover(group_journal), -EBUSY);
	assert_int_equal(recover(file[0].path), -EBUSY);
	assert_int_equal(check(file[1].path), 0);
	assert_int_equal(rep.state, POL_JOURNAL_NONE);
}

static bool is_killed_in_recovery(unsigned nth, const char *path)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		die_at(nth);
		_exit(recover(path) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
	return WEXITSTATUS(status) == 9;
}

static void recovery_killed_at_any_call_is_finished_by_the_next(void **state)
{
	unsigned n = 0;
	bool killed;

	do {
		n++;
		killed = is_killed_in_recovery(n, n % 2 ? file[0].path : group_journal);
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(recover(file[i].path), 0);
		if (box_has(group_journal))
			assert_int_equal(recover(group_journal), 0);
		(void)unlink(group_journal); /* one whose names are lost stays */
		assert_recovered();
		assert_int_equal(setup_crash(state), 0);
	} while (killed);
	assert_true(n > 30);
}

/* From the nth call on everything fails; then again. */
static void a_call_that_fails_leaves_all_to_the_next_recovery(void **state)
{
	unsigned n = 0, nfailed = 0;
	bool more;

	do {
		int err;

		n++;
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(fdatasync) & ~FAULTY_BIT(fsync), n, EIO,
			   n % 2 ? FAULTY_FOR_EVER : 0);
		err = recover(n % 4 < 2 ? file[0].path : group_journal);
		more = n <= faulty_disarm();
		be_quick();
		nfailed += err != 0;
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(recover(file[i].path), 0);
		if (box_has(group_journal))
			assert_int_equal(recover(group_journal), 0);
		(void)unlink(group_journal);
		assert_recovered();
		assert_int_equal(setup_crash(state), 0);
	} while (more);
	assert_true(nfailed > 30);
}

static void several_recoveries_at_once_are_one(void **state)
{
	pid_t pid[4];
	int status;

	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 4; i++) {
			pid[i] = fork();
			if (!pid[i])
				_exit(recover(file[i % NFILES].path) ? (print_error("%s\n", rep.text), 1)
								     : 0);
		}
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
			assert_int_equal(status, 0);
		}
		assert_recovered();
		assert_int_equal(setup_crash(state), 0);
	}
}

int main(void)
{
#define CRASH(fn) cmocka_unit_test_setup_teardown(fn, setup_crash, teardown)
	const struct CMUnitTest tests[] = {
		CRASH(any_name_tells_what_waits_and_changes_nothing),
		CRASH(a_member_recovers_all),
		CRASH(the_groups_journal_recovers_all),
		CRASH(a_missing_file_is_named_and_nothing_changes),
		CRASH(a_replaced_file_is_named_and_nothing_changes),
		CRASH(a_read_only_file_is_named_and_nothing_changes),
		CRASH(a_truncated_file_gets_what_the_journal_has),
		CRASH(files_that_were_moved_with_their_directory_are_found),
		CRASH(a_stub_without_its_groups_journal_means_that_commits_may_be_lost),
		TEST(an_unlinked_file_is_missed_by_nobody),
		CRASH(damage_is_refused),
		CRASH(a_live_group_is_in_use),
		CRASH(recovery_killed_at_any_call_is_finished_by_the_next),
		CRASH(a_call_that_fails_leaves_all_to_the_next_recovery),
		CRASH(several_recoveries_at_once_are_one),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
