/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"

static void stores(char *m, unsigned npages)
{
	for (unsigned pg = 1; pg < npages; pg += 3)
		rig_store8(m + pg * VM_PAGE, 'r');
}

static void a_moved_mapping_keeps_its_bytes_and_its_dirty_pages(struct rig *r)
{
	char *m, *target = mmap(NULL, 64 * VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	rig_open(r, 32 * VM_PAGE);
	m = rig_map(r->h, 0, 32);
	stores(m, 32);
	assert_int_equal(vm_remap(m, 32 * VM_PAGE, 32 * VM_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target, &p), 0);
	assert_ptr_equal(p, target);
	assert_false(vm_is_mapped(m, VM_PAGE));
	assert_int_equal(rig_load8(target + 4 * VM_PAGE), 'r');
	assert_int_equal((uint8_t)rig_load8(target + 5 * VM_PAGE), rig_byte(5));
	assert_int_equal(rig_ndirty(r->h), 11);
	rig_commit(r->h);
	rig_store8(target + 5 * VM_PAGE, 's');
	assert_int_equal(rig_ndirty(r->h), 1);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 's');
}

static void a_mapping_that_grows_or_shrinks_keeps_its_dirty_pages(struct rig *r)
{
	char *m;
	void *p;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 16);
	stores(m, 16);
	assert_int_equal(vm_remap(m, 16 * VM_PAGE, 64 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), 0);
	m = p;
	assert_int_equal(rig_ndirty(r->h), 5);
	rig_store8(m + 60 * VM_PAGE, 'g');
	assert_int_equal((uint8_t)rig_load8(m + 50 * VM_PAGE), rig_byte(50));
	assert_int_equal(rig_ndirty(r->h), 6);
	assert_int_equal(vm_remap(m, 64 * VM_PAGE, 8 * VM_PAGE, 0, NULL, &p), 0);
	assert_ptr_equal(p, m);
	assert_int_equal(rig_touch(m + 9 * VM_PAGE), SIGSEGV);
	assert_int_equal(rig_commit(r->h), 6);
	assert_int_equal(rig_get_byte(r->f, 60 * VM_PAGE), 'g');
	assert_int_equal(rig_get_byte(r->f, 13 * VM_PAGE), 'r');
}

static void a_part_can_move_away(struct rig *r)
{
	char *m;
	void *p;

	rig_open(r, 32 * VM_PAGE);
	m = rig_map(r->h, 0, 32);
	stores(m, 32);
	assert_int_equal(vm_remap(m + 8 * VM_PAGE, 8 * VM_PAGE, 12 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), 0);
	assert_int_equal(rig_load8((char *)p + 2 * VM_PAGE), 'r');
	assert_int_equal(rig_load8((char *)p + 11 * VM_PAGE), 'r'); /* page 19, shown twice now */
	assert_int_equal(rig_load8(m + 19 * VM_PAGE), 'r');
	assert_int_equal(rig_ndirty(r->h), 11);
	assert_int_equal(vm_remap(m, 32 * VM_PAGE, 64 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), -EFAULT);
}

static void a_growth_that_fails_leaves_the_old_mapping_and_its_stores(struct rig *r)
{
	char *m;
	void *p;

	rig_open(r, 32 * VM_PAGE);
	m = rig_map(r->h, 0, 32);
	stores(m, 32);
	faulty_arm(FAULTY_BIT(mremap), 1, ENOMEM, 0);
	assert_int_equal(vm_remap(m, 32 * VM_PAGE, 64 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), -ENOMEM);
	(void)faulty_disarm();
	assert_int_equal(rig_load8(m + 4 * VM_PAGE), 'r');
	rig_store8(m + 5 * VM_PAGE, 's');
	assert_int_equal(rig_ndirty(r->h), 12);
}

/* One host call after the other fails in a change from 8 pages to npages: where it was, all is as it was. */
static void fail_each(struct rig *r, uint64_t npages, int flags)
{
	unsigned nth, nfailed = 0;
	int err = 0;

	for (nth = 1; !nfailed || faulty_has_failed(); nth++) {
		char *m = mmap(NULL, 40 * VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *target = m + 20 * VM_PAGE;
		void *p;

		assert_int_equal(vm_map(r->h, m, 8 * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, 0, true, &p), 0);
		assert_int_equal(munmap(m + 8 * VM_PAGE, 32 * VM_PAGE), 0);
		rig_store8(m + 3 * VM_PAGE, (char)(100 + nth));
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(madvise), nth, ENOMEM, 0);
		err = vm_remap(m, 8 * VM_PAGE, npages * VM_PAGE, flags, target, &p);
		(void)faulty_disarm();
		if (err) {
			nfailed++;
			assert_int_equal(err, -ENOMEM);
			p = m;
		}
		for (unsigned pg = 0; pg < (err || npages > 8 ? 8 : npages); pg++)
			assert_int_equal((uint8_t)rig_load8((char *)p + pg * VM_PAGE), pg == 3 ? 100 + nth : rig_byte(pg));
		rig_store8((char *)p + VM_PAGE, (char)nth);
		assert_int_equal(rig_ndirty(r->h), 2); /* it is watched again */
		assert_int_equal(vm_fileh_nvmas(r->h), 1);
		vm_check();
		rig_unmap(p, err ? 8 : npages);
		rig_discard(r->h);
	}
	assert_int_equal(err, 0);
}

static void whatever_fails_in_a_growth_leaves_the_old_mapping_and_its_stores(struct rig *r)
{
	rig_open(r, 32 * VM_PAGE);
	fail_each(r, 16, 0);
}

static void whatever_fails_in_a_growth_that_may_move_leaves_the_old_mapping_and_its_stores(struct rig *r)
{
	rig_open(r, 32 * VM_PAGE);
	fail_each(r, 32, MREMAP_MAYMOVE);
}

static void whatever_fails_in_a_move_leaves_the_old_mapping_and_its_stores(struct rig *r)
{
	rig_open(r, 32 * VM_PAGE);
	fail_each(r, 16, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void whatever_fails_in_a_shrink_leaves_the_old_mapping_and_its_stores(struct rig *r)
{
	rig_open(r, 32 * VM_PAGE);
	fail_each(r, 5, 0);
}

/* An invalidation that hangs in the backend while the mappings are frozen. */
static pthread_barrier_t is_frozen, go_on;
static void hang(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	(void)pthread_barrier_wait(&is_frozen);
	(void)pthread_barrier_wait(&go_on);
}

static void *invalidate(void *arg)
{
	rig_invalidate(arg, 0, 8);
	return NULL;
}

static void *remap(void *m)
{
	void *p;

	vm_set_remap_wait(10000);
	return (void *)(intptr_t)vm_remap(m, 8 * VM_PAGE, 16 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p);
}

static void what_is_frozen_moves_when_it_thaws_or_not_at_all(struct rig *r)
{
	pthread_t invalidator, remapper;
	void *p, *err;
	char *m;

	(void)pthread_barrier_init(&is_frozen, NULL, 2);
	(void)pthread_barrier_init(&go_on, NULL, 2);
	rig_open(r, 16 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(rig_load8(m), rig_byte(0));
	rig_hook_at(r->f, RIG_LOADBLK, hang, NULL);
	assert_int_equal(pthread_create(&invalidator, NULL, invalidate, r->h), 0);
	(void)pthread_barrier_wait(&is_frozen);
	rig_hook_at(r->f, RIG_LOADBLK, NULL, NULL);
	vm_set_remap_wait(20);
	assert_int_equal(vm_remap(m, 8 * VM_PAGE, 16 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), -EAGAIN);
	assert_int_equal(vm_remap(m, 0, 4 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), -EAGAIN);
	assert_int_equal(vm_fileh_nvmas(r->h), 1);
	assert_true(vm_is_mapped(m, 8 * VM_PAGE));
	assert_int_equal(pthread_create(&remapper, NULL, remap, m), 0);
	(void)pthread_barrier_wait(&go_on);
	assert_int_equal(pthread_join(invalidator, NULL), 0);
	assert_int_equal(pthread_join(remapper, &err), 0);
	assert_null(err);
}

static void a_second_mapping_comes_from_old_length_zero(struct rig *r)
{
	char *m;
	void *p;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(vm_remap(m + 2 * VM_PAGE, 0, 4 * VM_PAGE, MREMAP_MAYMOVE, NULL, &p), 0);
	rig_store8((char *)p + VM_PAGE, 'z');
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 'z');
	assert_int_equal(rig_ndirty(r->h), 1);
}

static void moving_onto_another_mapping_of_ours_replaces_it(struct rig *r)
{
	char *a, *b;
	void *p;

	rig_open(r, 32 * VM_PAGE);
	a = rig_map(r->h, 0, 8);
	b = rig_map(r->h, 8, 16);
	rig_store8(b + 2 * VM_PAGE, 'b'); /* page 10 */
	rig_store8(a, 'a');
	assert_int_equal(vm_remap(a, 8 * VM_PAGE, 8 * VM_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, b, &p), 0);
	assert_int_equal(rig_load8(b), 'a');
	assert_int_equal((uint8_t)rig_load8(b + 8 * VM_PAGE), rig_byte(16));
	vm_check();
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(rig_get_byte(r->f, 10 * VM_PAGE), 'b');
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_moved_mapping_keeps_its_bytes_and_its_dirty_pages),
	RIG_BOTH(a_mapping_that_grows_or_shrinks_keeps_its_dirty_pages),
	RIG_BOTH(a_part_can_move_away),
	RIG_BOTH(a_growth_that_fails_leaves_the_old_mapping_and_its_stores),
	RIG_BOTH(whatever_fails_in_a_growth_leaves_the_old_mapping_and_its_stores),
	RIG_BOTH(whatever_fails_in_a_growth_that_may_move_leaves_the_old_mapping_and_its_stores),
	RIG_BOTH(whatever_fails_in_a_move_leaves_the_old_mapping_and_its_stores),
	RIG_BOTH(whatever_fails_in_a_shrink_leaves_the_old_mapping_and_its_stores),
	RIG_EAGER(what_is_frozen_moves_when_it_thaws_or_not_at_all),
	RIG_BOTH(a_second_mapping_comes_from_old_length_zero),
	RIG_BOTH(moving_onto_another_mapping_of_ours_replaces_it),
};
RIG_MAIN(cases)
