/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"

static void a_commit_writes_what_was_stored_and_nothing_else(struct rig *r)
{
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	rig_store8(m + 3 * VM_PAGE, 'a');
	rig_store8(m + 40 * VM_PAGE + 4095, 'b');
	(void)rig_load8(m + 20 * VM_PAGE);
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'a');
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 1), rig_byte(3));
	assert_int_equal(rig_get_byte(r->f, 41 * VM_PAGE - 1), 'b');
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void before_a_commit_the_storage_is_as_it_was(struct rig *r)
{
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, 'a');
	rig_resize(r->h, 9 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	assert_int_equal(rig_size(r->f), 4 * VM_PAGE);
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 0);
}

static void a_commit_of_nothing_is_no_transaction(struct rig *r)
{
	struct vm_commit_result res;
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 0);
	rig_store8(m, 'a');
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(res.txid, 1);
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(res.txid, 1);
	assert_int_equal(res.npages, 0);
}

static void a_store_of_the_same_bytes_is_no_transaction(struct rig *r)
{
	struct vm_commit_result res;
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, (char)rig_byte(0));
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(res.txid, 0);
	assert_int_equal(res.npages, 0);
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_store8(m, 'a');
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(res.txid, 1);
}

static void a_page_is_clean_after_a_commit_and_dirty_after_the_next_store(struct rig *r)
{
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	for (unsigned i = 1; i <= 5; i++) {
		rig_store8(m + VM_PAGE, (char)i);
		assert_int_equal(rig_ndirty(r->h), 1);
		assert_int_equal(rig_commit(r->h), 1);
		assert_int_equal(rig_ndirty(r->h), 0);
		assert_int_equal(rig_get_byte(r->f, VM_PAGE), i);
	}
}

static void a_storage_that_was_changed_outside_is_ebusy_unless_overwritten(struct rig *r)
{
	struct vm_commit_result res;
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, 'a');
	rig_put_byte(r->f, VM_PAGE, 200);
	assert_int_equal(rig_try_commit(r->h), -EBUSY);
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	assert_int_equal(vm_fileh_commit(r->h, true, true, &res), 0);
	assert_int_equal(rig_get_byte(r->f, 0), 'a');
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), 200);
}

static void a_durable_commit_of_nothing_makes_a_lazy_one_durable(struct rig *r)
{
	struct vm_commit_result res;
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, 'a');
	assert_int_equal(vm_fileh_commit(r->h, false, false, &res), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CHECKPOINT), 0);
	rig_fail(r->f, RIG_CHECKPOINT, 1, EIO);
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), -EIO);
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CHECKPOINT), 2);
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CHECKPOINT), 2);
}

/* ---- exact counts ---- */

static void the_dirty_count_is_exact_under_random_stores_commits_and_discards(struct rig *r)
{
	enum { N = 700 };
	static char model[N], committed[N];
	bool dirty[N] = {false};
	unsigned ndirty = 0, seed = 7;
	char *m;

	rig_open(r, N * VM_PAGE);
	m = rig_map(r->h, 0, N);
	for (unsigned pg = 0; pg < N; pg++)
		model[pg] = committed[pg] = (char)rig_byte(pg);
	for (unsigned i = 0; i < 6000; i++) {
		unsigned what = (unsigned)rand_r(&seed) % 100, pg = (unsigned)rand_r(&seed) % N;

		if (what < 97) {
			rig_store8(m + pg * VM_PAGE, model[pg] = (char)rand_r(&seed));
			ndirty += !dirty[pg];
			dirty[pg] = true;
			continue;
		}
		if (what == 97)
			assert_int_equal(rig_ndirty(r->h), ndirty);
		else if (what == 98)
			assert_int_equal(rig_try_commit(r->h), 0), memcpy(committed, model, N);
		else
			rig_discard(r->h), memcpy(model, committed, N);
		if (what > 97) {
			memset(dirty, 0, sizeof(dirty));
			ndirty = 0;
			assert_int_equal(rig_ndirty(r->h), 0);
		}
		for (pg = 0; pg < N; pg++)
			assert_int_equal(rig_load8(m + pg * VM_PAGE), model[pg]);
		assert_int_equal(rig_ndirty(r->h), ndirty);
	}
	for (unsigned pg = 0; pg < N; pg++)
		assert_int_equal((char)rig_get_byte(r->f, pg * VM_PAGE), committed[pg]);
}

/* ---- failures ---- */

enum { NSTORED = 30 };

/* Scattered stores, a shrink, and a growth: all that a commit holds. */
static char *changes(struct rig *r)
{
	char *m;

	rig_open(r, 100 * VM_PAGE);
	m = rig_map(r->h, 0, 200);
	rig_resize(r->h, 90 * VM_PAGE + 10);
	rig_resize(r->h, 95 * VM_PAGE);
	for (unsigned i = 0; i < NSTORED; i++)
		rig_store8(m + i * 3 * VM_PAGE, 'n');
	return m;
}

static void is_old(struct rig *r)
{
	assert_int_equal(rig_size(r->f), 100 * VM_PAGE);
	for (unsigned pg = 0; pg < 100; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE), rig_byte(pg));
}

static void is_new(struct rig *r)
{
	assert_int_equal(rig_size(r->f), 95 * VM_PAGE);
	for (unsigned pg = 0; pg < 95; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE),
				 pg % 3 == 0 && pg / 3 < NSTORED ? 'n' : pg <= 90 ? rig_byte(pg) : 0);
	assert_int_equal(rig_get_byte(r->f, 90 * VM_PAGE + 10), 0);
}

static void a_commit_whose_backend_fails_loses_nothing(struct rig *r, enum rig_op op, unsigned nth)
{
	struct vm_fileh_stat st;
	char *m = changes(r);

	rig_fail(r->f, op, nth, ENOSPC);
	assert_int_equal(rig_try_commit(r->h), -ENOSPC);
	assert_false(r->f->in_txn);
	is_old(r);
	vm_fileh_stat(r->h, true, &st);
	assert_int_equal(st.npages_dirty, NSTORED);
	assert_int_equal(st.txid, 0);
	assert_true(st.size_dirty);
	vm_check();
	rig_fail(r->f, op, 1, EIO); /* another time */
	assert_int_equal(rig_try_commit(r->h), -EIO);
	rig_commit(r->h);
	is_new(r);
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_store8(m, 'x');
	assert_int_equal(rig_commit(r->h), 1);
}

static void a_commit_that_cannot_begin_loses_nothing(struct rig *r)
{
	a_commit_whose_backend_fails_loses_nothing(r, RIG_BEGIN, 1);
}

static void a_commit_whose_first_block_fails_loses_nothing(struct rig *r)
{
	a_commit_whose_backend_fails_loses_nothing(r, RIG_STOREBLK, 1);
}

static void a_commit_whose_tenth_block_fails_loses_nothing(struct rig *r)
{
	a_commit_whose_backend_fails_loses_nothing(r, RIG_STOREBLK, 10);
}

static void a_commit_that_fails_at_its_end_loses_nothing(struct rig *r)
{
	a_commit_whose_backend_fails_loses_nothing(r, RIG_COMMIT, 1);
}

static void a_commit_loses_nothing_when_a_host_call_fails(struct rig *r)
{
	unsigned nfailed = 0;
	bool failed = true;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	for (unsigned nth = 1; failed; nth++) {
		char *m = changes(r);
		int err;

		faulty_arm(FAULTY_ALL, nth, ENOMEM, 0);
		err = rig_try_commit(r->h);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		if (err) {
			assert_true(failed);
			nfailed++;
			is_old(r);
		} else {
			is_new(r);
		}
		vm_check();
		rig_commit(r->h);
		is_new(r);
		assert_int_equal(rig_ndirty(r->h), 0);
		rig_store8(m + 3 * VM_PAGE, 'x'); /* seen again, and nothing is left protected */
		assert_int_equal(rig_commit(r->h), 1);
		assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'x');
		rig_unmap(m, 200);
		assert_int_equal(rig_close(r->h), 0);
		rig_forget(r->f);
	}
	assert_true(nfailed > 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_commit_writes_what_was_stored_and_nothing_else),
	RIG_BOTH(before_a_commit_the_storage_is_as_it_was),
	RIG_BOTH(a_commit_of_nothing_is_no_transaction),
	RIG_BOTH(a_store_of_the_same_bytes_is_no_transaction),
	RIG_BOTH(a_page_is_clean_after_a_commit_and_dirty_after_the_next_store),
	RIG_BOTH(a_storage_that_was_changed_outside_is_ebusy_unless_overwritten),
	RIG_EAGER(a_durable_commit_of_nothing_makes_a_lazy_one_durable),
	RIG_BOTH(the_dirty_count_is_exact_under_random_stores_commits_and_discards),
	RIG_BOTH(a_commit_that_cannot_begin_loses_nothing),
	RIG_BOTH(a_commit_whose_first_block_fails_loses_nothing),
	RIG_BOTH(a_commit_whose_tenth_block_fails_loses_nothing),
	RIG_BOTH(a_commit_that_fails_at_its_end_loses_nothing),
	RIG_BOTH(a_commit_loses_nothing_when_a_host_call_fails),
};
RIG_MAIN(cases)
