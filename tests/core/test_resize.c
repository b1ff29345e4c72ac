/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"

static void beyond_the_end_is_sigbus_and_after_a_growth_it_is_zeros(struct rig *r)
{
	char *m;

	rig_open(r, 2 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(rig_touch(m + 2 * VM_PAGE), SIGBUS);
	assert_int_equal(rig_store(m + 5 * VM_PAGE, 1), SIGBUS);
	rig_resize(r->h, 6 * VM_PAGE);
	assert_int_equal(rig_touch(m + 2 * VM_PAGE), 0);
	assert_int_equal(rig_load8(m + 2 * VM_PAGE), 0);
	assert_int_equal(rig_store(m + 5 * VM_PAGE, 'g'), 0);
	assert_int_equal(rig_touch(m + 6 * VM_PAGE), SIGBUS);
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 6 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 'g');
}

static void a_size_alone_is_committed(struct rig *r)
{
	struct vm_fileh_stat st;

	rig_open(r, 2 * VM_PAGE);
	rig_resize(r->h, 100);
	vm_fileh_stat(r->h, false, &st);
	assert_true(st.size_dirty);
	assert_true(st.stored_here);
	assert_int_equal(rig_size(r->f), 2 * VM_PAGE);
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 100);
	vm_fileh_stat(r->h, false, &st);
	assert_false(st.size_dirty);
	assert_false(st.stored_here);
}

static void no_byte_older_than_a_shrink_comes_back(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m + 5 * VM_PAGE, 'x');
	rig_resize(r->h, 2 * VM_PAGE + 100);
	rig_resize(r->h, 8 * VM_PAGE);
	assert_int_equal((uint8_t)rig_load8(m + 2 * VM_PAGE + 99), rig_byte(2));
	assert_int_equal(rig_load8(m + 2 * VM_PAGE + 100), 0);
	for (unsigned pg = 3; pg < 8; pg++)
		assert_int_equal(rig_load8(m + pg * VM_PAGE), 0);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 99), rig_byte(2));
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 100), 0);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 0);
	assert_int_equal(rig_size(r->f), 8 * VM_PAGE);
	rig_invalidate(r->h, 0, 8);
	assert_int_equal(rig_load8(m + 5 * VM_PAGE), 0);
}

static void a_shrink_to_within_a_page_zeros_its_tail_also_when_it_was_not_loaded(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	rig_resize(r->h, 2 * VM_PAGE + 100);
	rig_resize(r->h, 8 * VM_PAGE);
	rig_commit(r->h);
	m = rig_map(r->h, 0, 8);
	assert_int_equal((uint8_t)rig_load8(m + 2 * VM_PAGE + 99), rig_byte(2));
	assert_int_equal(rig_load8(m + 2 * VM_PAGE + 100), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 0);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 100), 0);
}

static void a_store_of_the_same_byte_after_a_shrink_and_growth_survives(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_resize(r->h, 2 * VM_PAGE + 100);
	rig_resize(r->h, 8 * VM_PAGE);
	rig_store8(m + 2 * VM_PAGE + 200, (char)rig_byte(2));
	rig_store8(m + 5 * VM_PAGE + 7, (char)rig_byte(5));
	rig_store8(m + 1 * VM_PAGE, 'o');
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 200), rig_byte(2));
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 201), 0);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE + 50), rig_byte(2));
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE + 7), rig_byte(5));
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE + 8), 0);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), 'o');
	assert_int_equal(rig_get_byte(r->f, VM_PAGE + 1), rig_byte(1));
}

static void a_shrink_takes_dirty_pages_along(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	for (unsigned pg = 0; pg < 8; pg++)
		rig_store8(m + pg * VM_PAGE, 'd');
	assert_int_equal(rig_ndirty(r->h), 8);
	rig_resize(r->h, 3 * VM_PAGE + 1);
	assert_int_equal(rig_ndirty(r->h), 4);
	rig_resize(r->h, 0);
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 0);
}

/* ---- discard ---- */

static void a_discard_restores_bytes_and_clean_count(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	for (unsigned pg = 0; pg < 8; pg += 2)
		rig_store8(m + pg * VM_PAGE, 'd');
	assert_int_equal(rig_write(r->h, "w", 1, 3 * VM_PAGE), 1);
	rig_discard(r->h);
	for (unsigned pg = 0; pg < 8; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), rig_byte(pg));
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_commit(r->h);
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 0);
	rig_store8(m, 'x');
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 0), 'x');
}

static void a_discard_after_a_shrink_and_growth_restores_all_bytes(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 16);
	for (unsigned pg = 0; pg < 8; pg++)
		(void)rig_load8(m + pg * VM_PAGE);
	rig_resize(r->h, 2 * VM_PAGE + 100);
	rig_resize(r->h, 16 * VM_PAGE);
	rig_store8(m + 5 * VM_PAGE, 'd');
	rig_store8(m + 12 * VM_PAGE, 'd');
	rig_discard(r->h);
	assert_int_equal(vm_fileh_size(r->h), 8 * VM_PAGE);
	for (unsigned pg = 0; pg < 8; pg++)
		for (unsigned i = 0; i < VM_PAGE; i += 1000)
			assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE + i), rig_byte(pg));
	assert_int_equal(rig_touch(m + 8 * VM_PAGE), SIGBUS);
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_commit(r->h);
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 0);
	rig_resize(r->h, 16 * VM_PAGE);
	assert_int_equal(rig_load8(m + 12 * VM_PAGE), 0);
}

static void a_discard_after_a_shrink_restores_the_size(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_resize(r->h, 10);
	assert_int_equal(rig_touch(m + VM_PAGE), SIGBUS);
	rig_discard(r->h);
	assert_int_equal(vm_fileh_size(r->h), 8 * VM_PAGE);
	assert_int_equal((uint8_t)rig_load8(m + 7 * VM_PAGE), rig_byte(7));
	assert_int_equal((uint8_t)rig_load8(m + 11), rig_byte(0));
}

static void a_discard_that_fails_is_torn_until_one_succeeds(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m, 'd');
	rig_store8(m + 4 * VM_PAGE, 'd');
	rig_fail(r->f, RIG_LOADBLK, 2, EIO);
	assert_int_equal(vm_fileh_discard(r->h), -EIO);
	assert_int_equal(rig_try_commit(r->h), -EIO);
	rig_fail_none(r->f);
	rig_discard(r->h);
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), rig_byte(4));
	rig_store8(m, 'x');
	assert_int_equal(rig_commit(r->h), 1);
}

/* ---- beside a private mapping ---- */

/* What a private mapping reads of a file that grew must not hide later stores of a shared one. */
static void a_private_mapping_that_reads_what_grew_hides_no_store(struct rig *r)
{
	char *m, *p;

	rig_open(r, 2 * VM_PAGE);
	m = rig_map(r->h, 0, 1024);
	p = rig_map_with(r->h, 0, 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	rig_resize(r->h, 1024 * VM_PAGE);
	assert_int_equal(rig_load8(p + 900 * VM_PAGE), 0);
	rig_store8(m + 900 * VM_PAGE, 's');
	assert_int_equal(rig_write(r->h, "t", 1, 1024 * VM_PAGE + 5 * VM_PAGE), 1);
	assert_int_equal(rig_load8(p + 900 * VM_PAGE), 's');
	vm_check();
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 900 * VM_PAGE), 's');
	rig_put_byte(r->f, 901 * VM_PAGE, 7);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal(rig_load8(p + 901 * VM_PAGE), 7);
	assert_int_equal(rig_load8(m + 901 * VM_PAGE), 7);
}

/* A private mapping shows what the file grows by: those pages are loaded then. */
static void a_growth_whose_pages_cannot_be_loaded_changes_nothing(struct rig *r)
{
	unsigned nth, nfailed = 0;
	int err = 0;
	char *m, *p;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	p = rig_map_with(r->h, 0, 8, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	for (nth = 1; !nfailed || faulty_has_failed(); nth++) {
		rig_store8(m, (char)(100 + nth));
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(madvise), nth, ENOMEM, 0);
		err = vm_fileh_resize(r->h, 8 * VM_PAGE);
		(void)faulty_disarm();
		nfailed += err != 0;
		assert_int_equal(vm_fileh_size(r->h), (err ? 4 : 8) * VM_PAGE);
		assert_int_equal(rig_touch(p + 7 * VM_PAGE), err ? SIGBUS : 0);
		assert_int_equal((uint8_t)rig_load8(m), 100 + nth);
		vm_check();
		rig_resize(r->h, 4 * VM_PAGE);
	}
	assert_int_equal(err, 0);
}

/* What was stored beyond the end, in the last page, is nowhere when the file grows. */
static void grows_over_a_tail(struct rig *r, bool by_write)
{
	char *m, byte = 1;

	rig_open(r, VM_PAGE + 77);
	m = rig_map(r->h, 0, 4);
	rig_store8(m + VM_PAGE, 'x');
	rig_store8(m + VM_PAGE + 3812, 's');
	(void)rig_commit(r->h); /* the page is clean */
	if (by_write)
		assert_int_equal(rig_write(r->h, "written", 8, 3 * VM_PAGE), 8);
	else
		rig_resize(r->h, 3 * VM_PAGE);
	(void)rig_commit(r->h);
	assert_int_equal(rig_read(r->h, &byte, 1, VM_PAGE + 3812), 1);
	assert_int_equal(byte, 0);
	assert_int_equal(rig_load8(m + VM_PAGE + 3812), 0);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE + 3812), 0);
}

static void a_tail_is_zeros_when_the_file_grows_by_its_size(struct rig *r)
{
	grows_over_a_tail(r, false);
}

static void a_tail_is_zeros_when_the_file_grows_by_a_write(struct rig *r)
{
	grows_over_a_tail(r, true);
}

static const struct rig_case cases[] = {
	RIG_BOTH(beyond_the_end_is_sigbus_and_after_a_growth_it_is_zeros),
	RIG_BOTH(a_size_alone_is_committed),
	RIG_BOTH(no_byte_older_than_a_shrink_comes_back),
	RIG_BOTH(a_shrink_to_within_a_page_zeros_its_tail_also_when_it_was_not_loaded),
	RIG_BOTH(a_store_of_the_same_byte_after_a_shrink_and_growth_survives),
	RIG_BOTH(a_shrink_takes_dirty_pages_along),
	RIG_BOTH(a_discard_restores_bytes_and_clean_count),
	RIG_BOTH(a_discard_after_a_shrink_and_growth_restores_all_bytes),
	RIG_BOTH(a_discard_after_a_shrink_restores_the_size),
	RIG_EAGER(a_discard_that_fails_is_torn_until_one_succeeds),
	RIG_BOTH(a_private_mapping_that_reads_what_grew_hides_no_store),
	RIG_BOTH(a_growth_whose_pages_cannot_be_loaded_changes_nothing),
	RIG_BOTH(a_tail_is_zeros_when_the_file_grows_by_its_size),
	RIG_BOTH(a_tail_is_zeros_when_the_file_grows_by_a_write),
};
RIG_MAIN(cases)
