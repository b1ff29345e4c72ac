/* SPDX-License-Identifier: MIT */
/* What a process of a group committed and did not write to its files: who does it, and who sees it. */
#define _GNU_SOURCE 1
#include "group_others.h"

/* Of files 0 and 1, by a process that was killed before it brought them in place; another one has file 2. */
static void leave_a_commit_behind(void)
{
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0) | tell(&two, LIVE, 0), 0);
	assert_int_equal(tell(&one, LAZY, '5'), 0);
	stop(&one);
}

static char away[400];

/* File 0 gets another name, which nobody knows. */
static void put_away(void)
{
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[0].path, away), 0);
}

/* Nobody has told the other one; its next commit syncs, and brings in place, what the first one left in the
 * journal; which is no stranger's change. */
static void a_lazy_commit_of_another_process_is_brought_in_place_by_name(void **state)
{
	(void)state;
	start(&two, 4);
	go_live(0);
	go_live(1);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(ops->changed(&file[0].f, 0), 0);
	assert_int_equal(ops->changed(&file[1].f, 0), 0);
	assert_loads(0);
	commit(3, '8');
	assert_loads(1);
}

/* The file cannot be found by name, but who has it lives: the other leaves it to that one. */
static void what_only_the_other_process_can_reach_is_left_to_it(void **state)
{
	(void)state;
	start(&two, 4);
	go_live(0);
	go_live(1);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	put_away();
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(byte_of(away), 'a');
	assert_int_equal(tell(&two, BYTE, 0), '6');
	assert_loads(0);
	commit(3, '7');
	assert_int_equal(byte_of(away), '7');
	assert_int_equal(byte_of(file[2].path), '6');
	assert_int_equal(rename(away, file[0].path), 0);
}

/* ... or is dead: then the journal stays, with all in it, until it can be recovered. */
static void what_nobody_can_reach_keeps_the_journal(void **state)
{
	struct pol_journal_report rep;

	(void)state;
	leave_a_commit_behind();
	put_away();
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(tell(&two, COMMIT, '7'), 0);
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_int_equal(tell(&two, END, 0), 0);
	assert_true(box_has(group_journal));
	assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), -EUCLEAN);
	assert_non_null(strstr(rep.text, "a.dat: is missing"));
	assert_int_equal(rename(away, file[0].path), 0);
	assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_clean();
}

/* It was not brought in place while it could not be reached: then the journal must not start over later, either. */
static void a_file_that_comes_back_too_late_gets_its_commits_by_recovery(void **state)
{
	struct pol_journal_report rep;

	(void)state;
	leave_a_commit_behind();
	put_away();
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(rename(away, file[0].path), 0);
	assert_int_equal(try_live(0), -EUCLEAN); /* its content is not what was committed */
	assert_int_equal(tell(&two, COMMIT, '7'), 0);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(pol_journal_recover(file[0].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_clean();
}

/* Of a file whose process was killed, while others of the group live. */
static void who_opens_a_file_sees_what_a_killed_process_committed(void **state)
{
	struct pol_journal_report rep;

	(void)state;
	leave_a_commit_behind();
	assert_int_equal(byte_of(file[0].path), 'a');
	go_live(0);
	memset(file[0].now, '5', SIZE);
	assert_loads(0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_true(box_has(file[1].stub));
	assert_int_equal(pol_journal_recover(file[1].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_CLEAN);
	assert_false(box_has(file[1].stub));
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	commit(1, '7');
	assert_int_equal(byte_of(file[0].path), '7');
	end(0);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* And who only reads. */
static void a_reader_sees_what_a_killed_process_committed(void **state)
{
	static uint8_t shared[VM_BACKEND_SHARED], buf[SIZE];
	struct vm_bigfile f = {
		.ops = ops, .path = file[0].path, .shared = shared, .shared_len = sizeof(shared)};

	(void)state;
	leave_a_commit_behind();
	f.fd = open(file[0].path, O_RDONLY);
	assert_int_equal(ops->open(&f, group_journal), 0);
	assert_int_equal(ops->open_write(&f), -EBADF);
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[99], '5');
	assert_int_equal(ops->close(&f), 0);
	close(f.fd);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* One process writes, another only reads, and both have one overlay: what is not in the file yet is in the group's
 * journal; and when the writer was killed, in the file. */
static void a_reader_beside_a_writer_looks_into_the_groups_journal(void **state)
{
	static uint8_t buf[SIZE];
	struct vm_bigfile f;
	uint64_t size;

	(void)state;
	go_live(0);
	go_live(1);
	f = (struct vm_bigfile){.ops = ops,
				.path = file[0].path,
				.fd = open(file[0].path, O_RDONLY),
				.shared = file[0].f.shared,
				.shared_len = VM_BACKEND_SHARED,
				.dev = file[0].f.dev,
				.ino = file[0].f.ino};
	assert_int_equal(ops->attach(&f, group_journal), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, file[0].now, SIZE);
	assert_int_equal(ops->getsize(&f, &size), 0);
	assert_int_equal(size, SIZE);
	assert_int_equal(ops->changed(&f, 0), 0);
	commit(3, '6');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, file[0].now, SIZE);
	assert_int_equal(try_commit(3, '7', 0), 0);
	f.shared = memcpy(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
			  f.shared, 1024);
	pol_file_priv(&f)->shared = f.shared;
	crash_all();
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[5], '7');
	go_live(2); /* recovers */
	assert_int_equal(byte_of(file[0].path), '7');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[5], '7');
	ops->detach(&f);
	close(f.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TWO(a_lazy_commit_of_another_process_is_brought_in_place_by_name),
		TWO(what_only_the_other_process_can_reach_is_left_to_it),
		TWO(what_nobody_can_reach_keeps_the_journal),
		TWO(a_file_that_comes_back_too_late_gets_its_commits_by_recovery),
		TWO(who_opens_a_file_sees_what_a_killed_process_committed),
		TWO(a_reader_sees_what_a_killed_process_committed),
		TWO(a_reader_beside_a_writer_looks_into_the_groups_journal),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
