/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <sys/stat.h>

static struct vm_pagemap pm;
static int fd = -1;

static void make(uint64_t base)
{
	fd = vm_sys_linux.memfd_create("map", 0);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)base), 0);
	vm_pagemap_init(&pm, &fd, base);
}

static void unmake(void)
{
	vm_pagemap_fini(&pm);
	assert_int_equal(close(fd), 0);
}

static uint64_t memory(void)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void put(uint64_t pgoff, uint8_t state)
{
	uint64_t n;

	assert_int_equal(vm_pagemap_reserve(&pm, pgoff, pgoff + 1), 0);
	*vm_pagemap_at(&pm, pgoff, &n) = state;
	assert_true(n >= 1 && n <= VM_WINDOW_NPAGES);
}

static void what_was_put_is_there_and_all_else_is_empty(struct rig *r)
{
	static const uint64_t at[] = {0, 1, 4095, 4096, VM_WINDOW_NPAGES - 1, VM_WINDOW_NPAGES, 1ull << 28,
				      VM_MAX_PGOFF - 1};
	const unsigned n = sizeof(at) / sizeof(at[0]);

	(void)r;
	make(8192);
	for (unsigned i = 0; i < n; i++)
		put(at[i], VM_DIRTY);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(vm_pagemap_peek(&pm, at[i]), VM_DIRTY);
		if (i > 1)
			assert_int_equal(vm_pagemap_peek(&pm, at[i] - 2), VM_EMPTY);
	}
	assert_int_equal(vm_pagemap_peek(&pm, 1ull << 35), VM_EMPTY);
	assert_int_equal(vm_pagemap_peek(&pm, VM_MAX_PGOFF), VM_EMPTY);
	for (uint64_t pg = 0, i = 0; i <= n; i++, pg++) {
		pg = vm_pagemap_find(&pm, pg, VM_MAX_PGOFF, VM_DIRTY);
		assert_int_equal(pg, i < n ? at[i] : VM_MAX_PGOFF);
	}
	unmake();
}

static void a_sparse_map_costs_a_page_for_each_that_is_used(struct rig *r)
{
	(void)r;
	make(8192);
	assert_int_equal(vm_pagemap_reserve(&pm, 0, 1ull << 28), 0); /* 1 TiB of file */
	assert_int_equal(memory(), 0);
	for (unsigned i = 0; i < 1000; i++)
		put((uint64_t)i << 18, VM_LOADED);
	assert_true(memory() <= 1000 * VM_PAGE);
	/* looking makes nothing */
	assert_int_equal(vm_pagemap_find(&pm, 1, 1ull << 28, VM_DIRTY), 1ull << 28);
	assert_int_equal(vm_pagemap_find_not(&pm, 1 << 18, 1ull << 28, VM_EMPTY), 1 << 18);
	assert_int_equal(vm_pagemap_find_not(&pm, 4096 + (1 << 18), 1ull << 28, VM_EMPTY), 2 << 18);
	assert_true(memory() <= 1001 * VM_PAGE);
	unmake();
}

static void searches_stay_within_their_range(struct rig *r)
{
	(void)r;
	make(0);
	assert_int_equal(vm_pagemap_reserve(&pm, 0, 10000), 0);
	for (uint64_t pg = 4000; pg < 4200; pg++)
		put(pg, VM_DIRTY);
	assert_int_equal(vm_pagemap_find(&pm, 0, 4000, VM_DIRTY), 4000);
	assert_int_equal(vm_pagemap_find(&pm, 0, 10000, VM_DIRTY), 4000);
	assert_int_equal(vm_pagemap_find(&pm, 4150, 10000, VM_DIRTY), 4150);
	assert_int_equal(vm_pagemap_find(&pm, 4200, 10000, VM_DIRTY), 10000);
	assert_int_equal(vm_pagemap_find_not(&pm, 4000, 10000, VM_DIRTY), 4200);
	assert_int_equal(vm_pagemap_find_not(&pm, 4000, 4100, VM_DIRTY), 4100);
	assert_int_equal(vm_pagemap_find_not(&pm, 0, 3999, VM_EMPTY), 3999);
	assert_int_equal(vm_pagemap_find_not(&pm, 5, 10000, VM_EMPTY), 4000);
	assert_int_equal(vm_pagemap_find_not(&pm, 4200, 10000, VM_EMPTY), 10000);
	unmake();
}

static void another_process_sees_what_one_puts(struct rig *r)
{
	pid_t pid;

	(void)r;
	make(8192);
	put(5, VM_LOADED);
	pid = fork();
	if (!pid) {
		put(6, VM_DIRTY);
		put(9 * (uint64_t)VM_WINDOW_NPAGES, VM_DIRTY); /* in a window that the parent never mapped */
		_exit(vm_pagemap_peek(&pm, 5) == VM_LOADED ? 0 : 1);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(vm_pagemap_peek(&pm, 6), VM_DIRTY);
	assert_int_equal(vm_pagemap_find(&pm, 7, VM_MAX_PGOFF, VM_DIRTY), 9 * (uint64_t)VM_WINDOW_NPAGES);
	unmake();
}

static void a_reservation_that_fails_can_be_repeated(struct rig *r)
{
	bool failed = true;

	(void)r;
	for (unsigned nth = 1; failed; nth++) {
		int err;

		make(8192);
		put(3, VM_LOADED);
		faulty_arm(FAULTY_BIT(mmap) | FAULTY_BIT(fstat) | FAULTY_BIT(ftruncate), nth, ENOMEM, 0);
		err = vm_pagemap_reserve(&pm, 0, 5000 * (uint64_t)VM_WINDOW_NPAGES);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		assert_int_equal(err, failed ? -ENOMEM : 0);
		assert_int_equal(vm_pagemap_reserve(&pm, 0, 5000 * (uint64_t)VM_WINDOW_NPAGES), 0);
		put(4999 * (uint64_t)VM_WINDOW_NPAGES, VM_DIRTY);
		assert_int_equal(vm_pagemap_peek(&pm, 3), VM_LOADED);
		unmake();
	}
	make(0);
	assert_int_equal(vm_pagemap_reserve(&pm, 0, VM_MAX_PGOFF + 1), -EFBIG);
	assert_int_equal(vm_pagemap_reserve(&pm, 7, 7), 0);
	unmake();
}

static const struct rig_case cases[] = {
	RIG_EAGER(what_was_put_is_there_and_all_else_is_empty),
	RIG_EAGER(a_sparse_map_costs_a_page_for_each_that_is_used),
	RIG_EAGER(searches_stay_within_their_range),
	RIG_EAGER(another_process_sees_what_one_puts),
	RIG_EAGER(a_reservation_that_fails_can_be_repeated),
};
RIG_MAIN(cases)
