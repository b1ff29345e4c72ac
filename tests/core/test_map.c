/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"

static void anonymous_memory_cannot_alias_but_ram_can(struct rig *r)
{
	char *a = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *b;
	struct vm_ram ram;

	(void)r;
	/* a second mapping of anonymous memory is another page */
	assert_ptr_not_equal(a, MAP_FAILED);
	assert_ptr_equal(mremap(a, 0, VM_PAGE, MREMAP_MAYMOVE), MAP_FAILED);
	assert_int_equal(munmap(a, VM_PAGE), 0);

	assert_int_equal(vm_ram_open(&ram, VM_PAGE), 0);
	a = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ram.fd, 0);
	b = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ram.fd, 0);
	assert_ptr_not_equal(a, b);
	a[5] = 'x';
	assert_int_equal(b[5], 'x');
	assert_int_equal(munmap(a, VM_PAGE) | munmap(b, VM_PAGE), 0);
	vm_ram_close(&ram);
}

static void two_mappings_of_a_page_show_one_page(struct rig *r)
{
	char *a, *b;

	rig_open(r, 8 * VM_PAGE);
	a = rig_map(r->h, 0, 8);
	b = rig_map(r->h, 2, 4);
	rig_store8(a + 3 * VM_PAGE, 'a');
	assert_int_equal(rig_load8(b + VM_PAGE), 'a');
	rig_store8(b + 2 * VM_PAGE, 'b');
	assert_int_equal(rig_load8(a + 4 * VM_PAGE), 'b');
	assert_int_equal(rig_ndirty(r->h), 2);
	rig_commit(r->h);
	rig_store8(b + VM_PAGE, 'c'); /* the other mapping of a page that was dirty through the first */
	assert_int_equal(rig_ndirty(r->h), 1);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'c');
	assert_int_equal(vm_fileh_nvmas(r->h), 2);
}

static void a_private_mapping_sees_shared_stores_and_keeps_its_own(struct rig *r)
{
	char *m, *p;

	rig_open(r, 8 * VM_PAGE);
	p = rig_map_with(r->h, 0, 8, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal((uint8_t)rig_load8(p + 5 * VM_PAGE), rig_byte(5));
	rig_store8(m + 3 * VM_PAGE, 's');
	assert_int_equal(rig_load8(p + 3 * VM_PAGE), 's');
	rig_store8(p + 4 * VM_PAGE, 'p');
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), rig_byte(4));
	assert_int_equal(rig_ndirty(r->h), 1);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), rig_byte(4));
	/* dropped private pages show the file again */
	assert_int_equal(vm_advise(p, 8 * VM_PAGE, MADV_DONTNEED), 0);
	assert_int_equal((uint8_t)rig_load8(p + 4 * VM_PAGE), rig_byte(4));
}

/* ---- parts ---- */

static void stores_are_known_after_an_unmap(struct rig *r)
{
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	for (unsigned pg = 0; pg < 64; pg += 2)
		rig_store8(m + pg * VM_PAGE, 'u');
	rig_unmap(m + 16 * VM_PAGE, 8); /* the middle */
	assert_int_equal(vm_fileh_nvmas(r->h), 2);
	assert_int_equal(rig_touch(m + 17 * VM_PAGE), SIGSEGV);
	assert_int_equal(rig_load8(m + 14 * VM_PAGE), 'u');
	rig_store8(m + 25 * VM_PAGE, 'v');
	assert_int_equal(rig_ndirty(r->h), 33);
	rig_unmap(m, 64);
	assert_int_equal(vm_fileh_nvmas(r->h), 0);
	assert_int_equal(rig_commit(r->h), 33);
	assert_int_equal(rig_get_byte(r->f, 18 * VM_PAGE), 'u');
	assert_int_equal(rig_get_byte(r->f, 25 * VM_PAGE), 'v');
}

static void what_something_else_is_mapped_over_is_known(struct rig *r)
{
	char *m;
	void *over;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m + 3 * VM_PAGE, 'f');
	assert_int_equal(vm_map_other(m + 2 * VM_PAGE, 2 * VM_PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &over),
			 0);
	assert_ptr_equal(over, m + 2 * VM_PAGE);
	assert_false(vm_is_mapped(m + 2 * VM_PAGE, 2 * VM_PAGE));
	rig_store8((char *)over + VM_PAGE, 'o');
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'f');
	assert_int_equal(munmap(over, 2 * VM_PAGE), 0);
}

/* ---- many ---- */

static void three_thousand_mappings_work(struct rig *r)
{
	enum { N = 3000 };
	static char *m[N];

	rig_open(r, 64 * VM_PAGE);
	for (unsigned i = 0; i < N; i++)
		m[i] = rig_map(r->h, i % 64, 1);
	assert_int_equal(vm_fileh_nvmas(r->h), N);
	for (unsigned i = 0; i < N; i += 7)
		rig_store8(m[i] + i % 64, (char)i);
	assert_int_equal(rig_commit(r->h), 64);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal((uint8_t)rig_load8(m[i] + 100), rig_byte(i % 64));
	for (unsigned i = 0; i < N; i += 2)
		rig_unmap(m[i], 1);
	assert_int_equal(vm_fileh_nvmas(r->h), N / 2);
}

static void calls_that_make_no_sense_get_the_kernels_answer(struct rig *r)
{
	char *m;
	void *p;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(vm_unmap(m + 1, VM_PAGE), -EINVAL);
	assert_int_equal(vm_unmap(m, 0), -EINVAL);
	assert_int_equal(vm_protect(m + 1, VM_PAGE, PROT_READ), -EINVAL);
	assert_int_equal(vm_remap(m, VM_PAGE, 0, 0, NULL, &p), -EINVAL);
	assert_int_equal(vm_map(r->h, NULL, 0, PROT_READ, MAP_SHARED, 0, true, &p), -EINVAL);
	assert_int_equal(vm_map(r->h, NULL, SIZE_MAX - 10, PROT_READ, MAP_SHARED, 0, true, &p), -ENOMEM);
	assert_int_equal(vm_map(r->h, NULL, VM_PAGE, PROT_READ, MAP_SHARED, INT64_MAX - VM_PAGE + 1, true, &p), -EOVERFLOW);
}

/* ---- failures ---- */

static void mapping_and_unmapping_lose_nothing_when_a_host_call_fails(struct rig *r)
{
	bool failed = true;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	rig_open(r, 2048 * VM_PAGE);
	for (unsigned nth = 1; failed; nth++) {
		char *m = NULL, *old = rig_map(r->h, 0, 2048);
		void *p = NULL;
		int err;

		rig_store8(old + 700 * VM_PAGE, (char)nth);
		faulty_arm(FAULTY_ALL, nth, ENOMEM, 0);
		err = vm_map(r->h, NULL, 2048 * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, true, &p);
		if (!err)
			m = p;
		(void)vm_protect(old + 100 * VM_PAGE, 64 * VM_PAGE, PROT_READ);
		err = vm_unmap(old + 600 * VM_PAGE, 200 * VM_PAGE);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		vm_check();
		if (err)
			assert_int_equal(rig_load8(old + 700 * VM_PAGE), (char)nth);
		if (m) {
			assert_int_equal(rig_load8(m + 700 * VM_PAGE), (char)nth);
			rig_store8(m + 701 * VM_PAGE, 'm');
			rig_unmap(m, 2048);
		}
		rig_store8(old + 500 * VM_PAGE, 'o');
		assert_true(rig_ndirty(r->h) >= 2);
		rig_unmap(old, 2048);
		rig_commit(r->h);
		assert_int_equal((char)rig_get_byte(r->f, 700 * VM_PAGE), (char)nth);
		assert_int_equal(rig_get_byte(r->f, 500 * VM_PAGE), 'o');
	}
}

static const struct rig_case cases[] = {
	RIG_EAGER(anonymous_memory_cannot_alias_but_ram_can),
	RIG_BOTH(two_mappings_of_a_page_show_one_page),
	RIG_BOTH(a_private_mapping_sees_shared_stores_and_keeps_its_own),
	RIG_BOTH(stores_are_known_after_an_unmap),
	RIG_BOTH(what_something_else_is_mapped_over_is_known),
	RIG_BOTH(three_thousand_mappings_work),
	RIG_EAGER(calls_that_make_no_sense_get_the_kernels_answer),
	RIG_BOTH(mapping_and_unmapping_lose_nothing_when_a_host_call_fails),
};
RIG_MAIN(cases)
