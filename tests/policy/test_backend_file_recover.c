/* SPDX-License-Identifier: MIT */
/* Check and recovery of what a crash left, as the command and the first open see it. */
#define _GNU_SOURCE 1
#include "backends.h"
#include "faulty_sys.h"
#include "jrig.h"
#include "recover.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NCOMMITS 5

/* A file as of the last checkpoint, with a journal of NCOMMITS that nobody has. */
struct rig {
	struct jrig r;
	struct image start, end;
	uint8_t journal[1 << 20];
	size_t len, last; /* last: where the last commit begins */
	struct pol_journal_report rep;
};

static void put_back(struct rig *g)
{
	box_put(g->r.box.journal, g->journal, g->len);
	image_put(g->r.box.data, &g->start);
}

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));
	uint64_t rnd = 21, low;

	jrig_make(&g->r);
	for (int i = 0; i < NCOMMITS; i++) {
		struct image next = g->end;
		struct vm_journal_mark m;

		image_change(&next, &rnd, &low);
		next.size += next.size < IMAGE_MAX;
		next.bytes[next.size - 1] = (uint8_t)(i + 5);
		vm_journal_mark(&g->r.j, &m);
		g->last = m.tail;
		assert_int_equal(jrig_commit(&g->r, &g->end, &next, low, true), 0);
		g->end = next;
	}
	g->len = box_get(g->r.box.journal, g->journal, sizeof(g->journal));
	put_back(g);
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

static int check(struct rig *g)
{
	int err = pol_journal_check(g->r.box.data, NULL, &g->rep);

	assert_true(*g->rep.text);
	assert_null(strchr(g->rep.text, '\n'));
	return err;
}

static int recover(struct rig *g)
{
	int err = pol_journal_recover(g->r.box.data, NULL, NULL, NULL, &g->rep);

	assert_true(*g->rep.text);
	assert_null(strchr(g->rep.text, '\n'));
	return err;
}

/* In a child, which must not run into the test's own end. */
static int recover_in_child(struct rig *g)
{
	return pol_journal_recover(g->r.box.data, NULL, NULL, NULL, &g->rep) || !*g->rep.text;
}

static bool says(struct rig *g, const char *what)
{
	if (strstr(g->rep.text, what))
		return true;
	print_error("not in: %s\n", g->rep.text);
	return false;
}

static void a_file_without_a_journal_is_clean(void **state)
{
	struct rig *g = *state;

	unlink(g->r.box.journal);
	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_NONE);
	assert_int_equal(recover(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_NONE);
}

static void check_tells_what_waits_and_changes_nothing(void **state)
{
	struct rig *g = *state;

	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_REPLAY);
	assert_int_equal(g->rep.ncommits, NCOMMITS);
	assert_int_equal(g->rep.first_txid, 1);
	assert_int_equal(g->rep.last_txid, NCOMMITS);
	assert_int_equal(g->rep.size, g->end.size);
	assert_true(says(g, "needs recovery: 5 commits"));
	assert_true(image_is_in(&g->start, g->r.box.data));
	assert_true(box_has(g->r.box.journal));
}

static void count_progress(uint64_t done, uint64_t total, void *arg)
{
	unsigned *n = arg;

	assert_true(done <= total);
	++*n;
}

static void recovery_replays_and_removes_the_journal(void **state)
{
	struct rig *g = *state;
	unsigned n = 0;

	assert_int_equal(pol_journal_recover(g->r.box.data, NULL, count_progress, &n, &g->rep), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_REPLAY);
	assert_int_equal(n, NCOMMITS);
	assert_true(says(g, "recovered 5 commits"));
	assert_true(image_is_in(&g->end, g->r.box.data));
	assert_false(box_has(g->r.box.journal));
	assert_int_equal(recover(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_NONE);
}

static void a_torn_end_is_dropped_and_said(void **state)
{
	struct rig *g = *state;

	g->len = g->last + 140;
	put_back(g);
	assert_int_equal(check(g), 0);
	assert_true(g->rep.bytes_dropped > 0);
	assert_int_equal(recover(g), 0);
	assert_int_equal(g->rep.ncommits, NCOMMITS - 1);
	assert_true(says(g, "incomplete commit"));
}

static void damage_in_the_middle_is_refused_and_located(void **state)
{
	struct rig *g = *state;

	g->journal[VM_JOURNAL_START + 130] ^= 4;
	put_back(g);
	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_DAMAGED);
	assert_int_equal(recover(g), -EUCLEAN);
	assert_int_equal(g->rep.state, POL_JOURNAL_DAMAGED);
	assert_true(says(g, "at offset 8192"));
	assert_true(image_is_in(&g->start, g->r.box.data));
	assert_true(box_has(g->r.box.journal));
}

static void a_replaced_file_does_not_get_the_old_ones_commits(void **state)
{
	struct rig *g = *state;
	char other[400];

	(void)snprintf(other, sizeof(other), "%s/other", g->r.box.dir);
	image_put(other, &g->start);
	assert_int_equal(rename(other, g->r.box.data), 0);
	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_FOREIGN);
	assert_int_equal(recover(g), -EUCLEAN);
	assert_true(says(g, "of another file"));
	assert_true(image_is_in(&g->start, g->r.box.data));
	assert_true(box_has(g->r.box.journal));
}

static void a_future_version_is_named(void **state)
{
	struct rig *g = *state;

	for (size_t i = 0; i < 2; i++) {
		struct vm_journal_header *h = (struct vm_journal_header *)(g->journal + i * VM_JOURNAL_SLOT);

		h->version = 7;
		h->sum = vm_journal_header_sum(h);
	}
	put_back(g);
	assert_int_equal(recover(g), -EUCLEAN);
	assert_int_equal(g->rep.state, POL_JOURNAL_FOREIGN);
	assert_true(says(g, "version 7"));
	assert_true(box_has(g->r.box.journal));
}

static void a_users_own_file_of_that_name_is_kept(void **state)
{
	struct rig *g = *state;

	box_put(g->r.box.journal, "dear diary", 10);
	assert_int_equal(recover(g), -EUCLEAN);
	assert_true(says(g, "no journal of ours"));
	assert_true(box_has(g->r.box.journal));
}

static void an_empty_journal_is_clean_and_goes(void **state)
{
	struct rig *g = *state;

	box_put(g->r.box.journal, "", 0);
	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_CLEAN);
	assert_int_equal(recover(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_CLEAN);
	assert_false(box_has(g->r.box.journal));
	assert_true(image_is_in(&g->start, g->r.box.data));
}

static void a_journal_that_is_a_link_is_not_followed(void **state)
{
	struct rig *g = *state;

	unlink(g->r.box.journal);
	assert_int_equal(symlink(g->r.box.data, g->r.box.journal), 0);
	assert_int_equal(check(g), -ELOOP);
	assert_int_equal(recover(g), -ELOOP);
	assert_true(says(g, "symbolic link"));
	assert_true(image_is_in(&g->start, g->r.box.data));
}

static void a_live_process_keeps_its_journal(void **state)
{
	struct rig *g = *state;

	assert_int_equal(flock(g->r.j.fd, LOCK_EX), 0);
	assert_int_equal(check(g), 0);
	assert_int_equal(g->rep.state, POL_JOURNAL_IN_USE);
	assert_int_equal(recover(g), -EBUSY);
	assert_int_equal(g->rep.state, POL_JOURNAL_IN_USE);
	assert_true(image_is_in(&g->start, g->r.box.data));
}

/* The first is held up in the middle; the second comes, waits for it, and finds all done. */
static void two_recoveries_at_once_are_one(void **state)
{
	struct rig *g = *state;
	int go[2], at[2], status;
	char c;
	pid_t first, second;

	assert_int_equal(pipe(go) | pipe(at), 0);
	first = fork();
	if (!first) {
		struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
		int fd = open(g->r.box.journal, O_RDWR | O_CLOEXEC);
		bool ok =
			!fcntl(fd, F_OFD_SETLKW, &fl) && write(at[1], "a", 1) == 1 && read(go[0], &c, 1) == 1;

		close(fd);
		_exit(ok && !recover_in_child(g) ? 0 : 1);
	}
	assert_int_equal(read(at[0], &c, 1), 1);
	second = fork();
	if (!second)
		_exit(write(at[1], "b", 1) == 1 && !recover_in_child(g) ? 0 : 1);
	assert_int_equal(read(at[0], &c, 1), 1);
	assert_int_equal(write(go[1], "g", 1), 1);
	assert_int_equal(waitpid(first, &status, 0), first);
	assert_int_equal(status, 0);
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_int_equal(status, 0);
	assert_true(image_is_in(&g->end, g->r.box.data));
	assert_false(box_has(g->r.box.journal));
	close(go[0]), close(go[1]), close(at[0]), close(at[1]);
}

/* From the Nth host call on everything fails, as for a process that dies there; then again. */
static void recovery_killed_at_any_call_is_finished_by_the_next(void **state)
{
	struct rig *g = *state;
	unsigned n = 1, nfailed = 0, nkept = 0;

	for (bool more = true; more; n++) {
		int err;

		put_back(g);
		faulty_arm(FAULTY_ALL, n, EIO, FAULTY_FOR_EVER | (n & 1 ? FAULTY_TORN : 0));
		err = recover(g);
		more = n <= faulty_disarm();
		nfailed += err != 0;
		if (!err)
			assert_true(image_is_in(&g->end, g->r.box.data));
		nkept += (unsigned)box_has(g->r.box.journal);
		assert_int_equal(recover(g), 0);
		assert_true(image_is_in(&g->end, g->r.box.data));
		assert_false(box_has(g->r.box.journal));
	}
	assert_true(nfailed > 30 && nkept > 30);
}

static void a_call_that_fails_once_makes_recovery_fail_or_not_matter(void **state)
{
	struct rig *g = *state;
	unsigned n = 1, nfailed = 0;

	for (bool more = true; more; n++) {
		int err;

		put_back(g);
		faulty_arm(FAULTY_ALL, n, EIO, 0);
		err = recover(g);
		more = n <= faulty_disarm();
		nfailed += err != 0;
		if (err) {
			assert_true(err == -EIO || err == -ENOMEM);
			assert_true(says(g, err == -EIO ? "EIO" : "ENOMEM"));
			assert_true(says(g, g->r.box.data));
		} else {
			assert_true(image_is_in(&g->end, g->r.box.data));
		}
		assert_int_equal(recover(g), 0);
		assert_true(image_is_in(&g->end, g->r.box.data));
	}
	assert_true(nfailed > 30);
}

static void the_journal_stays_when_the_file_cannot_be_synced(void **state)
{
	struct rig *g = *state;

	faulty_arm(FAULTY_BIT(fsync), 1, EIO, 0);
	assert_int_equal(recover(g), -EIO);
	faulty_disarm();
	assert_true(says(g, "the journal stays"));
	assert_true(box_has(g->r.box.journal));
}

static void a_journal_whose_file_is_gone_is_no_clean_file(void **state)
{
	struct rig *g = *state;

	unlink(g->r.box.data);
	assert_int_equal(check(g), -ENOENT);
	assert_int_equal(recover(g), -ENOENT);
	assert_true(says(g, "cannot be opened: ENOENT"));
	assert_true(box_has(g->r.box.journal));
}

static void a_file_that_cannot_be_written_says_so_and_keeps_its_journal(void **state)
{
	struct rig *g = *state;

	faulty_arm(FAULTY_BIT(openat), 1, EROFS, FAULTY_FOR_EVER);
	assert_int_equal(recover(g), -EROFS);
	faulty_disarm();
	assert_true(says(g, "recovery needs to write"));
	assert_true(box_has(g->r.box.journal));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_file_without_a_journal_is_clean),
		T(check_tells_what_waits_and_changes_nothing),
		T(recovery_replays_and_removes_the_journal),
		T(a_torn_end_is_dropped_and_said),
		T(damage_in_the_middle_is_refused_and_located),
		T(a_replaced_file_does_not_get_the_old_ones_commits),
		T(a_future_version_is_named),
		T(a_users_own_file_of_that_name_is_kept),
		T(an_empty_journal_is_clean_and_goes),
		T(a_journal_that_is_a_link_is_not_followed),
		T(a_live_process_keeps_its_journal),
		T(two_recoveries_at_once_are_one),
		T(recovery_killed_at_any_call_is_finished_by_the_next),
		T(a_call_that_fails_once_makes_recovery_fail_or_not_matter),
		T(the_journal_stays_when_the_file_cannot_be_synced),
		T(a_journal_whose_file_is_gone_is_no_clean_file),
		T(a_file_that_cannot_be_written_says_so_and_keeps_its_journal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
