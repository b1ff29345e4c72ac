/* SPDX-License-Identifier: MIT */
/* The journal of a group: what it holds of each file, and when the files get it. */
#include "group_rig.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_reads(struct rig *g)
{
	static uint8_t buf[IMAGE_MAX];

	for (unsigned i = 0; i < GRIG_N; i++) {
		assert_int_equal(vm_journal_read(&g->r.j, i + 1, g->r.fd[i], buf, IMAGE_MAX, 0), 0);
		assert_memory_equal(buf, g->now.f[i].bytes, IMAGE_MAX);
	}
}

static void each_file_gets_its_own_bytes_at_the_same_offset(void **state)
{
	struct rig *g = *state;
	struct group_image empty = {0}, next = {0};

	for (unsigned i = 0; i < GRIG_N; i++) {
		next.f[i].size = 10 + i;
		memset(next.f[i].bytes, 'a' + (int)i, next.f[i].size);
	}
	assert_int_equal(grig_commit(&g->r, &empty, &next, NULL, true), 0);
	g->now = next;
	assert_reads(g);
	assert_true(group_is_in(&empty, &g->r));
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(group_is_in(&next, &g->r));
	group_put(&g->r, &empty);
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, mark(g).tail, NULL, NULL), 0);
	assert_true(group_is_in(&next, &g->r));
}

static void what_is_not_applied_is_read_as_committed(void **state)
{
	struct rig *g = *state;

	for (int i = 0; i < 300; i++) {
		commit_change(g, i % 5 == 0);
		assert_reads(g);
		if (i % 3 == 0)
			assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
		if (i % 7)
			continue;
		assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
		assert_true(group_is_in(&g->now, &g->r));
	}
}

static void a_commit_of_many_frames_reaches_all_files(void **state)
{
	struct rig *g = *state;
	struct group_image empty = g->now;
	struct vm_txn txn = {.txid = 1};

	for (unsigned i = 0; i < GRIG_N; i++) {
		g->now.f[i].size = IMAGE_MAX;
		memset(g->now.f[i].bytes, 1 + (int)i, IMAGE_MAX);
	}
	vm_journal_begin(&g->r.j);
	/* in frames before and behind those with its size */
	for (unsigned n = 0; n < 20; n++)
		for (unsigned i = 0; i < GRIG_N; i++)
			assert_int_equal(vm_journal_add(&g->r.j, 0, g->now.f[i].bytes, IMAGE_MAX,
							(i + 1) << VM_RUN_FILE_SHIFT),
					 0);
	for (unsigned i = 0; i < GRIG_N; i++)
		assert_int_equal(grig_add(&g->r, i, &empty.f[i], &g->now.f[i], 0), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_true(g->r.j.nframes > 2);
	assert_reads(g);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(group_is_in(&g->now, &g->r));
	assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
}

/* The size stands behind the bytes, and cuts before them. */
static void a_cut_and_what_lies_below_it_are_one_files(void **state)
{
	struct rig *g = *state;
	struct group_image next = {0};
	struct vm_txn txn = {.txid = 2};

	for (unsigned i = 0; i < GRIG_N; i++) {
		next.f[i].size = 8;
		memcpy(next.f[i].bytes, "abcdefgh", 8);
	}
	assert_int_equal(grig_commit(&g->r, &g->now, &next, NULL, true), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	g->now = next;
	vm_journal_begin(&g->r.j);
	for (uint32_t file = 1; file <= 2; file++) {
		uint32_t flags = file << VM_RUN_FILE_SHIFT;

		assert_int_equal(vm_journal_add(&g->r.j, 2, "XY", 2, flags), 0);
		if (file == 1)
			assert_int_equal(vm_journal_add(&g->r.j, 1, "bcdef", 5, VM_RUN_BASE | flags), 0);
		assert_int_equal(vm_journal_add_size(&g->r.j, file, 8, file == 1 ? 0 : 3), 0);
	}
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	memcpy(g->now.f[0].bytes, "\0bXYef\0\0", 8);
	memcpy(g->now.f[1].bytes, "abXY\0\0\0\0", 8);
	assert_reads(g);
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, mark(g).tail, NULL, NULL), 0);
	assert_true(group_is_in(&g->now, &g->r));
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(group_is_in(&g->now, &g->r));
}

static unsigned nsynced[1024]; /* by descriptor */
static int sync_fails;	       /* of this one */

static int note_sync(int fd)
{
	nsynced[fd]++;
	return fd == sync_fails ? -EIO : 0;
}

static void use_note_sync(void)
{
	static struct vm_sys noting;

	noting = *vm_sys;
	noting.fdatasync = note_sync;
	memset(nsynced, 0, sizeof(nsynced));
	sync_fails = -1;
	faulty_use(&noting);
}

static void a_checkpoint_syncs_each_file_that_took_part_once(void **state)
{
	struct rig *g = *state;

	for (int i = 0; i < 4; i++) {
		struct group_image next = g->now;

		next.f[0].bytes[next.f[0].size++] = 1;
		next.f[2].bytes[next.f[2].size++] = 2;
		assert_int_equal(grig_commit(&g->r, &g->now, &next, NULL, true), 0);
		g->now = next;
	}
	use_note_sync();
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	assert_int_equal(nsynced[g->r.fd[0]], 1);
	assert_int_equal(nsynced[g->r.fd[1]], 0);
	assert_int_equal(nsynced[g->r.fd[2]], 1);
	assert_int_equal(nsynced[g->r.j.fd], 1); /* the new header */
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
}

/* What the disk lost of one file is not known to be only of that one. */
static void a_failed_sync_of_one_file_makes_all_be_written_and_synced_again(void **state)
{
	struct rig *g = *state;
	struct group_image empty = {0}, next = {0};

	for (unsigned i = 0; i < GRIG_N; i++)
		next.f[i].bytes[next.f[i].size++] = 1;
	assert_int_equal(grig_commit(&g->r, &empty, &next, NULL, true), 0);
	use_note_sync();
	sync_fails = g->r.fd[1];
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), -EIO);
	assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
	group_put(&g->r, &empty); /* the cache gave it up */
	use_note_sync();
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	assert_true(group_is_in(&next, &g->r));
	for (unsigned i = 0; i < GRIG_N; i++)
		assert_int_equal(nsynced[g->r.fd[i]], 1);
}

/* A name may be written by itself between the begin of one part and the next. */
static void what_was_committed_is_nothing_that_is_being_built(void **state)
{
	struct rig *g = *state;
	struct vm_journal_name name = {.path = "f0"};
	struct vm_txn txn = {.txid = 1};

	vm_journal_begin(&g->r.j);
	assert_false(vm_journal_has_runs(&g->r.j));
	assert_int_equal(vm_journal_add_name(&g->r.j, 1, &name), 0);
	assert_true(vm_journal_has_runs(&g->r.j));
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_false(vm_journal_has_runs(&g->r.j));
}

static void a_file_that_cannot_be_had_keeps_the_journal(void **state)
{
	struct rig *g = *state;
	struct group_image empty = {0}, next = {0};
	int fd = g->r.fd[1];

	for (unsigned i = 0; i < GRIG_N; i++)
		next.f[i].bytes[next.f[i].size++] = 1;
	assert_int_equal(grig_commit(&g->r, &empty, &next, NULL, true), 0);
	g->r.fd[1] = -EACCES;
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), -EACCES);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), -EACCES);
	assert_int_equal(mark(g).applied, VM_JOURNAL_START);
	assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
	g->r.fd[1] = fd;
	g->now = next;
	assert_reads(g);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	assert_true(group_is_in(&next, &g->r));
}

static void a_file_that_is_gone_is_left_out(void **state)
{
	struct rig *g = *state;
	struct group_image empty = {0}, next = {0};
	int fd = g->r.fd[1];

	for (unsigned i = 0; i < GRIG_N; i++)
		next.f[i].bytes[next.f[i].size++] = 1;
	assert_int_equal(grig_commit(&g->r, &empty, &next, NULL, true), 0);
	g->r.fd[1] = VM_FILE_GONE;
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, mark(g).tail, NULL, NULL), 0);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	g->r.fd[1] = fd;
	next.f[1] = empty.f[1];
	assert_true(group_is_in(&next, &g->r));
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
}

static void a_name_too_long_for_a_path_is_refused(void **state)
{
	struct rig *g = *state;
	char path[PATH_MAX + 1];
	struct vm_journal_name name = {.path = path};

	memset(path, 'x', sizeof(path));
	path[PATH_MAX] = 0;
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add_name(&g->r.j, 1, &name), -ENAMETOOLONG);
	path[PATH_MAX - 1] = 0;
	assert_int_equal(vm_journal_add_name(&g->r.j, 1, &name), 0);
}

/* A long name is one run, wherever the frame's end is. */
static void a_name_is_never_split(void **state)
{
	struct rig *g = *state;
	char path[PATH_MAX];
	struct vm_journal_name name = {.path = path};
	static uint8_t fill[VM_JOURNAL_PAYLOAD_MAX];
	struct vm_txn txn = {.txid = 1};

	memset(path, 'x', sizeof(path));
	path[PATH_MAX - 1] = 0;
	for (size_t room = 4090; room < 4200; room++) {
		vm_journal_begin(&g->r.j);
		assert_int_equal(vm_journal_add(&g->r.j, 0, fill, sizeof(fill) - sizeof(struct vm_run) - room,
						1u << VM_RUN_FILE_SHIFT),
				 0);
		assert_int_equal(vm_journal_add_name(&g->r.j, 1, &name), 0);
		assert_int_equal(vm_journal_add_size(&g->r.j, 1, 1, 1), 0);
		assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
		assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
		assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	}
}

static void two_sizes_of_a_file_in_a_transaction_are_a_bug(void **state)
{
	struct rig *g = *state;
	int status;
	pid_t pid;

	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add_size(&g->r.j, 1, 5, 5), 0);
	assert_int_equal(vm_journal_add_size(&g->r.j, 2, 5, 5), 0);
	pid = fork();
	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		(void)vm_journal_add_size(&g->r.j, 1, 6, 5);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_file_gets_its_own_bytes_at_the_same_offset),
		TEST(what_is_not_applied_is_read_as_committed),
		TEST(a_commit_of_many_frames_reaches_all_files),
		TEST(a_cut_and_what_lies_below_it_are_one_files),
		TEST(a_checkpoint_syncs_each_file_that_took_part_once),
		TEST(a_failed_sync_of_one_file_makes_all_be_written_and_synced_again),
		TEST(what_was_committed_is_nothing_that_is_being_built),
		TEST(a_file_that_cannot_be_had_keeps_the_journal),
		TEST(a_file_that_is_gone_is_left_out),
		TEST(a_name_too_long_for_a_path_is_refused),
		TEST(a_name_is_never_split),
		TEST(two_sizes_of_a_file_in_a_transaction_are_a_bug),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
