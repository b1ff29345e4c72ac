/* SPDX-License-Identifier: MIT */
#include "rig.h"

/* ---- mprotect ---- */

static void protections_of_parts_are_the_programs_and_hide_no_store(struct rig *r)
{
	char *m;

	rig_open(r, 16 * VM_PAGE);
	m = rig_map(r->h, 0, 16);
	for (unsigned pg = 0; pg < 16; pg++)
		rig_store8(m + pg * VM_PAGE, 'a');
	assert_int_equal(vm_protect(m + 4 * VM_PAGE, 4 * VM_PAGE, PROT_READ), 0);
	assert_int_equal(vm_protect(m + 8 * VM_PAGE, 4 * VM_PAGE, PROT_NONE), 0);
	assert_int_equal(rig_store(m + 5 * VM_PAGE, 'x'), SIGSEGV);
	assert_int_equal(rig_touch(m + 5 * VM_PAGE), 0);
	assert_int_equal(rig_touch(m + 9 * VM_PAGE), SIGSEGV);
	assert_int_equal(rig_store(m + 3 * VM_PAGE, 'b'), 0);
	assert_int_equal(rig_commit(r->h), 16);
	assert_int_equal(rig_store(m + 5 * VM_PAGE, 'x'), SIGSEGV); /* a commit gives no rights */
	assert_int_equal(rig_touch(m + 9 * VM_PAGE), SIGSEGV);
	assert_int_equal(vm_protect(m, 16 * VM_PAGE, PROT_READ | PROT_WRITE), 0);
	rig_store8(m + 5 * VM_PAGE, 'c');
	rig_store8(m + 9 * VM_PAGE, 'd');
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(rig_get_byte(r->f, 9 * VM_PAGE), 'd');
	assert_int_equal(rig_get_byte(r->f, 8 * VM_PAGE), 'a');
}

static void a_mapping_that_is_not_writable_does_not_become_so(struct rig *r)
{
	void *p;

	rig_open(r, 4 * VM_PAGE);
	assert_int_equal(vm_map(r->h, NULL, 4 * VM_PAGE, PROT_READ, MAP_SHARED, 0, false, &p), 0);
	assert_int_equal(rig_store(p, 'x'), SIGSEGV);
	assert_int_equal(vm_protect(p, VM_PAGE, PROT_READ | PROT_WRITE), -EACCES);
	assert_int_equal(rig_touch(p), 0);
}

static void protecting_over_a_gap_is_enomem_after_what_lies_before_it(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_unmap(m + 2 * VM_PAGE, 1);
	assert_int_equal(vm_protect(m, 8 * VM_PAGE, PROT_READ), -ENOMEM);
	assert_int_equal(rig_store(m, 'x'), SIGSEGV);
}

/* A page that is not loaded must not be seen, not even for a moment, as the zeros that ram holds. */
struct reader {
	char *m;
	bool stop;
	unsigned long nzeros;
};

static void *look_for_zeros(void *arg)
{
	struct reader *d = arg;

	for (unsigned pg = 0; !__atomic_load_n(&d->stop, __ATOMIC_RELAXED); pg = (pg + 1) % 512)
		d->nzeros += !rig_load8(d->m + pg * VM_PAGE);
	return NULL;
}

static void protecting_never_shows_a_page_that_is_not_loaded(struct rig *r)
{
	struct reader d = {0};
	pthread_t t;

	rig_open(r, 512 * VM_PAGE);
	d.m = rig_map(r->h, 0, 512);
	assert_int_equal(pthread_create(&t, NULL, look_for_zeros, &d), 0);
	for (unsigned i = 0; i < 1000; i++) {
		rig_invalidate(r->h, 0, 512);
		assert_int_equal(vm_protect(d.m, 512 * VM_PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE), 0);
	}
	__atomic_store_n(&d.stop, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(d.nzeros, 0);
}

/* ---- madvise ---- */

static void dontneed_loses_no_store_and_reaches_what_is_not_ours(struct rig *r)
{
	char *m, *far;
	void *p;

	rig_open(r, 8 * VM_PAGE);
	m = mmap(NULL, 5 * VM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	far = m + 4 * VM_PAGE; /* behind ours, memory of the program's own */
	assert_int_equal(vm_map(r->h, m, 4 * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, 0, true, &p), 0);
	far[0] = 'f';
	rig_store8(m + VM_PAGE, 's');
	assert_int_equal(vm_advise(m, 5 * VM_PAGE, MADV_DONTNEED), 0);
	assert_int_equal(rig_load8(m + VM_PAGE), 's');
	assert_int_equal(far[0], 0);
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(munmap(far, VM_PAGE), 0);
}

static void removing_pages_is_a_change_of_the_transaction(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(vm_advise(m + 2 * VM_PAGE, 2 * VM_PAGE, MADV_REMOVE), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 0);
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), rig_byte(4));
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), rig_byte(3));
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(dontneed_loses_no_store_and_reaches_what_is_not_ours),
	RIG_BOTH(removing_pages_is_a_change_of_the_transaction),
	RIG_BOTH(protections_of_parts_are_the_programs_and_hide_no_store),
	RIG_BOTH(a_mapping_that_is_not_writable_does_not_become_so),
	RIG_BOTH(protecting_over_a_gap_is_enomem_after_what_lies_before_it),
	RIG_LAZY(protecting_never_shows_a_page_that_is_not_loaded),
};
RIG_MAIN(cases)
