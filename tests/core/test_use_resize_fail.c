/* SPDX-License-Identifier: MIT */
/* A resize that fails leaves all as it was, and then it works. */
#include "use_rig.h"
#include "faulty_sys.h"

/* One host call after the other fails in a resize: all is as it was, and then it works. */
static void fail_each(struct rig *r, uint64_t npages, bool in_place)
{
	struct vm_fileh_stat before, after;
	unsigned nth, nfailed = 0;
	int err = 0;

	for (nth = 1;; nth++) {
		void *w, *addr;
		char *p;

		open_view_with_room(r, 8, in_place ? 32 : 0);
		w = in_place ? NULL : wall();
		p = enter(NULL);
		rig_store8(p + 3 * VM_PAGE, (char)(100 + nth));
		leave();
		vm_fileh_stat(r->h, true, &before);
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(madvise), nth, ENOMEM, 0);
		err = vm_view_resize(&view, npages * VM_PAGE, 0, &addr);
		(void)faulty_disarm();
		if (err) {
			nfailed++;
			assert_int_equal(err, -ENOMEM);
			assert_int_equal(len_of_view(), 8 * VM_PAGE);
			assert_ptr_equal(view.addr, p);
			vm_fileh_stat(r->h, true, &after);
			assert_int_equal(after.size, before.size);
			assert_int_equal(after.size_dirty, before.size_dirty);
			assert_int_equal(after.npages_dirty, before.npages_dirty);
			assert_int_equal(after.npages_resident, before.npages_resident);
			for (unsigned pg = 0; pg < 8; pg++)
				assert_int_equal((uint8_t)rig_load8(p + pg * VM_PAGE),
						 pg == 3 ? 100 + nth : rig_byte(pg));
			assert_int_equal(vm_view_resize(&view, npages * VM_PAGE, 0, &addr), 0);
		}
		assert_int_equal((uint8_t)rig_load8((char *)addr + 3 * VM_PAGE), 100 + nth);
		if (npages > 8)
			rig_store8((char *)addr + (npages - 1) * VM_PAGE, 'z');
		assert_false(vm_is_mapped((char *)addr + view.maplen, 32 * VM_PAGE));
		assert_int_equal(vm_view_close(&view), 0);
		unwall(w);
		assert_int_equal(vm_fileh_nvmas(r->h), 0);
		vm_check();
		rig_discard(r->h);
		if (!faulty_has_failed())
			break;
	}
	assert_int_equal(err, 0);
	assert_true(nfailed > 0);
}

static void a_growth_that_moves_and_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 24, false);
}

static void a_growth_in_place_that_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 24, true);
}

static void a_shrink_that_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 5, true);
}

static void a_growth_beyond_the_address_space_is_enomem_and_changes_nothing(struct rig *r)
{
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	p = enter(NULL);
	rig_store8(p, 'k');
	leave();
	assert_int_equal(vm_view_resize(&view, 1ull << 47, 0, NULL), -ENOMEM);
	assert_ptr_equal(enter(NULL), p);
	assert_int_equal(rig_load8(p), 'k');
	leave();
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	assert_int_equal(rig_ndirty(r->h), 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_growth_that_moves_and_fails_changes_nothing),
	RIG_BOTH(a_growth_in_place_that_fails_changes_nothing),
	RIG_BOTH(a_shrink_that_fails_changes_nothing),
	RIG_EAGER(a_growth_beyond_the_address_space_is_enomem_and_changes_nothing),
};
RIG_MAIN(cases)
