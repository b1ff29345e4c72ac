/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"

static void starting_again_changes_nothing(struct rig *r)
{
	const char *why = "x";
	enum vm_engine engine = vm_engine(&why);

	(void)r;
	assert_int_equal(vm_start(VM_ENGINE_UFFD), 0);
	assert_int_equal(vm_start(VM_ENGINE_SEGV), 0);
	assert_int_equal(vm_engine(NULL), engine);
	assert_int_equal(vm_probe(VM_ENGINE_AUTO), 0);
	assert_int_equal(vm_engine(NULL), engine);
	if (engine == VM_ENGINE_SEGV)
		assert_non_null(why);
}

/* ---- starting, in a process of its own ---- */

static int in_new_process(int (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		vm_engine_ops->stop();
		vm_engine_ops = NULL;
		_exit(fn());
	}
	return rig_reap(pid);
}

static int without_uffd(void)
{
	const char *why;

	faulty_arm(FAULTY_BIT(userfaultfd) | FAULTY_BIT(openat), 1, EPERM, FAULTY_FOR_EVER);
	if (vm_probe(VM_ENGINE_UFFD) != -EPERM || vm_engine_ops)
		return 1;
	if (vm_start(VM_ENGINE_UFFD) != -EPERM)
		return 2;
	if (vm_start(VM_ENGINE_AUTO) || vm_engine(&why) != VM_ENGINE_SEGV)
		return 3;
	return why && strstr(why, "not permitted") ? 0 : 4;
}

static int without_pagemap(void)
{
	const char *why;

	faulty_arm(FAULTY_BIT(openat), 1, EACCES, FAULTY_FOR_EVER);
	if (vm_start(VM_ENGINE_AUTO) || vm_engine(&why) != VM_ENGINE_SEGV)
		return 1;
	return why && strstr(why, "pagemap") ? 0 : 2;
}

static int without_scan(void)
{
	const char *why;

	/* every ioctl but the first four: handshake, register, protect, and one scan */
	faulty_arm(FAULTY_BIT(ioctl), 5, ENOTTY, FAULTY_FOR_EVER);
	if (vm_start(VM_ENGINE_AUTO) || vm_engine(&why) != VM_ENGINE_SEGV)
		return 1;
	return why ? 0 : 2;
}

/* Each ioctl in its turn says that it has done what it has not. */
static int without_effect(void)
{
	const char *why;
	unsigned nth;

	for (nth = 1;; nth++) {
		faulty_arm(FAULTY_BIT(ioctl), nth, 0, 0);
		if (vm_start(VM_ENGINE_AUTO))
			return 1;
		if (!faulty_has_failed())
			break;
		(void)faulty_disarm();
		if (vm_engine(&why) != VM_ENGINE_SEGV || !why)
			return 2;
		vm_engine_ops->stop();
		vm_engine_ops = NULL;
	}
	return nth > 5 || vm_engine(NULL) == VM_ENGINE_SEGV ? 0 : 3;
}

static int anyway(void)
{
	bool failed = true;

	for (unsigned nth = 1; failed; nth++) {
		faulty_arm(FAULTY_ALL, nth, ENOMEM, 0);
		if (vm_start(VM_ENGINE_AUTO))
			return 1;
		failed = faulty_has_failed();
		(void)faulty_disarm();
		if (vm_engine(NULL) == VM_ENGINE_AUTO)
			return 2;
		vm_engine_ops->stop();
		vm_engine_ops = NULL;
	}
	return 0;
}

static void without_userfaultfd_the_other_engine_is_taken_and_why_is_told(struct rig *r)
{
	(void)r;
	assert_int_equal(in_new_process(without_uffd), 0);
	assert_int_equal(in_new_process(without_pagemap), 0);
	assert_int_equal(in_new_process(without_scan), 0);
}

static void an_engine_that_says_it_works_and_sees_no_store_is_not_taken(struct rig *r)
{
	(void)r;
	assert_int_equal(in_new_process(without_effect), 0);
}

static void some_engine_starts_whichever_call_fails(struct rig *r)
{
	(void)r;
	assert_int_equal(in_new_process(anyway), 0);
}

/* ---- many scattered pages ---- */

/* Alternate pages are as many kernel mappings as there can be with page-wise protection; a process has
 * 65,530. */
static void stores_to_alternate_pages_beyond_the_kernels_limit_of_mappings_work(struct rig *r)
{
	const uint64_t nstores = 70000;
	uint64_t n;
	char *m;

	if (rig_is_tsan())
		skip(); /* slow, and single-threaded */
	rig_open_sparse(r, 2 * nstores * VM_PAGE);
	m = rig_map(r->h, 0, 2 * nstores);
	for (uint64_t i = 0; i < nstores; i++)
		rig_store64(m + 2 * i * VM_PAGE, i + 1);
	n = rig_ndirty(r->h);
	assert_true(n >= nstores);
	if (rig_is_uffd())
		assert_int_equal(n, nstores);
	rig_commit(r->h);
	assert_int_equal(rig_ndirty(r->h), 0);
	for (uint64_t i = 0; i < nstores; i++) {
		uint64_t value;

		rig_get(r->f, 2 * i * VM_PAGE, &value, sizeof(value));
		assert_int_equal(value, i + 1);
	}
	rig_store64(m + 777 * VM_PAGE, 5);
	assert_int_equal(rig_commit(r->h), 1);
}

static void stores_in_random_order_over_many_pages_are_all_seen(struct rig *r)
{
	enum { N = 40000 };
	char *m;

	rig_open_sparse(r, N * VM_PAGE);
	m = rig_map(r->h, 0, N);
	for (unsigned round = 1; round <= 3; round++) {
		for (unsigned i = 0; i < 3000; i++)
			rig_store64(m + (uint64_t)i * 12343 % N * VM_PAGE, round);
		if (rig_is_uffd())
			assert_int_equal(rig_ndirty(r->h), 3000);
		rig_commit(r->h);
		for (unsigned i = 0; i < 3000; i++) {
			uint64_t value;

			rig_get(r->f, (uint64_t)i * 12343 % N * VM_PAGE, &value, sizeof(value));
			assert_int_equal(value, round);
		}
	}
}

/* ---- protections are given back ---- */

static void a_freeze_that_fails_half_way_fails_the_commit_and_leaves_nothing_protected(struct rig *r)
{
	bool failed = true;
	char *m;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	for (unsigned nth = 1; failed; nth++) {
		for (unsigned pg = 0; pg < 64; pg += 2)
			rig_store8(m + pg * VM_PAGE, (char)nth);
		faulty_arm(FAULTY_BIT(mprotect) | FAULTY_BIT(ioctl), nth, ENOMEM, 0);
		(void)rig_try_commit(r->h);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		for (unsigned pg = 0; pg < 64; pg++)
			assert_int_equal(rig_store(m + pg * VM_PAGE + 8, (char)nth), 0);
		rig_commit(r->h);
		for (unsigned pg = 0; pg < 64; pg++) {
			assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE + 8), nth);
			if (pg % 2 == 0)
				assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE), nth);
		}
	}
}

/* ---- parts of lazy mappings with tables of their own ---- */

static void pieces_of_a_large_mapping_see_their_stores(struct rig *r)
{
	const uint64_t n = 200 * VM_REGION_NPAGES;
	char *m;

	if (rig_is_tsan())
		skip(); /* slow, and single-threaded */
	rig_open_sparse(r, n * VM_PAGE);
	m = rig_map(r->h, 0, n);
	for (uint64_t pg = 100; pg < n; pg += VM_REGION_NPAGES)
		rig_store8(m + pg * VM_PAGE, 'a');
	assert_int_equal(rig_commit(r->h), 200);
	rig_unmap(m + 3 * VM_PAGE, VM_REGION_NPAGES * 60);
	rig_unmap(m + (VM_REGION_NPAGES * 100 + 7) * VM_PAGE, 1);
	assert_int_equal(vm_protect(m + VM_REGION_NPAGES * 150 * VM_PAGE, VM_PAGE, PROT_READ), 0);
	assert_int_equal(rig_ndirty(r->h), 0);
	for (uint64_t pg = 101 + 61 * VM_REGION_NPAGES; pg < n; pg += VM_REGION_NPAGES)
		rig_store8(m + pg * VM_PAGE, 'b');
	rig_store8(m, 'c');
	assert_int_equal(rig_ndirty(r->h), 140);
	assert_int_equal(rig_commit(r->h), 140);
}

static const struct rig_case cases[] = {
	RIG_EAGER(starting_again_changes_nothing),
	RIG_EAGER(without_userfaultfd_the_other_engine_is_taken_and_why_is_told),
	RIG_EAGER(an_engine_that_says_it_works_and_sees_no_store_is_not_taken),
	RIG_EAGER(some_engine_starts_whichever_call_fails),
	RIG_BOTH(stores_to_alternate_pages_beyond_the_kernels_limit_of_mappings_work),
	RIG_BOTH(stores_in_random_order_over_many_pages_are_all_seen),
	RIG_BOTH(a_freeze_that_fails_half_way_fails_the_commit_and_leaves_nothing_protected),
	RIG_BOTH(pieces_of_a_large_mapping_see_their_stores),
};
RIG_MAIN(cases)
