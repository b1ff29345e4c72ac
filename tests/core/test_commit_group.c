/* SPDX-License-Identifier: MIT */
/* One transaction of several files: who takes part, what it holds, and what is left when it fails. */
#include "crew.h"
#include "faulty_sys.h"

enum { NFILES = 3, NPAGES = 8 };

struct files {
	struct rig_set s;
	char *m[NFILES];
};

static void open_files(struct rig *r, struct files *t)
{
	rig_open_set(r, &t->s, NFILES, rig_file_make, NPAGES * VM_PAGE);
	for (unsigned i = 0; i < NFILES; i++)
		t->m[i] = rig_map(t->s.h[i], 0, NPAGES);
}

static void store_all(struct files *t, char byte)
{
	for (unsigned i = 0; i < NFILES; i++)
		rig_store8(t->m[i] + i * VM_PAGE, byte);
}

/* What store_all stored. */
static uint8_t committed(struct files *t, unsigned i)
{
	return rig_get_byte(t->s.f[i], i * VM_PAGE);
}

static unsigned ncalls(struct files *t, enum rig_op op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NFILES; i++)
		n += rig_ncalls(t->s.f[i], op);
	return n;
}

/* ---- who takes part ---- */

static void a_commit_of_several_files_is_one_transaction(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	store_all(&t, 'a');
	rig_commit_set(&t.s);
	assert_int_equal(rig_ntxns(&t.s), 1);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(committed(&t, i), 'a');
		assert_int_equal(t.s.res[i].npages, 1);
		assert_int_equal(t.s.res[i].txid, 1);
		assert_int_equal(rig_ndirty(t.s.h[i]), 0);
	}
}

static void a_file_in_which_nothing_changed_takes_no_part(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	rig_store8(t.m[1], 'a');
	rig_commit_set(&t.s);
	assert_int_equal(ncalls(&t, RIG_BEGIN), 1);
	assert_int_equal(t.s.res[0].txid, 0);
	assert_int_equal(t.s.res[1].txid, 1);
	assert_int_equal(t.s.res[1].npages, 1);
	assert_int_equal(t.s.res[2].npages, 0);
	rig_commit_set(&t.s);
	assert_int_equal(ncalls(&t, RIG_BEGIN), 1);
}

static void a_transaction_has_a_number_above_those_of_all_its_files(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	for (unsigned n = 1; n <= 3; n++) {
		rig_store8(t.m[1], (char)('a' + n));
		(void)rig_commit(t.s.h[1]);
	}
	store_all(&t, 'a');
	rig_commit_set(&t.s);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(t.s.res[i].txid, 4);
	rig_store8(t.m[0], 'b');
	rig_store8(t.m[2], 'b');
	rig_commit_set(&t.s);
	assert_int_equal(t.s.res[0].txid, 5);
	assert_int_equal(t.s.res[1].txid, 4);
	assert_int_equal(t.s.res[2].txid, 5);
}

static void stores_of_the_same_bytes_into_all_files_are_no_transaction(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	for (unsigned i = 0; i < NFILES; i++)
		rig_store8(t.m[i], (char)rig_byte(0));
	rig_commit_set(&t.s);
	assert_int_equal(rig_ntxns(&t.s), 0);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(t.s.res[i].txid, 0);
		assert_int_equal(t.s.res[i].npages, 0);
		assert_int_equal(rig_ndirty(t.s.h[i]), 0);
	}
	for (unsigned i = 0; i < NFILES; i++)
		rig_store8(t.m[i], i == 0 ? 'a' : (char)rig_byte(0));
	rig_commit_set(&t.s);
	assert_int_equal(rig_ntxns(&t.s), 1);
	assert_int_equal(rig_get_byte(t.s.f[0], 0), 'a');
}

static void sizes_of_several_files_change_together(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	rig_resize(t.s.h[0], 20 * VM_PAGE);
	rig_resize(t.s.h[1], 3 * VM_PAGE + 7);
	rig_store8(t.m[2], 'a');
	rig_fail(t.s.f[2], RIG_COMMIT, 1, EIO);
	assert_int_equal(rig_try_commit_set(&t.s), -EIO);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(rig_size(t.s.f[i]), NPAGES * VM_PAGE);
	rig_commit_set(&t.s);
	assert_int_equal(rig_size(t.s.f[0]), 20 * VM_PAGE);
	assert_int_equal(rig_size(t.s.f[1]), 3 * VM_PAGE + 7);
	assert_int_equal(rig_size(t.s.f[2]), NPAGES * VM_PAGE);
	assert_int_equal(rig_get_byte(t.s.f[2], 0), 'a');
}

static void a_durable_commit_of_nothing_makes_lazy_ones_of_all_files_durable(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	store_all(&t, 'a');
	assert_int_equal(vm_commit(t.s.h, NFILES, false, false, t.s.res), 0);
	assert_int_equal(ncalls(&t, RIG_CHECKPOINT), 0);
	rig_fail(t.s.f[1], RIG_CHECKPOINT, 1, EIO);
	assert_int_equal(rig_try_commit_set(&t.s), -EIO);
	rig_commit_set(&t.s);
	for (unsigned i = 0; i < NFILES; i++)
		assert_true(rig_ncalls(t.s.f[i], RIG_CHECKPOINT) > 0);
	unsigned n = ncalls(&t, RIG_CHECKPOINT);

	rig_commit_set(&t.s);
	assert_int_equal(ncalls(&t, RIG_CHECKPOINT), n);
}

/* What was lazy becomes durable with it, whatever may fail afterwards. */
static void a_durable_commit_after_a_lazy_one_needs_nothing_else(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	store_all(&t, 'a');
	assert_int_equal(vm_commit(t.s.h, NFILES, false, false, t.s.res), 0);
	store_all(&t, 'b');
	rig_fail(t.s.f[0], RIG_CHECKPOINT, 1, EIO);
	rig_commit_set(&t.s);
	assert_int_equal(ncalls(&t, RIG_CHECKPOINT), 0);
	assert_int_equal(rig_ndirty(t.s.h[0]), 0);
}

/* ---- stores while it is under way ---- */

static struct {
	char *first, *then; /* stored into in this order, from inside of a commit */
	unsigned nstores;
} during;

static void store_once(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (during.nstores++)
		return;
	rig_store8(during.first, 'n');
	rig_store8(during.then, 'n');
}

/* A commit with a second thread, which could store; both stores happen when its first block is stored. */
static int commit_with_stores(struct files *t, char *first, char *then)
{
	struct idle idle;
	int err;

	during.first = first;
	during.then = then;
	during.nstores = 0;
	idle_begin(&idle);
	for (unsigned i = 0; i < NFILES; i++)
		rig_hook_at(t->s.f[i], RIG_STOREBLK, store_once, NULL);
	err = rig_try_commit_set(&t->s);
	idle_end(&idle);
	return err;
}

static bool freezes_at_once(void)
{
	return !rig_is_uffd(); /* then this thread would wait for itself */
}

static void a_clean_file_that_is_stored_into_meanwhile_takes_part(struct rig *r)
{
	struct files t;

	if (freezes_at_once())
		skip();
	open_files(r, &t);
	for (unsigned i = 0; i < NFILES; i++)
		(void)rig_load8(t.m[i] + VM_PAGE);
	rig_store8(t.m[0], 'a');
	assert_int_equal(commit_with_stores(&t, t.m[2] + VM_PAGE, t.m[0] + VM_PAGE), 0);
	/* the second is there: then so is the first */
	assert_int_equal(rig_get_byte(t.s.f[0], VM_PAGE), 'n');
	assert_int_equal(rig_get_byte(t.s.f[2], VM_PAGE), 'n');
	assert_int_equal(ncalls(&t, RIG_BEGIN), 2);
	assert_int_equal(rig_ntxns(&t.s), 1);
	assert_int_equal(t.s.res[2].npages, 1);
}

static void a_clean_file_that_cannot_take_part_any_more_fails_the_commit_of_all(struct rig *r)
{
	struct files t;

	if (freezes_at_once())
		skip();
	open_files(r, &t);
	for (unsigned i = 0; i < NFILES; i++)
		(void)rig_load8(t.m[i] + VM_PAGE);
	rig_put_byte(t.s.f[2], 5 * VM_PAGE,
		     200); /* changed by somebody else: no conflict as long as it is clean */
	rig_store8(t.m[0], 'a');
	rig_commit_set(&t.s);
	rig_store8(t.m[0], 'b');
	assert_int_equal(commit_with_stores(&t, t.m[2] + VM_PAGE, t.m[0] + VM_PAGE), -EBUSY);
	assert_int_equal(rig_get_byte(t.s.f[0], 0), 'a');
	assert_int_equal(rig_ndirty(t.s.h[0]), 2);
	assert_int_equal(rig_ndirty(t.s.h[2]), 1);
	assert_int_equal(vm_commit(t.s.h, NFILES, true, true, t.s.res), 0);
	assert_int_equal(rig_get_byte(t.s.f[0], 0), 'b');
	assert_int_equal(rig_get_byte(t.s.f[2], VM_PAGE), 'n');
}

/* ---- failures ---- */

static void is_as_before(struct files *t)
{
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(committed(t, i), rig_byte(i));
		assert_false(t->s.f[i]->in_txn);
		assert_int_equal(rig_ndirty(t->s.h[i]), 1);
	}
	vm_check();
}

/* Each file's operation in its turn, the last one's, too. */
static void loses_nothing(struct rig *r, enum rig_op op)
{
	struct files t;

	open_files(r, &t);
	for (unsigned i = 0; i < NFILES; i++) {
		store_all(&t, 'a');
		rig_fail(t.s.f[i], op, 1, ENOSPC);
		assert_int_equal(rig_try_commit_set(&t.s), -ENOSPC);
		is_as_before(&t);
	}
	rig_commit_set(&t.s);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(committed(&t, i), 'a');
		assert_int_equal(t.s.res[i].txid, 1);
		assert_int_equal(rig_ndirty(t.s.h[i]), 0);
	}
	assert_int_equal(rig_ntxns(&t.s), 1);
}

static void files_of_which_one_cannot_begin_lose_nothing(struct rig *r)
{
	loses_nothing(r, RIG_BEGIN);
}

static void files_of_which_one_has_a_block_that_fails_lose_nothing(struct rig *r)
{
	loses_nothing(r, RIG_STOREBLK);
}

static void files_of_which_one_fails_at_its_end_lose_nothing(struct rig *r)
{
	loses_nothing(r, RIG_COMMIT);
}

static void a_conflict_in_one_file_fails_all_unless_overwritten(struct rig *r)
{
	struct files t;

	open_files(r, &t);
	for (unsigned i = 0; i < NFILES; i++) {
		store_all(&t, 'a');
		rig_put_byte(t.s.f[i], 5 * VM_PAGE, 200);
		assert_int_equal(rig_try_commit_set(&t.s), -EBUSY);
		is_as_before(&t);
		t.s.f[i]->seen_version = t.s.f[i]->version;
	}
	rig_put_byte(t.s.f[1], 5 * VM_PAGE, 201);
	assert_int_equal(vm_commit(t.s.h, NFILES, true, true, t.s.res), 0);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(committed(&t, i), 'a');
}

static void files_lose_nothing_when_a_host_call_fails(struct rig *r)
{
	unsigned nfailed = 0;
	bool failed = true;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	for (unsigned nth = 1; failed; nth++) {
		struct files t;
		int err;

		open_files(r, &t);
		store_all(&t, 'a');
		faulty_arm(FAULTY_ALL, nth, ENOMEM, 0);
		err = rig_try_commit_set(&t.s);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		nfailed += !!err;
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(committed(&t, i), err ? rig_byte(i) : 'a');
		vm_check();
		rig_commit_set(&t.s);
		for (unsigned i = 0; i < NFILES; i++) {
			assert_int_equal(committed(&t, i), 'a');
			assert_int_equal(rig_ndirty(t.s.h[i]), 0);
			rig_unmap(t.m[i], NPAGES);
			assert_int_equal(rig_close(t.s.h[i]), 0);
			rig_forget(t.s.f[i]);
		}
	}
	assert_true(nfailed > 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_commit_of_several_files_is_one_transaction),
	RIG_BOTH(a_file_in_which_nothing_changed_takes_no_part),
	RIG_EAGER(a_transaction_has_a_number_above_those_of_all_its_files),
	RIG_BOTH(stores_of_the_same_bytes_into_all_files_are_no_transaction),
	RIG_BOTH(sizes_of_several_files_change_together),
	RIG_EAGER(a_durable_commit_of_nothing_makes_lazy_ones_of_all_files_durable),
	RIG_EAGER(a_durable_commit_after_a_lazy_one_needs_nothing_else),
	RIG_BOTH(a_clean_file_that_is_stored_into_meanwhile_takes_part),
	RIG_BOTH(a_clean_file_that_cannot_take_part_any_more_fails_the_commit_of_all),
	RIG_BOTH(files_of_which_one_cannot_begin_lose_nothing),
	RIG_BOTH(files_of_which_one_has_a_block_that_fails_lose_nothing),
	RIG_BOTH(files_of_which_one_fails_at_its_end_lose_nothing),
	RIG_BOTH(a_conflict_in_one_file_fails_all_unless_overwritten),
	RIG_BOTH(files_lose_nothing_when_a_host_call_fails),
};
RIG_MAIN(cases)
