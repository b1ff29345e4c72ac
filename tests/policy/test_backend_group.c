/* SPDX-License-Identifier: MIT */
/* Files that commit together, by the backend's operations. */
#define _GNU_SOURCE 1
#include "group_rig.h"

static void all_of_a_transaction_is_in_the_files(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	commit(5, '2');
	commit(2, '3');
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		assert_int_equal(byte_of(file[i].path), i == 1 ? '3' : '2');
		assert_true(box_has(file[i].stub));
	}
	assert_true(box_has(group_journal));
	assert_int_equal(nentries(run_dir), 1);
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	assert_clean();
}

static void a_commit_syncs_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync) | FAULTY_BIT(msync), 0, 0, 0);
	commit(7, '2');
	assert_int_equal(faulty_disarm(), 1);
	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync) | FAULTY_BIT(msync), 0, 0, 0);
	assert_int_equal(try_commit(7, '3', 0), 0);
	assert_int_equal(faulty_disarm(), 0);
}

static void a_transaction_that_changes_nothing_is_none(void **state)
{
	(void)state;
	go_live(0);
	go_live(1);
	commit(3, '1');
	assert_int_equal(try_commit(3, '1', VM_COMMIT_DURABLE), 1);
	commit(1, '2');
	assert_int_equal(try_commit(3, '2', VM_COMMIT_DURABLE), 0); /* one part changes nothing */
	memset(file[0].now, '2', SIZE);
	assert_loads(0);
	assert_loads(1);
	assert_int_equal(try_commit(3, '2', VM_COMMIT_DURABLE), 1);
}

static void an_abort_leaves_all_as_it_was(void **state)
{
	uint8_t page[VM_BLKSIZE];

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	memset(page, 'x', sizeof(page));
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(ops->begin(&file[i].f), 0);
	assert_int_equal(ops->storeblk(&file[0].f, 0, 1, page, 0), 0);
	assert_int_equal(ops->commit(&file[0].f, &(struct vm_txn){2, SIZE, SIZE}, VM_COMMIT_PART), 0);
	for (unsigned i = 0; i < NFILES; i++)
		ops->abort(&file[i].f);
	for (unsigned i = 0; i < NFILES; i++)
		assert_loads(i);
	commit(7, '2');
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(byte_of(file[i].path), '2');
}

static void sizes_change_with_the_transaction(void **state)
{
	struct vm_txn grow = {1, 2 * SIZE, SIZE}, shrink = {1, 100, 100};
	uint64_t size;
	struct stat st;

	(void)state;
	go_live(0);
	go_live(1);
	assert_int_equal(ops->begin(&file[0].f), 0);
	assert_int_equal(ops->begin(&file[1].f), 0);
	assert_int_equal(ops->commit(&file[0].f, &grow, VM_COMMIT_PART), 0);
	assert_int_equal(ops->getsize(&file[0].f, &size), 0);
	assert_int_equal(size, SIZE);
	assert_int_equal(ops->commit(&file[1].f, &shrink, 0), 0); /* lazy: not in the files yet */
	assert_int_equal(ops->getsize(&file[0].f, &size), 0);
	assert_int_equal(size, 2 * SIZE);
	assert_int_equal(ops->getsize(&file[1].f, &size), 0);
	assert_int_equal(size, 100);
	assert_int_equal(stat(file[0].path, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_int_equal(ops->checkpoint(&file[1].f), 0);
	assert_int_equal(stat(file[0].path, &st), 0);
	assert_int_equal(st.st_size, 2 * SIZE);
	assert_int_equal(stat(file[1].path, &st), 0);
	assert_int_equal(st.st_size, 100);
}

static void a_lazy_commit_is_seen_at_once_and_in_the_files_after_a_checkpoint(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	assert_int_equal(try_commit(7, '1', 0), 0);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		assert_int_equal(byte_of(file[i].path), 'a' + i);
	}
	assert_int_equal(ops->checkpoint(&file[2].f), 0);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		assert_int_equal(byte_of(file[i].path), '1');
		assert_int_equal(ops->changed(&file[i].f, 0), 0);
	}
}

static void who_ends_leaves_the_others_at_work(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	end(1);
	assert_false(box_has(file[1].stub));
	assert_true(box_has(file[0].stub));
	commit(5, '2');
	go_live(1);
	commit(7, '3');
	end(0);
	end(2);
	commit(2, '4');
	end(1);
	assert_clean();
	assert_int_equal(byte_of(file[1].path), '4');
	assert_int_equal(byte_of(file[0].path), '3');
}

static void a_file_that_is_idle_comes_back_with_the_next_commit(void **state)
{
	(void)state;
	go_live(0);
	go_live(1);
	commit(3, '1');
	for (int i = 0; i < 2; i++)
		assert_int_equal(ops->idle(&file[i].f), 0);
	assert_clean();
	assert_loads(0);
	commit(3, '2');
	assert_true(box_has(file[0].stub));
	assert_int_equal(ops->idle(&file[0].f), 0);
	assert_false(box_has(file[0].stub));
	commit(3, '3');
	assert_int_equal(byte_of(file[0].path), '3');
}

static void a_renamed_file_is_a_member_by_its_new_name(void **state)
{
	char to[320], stub[400];

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	(void)snprintf(to, sizeof(to), "%s/z.dat", box.dir);
	(void)snprintf(stub, sizeof(stub), "%s/.z.dat.txmap", box.dir);
	assert_int_equal(ops->idle(&file[1].f), 0);
	assert_int_equal(rename(file[1].path, to), 0);
	strcpy(file[1].path, to);
	ops->moved(&file[1].f);
	commit(7, '2'); /* in the middle of its begin it becomes a member again */
	assert_true(box_has(stub));
	assert_false(box_has(file[1].stub));
	assert_int_equal(byte_of(file[0].path), '2');
	assert_int_equal(byte_of(to), '2');
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	assert_false(box_has(stub));
	assert_clean();
}

static ino_t watched;
static unsigned nsynced; /* times that it was */

static int watch_fsync(int fd)
{
	struct stat st;

	nsynced += !fstat(fd, &st) && st.st_ino == watched;
	return vm_sys_linux.fsync(fd);
}

/* Relatives by fork have it, too: its stub moves along, and recovery finds it, also after a power cut. */
static void a_file_that_others_have_is_renamed_with_its_stub(void **state)
{
	struct pol_journal_report rep;
	char dir[400], to[320], stub[500];
	struct vm_sys watching = vm_sys_linux;
	struct stat st;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	(void)snprintf(dir, sizeof(dir), "%s/sub", box.dir);
	(void)snprintf(to, sizeof(to), "%s/sub/z.dat", box.dir);
	(void)snprintf(stub, sizeof(stub), "%s/sub/.z.dat.txmap", box.dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(rename(file[1].path, to), 0);
	strcpy(file[1].path, to);
	ops->moved(&file[1].f);
	assert_true(box_has(stub));
	assert_int_equal(stat(dir, &st), 0);
	watched = st.st_ino;
	watching.fsync = watch_fsync;
	faulty_use(&watching);
	commit(7, '2');
	faulty_use(&vm_sys_linux);
	assert_true(nsynced > 0);
	assert_int_equal(try_commit(7, '3', 0), 0);
	crash_all();
	assert_int_equal(pol_journal_recover(to, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(byte_of(to), '3');
	assert_int_equal(byte_of(file[0].path), '3');
	assert_false(box_has(stub));
	assert_false(box_has(group_journal));
}

static void a_file_without_a_name_takes_part(void **state)
{
	uint8_t buf[SIZE];

	(void)state;
	go_live(0);
	go_live(1);
	commit(3, '1');
	assert_int_equal(unlink(file[0].path), 0); /* by somebody who does not tell */
	commit(3, '2');
	assert_int_equal(try_commit(3, '3', 0), 0);
	assert_loads(0);
	assert_int_equal(pread(file[0].f.fd, buf, SIZE, 0), SIZE);
	assert_int_equal(buf[77], '3'); /* nobody else could bring it there */
	assert_int_equal(ops->idle(&file[0].f), 0);
	assert_false(box_has(file[0].stub));
	commit(3, '4'); /* and again, without a name from the start */
	assert_loads(0);
	end(0);
	end(1);
	assert_clean();
}

static void a_change_from_outside_is_seen_and_accepted(void **state)
{
	(void)state;
	go_live(0);
	go_live(1);
	commit(3, '1');
	memset(file[0].now, 'y', SIZE);
	assert_int_equal(truncate(file[0].path, 10), 0);
	box_put(file[0].path, file[0].now, SIZE);
	assert_int_equal(utimensat(AT_FDCWD, file[0].path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
	assert_int_equal(ops->changed(&file[0].f, 0), 1);
	assert_int_equal(ops->changed(&file[1].f, 0), 0);
	assert_int_equal(ops->changed(&file[0].f, 1), 1);
	assert_int_equal(ops->changed(&file[0].f, 0), 0);
	assert_loads(0);
	commit(3, '2');
	assert_int_equal(byte_of(file[0].path), '2');
}

static void files_on_two_file_systems_commit_together(void **state)
{
	char dir[] = "/dev/shm/txmap-test-XXXXXX";
	struct stat a, b;

	(void)state;
	assert_non_null(mkdtemp(dir));
	name_file(2, dir);
	make_file(2);
	if (stat(dir, &a) || stat(box.dir, &b) || a.st_dev == b.st_dev)
		print_message("one file system\n");
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	commit(7, '2');
	assert_int_equal(byte_of(file[2].path), '2');
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	assert_clean();
	unlink(file[2].path);
	assert_int_equal(rmdir(dir), 0);
}

static void a_long_row_of_commits_starts_the_journal_over(void **state)
{
	struct stat st;
	struct pol_group *g;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	g = pol_file_priv(&file[0].f)->group;
	g->j.limit = 1 << 20;
	for (unsigned n = 0; n < 100; n++)
		commit(n % 7 + 1, (uint8_t)('A' + n % 26));
	assert_int_equal(stat(group_journal, &st), 0);
	assert_true(st.st_size <= 2 << 20);
	for (unsigned i = 0; i < NFILES; i++)
		assert_loads(i);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 0777;
}

static void who_may_not_read_a_file_may_not_read_its_commits(void **state)
{
	(void)state;
	assert_int_equal(chmod(file[0].path, 0664), 0);
	assert_int_equal(chmod(file[1].path, 0640), 0);
	go_live(0);
	assert_int_equal(mode_of(group_journal), 0664);
	go_live(1);
	assert_int_equal(mode_of(group_journal), 0640);
	assert_int_equal(mode_of(file[0].stub), 0664);
	commit(3, '1');
	assert_int_equal(chmod(file[0].path, 0600), 0);
	assert_int_equal(ops->changed(&file[0].f, 0), 0); /* which looks */
	assert_int_equal(mode_of(file[0].stub), 0600);
	commit(3, '2');
	assert_int_equal(mode_of(group_journal), 0600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_of_a_transaction_is_in_the_files),
		TEST(a_commit_syncs_once),
		TEST(a_transaction_that_changes_nothing_is_none),
		TEST(an_abort_leaves_all_as_it_was),
		TEST(sizes_change_with_the_transaction),
		TEST(a_lazy_commit_is_seen_at_once_and_in_the_files_after_a_checkpoint),
		TEST(who_ends_leaves_the_others_at_work),
		TEST(a_file_that_is_idle_comes_back_with_the_next_commit),
		TEST(a_renamed_file_is_a_member_by_its_new_name),
		TEST(a_file_that_others_have_is_renamed_with_its_stub),
		TEST(a_file_without_a_name_takes_part),
		TEST(who_may_not_read_a_file_may_not_read_its_commits),
		TEST(a_change_from_outside_is_seen_and_accepted),
		TEST(files_on_two_file_systems_commit_together),
		TEST(a_long_row_of_commits_starts_the_journal_over),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
