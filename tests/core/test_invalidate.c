/* SPDX-License-Identifier: MIT */
/* What is in storage is seen after an invalidation, and not before. */
#include "rig.h"
#include <time.h>

static void old_bytes_are_seen_until_invalidated_and_then_the_new_ones(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	for (unsigned pg = 0; pg < 8; pg++)
		(void)rig_load8(m + pg * VM_PAGE);
	for (unsigned pg = 0; pg < 8; pg++)
		rig_put_byte(r->f, pg * VM_PAGE, (uint8_t)(100 + pg));
	for (unsigned pg = 0; pg < 8; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), rig_byte(pg));
	rig_invalidate(r->h, 2, 3);
	for (unsigned pg = 0; pg < 8; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), pg >= 2 && pg < 5 ? 100 + pg : rig_byte(pg));
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE + 1), rig_byte(3));
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_part_of_a_page_invalidates_the_page(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	(void)rig_load8(m + 3 * VM_PAGE);
	rig_put_byte(r->f, 3 * VM_PAGE, 200);
	assert_int_equal(vm_fileh_invalidate(r->h, 4 * VM_PAGE - 1, 1, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 200);
}

static void a_hole_that_got_data_shows_it(struct rig *r)
{
	char *m;

	rig_open_sparse(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 0);
	rig_put_byte(r->f, 3 * VM_PAGE, 9);
	rig_put_byte(r->f, 5 * VM_PAGE, 9);
	rig_invalidate(r->h, 0, 8);
	assert_int_equal(rig_load8(m + 3 * VM_PAGE), 9);
	assert_int_equal(rig_load8(m + 5 * VM_PAGE), 9);
}

static void the_number_of_pages_dropped_is_told(struct rig *r)
{
	uint64_t n = 77;
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	(void)rig_load8(m);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, &n), 0);
	assert_int_equal(n, 8); /* the touch loaded its neighbours, too */
}

/* ---- size ---- */

static void the_storages_new_size_comes_with_the_whole_file(struct rig *r)
{
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	assert_int_equal(rig_touch(m + 6 * VM_PAGE), SIGBUS);
	rig_put_size(r->f, 7 * VM_PAGE);
	rig_put_byte(r->f, 6 * VM_PAGE, 9);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(vm_fileh_size(r->h), 7 * VM_PAGE);
	assert_int_equal(rig_touch(m + 6 * VM_PAGE), 0);
	assert_int_equal(rig_load8(m + 6 * VM_PAGE), 9);
	rig_put_size(r->f, VM_PAGE);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(rig_touch(m + VM_PAGE), SIGBUS);
	assert_int_equal(rig_commit(r->h), 0);
}

static void a_size_that_is_not_committed_stays(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	rig_resize(r->h, 9 * VM_PAGE);
	rig_put_size(r->f, 7 * VM_PAGE);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(vm_fileh_size(r->h), 9 * VM_PAGE);
}

/* ---- while others look ---- */

struct pair {
	char *m;
	bool stop;
	unsigned long nlooks, nmixed;
};

/* The page that is looked at first never holds a newer version than the other. */
static void *compare(void *arg)
{
	struct pair *p = arg;

	while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) {
		unsigned first = p->nlooks % 2;
		uint64_t early = rig_load64(p->m + first * VM_PAGE), late;

		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		late = rig_load64(p->m + (1 - first) * VM_PAGE);
		p->nmixed += late < early;
		__atomic_add_fetch(&p->nlooks, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void pages_of_one_invalidation_change_at_one_instant(struct rig *r)
{
	struct pair p = {0};
	uint64_t v[2 * VM_BLKSIZE / 8] = {0};
	pthread_t t;

	rig_open(r, 64 * VM_PAGE);
	rig_put(r->f, 0, v, sizeof(v));
	rig_invalidate(r->h, 0, 64);
	p.m = rig_map(r->h, 0, 64);
	assert_int_equal(pthread_create(&t, NULL, compare, &p), 0);
	while (!__atomic_load_n(&p.nlooks, __ATOMIC_RELAXED))
		(void)sched_yield();
	for (uint64_t version = 1; version <= 300; version++) {
		v[0] = v[VM_PAGE / 8] = version;
		rig_put(r->f, 0, v, sizeof(v));
		rig_invalidate(r->h, 0, 64);
		assert_int_equal(rig_load64(p.m), version);
	}
	__atomic_store_n(&p.stop, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(p.nmixed, 0);
}

/* ---- while loading ---- */

struct invalidator {
	struct vm_fileh *h;
	struct rig_file *f;
	int err;
	bool done;
};

static void *invalidate_once(void *arg)
{
	struct invalidator *i = arg;

	rig_put_byte(i->f, 3 * VM_PAGE, 222);
	i->err = vm_fileh_invalidate(i->h, 0, 0, VM_DIRTY_DROP, NULL);
	__atomic_store_n(&i->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static char stale;
/* The bytes were read; before they arrive, the file changes and is invalidated (by another thread, to the
 * end). */
static int slow_load(struct vm_bigfile *file, uint64_t pgoff, size_t npages, void *buf);
static const struct vm_backend_ops *real_ops;
static struct invalidator *now;

static int slow_load(struct vm_bigfile *file, uint64_t pgoff, size_t npages, void *buf)
{
	struct invalidator *i = __atomic_exchange_n(&now, NULL, __ATOMIC_ACQ_REL);
	int err = real_ops->loadblk(file, pgoff, npages, buf);
	pthread_t t;

	if (i) {
		if (pthread_create(&t, NULL, invalidate_once, i) || pthread_join(t, NULL))
			abort();
		rig_store8(&stale, ((char *)buf)[(3 - pgoff) * VM_PAGE]);
	}
	return err;
}

static void a_load_that_an_invalidation_overtook_is_thrown_away(struct rig *r)
{
	struct invalidator inv = {0};
	struct vm_backend_ops slow;
	char *m;

	rig_open(r, 8 * VM_PAGE);
	inv.h = r->h;
	inv.f = r->f;
	real_ops = r->f->file.ops;
	slow = *real_ops;
	slow.loadblk = slow_load;
	r->f->file.ops = &slow;
	m = rig_map(r->h, 0, 8);
	__atomic_store_n(&now, &inv, __ATOMIC_RELEASE);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 222);
	assert_int_equal((uint8_t)rig_load8(&stale), rig_byte(3)); /* it was there, and thrown away */
	assert_true(__atomic_load_n(&inv.done, __ATOMIC_ACQUIRE));
	assert_int_equal(inv.err, 0);
	rig_unmap(m, 8);
	r->f->file.ops = real_ops;
}

/* ---- large, private, broken ---- */

static void invalidating_1_TiB_of_nothing_is_quick(struct rig *r)
{
	struct timespec a, b;
	char *m;

	if (rig_is_tsan())
		skip(); /* its shadow does not cover so much */
	rig_open_sparse(r, 1ull << 40);
	m = rig_map(r->h, 0, 1ull << 28);
	for (unsigned i = 0; i < 100; i++)
		rig_store8(m + ((uint64_t)i << 33), 'x');
	rig_commit(r->h);
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &a), 0);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &b), 0);
	assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 500);
	assert_int_equal(rig_load8(m + (5ull << 33)), 'x');
}

static void a_private_mapping_beside_shows_the_new_bytes_and_keeps_its_own(struct rig *r)
{
	char *m, *p;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	p = rig_map_with(r->h, 0, 8, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	assert_int_equal((uint8_t)rig_load8(p + 3 * VM_PAGE), rig_byte(3));
	rig_store8(p + 4 * VM_PAGE, 'p');
	for (unsigned pg = 0; pg < 8; pg++)
		rig_put_byte(r->f, pg * VM_PAGE, 200);
	rig_invalidate(r->h, 0, 8);
	assert_int_equal((uint8_t)rig_load8(p + 3 * VM_PAGE), 200);
	assert_int_equal(rig_load8(p + 4 * VM_PAGE), 'p');
	assert_int_equal((uint8_t)rig_load8(m + 4 * VM_PAGE), 200);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_private_mapping_of_a_child_shows_the_new_bytes(struct rig *r)
{
	int to_child[2], to_parent[2];
	pid_t pid;
	char c, *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	(void)rig_load8(m + 3 * VM_PAGE);
	assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
	pid = rig_fork();
	if (!pid) {
		char *p = rig_map_with(r->h, 0, 8, PROT_READ, MAP_PRIVATE);

		if ((uint8_t)rig_load8(p + 3 * VM_PAGE) != rig_byte(3))
			_exit(1);
		if (write(to_parent[1], "x", 1) != 1 || read(to_child[0], &c, 1) != 1)
			_exit(2);
		_exit((uint8_t)rig_load8(p + 3 * VM_PAGE) == 200 && (uint8_t)rig_load8(m + 3 * VM_PAGE) == 200 ? 0 : 3);
	}
	assert_int_equal(read(to_parent[0], &c, 1), 1);
	rig_put_byte(r->f, 3 * VM_PAGE, 200);
	rig_invalidate(r->h, 0, 8);
	assert_int_equal(write(to_child[1], "x", 1), 1);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 200);
	assert_int_equal(close(to_child[0]) | close(to_child[1]) | close(to_parent[0]) | close(to_parent[1]), 0);
}

static void an_invalidation_that_cannot_read_says_so_and_can_be_repeated(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m + 2 * VM_PAGE, 's');
	rig_put_byte(r->f, 3 * VM_PAGE, 200);
	rig_fail(r->f, RIG_LOADBLK, 1, EIO);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), -EIO);
	assert_int_equal(rig_try_commit(r->h), -EIO); /* half of the stores may be gone */
	rig_fail_none(r->f);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal((uint8_t)rig_load8(m + 3 * VM_PAGE), 200);
	rig_store8(m, 'x');
	assert_int_equal(rig_commit(r->h), 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(old_bytes_are_seen_until_invalidated_and_then_the_new_ones),
	RIG_BOTH(a_part_of_a_page_invalidates_the_page),
	RIG_BOTH(a_hole_that_got_data_shows_it),
	RIG_BOTH(the_number_of_pages_dropped_is_told),
	RIG_BOTH(the_storages_new_size_comes_with_the_whole_file),
	RIG_BOTH(a_size_that_is_not_committed_stays),
	RIG_BOTH(pages_of_one_invalidation_change_at_one_instant),
	RIG_LAZY(a_load_that_an_invalidation_overtook_is_thrown_away),
	RIG_BOTH(invalidating_1_TiB_of_nothing_is_quick),
	RIG_BOTH(a_private_mapping_beside_shows_the_new_bytes_and_keeps_its_own),
	RIG_BOTH(a_private_mapping_of_a_child_shows_the_new_bytes),
	RIG_EAGER(an_invalidation_that_cannot_read_says_so_and_can_be_repeated),
};
RIG_MAIN(cases)
