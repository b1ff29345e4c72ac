/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <sched.h>
#include <sys/stat.h>

static void a_touch_loads_the_page(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	for (unsigned pg = 0; pg < 8; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), rig_byte(pg));
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_store_is_the_first_touch_and_keeps_the_rest_of_the_page(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m + 3 * VM_PAGE + 7, 'x');
	assert_int_equal(rig_load8(m + 3 * VM_PAGE + 7), 'x');
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE + 6), rig_byte(3));
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE + 8), rig_byte(3));
	assert_int_equal(rig_ndirty(r->h), 1);
}

static void the_last_page_is_zeros_beyond_the_end(struct rig *r)
{
	char *m;

	rig_open(r, 2 * VM_PAGE + 100);
	m = rig_map(r->h, 0, 3);
	assert_int_equal((uint8_t)rig_load8(m + 2 * VM_PAGE + 99), rig_byte(2));
	assert_int_equal(rig_load8(m + 2 * VM_PAGE + 100), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE - 1), 0);
}

static void nothing_is_loaded_before_it_is_touched(struct rig *r)
{
	rig_open(r, 4096 * VM_PAGE);
	(void)rig_map(r->h, 0, 4096);
	assert_int_equal(rig_nresident(r->h), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_LOADBLK), 0);
}

static void a_sequential_reader_is_served_in_ever_larger_pieces(struct rig *r)
{
	const uint64_t n = 4096;
	char *m;

	rig_open(r, n * VM_PAGE);
	m = rig_map(r->h, 0, n);
	for (uint64_t pg = 0; pg < n; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), rig_byte(pg));
	assert_true(rig_ncalls(r->f, RIG_LOADBLK) <= 8 + n / VM_BATCH_NPAGES);
	assert_int_equal(rig_load64(&r->f->npages_loaded), n);
}

/* ---- many at once ---- */

enum { NTHREADS = 4, NPAGES = 3000 };

static void *touch_all(void *arg)
{
	struct {
		char *m;
		unsigned step;
	} *a = arg;
	unsigned long bad = 0;

	for (unsigned i = 0, pg = 0; i < NPAGES; i++, pg = (pg + a->step) % NPAGES)
		bad += (uint8_t)rig_load8(a->m + pg * VM_PAGE) != rig_byte(pg);
	return (void *)bad;
}

static void threads_that_touch_the_same_pages_load_each_once(struct rig *r)
{
	struct {
		char *m;
		unsigned step;
	} a[NTHREADS];
	const unsigned steps[NTHREADS] = {1, 7, 11, 2999}; /* coprime to the number of pages */
	pthread_t t[NTHREADS];
	void *bad;

	rig_open(r, NPAGES * VM_PAGE);
	a[0].m = rig_map(r->h, 0, NPAGES);
	for (unsigned i = 0; i < NTHREADS; i++) {
		a[i].m = a[0].m;
		a[i].step = steps[i];
		assert_int_equal(pthread_create(&t[i], NULL, touch_all, &a[i]), 0);
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(rig_load64(&r->f->npages_loaded), NPAGES);
	assert_int_equal(rig_ndirty(r->h), 0);
}

/* ---- a process that dies meanwhile ---- */

static unsigned stage; /* (atomic) */

static void wait_for_stage(unsigned n)
{
	while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < n)
		(void)sched_yield();
}

/* The first load lasts until a second one of the page began, and that one until the first tries again. */
static void overlap(struct rig_file *f, uint64_t pgoff)
{
	unsigned nth = __atomic_add_fetch(&stage, 1, __ATOMIC_SEQ_CST);

	(void)f, (void)pgoff;
	if (nth <= 2)
		wait_for_stage(nth + 1);
}

static void *load_one(void *arg)
{
	return (void *)(intptr_t)vm_load(arg, 7, 8);
}

static void loads_of_a_page_that_a_repair_reset_do_not_end_each_other(struct rig *r)
{
	pthread_t t[2];
	pid_t pid;
	void *err;
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	__atomic_store_n(&stage, 0, __ATOMIC_SEQ_CST);
	pid = rig_fork();
	if (!pid)
		_exit(0);
	assert_int_equal(rig_reap(pid), 0);
	rig_hook_at(r->f, RIG_LOADBLK, overlap, NULL);
	assert_int_equal(pthread_create(&t[0], NULL, load_one, r->h), 0);
	wait_for_stage(1);
	rig_commit(r->h); /* finds that the child is gone */
	assert_int_equal(vm_page_state(r->h, 7), VM_EMPTY);
	assert_int_equal(pthread_create(&t[1], NULL, load_one, r->h), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(t[i], &err), 0);
		assert_null(err);
	}
	rig_hook_at(r->f, RIG_LOADBLK, NULL, NULL);
	assert_int_equal((uint8_t)rig_load8(m + 7 * VM_PAGE), rig_byte(7));
	assert_int_equal(rig_ndirty(r->h), 0);
}

/* ---- failures ---- */

static void a_page_that_cannot_be_loaded_is_sigbus_and_others_are_fine(struct rig *r)
{
	char *m;

	rig_open(r, 256 * VM_PAGE);
	m = rig_map(r->h, 0, 256);
	rig_fail_page(r->f, 100, EIO);
	assert_int_equal(rig_touch(m + 100 * VM_PAGE), SIGBUS);
	assert_int_equal(rig_store(m + 100 * VM_PAGE, 1), SIGBUS);
	assert_int_equal((uint8_t)rig_load8(m + 99 * VM_PAGE), rig_byte(99));
	assert_int_equal((uint8_t)rig_load8(m + 101 * VM_PAGE), rig_byte(101));
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_page_that_could_not_be_loaded_works_after_it_was_invalidated(struct rig *r)
{
	char *m;

	rig_open(r, 256 * VM_PAGE);
	m = rig_map(r->h, 0, 256);
	rig_fail_page(r->f, 100, EIO);
	assert_int_equal(rig_touch(m + 100 * VM_PAGE), SIGBUS);
	rig_fail_none(r->f);
	rig_invalidate(r->h, 100, 1);
	assert_int_equal(rig_touch(m + 100 * VM_PAGE), 0);
	assert_int_equal((uint8_t)rig_load8(m + 100 * VM_PAGE), rig_byte(100));
}

static void opening_reports_what_cannot_be_loaded(struct rig *r)
{
	struct rig_file *f = rig_file_make(8 * VM_PAGE);
	struct vm_fileh *h;

	(void)r;
	rig_fail_page(f, 5, EIO);
	assert_int_equal(vm_fileh_open(&f->file, NULL, VM_LOAD_EAGER, &h), -EIO);
	assert_int_equal(rig_ncalls(f, RIG_CLOSE), 1);
}

/* Where a load fails at any of its calls, the next touch has the page, and a store to it is seen. */
static void a_load_that_failed_leaves_nothing_half_done(struct rig *r)
{
	char *m;
	bool failed = true;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	rig_open(r, 64 * VM_PAGE);
	for (unsigned nth = 1; failed; nth++) {
		m = rig_map(r->h, 0, 64);
		faulty_arm(FAULTY_BIT(pwrite) | FAULTY_BIT(mmap), nth, ENOMEM, FAULTY_TORN);
		(void)rig_touch(m + 5 * VM_PAGE);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		vm_check();
		rig_unmap(m, 64);
		m = rig_map(r->h, 0, 64); /* a poisoned page stays so until invalidated or mapped anew */
		assert_int_equal(rig_touch(m + 5 * VM_PAGE), 0);
		assert_int_equal((uint8_t)rig_load8(m + 5 * VM_PAGE), rig_byte(5));
		rig_store8(m + 6 * VM_PAGE, 'x');
		assert_int_equal(rig_ndirty(r->h), 1);
		rig_unmap(m, 64);
		rig_discard(r->h);
		rig_invalidate(r->h, 0, 64);
	}
}

/* ---- size costs nothing ---- */

static uint64_t memory_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void a_mapping_of_1_TiB_costs_what_is_touched(struct rig *r)
{
	const uint64_t npages = 1ull << 28, ntouched = 1000, step = npages / ntouched;
	uint64_t pte, rss;
	char *m;

	if (rig_is_tsan())
		skip(); /* its shadow does not cover so much */
	rig_open_sparse(r, npages * VM_PAGE);
	pte = rig_status_kib("VmPTE:");
	rss = rig_status_kib("VmRSS:");
	m = rig_map(r->h, 0, npages);
	assert_true(rig_status_kib("VmPTE:") - pte < 256);
	assert_true(rig_status_kib("VmRSS:") - rss < 1024);
	for (uint64_t i = 0; i < ntouched; i++)
		rig_store8(m + i * step * VM_PAGE, 'x');
	assert_int_equal(rig_ndirty(r->h), ntouched);
	for (uint64_t i = 0; i < ntouched; i++)
		assert_int_equal(vm_page_state(r->h, i * step), VM_DIRTY);
	/* a page table each, and its directories */
	assert_true(rig_status_kib("VmPTE:") - pte < 16 * 1024);
	/* a page of the page map each, and what one touch brings along */
	assert_true(memory_of(r->h->ctl_fd) <= (2 * ntouched + 16) * VM_PAGE);
	assert_true(memory_of(r->h->ram.fd) <= 40 * ntouched * VM_PAGE);
	assert_int_equal(rig_commit(r->h), ntouched);
	assert_int_equal(rig_get_byte(r->f, 999 * step * VM_PAGE), 'x');
	rig_resize(r->h, VM_PAGE);
	assert_true(memory_of(r->h->ctl_fd) <= (2 * ntouched + 16) * VM_PAGE);
	assert_int_equal(rig_nresident(r->h), 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_touch_loads_the_page),
	RIG_BOTH(a_store_is_the_first_touch_and_keeps_the_rest_of_the_page),
	RIG_BOTH(the_last_page_is_zeros_beyond_the_end),
	RIG_LAZY(nothing_is_loaded_before_it_is_touched),
	RIG_LAZY(a_sequential_reader_is_served_in_ever_larger_pieces),
	RIG_LAZY(threads_that_touch_the_same_pages_load_each_once),
	RIG_LAZY(loads_of_a_page_that_a_repair_reset_do_not_end_each_other),
	RIG_LAZY(a_page_that_cannot_be_loaded_is_sigbus_and_others_are_fine),
	RIG_LAZY(a_page_that_could_not_be_loaded_works_after_it_was_invalidated),
	RIG_EAGER(opening_reports_what_cannot_be_loaded),
	RIG_LAZY(a_load_that_failed_leaves_nothing_half_done),
	RIG_BOTH(a_mapping_of_1_TiB_costs_what_is_touched),
};
RIG_MAIN(cases)
