/* SPDX-License-Identifier: MIT */
/* What becomes of stores that are not committed when their pages are invalidated. */
#include "rig.h"

static char *with_a_store(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m + 3 * VM_PAGE, 's');
	for (unsigned pg = 0; pg < 8; pg++)
		rig_put_byte(r->f, pg * VM_PAGE, 200);
	return m;
}

static void dropping_takes_stores_along_and_the_handle_is_clean(struct rig *r)
{
	char *m = with_a_store(r);

	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 200);
	assert_int_equal(rig_ndirty(r->h), 0);
	assert_int_equal(rig_commit(r->h), 0);
	assert_int_equal(r->f->txid, 0);
}

static void keeping_keeps_the_stores_and_renews_the_rest(struct rig *r)
{
	char *m = with_a_store(r);

	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 200);
	assert_int_equal(rig_ndirty(r->h), 1);
	rig_commit(r->h); /* not -EBUSY: what changed outside has been taken note of */
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 's');
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 200);
}

static void failing_on_a_store_drops_nothing(struct rig *r)
{
	char *m = with_a_store(r);

	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_FAIL, NULL), -EBUSY);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), rig_byte(4));
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(vm_fileh_invalidate(r->h, 4 * VM_PAGE, 0, VM_DIRTY_FAIL, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 200);
	rig_store8(m + 5 * VM_PAGE, 't'); /* nothing is left protected */
	assert_int_equal(rig_ndirty(r->h), 2);
}

static void a_storage_that_became_shorter_takes_kept_stores_not_along(struct rig *r)
{
	char *m = with_a_store(r);

	rig_put_size(r->f, VM_PAGE + 5);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal(rig_load8(m + 2 * VM_PAGE), 0);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 's');
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE), 0);
	assert_int_equal(rig_size(r->f), 8 * VM_PAGE);
}

static void a_refresh_takes_in_what_changed_and_says_what_it_cost(struct rig *r)
{
	struct vm_dropped d;
	char *m = with_a_store(r);

	rig_fail_none(r->f);
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_FAIL, &d), -EBUSY);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 1);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 200);
	assert_int_equal(d.npages, 8);
	assert_int_equal(d.ndirty, 1);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_refresh_of_what_did_not_change_drops_no_store(struct rig *r)
{
	struct vm_dropped d;
	char *m = with_a_store(r);

	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_KEEP, &d), 1); /* taken note of */
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 0);
	assert_int_equal(d.npages, 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	/* a change that size and time do not tell */
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 200);
	rig_put_byte(r->f, 4 * VM_PAGE, 201);
	r->f->seen_version = r->f->version;
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 0);
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 200);
	assert_int_equal(vm_fileh_refresh(r->h, true, VM_DIRTY_DROP, &d), 0);
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 201);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal(d.ndirty, 0);
	assert_int_equal(rig_ndirty(r->h), 1);
}

static void a_child_stores_and_is_killed(char *page)
{
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(page, 'k');
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
}

static void stores_that_nothing_tells_from_what_changed_are_not_kept_over_it(struct rig *r)
{
	struct vm_dropped d;
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	(void)rig_load8(m + 5 * VM_PAGE);
	a_child_stores_and_is_killed(m + 3 * VM_PAGE);
	rig_put_byte(r->f, 5 * VM_PAGE, 200);
	for (int again = 0; again < 2; again++) {
		assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), -EBUSY);
		assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_KEEP, &d), -EBUSY);
		assert_int_equal(rig_try_commit(r->h), -EBUSY);
		assert_int_equal((uint8_t)rig_get_byte(r->f, 5 * VM_PAGE), 200);
		assert_int_equal(rig_load8(m + 3 * VM_PAGE), 'k');
	}
	rig_discard(r->h);
	assert_int_equal((uint8_t)rig_load8(m + 5 * VM_PAGE), 200);
	/* from here on all is known again */
	rig_store8(m + 2 * VM_PAGE, 's');
	rig_put_byte(r->f, 6 * VM_PAGE, 201);
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_KEEP, &d), 1);
	assert_int_equal((uint8_t)rig_load8(m + 6 * VM_PAGE), 201);
	assert_int_equal(rig_load8(m + 2 * VM_PAGE), 's');
}

static void a_part_that_goes_takes_no_note_of_what_changed_elsewhere_under_such_stores(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	(void)rig_load8(m + 5 * VM_PAGE);
	a_child_stores_and_is_killed(m + 3 * VM_PAGE);
	rig_put_byte(r->f, 0, 199);
	rig_put_byte(r->f, 5 * VM_PAGE, 200);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, VM_PAGE, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m), 199);
	assert_int_equal(rig_try_commit(r->h), -EBUSY);
	assert_int_equal((uint8_t)rig_get_byte(r->f, 5 * VM_PAGE), 200);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 5 * VM_PAGE), 200);
	rig_store8(m + 2 * VM_PAGE, 's');
	rig_commit(r->h);
}

static void where_nothing_changed_all_that_may_have_been_stored_is_kept(struct rig *r)
{
	struct vm_dropped d;
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	a_child_stores_and_is_killed(m + 3 * VM_PAGE);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal(vm_fileh_refresh(r->h, true, VM_DIRTY_DROP, &d), 0);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'k');
	/* and a commit has told which they were */
	rig_store8(m + 2 * VM_PAGE, 's');
	rig_put_byte(r->f, 6 * VM_PAGE, 201);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 6 * VM_PAGE), 201);
}

static void a_size_that_cannot_be_read_changes_nothing(struct rig *r)
{
	char *m = with_a_store(r);

	rig_fail(r->f, RIG_GETSIZE, 1, EIO);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), -EIO);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 's');
	assert_int_equal(vm_fileh_commit(r->h, true, true, &(struct vm_commit_result){0}), 0);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 's');
}

static const struct rig_case cases[] = {
	RIG_BOTH(dropping_takes_stores_along_and_the_handle_is_clean),
	RIG_BOTH(keeping_keeps_the_stores_and_renews_the_rest),
	RIG_BOTH(failing_on_a_store_drops_nothing),
	RIG_BOTH(a_storage_that_became_shorter_takes_kept_stores_not_along),
	RIG_BOTH(a_refresh_takes_in_what_changed_and_says_what_it_cost),
	RIG_BOTH(a_refresh_of_what_did_not_change_drops_no_store),
	RIG_BOTH(a_size_that_cannot_be_read_changes_nothing),
	RIG_BOTH(stores_that_nothing_tells_from_what_changed_are_not_kept_over_it),
	RIG_BOTH(a_part_that_goes_takes_no_note_of_what_changed_elsewhere_under_such_stores),
	RIG_BOTH(where_nothing_changed_all_that_may_have_been_stored_is_kept),
};
RIG_MAIN(cases)
