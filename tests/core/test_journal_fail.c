/* SPDX-License-Identifier: MIT */
/* The journal when its host calls fail: nothing comes back, and nothing is lost in silence. */
#include "faulty_sys.h"
#include "journal_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), -EUCLEAN);
}

static void a_start_over_that_fails_is_finished_before_the_next_commit(void **state)
{
	struct rig *g = *state;

	for (unsigned n = 1;; n++) {
		int err;

		assert_int_equal(commit_byte(g, 1, true), 0);
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(pwritev), n, EIO, n & 1 ? 0 : FAULTY_FOR_EVER);
		err = vm_journal_checkpoint(&g->r.j, &g->r.files);
		if (n > faulty_disarm()) {
			assert_int_equal(err, 0);
			assert_true(n > 6);
			return;
		}
		/* whatever a crash finds now, the file comes out right */
		if (scan(g).state == VM_SCAN_COMMITS)
			assert_int_equal(vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START,
							   scan(g).end, NULL, NULL),
					 0);
		assert_true(image_is_in(&g->now, g->r.box.data));
		assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
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
	const struct CMUnitTest tests[] = {
		TEST(writing_ahead_may_fail),
		TEST(frames_of_a_failed_attempt_do_not_come_back),
		TEST(a_failed_sync_makes_the_unsynced_frames_be_written_again),
		TEST(lost_lazy_commits_are_an_error_and_not_a_gap),
		TEST(a_start_over_that_fails_is_finished_before_the_next_commit),
		TEST(beginning_with_the_headers_in_doubt_is_a_bug),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
