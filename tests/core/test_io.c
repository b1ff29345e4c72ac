/* SPDX-License-Identifier: MIT */
#include "rig.h"

static void what_is_written_is_seen_in_the_mapping_and_the_other_way_round(struct rig *r)
{
	char *m, buf[8] = {0};

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(rig_write(r->h, "abcdefg", 8, 2 * VM_PAGE - 4), 8);
	assert_memory_equal(m + 2 * VM_PAGE - 4, "abcdefg", 8);
	memcpy(m + 5 * VM_PAGE, "stored", 7);
	assert_int_equal(rig_read(r->h, buf, 7, 5 * VM_PAGE), 7);
	assert_string_equal(buf, "stored");
	assert_int_equal(rig_ndirty(r->h), 3);
	rig_commit(r->h);
	rig_get(r->f, 2 * VM_PAGE - 4, buf, 8);
	assert_memory_equal(buf, "abcdefg", 8);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE - 5), rig_byte(1));
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE + 1), 't');
}

static void a_read_stops_at_the_end(struct rig *r)
{
	char buf[256];

	rig_open(r, VM_PAGE + 100);
	assert_int_equal(rig_read(r->h, buf, sizeof(buf), VM_PAGE), 100);
	assert_int_equal(rig_read(r->h, buf, sizeof(buf), VM_PAGE + 100), 0);
	assert_int_equal(rig_read(r->h, buf, sizeof(buf), 1ull << 40), 0);
}

static void a_write_beyond_the_end_leaves_zeros_between(struct rig *r)
{
	char buf[VM_BLKSIZE];

	rig_open(r, VM_PAGE + 100);
	assert_int_equal(rig_write(r->h, "x", 1, 5 * VM_PAGE), 1);
	assert_int_equal(vm_fileh_size(r->h), 5 * VM_PAGE + 1);
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 5 * VM_PAGE + 1);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE + 99), rig_byte(1));
	for (unsigned pg = 2; pg < 5; pg++) {
		rig_get(r->f, pg * VM_PAGE, buf, sizeof(buf));
		for (unsigned i = 0; i < sizeof(buf); i++)
			assert_int_equal(buf[i], 0);
	}
	assert_int_equal(rig_read(r->h, buf, 1, VM_PAGE + 100), 1);
	assert_int_equal(buf[0], 0);
}

static void appending_to_a_page_that_is_not_loaded_keeps_its_beginning(struct rig *r)
{
	uint64_t off;
	struct iovec iov = {"tail", 4};

	rig_open(r, 3 * VM_PAGE + 100);
	assert_int_equal(vm_fileh_write(r->h, &iov, 1, VM_APPEND, &off), 4);
	assert_int_equal(off, 3 * VM_PAGE + 100);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), rig_byte(3));
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 99), rig_byte(3));
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 100), 't');
}

static void writing_a_little_beyond_the_end_of_a_page_that_is_not_loaded_keeps_its_beginning(struct rig *r)
{
	rig_open(r, 3 * VM_PAGE + 100);
	assert_int_equal(rig_write(r->h, "tail", 4, 3 * VM_PAGE + 200), 4);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 99), rig_byte(3));
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 150), 0);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 200), 't');
}

static void an_empty_write_changes_nothing(struct rig *r)
{
	rig_open(r, 100);
	assert_int_equal(rig_write(r->h, "x", 0, 5 * VM_PAGE), 0);
	assert_int_equal(vm_fileh_size(r->h), 100);
	assert_int_equal(rig_ndirty(r->h), 0);
}

/* ---- buffers that are not there ---- */

/* Two pages, of which only the first can be accessed. */
static char *half_bad_buffer(void)
{
	char *p = mmap(NULL, 2 * VM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 'b', VM_PAGE);
	assert_int_equal(mprotect(p + VM_PAGE, VM_PAGE, PROT_NONE), 0);
	return p;
}

static void a_bad_buffer_is_efault_and_changes_nothing(struct rig *r)
{
	char *bad = half_bad_buffer() + VM_PAGE;

	rig_open(r, 4 * VM_PAGE);
	assert_int_equal(rig_write(r->h, bad, 100, VM_PAGE), -EFAULT);
	assert_int_equal(rig_write(r->h, bad, 3 * VM_PAGE, 9 * VM_PAGE), -EFAULT);
	assert_int_equal(rig_read(r->h, bad, 100, VM_PAGE), -EFAULT);
	rig_resize(r->h, 4 * VM_PAGE - 200);
	assert_int_equal(rig_write(r->h, bad, 10, 4 * VM_PAGE - 100), -EFAULT);
	vm_check();
	rig_resize(r->h, 4 * VM_PAGE);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	vm_check();
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 4 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), rig_byte(1));
	assert_int_equal(munmap(bad - VM_PAGE, 2 * VM_PAGE), 0);
}

static void a_half_bad_buffer_is_a_short_count(struct rig *r)
{
	char *buf = half_bad_buffer();

	rig_open(r, 4 * VM_PAGE);
	assert_int_equal(rig_write(r->h, buf, 2 * VM_PAGE, 4 * VM_PAGE), VM_PAGE);
	assert_int_equal(vm_fileh_size(r->h), 5 * VM_PAGE);
	vm_check();
	assert_int_equal(rig_read(r->h, buf, 2 * VM_PAGE, 0), VM_PAGE);
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 5 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE - 1), 'b');
	assert_int_equal(munmap(buf, 2 * VM_PAGE), 0);
}

static void a_buffer_in_the_mapping_itself_works(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(vm_prepare(m + 5 * VM_PAGE, VM_PAGE, false), 0);
	assert_int_equal(rig_write(r->h, m + 5 * VM_PAGE, VM_PAGE, VM_PAGE), VM_PAGE);
	assert_int_equal((uint8_t)rig_load8(m + VM_PAGE), rig_byte(5));
	assert_int_equal(vm_prepare(m + 2 * VM_PAGE, VM_PAGE, true), 0);
	assert_int_equal(rig_read(r->h, m + 2 * VM_PAGE, VM_PAGE, 7 * VM_PAGE), VM_PAGE);
	assert_int_equal((uint8_t)rig_load8(m + 2 * VM_PAGE), rig_byte(7));
	assert_int_equal(rig_ndirty(r->h), 2);
}

static void impossible_offsets_are_refused(struct rig *r)
{
	char c = 0;

	rig_open(r, 100);
	assert_int_equal(rig_write(r->h, &c, 1, (uint64_t)INT64_MAX + 5), -EINVAL);
	assert_int_equal(rig_write(r->h, &c, 1, VM_MAX_PGOFF * VM_PAGE), -EFBIG);
	assert_int_equal(rig_read(r->h, &c, 1, (uint64_t)INT64_MAX + 5), -EINVAL);
	assert_int_equal(vm_fileh_resize(r->h, VM_MAX_PGOFF * VM_PAGE + 1), -EFBIG);
	assert_int_equal(vm_fileh_size(r->h), 100);
}

/* ---- zeroing ---- */

static void zeroed_bytes_are_zero_in_the_mapping_and_after_a_commit(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), rig_byte(3));
	assert_int_equal(vm_fileh_zero(r->h, 2 * VM_PAGE - 10, 3 * VM_PAGE), 0);
	assert_int_equal((uint8_t)rig_load8(m + 2 * VM_PAGE - 11), rig_byte(1));
	assert_int_equal(rig_load8(m + 2 * VM_PAGE - 10), 0);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 0);
	assert_int_equal(rig_load8(m + 5 * VM_PAGE - 11), 0);
	assert_int_equal((uint8_t)rig_load8(m + 5 * VM_PAGE - 10), rig_byte(4));
	vm_check();
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE - 11), rig_byte(1));
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 0);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE - 10), rig_byte(4));
	rig_store8(m + 3 * VM_PAGE, 'x');
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'x');
}

/* The zeros of a page that was never put into ram come into the mapping on touch; stores there are seen as
 * everywhere. */
static void a_page_zeroed_before_it_was_mapped_sees_later_stores(struct rig *r)
{
	char *m;

	rig_open(r, 2048 * VM_PAGE);
	assert_int_equal(vm_fileh_zero(r->h, 0, 2048 * VM_PAGE), 0);
	m = rig_map(r->h, 0, 2048);
	rig_commit(r->h);
	assert_int_equal(rig_load8(m + 900 * VM_PAGE), 0);
	rig_commit(r->h);
	rig_store8(m + 900 * VM_PAGE, 's');
	rig_store8(m + 901 * VM_PAGE, 't');
	assert_true(rig_ndirty(r->h) >= 2);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 900 * VM_PAGE), 's');
	assert_int_equal(rig_get_byte(r->f, 901 * VM_PAGE), 't');
}

static void zeroing_does_not_change_the_size(struct rig *r)
{
	rig_open(r, 2 * VM_PAGE);
	assert_int_equal(vm_fileh_zero(r->h, VM_PAGE, INT64_MAX), 0);
	assert_int_equal(vm_fileh_zero(r->h, 9 * VM_PAGE, 10), 0);
	assert_int_equal(vm_fileh_size(r->h), 2 * VM_PAGE);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), 0);
	assert_int_equal(rig_get_byte(r->f, VM_PAGE - 1), rig_byte(0));
}

static void seeking_finds_data_up_to_the_end(struct rig *r)
{
	rig_open(r, 2 * VM_PAGE);
	assert_int_equal(vm_fileh_seek(r->h, 10, SEEK_DATA), 10);
	assert_int_equal(vm_fileh_seek(r->h, 10, SEEK_HOLE), 2 * VM_PAGE);
	assert_int_equal(vm_fileh_seek(r->h, 2 * VM_PAGE, SEEK_DATA), -ENXIO);
}

/* ---- two at once ---- */

enum { NRECORDS = 2000, RECORD = 24 };

struct appender {
	struct vm_fileh *h;
	char byte;
};

static void *append(void *arg)
{
	struct appender *a = arg;
	char rec[RECORD];
	struct iovec iov = {rec, RECORD};
	unsigned long bad = 0;

	memset(rec, a->byte, RECORD);
	for (int i = 0; i < NRECORDS; i++)
		bad += vm_fileh_write(a->h, &iov, 1, VM_APPEND, NULL) != RECORD;
	return (void *)bad;
}

static void two_threads_that_append_never_overlap(struct rig *r)
{
	struct appender a[2];
	unsigned n[2] = {0};
	pthread_t t[2];
	char rec[RECORD];
	void *bad;

	rig_open(r, 0);
	for (int i = 0; i < 2; i++) {
		a[i] = (struct appender){r->h, (char)('a' + i)};
		assert_int_equal(pthread_create(&t[i], NULL, append, &a[i]), 0);
	}
	for (int i = 0; i < 20; i++)
		assert_int_equal(rig_try_commit(r->h), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 2 * NRECORDS * RECORD);
	for (uint64_t off = 0; off < 2 * NRECORDS * RECORD; off += RECORD) {
		rig_get(r->f, off, rec, RECORD);
		for (unsigned i = 1; i < RECORD; i++)
			assert_int_equal(rec[i], rec[0]);
		n[rec[0] - 'a']++;
	}
	assert_int_equal(n[0], NRECORDS);
	assert_int_equal(n[1], NRECORDS);
}

/* ---- beside a load ---- */

struct beside {
	struct rig *r;
	char *m;
	int sig;
	unsigned stage; /* (atomic) */
};

static void *touch_the_last(void *arg)
{
	struct beside *b = arg;

	b->sig = rig_touch(b->m + 7 * VM_PAGE);
	return NULL;
}

/* The load waits here, until its page is gone and written anew; or a moment, when the write waits for the
 * load. */
static void be_slow(struct rig_file *f, uint64_t pgoff)
{
	struct beside *b = f->hook_arg;

	(void)pgoff;
	if (__atomic_exchange_n(&b->stage, 1, __ATOMIC_SEQ_CST))
		return;
	for (unsigned i = 0; i < 20000 && __atomic_load_n(&b->stage, __ATOMIC_SEQ_CST) < 2; i++)
		(void)sched_yield();
}

static void what_is_written_while_a_load_from_before_a_shrink_is_under_way_stays(struct rig *r)
{
	struct beside b = {.r = r};
	pthread_t t;

	rig_open(r, 8 * VM_PAGE);
	b.m = rig_map(r->h, 0, 8);
	rig_hook_at(r->f, RIG_LOADBLK, be_slow, &b);
	assert_int_equal(pthread_create(&t, NULL, touch_the_last, &b), 0);
	while (!__atomic_load_n(&b.stage, __ATOMIC_SEQ_CST))
		(void)sched_yield();
	rig_resize(r->h, 7 * VM_PAGE);
	assert_int_equal(rig_write(r->h, "new", 3, 7 * VM_PAGE + 5), 3);
	__atomic_store_n(&b.stage, 2, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(rig_load8(b.m + 7 * VM_PAGE + 5), 'n');
	assert_int_equal(rig_load8(b.m + 7 * VM_PAGE), 0);
	vm_check();
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 7 * VM_PAGE + 5), 'n');
	assert_int_equal(rig_get_byte(r->f, 7 * VM_PAGE), 0);
	rig_hook_at(r->f, RIG_LOADBLK, NULL, NULL);
}

/* A write through the handle must not hide a store through the mapping in the same 2 MiB (one page table). */
static void a_write_beside_a_store_hides_nothing(struct rig *r)
{
	char *m;

	rig_open_sparse(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	rig_store8(m + 3 * VM_PAGE, 's');
	assert_int_equal(rig_write(r->h, "w", 1, 9 * VM_PAGE), 1);
	assert_int_equal(rig_ndirty(r->h), 2);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 's');
	assert_int_equal(rig_get_byte(r->f, 9 * VM_PAGE), 'w');
}

static const struct rig_case cases[] = {
	RIG_BOTH(what_is_written_is_seen_in_the_mapping_and_the_other_way_round),
	RIG_BOTH(a_read_stops_at_the_end),
	RIG_BOTH(a_write_beyond_the_end_leaves_zeros_between),
	RIG_BOTH(appending_to_a_page_that_is_not_loaded_keeps_its_beginning),
	RIG_BOTH(writing_a_little_beyond_the_end_of_a_page_that_is_not_loaded_keeps_its_beginning),
	RIG_BOTH(an_empty_write_changes_nothing),
	RIG_BOTH(a_bad_buffer_is_efault_and_changes_nothing),
	RIG_BOTH(a_half_bad_buffer_is_a_short_count),
	RIG_BOTH(a_buffer_in_the_mapping_itself_works),
	RIG_BOTH(impossible_offsets_are_refused),
	RIG_BOTH(zeroed_bytes_are_zero_in_the_mapping_and_after_a_commit),
	RIG_BOTH(a_page_zeroed_before_it_was_mapped_sees_later_stores),
	RIG_BOTH(zeroing_does_not_change_the_size),
	RIG_BOTH(seeking_finds_data_up_to_the_end),
	RIG_BOTH(two_threads_that_append_never_overlap),
	RIG_LAZY(what_is_written_while_a_load_from_before_a_shrink_is_under_way_stays),
	RIG_BOTH(a_write_beside_a_store_hides_nothing),
};
RIG_MAIN(cases)
