/* SPDX-License-Identifier: MIT */
#include "faulty_sys.h"
#include "jrig.h"
#include "recover.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct rig {
	struct jrig r;
	struct image now;
};

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));

	jrig_make(&g->r);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct rig *g = *state;

	jrig_remove(&g->r);
	free(g);
	return 0;
}

static struct vm_journal_mark mark(struct rig *g)
{
	struct vm_journal_mark m;

	vm_journal_mark(&g->r.j, &m);
	return m;
}

static struct vm_scan scan(struct rig *g)
{
	struct vm_scan s;

	assert_int_equal(vm_journal_scan(g->r.j.fd, &g->r.j.id, &s), 0);
	return s;
}

/* One more byte of the file is value. */
static int commit_byte(struct rig *g, uint8_t value, bool sync)
{
	struct image next = g->now;
	int err;

	next.bytes[next.size++] = value;
	err = jrig_commit(&g->r, &g->now, &next, g->now.size, sync);
	if (!err)
		g->now = next;
	return err;
}

static void assert_reads(struct rig *g)
{
	static uint8_t buf[IMAGE_MAX];

	assert_int_equal(vm_journal_read(&g->r.j, g->r.data_fd, buf, IMAGE_MAX, 0), 0);
	assert_memory_equal(buf, g->now.bytes, IMAGE_MAX);
}

static void a_durable_commit_is_one_sync_and_reaches_the_file_when_applied(void **state)
{
	struct rig *g = *state;
	struct image empty = {0};

	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync), 0, 0, 0);
	assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(faulty_disarm(), 1);
	assert_true(image_is_in(&empty, g->r.box.data));
	assert_reads(g);
	assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_reads(g);
}

static void a_lazy_commit_is_not_applied_before_it_is_synced(void **state)
{
	struct rig *g = *state;
	struct image empty = {0};

	assert_int_equal(commit_byte(g, 1, false), 0);
	assert_int_equal(commit_byte(g, 2, false), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
	assert_true(image_is_in(&empty, g->r.box.data));
	assert_reads(g);
	assert_int_equal(vm_journal_sync(&g->r.j), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
}

static void what_is_not_applied_is_read_as_committed(void **state)
{
	struct rig *g = *state;
	uint64_t rnd = 11, low;

	for (int i = 0; i < 300; i++) {
		struct image next = g->now;

		image_change(&next, &rnd, &low);
		assert_int_equal(jrig_commit(&g->r, &g->now, &next, low, i % 5 == 0), 0);
		g->now = next;
		assert_reads(g);
		if (i % 7 == 0)
			assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), 0);
	}
}

static atomic_bool reader_stop;

/* Every commit makes the whole file one value. */
static void *read_all_the_time(void *arg)
{
	struct rig *g = arg;
	static uint8_t page[IMAGE_MAX];
	uintptr_t nbad = 0;

	while (!reader_stop) {
		if (vm_journal_read(&g->r.j, g->r.data_fd, page, sizeof(page), 0))
			nbad++;
		nbad += memcmp(page, page + 1, sizeof(page) - 1) != 0;
	}
	return (void *)nbad;
}

static void put_in_memory(int fd)
{
	int mem = memfd_create("memory", MFD_CLOEXEC);

	assert_true(mem >= 0);
	assert_int_equal(dup2(mem, fd), fd);
	close(mem);
}

static int no_sync(int fd)
{
	(void)fd;
	return 0;
}

static void a_reader_beside_the_writer_never_sees_half_a_commit(void **state)
{
	struct rig *g = *state;
	/* many commits in little time, for the reader to meet */
	static struct vm_sys quick;
	void *nbad;
	pthread_t t;

	/* in memory, where a write takes long enough to be met half done */
	put_in_memory(g->r.data_fd);
	put_in_memory(g->r.j.fd);
	quick = vm_sys_linux;
	quick.fdatasync = no_sync;
	vm_sys = &quick;
	reader_stop = false;
	assert_int_equal(pthread_create(&t, NULL, read_all_the_time, g), 0);
	for (unsigned i = 1; i < 20000; i++) {
		struct image next = {.size = IMAGE_MAX};

		memset(next.bytes, (int)(i % 250 + 1), IMAGE_MAX);
		assert_int_equal(jrig_commit(&g->r, &g->now, &next, IMAGE_MAX, i % 2 == 0), 0);
		g->now = next;
		if (i % 2 == 0)
			assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
		if (i % 64 == 0)
			assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), 0);
	}
	reader_stop = true;
	assert_int_equal(pthread_join(t, &nbad), 0);
	vm_sys = &vm_sys_linux;
	assert_null(nbad);
}

/* What was under a cut comes back from base runs, below the others, wherever it is read. */
static void base_runs_lie_below_the_others(void **state)
{
	struct rig *g = *state;
	struct vm_txn txn = {.txid = 2, .size = 8, .size_low = 0};

	for (int i = 0; i < 8; i++)
		assert_int_equal(commit_byte(g, (uint8_t)('a' + i), true), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add(&g->r.j, 2, "XY", 2, 0), 0);
	assert_int_equal(vm_journal_add(&g->r.j, 1, "bcdef", 5, VM_RUN_BASE), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	memcpy(g->now.bytes, "\0bXYef\0\0", 8);
	assert_reads(g);
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, g->r.data_fd, VM_JOURNAL_START, mark(g).tail, NULL, NULL), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_int_equal(vm_journal_apply(&g->r.j, g->r.data_fd), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
}

static void a_start_over_leaves_nothing_to_replay(void **state)
{
	struct rig *g = *state;
	uint64_t generation = mark(g).generation;

	assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(scan(g).ncommits, 1);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
	assert_true(mark(g).generation > generation);
	assert_int_equal(mark(g).tail, VM_JOURNAL_START);
	assert_int_equal(commit_byte(g, 2, true), 0);
	assert_int_equal(scan(g).ncommits, 1);
	assert_int_equal(scan(g).first_txid, 2);
}

static void a_start_over_cuts_a_journal_that_outgrew_its_limit(void **state)
{
	struct rig *g = *state;
	static uint8_t big[3 << 20];
	struct vm_txn txn = {.txid = 1, .size = sizeof(big)};
	struct stat st;

	g->r.j.limit = 1 << 20;
	vm_journal_begin(&g->r.j);
	memset(big, 1, sizeof(big));
	assert_int_equal(vm_journal_add(&g->r.j, 0, big, sizeof(big), 0), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), 0);
	assert_int_equal(fstat(g->r.j.fd, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	assert_int_equal(fstat(g->r.data_fd, &st), 0);
	assert_int_equal(st.st_size, sizeof(big));
}

static void frames_overwrite_blocks_that_were_written_ahead(void **state)
{
	struct rig *g = *state;
	struct stat before, after;

	assert_int_equal(fstat(g->r.j.fd, &before), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(fstat(g->r.j.fd, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	assert_true(before.st_size >= VM_JOURNAL_START + (256 << 10));
}

static void writing_ahead_may_fail(void **state)
{
	struct rig *g = *state;

	faulty_arm(FAULTY_BIT(pwritev), 1, ENOSPC, FAULTY_FOR_EVER);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(commit_byte(g, 1, false), 0);
	assert_true(faulty_has_failed());
	faulty_disarm();
	assert_int_equal(vm_journal_sync(&g->r.j), 0);
	assert_int_equal(scan(g).ncommits, 1000);
}

/* A long transaction is given up; what it streamed lies where the next ones go. */
static void frames_of_a_failed_attempt_do_not_come_back(void **state)
{
	struct rig *g = *state;
	static uint8_t big[4 << 20];
	struct vm_txn txn = {.txid = 1, .size = sizeof(big)};

	memset(big, 7, sizeof(big));
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add(&g->r.j, 0, big, sizeof(big), 0), 0);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), -EIO);
	faulty_disarm();
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
	/* the same again, but the process dies before its commit frame: whole frames of two attempts in a row */
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add(&g->r.j, 0, big, sizeof(big) - (1 << 20), 0), 0);
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
	assert_true(scan(g).dropped > 0);
	/* and a small one in their place */
	assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
	assert_int_equal(scan(g).ncommits, 1);
	assert_int_equal(scan(g).size, 1);
}

/* The kernel calls lazy frames clean that it failed to write: they are written again before the next sync. */
static void a_failed_sync_makes_the_unsynced_frames_be_written_again(void **state)
{
	struct rig *g = *state;

	assert_int_equal(commit_byte(g, 1, false), 0);
	assert_int_equal(commit_byte(g, 2, false), 0);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(commit_byte(g, 3, true), -EIO);
	faulty_arm(FAULTY_BIT(pwrite), 0, 0, 0);
	assert_int_equal(vm_journal_sync(&g->r.j), 0);
	assert_int_equal(faulty_disarm(), 2);
	assert_int_equal(mark(g).synced, mark(g).tail);
	assert_int_equal(scan(g).ncommits, 2);
}

static void lost_lazy_commits_are_an_error_and_not_a_gap(void **state)
{
	struct rig *g = *state;
	static const uint8_t zeros[512];

	assert_int_equal(commit_byte(g, 1, false), 0);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(vm_journal_sync(&g->r.j), -EIO);
	faulty_disarm();
	/* the cache gave it up */
	assert_int_equal(pwrite(g->r.j.fd, zeros, sizeof(zeros), VM_JOURNAL_START), sizeof(zeros));
	assert_int_equal(commit_byte(g, 2, true), -EUCLEAN);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), -EUCLEAN);
}

static void a_start_over_that_fails_is_finished_before_the_next_commit(void **state)
{
	struct rig *g = *state;

	for (unsigned n = 1;; n++) {
		int err;

		assert_int_equal(commit_byte(g, 1, true), 0);
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(pwritev), n, EIO, n & 1 ? 0 : FAULTY_FOR_EVER);
		err = vm_journal_checkpoint(&g->r.j, g->r.data_fd);
		if (n > faulty_disarm()) {
			assert_int_equal(err, 0);
			assert_true(n > 6);
			return;
		}
		/* whatever a crash finds now, the file comes out right */
		if (scan(g).state == VM_SCAN_COMMITS)
			assert_int_equal(vm_journal_replay(g->r.j.fd, g->r.data_fd, VM_JOURNAL_START,
							   scan(g).end, NULL, NULL),
					 0);
		assert_true(image_is_in(&g->now, g->r.box.data));
		assert_int_equal(vm_journal_checkpoint(&g->r.j, g->r.data_fd), 0);
		assert_int_equal(mark(g).flags, 0);
		assert_int_equal(mark(g).applied, mark(g).tail);
	}
}

static void beginning_with_the_headers_in_doubt_is_a_bug(void **state)
{
	struct rig *g = *state;
	int status;
	pid_t pid;

	faulty_arm(FAULTY_BIT(getrandom), 1, EIO, 0);
	assert_int_equal(vm_journal_start_over(&g->r.j, 0), -EIO);
	faulty_disarm();
	pid = fork();
	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		vm_journal_begin(&g->r.j);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_durable_commit_is_one_sync_and_reaches_the_file_when_applied),
		T(a_lazy_commit_is_not_applied_before_it_is_synced),
		T(what_is_not_applied_is_read_as_committed),
		T(a_reader_beside_the_writer_never_sees_half_a_commit),
		T(base_runs_lie_below_the_others),
		T(a_start_over_leaves_nothing_to_replay),
		T(a_start_over_cuts_a_journal_that_outgrew_its_limit),
		T(frames_overwrite_blocks_that_were_written_ahead),
		T(writing_ahead_may_fail),
		T(frames_of_a_failed_attempt_do_not_come_back),
		T(a_failed_sync_makes_the_unsynced_frames_be_written_again),
		T(lost_lazy_commits_are_an_error_and_not_a_gap),
		T(a_start_over_that_fails_is_finished_before_the_next_commit),
		T(beginning_with_the_headers_in_doubt_is_a_bug),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
