/* SPDX-License-Identifier: MIT */
/*
 * Four threads do everything at random on one handle. Each has a place of its own in every page, where it
 * counts; nobody else stores there.
 *
 *	gentle	nothing may be lost: what a thread reads in its places is what it stored last, always, and the commit
 *		at the end holds it
 *	rough	discards, invalidations and shrinks take stores away: a place holds something that its thread did
 *		store there once, or zero
 *
 * STRESS_SEED, printed when a run fails, repeats it as far as threads repeat themselves; STRESS_OPS makes it
 * longer.
 */
#include "rig.h"

enum {
	NTHREADS = 4,
	NKEPT = 200, /* pages that the file never loses */
	NMAX = 600,
	NOWN = 64, /* pages of a thread's own mapping */
};

struct actor {
	pthread_t thread;
	struct rig *r;
	char *m;   /* everybody's mapping */
	char *own; /* a mapping of its own of [own_pgoff, own_pgoff + NOWN), or NULL */
	uint64_t own_pgoff;
	uint64_t random;
	unsigned no;
	bool is_rough;
	uint32_t count[NMAX]; /* what it stored last */
};

static uint64_t seed;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	(void)fprintf(stderr, "stress: %s (STRESS_SEED=%llu)\n", what, (unsigned long long)seed);
	abort();
}

static uint64_t dice(struct actor *a, uint64_t sides)
{
	a->random ^= a->random << 13;
	a->random ^= a->random >> 7;
	a->random ^= a->random << 17;
	return (a->random >> 8) % sides;
}

/* ---- places and what they hold ---- */

static uint64_t off_of(const struct actor *a, uint64_t pg)
{
	return pg * VM_PAGE + 64 * a->no + 8;
}

static uint64_t value_of(const struct actor *a, uint64_t pg, uint32_t count)
{
	return count ? (uint64_t)(pg + 1) << 48 | (uint64_t)(a->no + 1) << 40 | count : 0;
}

static void check_value(const struct actor *a, uint64_t pg, uint64_t value)
{
	if (a->is_rough)
		must(value == value_of(a, pg, (uint32_t)value) && (uint32_t)value <= a->count[pg],
		     "a place holds what was never stored there");
	else
		must(value == value_of(a, pg, a->count[pg]), "a store is lost");
}

static uint64_t kept_page(struct actor *a)
{
	return dice(a, NKEPT);
}

/* ---- what they do ---- */

static void do_store(struct actor *a)
{
	uint64_t pg = kept_page(a);

	rig_store64(a->m + off_of(a, pg), value_of(a, pg, ++a->count[pg]));
}

static void do_load(struct actor *a)
{
	uint64_t pg = kept_page(a);

	check_value(a, pg, rig_load64(a->m + off_of(a, pg)));
}

/* Where the file may end at any moment. */
static void do_touch_beyond(struct actor *a)
{
	uint64_t pg = NKEPT + dice(a, NMAX - NKEPT);
	char *p = a->m + pg * VM_PAGE + 64 * a->no;
	int sig = dice(a, 2) ? rig_touch(p) : rig_store(p, 1);

	must(!sig || sig == SIGBUS, "a touch beyond the end is SIGBUS");
}

static void do_write(struct actor *a)
{
	uint64_t pg = kept_page(a), value = value_of(a, pg, ++a->count[pg]);

	must(rig_write(a->r->h, &value, sizeof(value), off_of(a, pg)) == sizeof(value), "write");
}

static void do_read(struct actor *a)
{
	uint64_t pg = kept_page(a), value;

	must(rig_read(a->r->h, &value, sizeof(value), off_of(a, pg)) == sizeof(value), "read");
	check_value(a, pg, value);
}

/* A place is written from itself: the buffer is one of ours. */
static void do_write_from_mapping(struct actor *a)
{
	uint64_t pg = kept_page(a);
	ssize_t n;

	do {
		must(!vm_prepare(a->m + off_of(a, pg), 8, false), "vm_prepare");
		n = rig_write(a->r->h, a->m + off_of(a, pg), 8, off_of(a, pg));
	} while (n == -EFAULT);
	must(n == 8, "write from a mapping");
}

static void do_append(struct actor *a)
{
	static const char zeros[100];
	struct iovec iov = {(void *)zeros, sizeof(zeros)};

	if (vm_fileh_size(a->r->h) < (NMAX - 10) * VM_PAGE)
		must(vm_fileh_write(a->r->h, &iov, 1, VM_APPEND, NULL) == sizeof(zeros), "append");
}

static void do_resize(struct actor *a)
{
	must(!vm_fileh_resize(a->r->h, NKEPT * VM_PAGE + dice(a, (NMAX - NKEPT) * VM_PAGE)), "resize");
}

static void do_commit(struct actor *a)
{
	struct vm_commit_result res;

	must(!vm_fileh_commit(a->r->h, dice(a, 2), false, &res), "commit");
}

static void do_invalidate(struct actor *a)
{
	uint64_t off = dice(a, NMAX) * VM_PAGE, len = dice(a, 64) * VM_PAGE;
	enum vm_on_dirty how = a->is_rough ? (enum vm_on_dirty)dice(a, 3) : VM_DIRTY_KEEP;
	int err;

	if (!dice(a, 4))
		off = len = 0;
	err = vm_fileh_invalidate(a->r->h, off, len, how, NULL);
	must(!err || err == -EINVAL || (err == -EBUSY && how == VM_DIRTY_FAIL), "invalidate");
}

static void do_discard(struct actor *a)
{
	if (a->is_rough)
		must(!vm_fileh_discard(a->r->h), "discard");
}

static void do_zero(struct actor *a)
{
	uint64_t pg = kept_page(a);

	a->count[pg] = a->is_rough ? a->count[pg] : 0;
	must(!vm_fileh_zero(a->r->h, off_of(a, pg), 8), "zero");
}

static void do_look(struct actor *a)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(a->r->h, dice(a, 2), &st);
	must(st.npages_dirty <= st.npages_resident && st.size >= NKEPT * VM_PAGE, "stat");
	must(!vm_fileh_is_shared(a->r->h), "not shared");
	if (!dice(a, 4))
		must(!vm_fileh_checkpoint(a->r->h), "checkpoint");
}

static void do_check(struct actor *a)
{
	(void)a;
	vm_check();
}

static void unmap_own(struct actor *a)
{
	if (a->own)
		must(!vm_unmap(a->own, NOWN * VM_PAGE), "unmap");
	a->own = NULL;
}

static void do_map(struct actor *a)
{
	void *p;

	unmap_own(a);
	a->own_pgoff = dice(a, NKEPT - NOWN);
	must(!vm_map(a->r->h, NULL, NOWN * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		     a->own_pgoff * VM_PAGE, true, &p),
	     "map");
	a->own = p;
}

/* Shorter, and longer again, elsewhere perhaps. */
static void move_own(struct actor *a)
{
	void *to;
	int err = vm_remap(a->own, NOWN * VM_PAGE, NOWN / 2 * VM_PAGE, 0, NULL, &to);

	must(!err || err == -EFAULT, "shrink the mapping"); /* in several parts by now */
	if (err)
		return;
	must(!vm_remap(a->own, NOWN / 2 * VM_PAGE, NOWN * VM_PAGE, MREMAP_MAYMOVE, NULL, &to),
	     "grow the mapping");
	a->own = to;
}

/* Its own mapping: stored into, cut, protected, moved, unmapped in parts. */
static void do_own(struct actor *a)
{
	uint64_t i = dice(a, NOWN), n = 1 + dice(a, NOWN - i), pg;
	char *p;
	void *to;

	if (!a->own)
		do_map(a);
	pg = a->own_pgoff + i;
	p = a->own + i * VM_PAGE;
	switch (dice(a, 8)) {
	case 0:
		must(!vm_protect(p, n * VM_PAGE, PROT_READ), "protect");
		check_value(a, pg, rig_load64(a->own + off_of(a, i)));
		must(rig_store(p, 1) == SIGSEGV, "a store into a read-only page is SIGSEGV");
		must(!vm_protect(p, n * VM_PAGE, PROT_READ | PROT_WRITE), "protect");
		break;
	case 1: /* something new in its place, as mmap(MAP_FIXED) puts it */
		must(!vm_map_other(p, n * VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &to),
		     "map something else over a part");
		must(!vm_map(a->r->h, p, n * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			     pg * VM_PAGE, true, &to),
		     "map a part");
		break;
	case 2:
		unmap_own(a);
		break;
	case 3:
		move_own(a);
		break;
	default:
		rig_store64(a->own + off_of(a, i), value_of(a, pg, ++a->count[pg]));
		check_value(a, pg, rig_load64(a->m + off_of(a, pg)));
		break;
	}
}

static const struct {
	unsigned weight;
	void (*fn)(struct actor *a);
} deeds[] = {
	{400, do_store},     {200, do_load},   {40, do_touch_beyond},
	{60, do_write},	     {60, do_read},    {20, do_write_from_mapping},
	{10, do_append},     {15, do_resize},  {40, do_commit},
	{15, do_invalidate}, {10, do_discard}, {10, do_zero},
	{10, do_look},	     {10, do_check},   {10, do_map},
	{60, do_own},
};

static unsigned nops(void)
{
	const char *s = getenv("STRESS_OPS");

	return s ? (unsigned)strtoul(s, NULL, 10) : rig_is_tsan() ? 4000 : 10000;
}

static void *actor_main(void *arg)
{
	struct actor *a = arg;
	uint64_t sum = 0, n;

	for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++)
		sum += deeds[i].weight;
	for (unsigned op = nops(); op; op--) {
		n = dice(a, sum);
		for (size_t i = 0;; n -= deeds[i++].weight)
			if (n < deeds[i].weight) {
				deeds[i].fn(a);
				break;
			}
	}
	unmap_own(a);
	return NULL;
}

static void stress(struct rig *r, bool is_rough)
{
	static struct actor actors[NTHREADS];
	char page[VM_BLKSIZE];
	const char *s = getenv("STRESS_SEED");
	char *m;

	seed = s ? strtoull(s, NULL, 10) : (uint64_t)getpid() << 20 ^ (uint64_t)time(NULL);
	rig_open_sparse(r, NMAX * VM_PAGE);
	m = rig_map(r->h, 0, NMAX);
	for (unsigned i = 0; i < NTHREADS; i++) {
		actors[i] = (struct actor){.r = r, .m = m, .no = i, .is_rough = is_rough};
		actors[i].random = (seed + i + 1) * 0x9e3779b97f4a7c15ull | 1;
		assert_int_equal(pthread_create(&actors[i].thread, NULL, actor_main, &actors[i]), 0);
	}
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_int_equal(pthread_join(actors[i].thread, NULL), 0);
	vm_check();
	(void)rig_commit(r->h);
	assert_int_equal(rig_ndirty(r->h), 0);
	assert_int_equal(rig_size(r->f), vm_fileh_size(r->h));
	for (uint64_t pg = 0; pg < NKEPT; pg++) {
		rig_get(r->f, pg * VM_PAGE, page, VM_PAGE);
		assert_memory_equal(page, m + pg * VM_PAGE, VM_PAGE);
		for (unsigned i = 0; i < NTHREADS; i++)
			check_value(&actors[i], pg, rig_load64(page + off_of(&actors[i], 0)));
	}
	for (uint64_t pg = NKEPT; pg < vm_npages(vm_fileh_size(r->h)); pg++) {
		rig_get(r->f, pg * VM_PAGE, page, VM_PAGE);
		assert_memory_equal(page, m + pg * VM_PAGE, VM_PAGE);
	}
	rig_unmap(m, NMAX);
	assert_int_equal(rig_close(r->h), 0);
}

static void nothing_is_lost_while_threads_do_all_that_loses_nothing(struct rig *r)
{
	stress(r, false);
}

static void nothing_is_mixed_up_while_threads_do_everything(struct rig *r)
{
	stress(r, true);
}

static const struct rig_case cases[] = {
	RIG_BOTH(nothing_is_lost_while_threads_do_all_that_loses_nothing),
	RIG_BOTH(nothing_is_mixed_up_while_threads_do_everything),
};

RIG_MAIN(cases)
