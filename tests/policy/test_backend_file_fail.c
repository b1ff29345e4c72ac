/* SPDX-License-Identifier: MIT */
/* Whichever host call fails, and however: the file is the commit before or this one, and the next try
 * succeeds. */
#define _GNU_SOURCE 1
#include "file_rig.h"

#define COMMIT_CALLS                                                                                         \
	(FAULTY_BIT(pwrite) | FAULTY_BIT(pwritev) | FAULTY_BIT(pread) | FAULTY_BIT(fdatasync) |              \
	 FAULTY_BIT(fsync) | FAULTY_BIT(ftruncate) | FAULTY_BIT(fstat) | FAULTY_BIT(openat) |                \
	 FAULTY_BIT(flock) | FAULTY_BIT(mmap) | FAULTY_BIT(getrandom) | FAULTY_BIT(fchmod) |                 \
	 FAULTY_BIT(fstatat))

static void each_call_of_a_commit_fails_once(struct rig *r, unsigned how, int errn, bool cold)
{
	uint64_t rnd = 4;
	unsigned n = 1, nfailed = 0, ncommitted = 0;

	for (bool more = true; more; n++) {
		struct image old = r->now, next = r->now;
		uint64_t low = next.size;
		int err;

		next.size = 2 * VM_BLKSIZE + 50 + n % 5 * 1000;
		low = next.size < low ? next.size : low;
		memset(next.bytes + low, 0, IMAGE_MAX - low);
		set_byte(&next, n * 3, (uint8_t)(n | 1));
		set_byte(&next, 5000 + n, (uint8_t)(n | 1));
		if (!cold)
			assert_int_equal(ops->open_write(&r->f), 0);
		faulty_arm(COMMIT_CALLS, n, errn, how);
		err = commit(r, &next, low, VM_COMMIT_DURABLE, &rnd);
		more = n <= faulty_disarm();
		if (err) {
			nfailed++;
			assert_true(err == -errn || err == -ENOMEM); /* memory has one error only */
			assert_true(image_is_in(&old, r->box.data));
			assert_loads(r, &old);
			if (n & 1) {
				/* a crash does not bring it back, except where nothing could be written any
				 * more */
				if (!(how & FAULTY_FOR_EVER))
					assert_recovers_to(r, &old);
			}
			assert_int_equal(commit(r, &next, low, VM_COMMIT_DURABLE, &rnd), 0);
		} else {
			ncommitted++;
		}
		assert_loads(r, &next);
		if (n & 2)
			assert_int_equal(ops->checkpoint(&r->f), 0);
		assert_recovers_to(r, &next);
	}
	assert_true(nfailed > 3);
	assert_true(ncommitted > 1);
}

static void a_commit_whose_call_fails_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, 0, EIO, false);
}

static void a_first_commit_whose_call_fails_is_no_commit(void **state)
{
	each_call_of_a_commit_fails_once(*state, 0, ENOSPC, true);
}

static void a_commit_whose_write_is_torn_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, FAULTY_TORN, EIO, false);
}

static void a_commit_after_whose_call_all_fail_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, FAULTY_FOR_EVER, EIO, false);
}

static void short_writes_are_gone_on_with(void **state)
{
	struct rig *r = *state;
	uint64_t rnd = 5, low;

	for (int i = 0; i < 50; i++) {
		struct image next = r->now;

		image_change(&next, &rnd, &low);
		faulty_arm(FAULTY_BIT(pwrite), 1, 0, FAULTY_SHORT | FAULTY_FOR_EVER);
		assert_int_equal(commit(r, &next, low, VM_COMMIT_DURABLE, &rnd), 0);
		faulty_disarm();
		assert_true(image_is_in(&next, r->box.data));
	}
}

/* Every third block of a file of 3 MiB, commit after commit; host calls of kinds fail, from the nth on. */
static void commit_many_runs(struct rig *r, uint64_t kinds, unsigned nth)
{
	const size_t npages = 768, len = npages * VM_BLKSIZE;
	uint8_t *bytes = calloc(1, len), *back = malloc(len);

	assert_int_equal(ftruncate(r->f.fd, (off_t)len - 100), 0);
	assert_int_equal(ops->loadblk(&r->f, 0, npages, bytes), 0);
	for (unsigned i = 1; i < 20; i++) {
		struct vm_txn txn = {.txid = i, .size = len - 100, .size_low = len - 100};

		assert_int_equal(ops->begin(&r->f), 0);
		for (size_t blk = i % 3; blk < npages; blk += 3) {
			uint8_t *b = bytes + blk * VM_BLKSIZE;

			if (i % 2) {
				memset(b, (int)(i + blk) | 1, VM_BLKSIZE);
				memset(bytes + len - 100, 0, 100);
			} else {
				for (size_t at = 100; at < VM_BLKSIZE; at += 800)
					b[at]++;
			}
			assert_int_equal(ops->storeblk(&r->f, blk, 1, b, 0), 0);
		}
		/* whole blocks are streamed, few to a frame, and written one by one */
		faulty_arm(kinds, i % 2 ? 0 : nth, EFAULT, FAULTY_FOR_EVER);
		assert_int_equal(ops->commit(&r->f, &txn, VM_COMMIT_DURABLE), 0);
		assert_int_equal(faulty_has_failed(), nth != 0 && i % 2 == 0);
		faulty_disarm();
		assert_false(pol_backend_file_needs_recovery(&r->f));
		assert_int_equal(box_get(r->box.data, back, len), len - 100);
		assert_memory_equal(bytes, back, len - 100);
	}
	free(bytes);
	free(back);
}

static void many_runs_are_applied(void **state)
{
	commit_many_runs(*state, FAULTY_BIT(preadv), 0);
}

static void many_runs_are_applied_where_the_file_cannot_be_mapped(void **state)
{
	commit_many_runs(*state, FAULTY_BIT(mmap), 1);
}

static void many_runs_are_applied_when_reading_into_the_mapping_fails(void **state)
{
	commit_many_runs(*state, FAULTY_BIT(preadv), 1);
	commit_many_runs(*state, FAULTY_BIT(preadv), 2);
}

static void a_failed_apply_keeps_the_commit_and_says_so(void **state)
{
	struct rig *r = *state;
	struct image next = r->now, more;
	uint64_t rnd = 2;
	int fd = r->f.fd;

	assert_int_equal(ops->open_write(&r->f), 0);
	set_byte(&next, 5000, 77);
	assert_int_equal(store(r, &next, &rnd), 0);
	/* the file can be read only from now on, the journal still be written */
	r->f.fd = open(r->box.data, O_RDONLY | O_CLOEXEC);
	{
		struct vm_txn txn = {.txid = 1, .size = next.size, .size_low = next.size};

		assert_int_equal(ops->commit(&r->f, &txn, VM_COMMIT_DURABLE), 0);
	}
	assert_true(pol_backend_file_needs_recovery(&r->f));
	assert_true(image_is_in(&r->now, r->box.data));
	assert_loads(r, &next);
	r->now = next;
	/* no further commit before that is mended */
	more = next;
	set_byte(&more, 5001, 78);
	assert_int_equal(commit(r, &more, more.size, VM_COMMIT_DURABLE, &rnd), -EBADF);
	assert_int_equal(ops->checkpoint(&r->f), -EBADF);
	close(r->f.fd);
	r->f.fd = fd;
	assert_int_equal(commit(r, &more, more.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_false(pol_backend_file_needs_recovery(&r->f));
	assert_true(image_is_in(&more, r->box.data));
}

static void a_failed_checkpoint_replays_into_the_file(void **state)
{
	struct rig *r = *state;
	struct image next = r->now, old = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(ops->checkpoint(&r->f), -EIO);
	faulty_disarm();
	assert_true(pol_backend_file_needs_recovery(&r->f));
	/* the kernel may have thrown the dirty pages away */
	image_put(r->box.data, &old);
	assert_loads(r, &next);
	assert_int_equal(ops->checkpoint(&r->f), 0);
	assert_true(image_is_in(&next, r->box.data));
}

static void a_failed_sync_is_followed_by_a_whole_rewrite(void **state)
{
	struct rig *r = *state;
	struct image first = r->now, next;
	static const uint8_t zeros[4096];
	uint64_t rnd = 2, tail;
	int fd;

	set_byte(&first, 5000, 77);
	assert_int_equal(commit(r, &first, first.size, VM_COMMIT_DURABLE, &rnd), 0);
	next = first;
	set_byte(&next, 6000, 78);
	tail = journal_tail(r);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), -EIO);
	faulty_disarm();
	/* what was written is lost, though the kernel calls it clean */
	fd = open(r->box.journal, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)tail), sizeof(zeros));
	close(fd);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	image_put(r->box.data, &first);
	assert_recovers_to(r, &next);
}

static void a_commit_whose_sync_failed_does_not_come_back(void **state)
{
	struct rig *r = *state;
	struct image old = r->now, next = r->now;
	uint64_t rnd = 2;

	assert_int_equal(ops->open_write(&r->f), 0);
	set_byte(&next, 6000, 78);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), -EIO);
	faulty_disarm();
	assert_recovers_to(r, &old);
}

static void a_full_disk_first_uses_the_journals_own_space_again(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	set_byte(&next, 5001, 78);
	faulty_arm(FAULTY_BIT(pwrite), 1, ENOSPC, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_true(faulty_has_failed());
	faulty_disarm();
	assert_int_equal(journal_tail(r), VM_JOURNAL_START + VM_JOURNAL_ALIGN);
	assert_recovers_to(r, &next);
}

static void lazy_commits_are_seen_at_once_and_reach_the_file_when_synced(void **state)
{
	struct rig *r = *state;
	struct image old = r->now, next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(ops->open_write(&r->f), 0);
	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync), 0, 0, 0);
	assert_int_equal(commit(r, &next, next.size, 0, &rnd), 0);
	set_byte(&next, 5001, 78);
	assert_int_equal(commit(r, &next, next.size, 0, &rnd), 0);
	assert_int_equal(faulty_disarm(), 0);
	assert_true(image_is_in(&old, r->box.data));
	assert_loads(r, &next);
	/* a durable commit of nothing makes them durable */
	faulty_arm(FAULTY_BIT(fdatasync), 0, 0, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(faulty_disarm(), 1);
	assert_true(image_is_in(&next, r->box.data));
	assert_recovers_to(r, &next);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_commit_whose_call_fails_is_the_commit_before),
		T(a_first_commit_whose_call_fails_is_no_commit),
		T(a_commit_whose_write_is_torn_is_the_commit_before),
		T(a_commit_after_whose_call_all_fail_is_the_commit_before),
		T(short_writes_are_gone_on_with),
		T(many_runs_are_applied),
		T(many_runs_are_applied_where_the_file_cannot_be_mapped),
		T(many_runs_are_applied_when_reading_into_the_mapping_fails),
		T(a_failed_apply_keeps_the_commit_and_says_so),
		T(a_failed_checkpoint_replays_into_the_file),
		T(a_failed_sync_is_followed_by_a_whole_rewrite),
		T(a_commit_whose_sync_failed_does_not_come_back),
		T(a_full_disk_first_uses_the_journals_own_space_again),
		T(lazy_commits_are_seen_at_once_and_reach_the_file_when_synced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
