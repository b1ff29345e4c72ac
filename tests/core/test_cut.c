/* SPDX-License-Identifier: MIT */
/*
 * The cut. Writers store 1, 2, 3, ... to page 0, 1, ... n - 1 in turn, over and over. Whatever instant a
 * commit holds, a writer's counters in it do not rise from page to page, and the first is at most one ahead
 * of the last: a store is never there without one that came before it.
 */
#include "cut_rig.h"
#include <sched.h>

enum how { BY_STORE, BY_WRITE, BY_READ };

struct crew;
struct writer {
	pthread_t thread;
	struct crew *crew;
	unsigned no;
	enum how how;
	uint64_t rounds;  /* complete ones */
	int pipe[2];	  /* BY_READ */
	uint64_t nefault; /* BY_READ: how often the kernel met a protected page */
};

#define MAX_WRITERS 4
struct crew {
	struct rig *r;
	char *m;
	char *m2; /* odd pages are stored into here (may be NULL) */
	uint64_t npages;
	unsigned nwriters;
	unsigned ncuts;
	bool chained; /* a writer stores what it reads in its page from the writer before it */
	bool is_slow;
	bool stop; /* (atomic) */
	struct writer w[MAX_WRITERS];
};

static uint64_t off_of(unsigned writer, uint64_t pg)
{
	return pg * VM_PAGE + 64 * writer;
}

/* ---- writers ---- */

static uint64_t get_acquire(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

/* read(2) from a pipe into the mapping, as a wrapper does it. */
static void put_by_read(struct writer *w, char *p, uint64_t value)
{
	ssize_t n;

	if (write(w->pipe[1], &value, sizeof(value)) != sizeof(value))
		abort();
	do {
		if (vm_prepare(p, sizeof(value), true))
			abort();
		n = vm_sys->read(w->pipe[0], p, sizeof(value));
		w->nefault += n == -EFAULT;
	} while (n == -EFAULT);
	if (n != sizeof(value))
		abort();
}

static void put(struct writer *w, uint64_t pg, uint64_t value)
{
	struct crew *c = w->crew;
	uint64_t off = off_of(w->no, pg);

	switch (w->how) {
	case BY_STORE:
		put_release((c->m2 && pg % 2 ? c->m2 : c->m) + off, value);
		break;
	case BY_WRITE:
		if (rig_write(c->r->h, &value, sizeof(value), off) != sizeof(value))
			abort();
		break;
	case BY_READ:
		put_by_read(w, c->m + off, value);
		break;
	}
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	struct crew *c = w->crew;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		for (uint64_t pg = 0; pg < c->npages; pg++) {
			put(w, pg, w->rounds + 1);
			if (c->is_slow)
				(void)sched_yield();
		}
		w->rounds++;
	}
	return NULL;
}

/* The first counts; each of the others passes on what it sees, in a page of its own. */
static void *chain_main(void *arg)
{
	struct writer *w = arg;
	struct crew *c = w->crew;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		w->rounds = w->no ? get_acquire(c->m + off_of(0, w->no - 1)) : w->rounds + 1;
		put_release(c->m + off_of(0, w->no), w->rounds);
	}
	return NULL;
}

static void start(struct crew *c)
{
	assert_true(c->nwriters <= MAX_WRITERS);
	for (unsigned i = 0; i < c->nwriters; i++) {
		struct writer *w = &c->w[i];

		w->crew = c;
		w->no = i;
		if (w->how == BY_READ)
			assert_int_equal(pipe(w->pipe), 0);
		assert_int_equal(pthread_create(&w->thread, NULL, c->chained ? chain_main : writer_main, w),
				 0);
	}
}

static void stop(struct crew *c)
{
	__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < c->nwriters; i++) {
		assert_int_equal(pthread_join(c->w[i].thread, NULL), 0);
		if (c->w[i].how == BY_READ) {
			(void)close(c->w[i].pipe[0]);
			(void)close(c->w[i].pipe[1]);
		}
	}
}

/* ---- what a commit holds ---- */

static uint64_t committed(struct rig *r, unsigned writer, uint64_t pg)
{
	uint64_t value;

	rig_get(r->f, off_of(writer, pg), &value, sizeof(value));
	return value;
}

/* Is it a prefix of what the writer stored? Returns whether it shows the writer on its way. */
static bool check_prefix(struct crew *c, unsigned writer, uint64_t npages, uint64_t most_ahead)
{
	uint64_t first = committed(c->r, writer, 0), last = first;

	for (uint64_t pg = 1; pg < npages; pg++) {
		uint64_t value = committed(c->r, writer, pg);

		if (value > last || first - value > most_ahead)
			fail_msg("writer %u: page %d holds %d, page 0 %d, the one before %d", writer, (int)pg,
				 (int)value, (int)first, (int)last);
		last = value;
	}
	return first != last;
}

static void check_equals_memory(struct crew *c)
{
	char page[VM_BLKSIZE];

	for (uint64_t pg = 0; pg < c->npages; pg++) {
		rig_get(c->r->f, pg * VM_PAGE, page, VM_PAGE);
		assert_memory_equal(page, c->m + pg * VM_PAGE, VM_PAGE);
	}
}

static void must_be_read_only(const char *perms)
{
	assert_string_equal(perms, "r--s");
}

/* ---- cuts under writers ---- */

/* The counters of many commits, the rest at the end. */
static void check_cuts(struct crew *c, uint64_t npages_shown, uint64_t most_ahead)
{
	unsigned nbetween = 0;
	uint64_t began[MAX_WRITERS];
	const unsigned nshown = c->chained ? 1 : c->nwriters;

	start(c);
	for (unsigned i = 0; i < nshown; i++) /* everyone is at work */
		while (!get_acquire(c->m + off_of(i, npages_shown - 1)))
			(void)sched_yield();
	(void)rig_commit(c->r->h);
	for (unsigned i = 0; i < nshown; i++)
		began[i] = committed(c->r, i, 0);
	for (unsigned i = 0; i < c->ncuts; i++) {
		uint64_t seen = get_acquire(c->m + off_of(0, 0));
		bool between = false;

		while (get_acquire(c->m + off_of(0, 0)) == seen) /* nobody starves */
			(void)sched_yield();
		(void)rig_commit(c->r->h);
		for (unsigned k = 0; k < nshown; k++)
			between |= check_prefix(c, k, npages_shown, most_ahead);
		nbetween += between;
	}
	stop(c);
	for (unsigned i = 0; i < nshown; i++) /* they were not merely waiting */
		assert_true(committed(c->r, i, 0) > began[i]);
	assert_true(nbetween > c->ncuts / 20); /* most instants lie within a round of somebody */
	(void)rig_commit(c->r->h);
	check_equals_memory(c);
	assert_int_equal(rig_ndirty(c->r->h), 0);
	check_protections(c->m, c->npages);
}

static void open_crew(struct crew *c)
{
	rig_open_sparse(c->r, c->npages * VM_PAGE);
	c->m = rig_map(c->r->h, 0, c->npages);
}

static void a_commit_holds_one_instant_of_a_few_hot_pages(struct rig *r)
{
	struct crew c = {.r = r, .npages = 16, .nwriters = 4, .ncuts = 120};

	open_crew(&c);
	check_cuts(&c, c.npages, 1);
}

static void a_commit_holds_one_instant_of_many_pages(struct rig *r)
{
	struct crew c = {.r = r, .npages = 300, .nwriters = 2, .ncuts = 25};

	open_crew(&c);
	check_cuts(&c, c.npages, 1);
}

static void a_commit_holds_one_instant_of_slow_writers(struct rig *r)
{
	struct crew c = {.r = r, .npages = 64, .nwriters = 3, .ncuts = 100, .is_slow = true};

	open_crew(&c);
	check_cuts(&c, c.npages, 1);
}

static void a_commit_keeps_the_order_between_threads(struct rig *r)
{
	struct crew c = {.r = r, .npages = 4, .nwriters = 4, .ncuts = 40, .chained = true};

	open_crew(&c);
	check_cuts(&c, c.npages, UINT64_MAX);
}

static void a_commit_holds_one_instant_of_writes_by_the_kernel(struct rig *r)
{
	struct crew c = {.r = r,
			 .npages = 24,
			 .nwriters = 3,
			 .ncuts = 100,
			 .w = {{.how = BY_WRITE}, {.how = BY_READ}, {.how = BY_STORE}}};

	open_crew(&c);
	check_cuts(&c, c.npages, 1);
}

/* The pages of one writer are shown, and stored into, at two places. */
static void a_commit_holds_one_instant_of_two_mappings(struct rig *r)
{
	struct crew c = {.r = r, .npages = 32, .nwriters = 2, .ncuts = 40};
	char *other;

	open_crew(&c);
	other = rig_map(r->h, 0, c.npages);
	c.m2 = other;
	check_cuts(&c, c.npages, 1);
	check_protections(other, c.npages);
}

/* ---- after the cut ---- */

static void store_after_the_cut(struct rig_file *f, uint64_t pgoff)
{
	(void)pgoff;
	rig_store8((char *)f->hook_arg, 2);
	f->hook[RIG_COMMIT] = NULL;
}

static void a_store_after_the_cut_stays_dirty(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_hook_at(r->f, RIG_COMMIT, store_after_the_cut, m + 3 * VM_PAGE);
	rig_store8(m + 3 * VM_PAGE, 1);
	rig_store8(m + 4 * VM_PAGE, 1);
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 1);
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 2);
}

/* The engine's own protections and the freeze go up to what the program asked for, and no further. */
static void a_cut_gives_no_more_rights_than_the_program_asked_for(struct rig *r)
{
	struct crew c = {.r = r, .npages = 16, .nwriters = 2, .ncuts = 40};
	char *ro, *part;

	open_crew(&c);
	ro = rig_map_with(r->h, 0, 16, PROT_READ, MAP_SHARED);
	part = rig_map(r->h, 0, 16);
	assert_int_equal(vm_protect(part + 4 * VM_PAGE, 4 * VM_PAGE, PROT_READ), 0);
	(void)rig_touch(ro);
	check_cuts(&c, c.npages, 1);
	for (unsigned pg = 0; pg < 16; pg++) {
		(void)rig_touch(ro + pg * VM_PAGE); /* segv: as loaded by the other mapping */
		assert_int_equal(rig_store(ro + pg * VM_PAGE, 1), SIGSEGV);
		assert_int_equal(rig_store(part + pg * VM_PAGE + 1024, 1), pg / 4 == 1 ? SIGSEGV : 0);
	}
	assert_true(for_each_kernel_mapping(ro, 16, must_be_read_only) > 0);
	assert_int_equal(rig_ndirty(r->h), 12);
}

/* ---- failures ---- */

/* A commit that fails half way loses nothing, and leaves nobody frozen. */
static void a_failed_cut_leaves_the_writers_running_and_their_stores_dirty(struct rig *r)
{
	struct crew c = {.r = r, .npages = 16, .nwriters = 3};

	open_crew(&c);
	start(&c);
	for (unsigned i = 0; i < c.nwriters; i++)
		while (!get_acquire(c.m + off_of(i, c.npages - 1)))
			(void)sched_yield();
	for (unsigned nth = 1; nth <= 12; nth++) {
		uint64_t seen = get_acquire(c.m + off_of(0, 0));

		rig_fail(r->f, RIG_STOREBLK, nth, ENOSPC);
		if (rig_try_commit(r->h))
			assert_int_equal(r->f->in_txn, false);
		rig_fail_none(r->f);
		while (get_acquire(c.m + off_of(0, 0)) < seen + 2) /* it goes on */
			(void)sched_yield();
		(void)check_prefix(&c, 0, c.npages, 1);
	}
	stop(&c);
	(void)rig_commit(r->h);
	check_equals_memory(&c);
	check_protections(c.m, c.npages);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_commit_holds_one_instant_of_a_few_hot_pages),
	RIG_BOTH(a_commit_holds_one_instant_of_many_pages),
	RIG_EAGER(a_commit_holds_one_instant_of_slow_writers),
	RIG_BOTH(a_commit_keeps_the_order_between_threads),
	RIG_BOTH(a_commit_holds_one_instant_of_writes_by_the_kernel),
	RIG_EAGER(a_commit_holds_one_instant_of_two_mappings),
	RIG_BOTH(a_store_after_the_cut_stays_dirty),
	RIG_BOTH(a_cut_gives_no_more_rights_than_the_program_asked_for),
	RIG_BOTH(a_failed_cut_leaves_the_writers_running_and_their_stores_dirty),
};

RIG_MAIN(cases)
