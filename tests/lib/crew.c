/* SPDX-License-Identifier: MIT */
#include "crew.h"
#include <sched.h>

static uint64_t off_of(const struct crew *c, unsigned writer, uint64_t pg)
{
	return pg / c->s.n * VM_PAGE + 64 * writer;
}

char *crew_at(struct crew *c, unsigned writer, uint64_t pg)
{
	return c->m[pg % c->s.n] + off_of(c, writer, pg);
}

static uint64_t npages_each(const struct crew *c)
{
	return (c->npages + c->s.n - 1) / c->s.n;
}

void crew_open(struct crew *c, struct rig *r, unsigned nfiles)
{
	c->s.n = nfiles;
	rig_open_set(r, &c->s, nfiles, rig_file_make_sparse, npages_each(c) * VM_PAGE);
	for (unsigned i = 0; i < nfiles; i++)
		c->m[i] = rig_map(c->s.h[i], 0, npages_each(c));
}

/* ---- writers ---- */

static void *idle_main(void *arg)
{
	char byte;

	(void)!read(*(int *)arg, &byte, 1);
	return NULL;
}

void idle_begin(struct idle *i)
{
	assert_int_equal(pipe(i->pipe), 0);
	assert_int_equal(pthread_create(&i->thread, NULL, idle_main, &i->pipe[0]), 0);
}

void idle_end(struct idle *i)
{
	(void)close(i->pipe[1]);
	assert_int_equal(pthread_join(i->thread, NULL), 0);
	(void)close(i->pipe[0]);
}

static void open_source(struct writer *w)
{
	int p[2];

	if (w->how == BY_PREAD) {
		w->from = w->to = memfd_create("numbers", MFD_CLOEXEC);
		assert_true(w->from >= 0);
	} else if (w->how == BY_READ) {
		assert_int_equal(pipe(p), 0);
		w->from = p[0];
		w->to = p[1];
	}
}

static void close_source(struct writer *w)
{
	if (w->how == BY_READ || w->how == BY_PREAD)
		(void)close(w->from);
	if (w->how == BY_READ)
		(void)close(w->to);
}

/* A system call stores, as a wrapper does it. */
static void put_by_kernel(struct writer *w, char *p, uint64_t value)
{
	ssize_t n;

	n = w->how == BY_READ ? write(w->to, &value, sizeof(value)) : pwrite(w->to, &value, sizeof(value), 0);
	if (n != sizeof(value))
		abort();
	do {
		if (vm_prepare(p, sizeof(value), true))
			abort();
		n = w->how == BY_READ ? vm_sys->read(w->from, p, sizeof(value))
				      : vm_sys->pread(w->from, p, sizeof(value), 0);
		w->nefault += n == -EFAULT;
	} while (n == -EFAULT);
	if (n != sizeof(value))
		abort();
}

static void put(struct writer *w, uint64_t pg, uint64_t value)
{
	struct crew *c = w->crew;

	switch (w->how) {
	case BY_STORE:
		put_release(c->m2 && pg % 2 ? c->m2 + off_of(c, w->no, pg) : crew_at(c, w->no, pg), value);
		break;
	case BY_WRITE:
		if (rig_write(c->s.h[pg % c->s.n], &value, sizeof(value), off_of(c, w->no, pg)) !=
		    sizeof(value))
			abort();
		break;
	case BY_READ:
	case BY_PREAD:
		put_by_kernel(w, crew_at(c, w->no, pg), value);
		break;
	}
}

/* Rounds of a burst: some milliseconds, less of those by the kernel, which take longer. */
static unsigned burst_of(const struct writer *w)
{
	return w->how == BY_STORE ? 10000 : 30;
}

static void rest(struct writer *w, uint32_t *seen)
{
	struct crew *c = w->crew;

	if (!c->in_bursts || w->rounds % burst_of(w))
		return;
	while (*seen == __atomic_load_n(&c->turn, __ATOMIC_ACQUIRE))
		vm_wait(&c->turn, *seen, VM_FOREVER);
	*seen = __atomic_load_n(&c->turn, __ATOMIC_ACQUIRE);
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	struct crew *c = w->crew;
	uint32_t seen = 0;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		for (uint64_t pg = 0; pg < c->npages; pg++) {
			put(w, pg, w->rounds + 1);
			if (c->is_slow)
				(void)sched_yield();
		}
		w->rounds++;
		rest(w, &seen);
	}
	return NULL;
}

/* The first counts; each of the others passes on what it sees, in a page of its own. */
static void *chain_main(void *arg)
{
	struct writer *w = arg;
	struct crew *c = w->crew;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		w->rounds = w->no ? get_acquire(crew_at(c, 0, w->no - 1)) : w->rounds + 1;
		put_release(crew_at(c, 0, w->no), w->rounds);
	}
	return NULL;
}

void crew_start(struct crew *c)
{
	assert_true(c->nwriters <= MAX_WRITERS);
	c->most_ahead = c->chained ? UINT64_MAX : 1;
	for (unsigned i = 0; i < c->nwriters; i++) {
		struct writer *w = &c->w[i];

		w->crew = c;
		w->no = i;
		open_source(w);
		assert_int_equal(pthread_create(&w->thread, NULL, c->chained ? chain_main : writer_main, w),
				 0);
	}
}

void crew_stop(struct crew *c)
{
	__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
	vm_wake(&c->turn);
	for (unsigned i = 0; i < c->nwriters; i++) {
		assert_int_equal(pthread_join(c->w[i].thread, NULL), 0);
		close_source(&c->w[i]);
	}
}

/* Writers with counters of their own. */
static unsigned nshown(const struct crew *c)
{
	return c->chained ? 1 : c->nwriters;
}

void crew_await_all(struct crew *c)
{
	for (unsigned i = 0; i < nshown(c); i++)
		while (!get_acquire(crew_at(c, i, c->npages - 1)))
			(void)sched_yield();
}

/* ---- what a commit holds ---- */

uint64_t crew_committed(struct crew *c, unsigned writer, uint64_t pg)
{
	uint64_t value;

	rig_get(c->s.f[pg % c->s.n], off_of(c, writer, pg), &value, sizeof(value));
	return value;
}

bool crew_check(struct crew *c, unsigned writer)
{
	uint64_t first = crew_committed(c, writer, 0), last = first;

	for (uint64_t pg = 1; pg < c->npages; pg++) {
		uint64_t value = crew_committed(c, writer, pg);

		if (value > last || first - value > c->most_ahead)
			fail_msg("writer %u: page %d holds %d, page 0 %d, the one before %d", writer, (int)pg,
				 (int)value, (int)first, (int)last);
		last = value;
	}
	return first != last;
}

void crew_check_equals_memory(struct crew *c)
{
	char page[VM_BLKSIZE];

	for (uint64_t pg = 0; pg < c->npages; pg++) {
		rig_get(c->s.f[pg % c->s.n], off_of(c, 0, pg), page, VM_PAGE);
		assert_memory_equal(page, crew_at(c, 0, pg), VM_PAGE);
	}
}

unsigned crew_for_each_kernel_mapping(const char *m, uint64_t npages, void (*fn)(const char *perms))
{
	FILE *s = fopen("/proc/self/maps", "re");
	unsigned long start, stop_addr;
	char line[512], perms[8];
	unsigned n = 0;

	assert_non_null(s);
	while (fgets(line, sizeof(line), s)) {
		assert_int_equal(sscanf(line, "%lx-%lx %7s", &start, &stop_addr, perms), 3);
		if (stop_addr <= (uintptr_t)m || start >= (uintptr_t)m + npages * VM_PAGE)
			continue;
		fn(perms);
		n++;
	}
	(void)fclose(s);
	return n;
}

static void must_be_rw(const char *perms)
{
	if (rig_is_uffd())
		assert_string_equal(perms, "rw-s");
	else /* what was not stored into since is watched */
		assert_memory_equal(perms, "r", 1);
}

void crew_check_protections(const char *m, uint64_t npages)
{
	unsigned n = crew_for_each_kernel_mapping(m, npages, must_be_rw);

	if (rig_is_uffd())
		assert_int_equal(n, 1);
}

void crew_check_cuts(struct crew *c)
{
	/* most instants lie within a round of somebody who never rests; else some do, on a busy machine later */
	const unsigned nenough = c->in_bursts ? 1 : c->ncuts / 20;
	unsigned nbetween = 0;
	uint64_t began[MAX_WRITERS];

	crew_start(c);
	crew_await_all(c);
	rig_commit_set(&c->s);
	for (unsigned i = 0; i < nshown(c); i++)
		began[i] = crew_committed(c, i, 0);
	for (unsigned i = 0; i < c->ncuts || (nbetween < nenough && i < 10 * c->ncuts); i++) {
		const char *one = crew_at(c, i % nshown(c), 0);
		uint64_t seen = get_acquire(one);
		bool between = false;

		vm_wake(&c->turn);
		while (get_acquire(one) == seen) /* nobody starves: each has its turn */
			(void)sched_yield();
		rig_commit_set(&c->s);
		for (unsigned k = 0; k < nshown(c); k++) {
			bool shown = crew_check(c, k);

			c->w[k].nshown += shown;
			between |= shown;
		}
		nbetween += between;
	}
	crew_stop(c);
	for (unsigned i = 0; i < nshown(c); i++) /* they were not merely waiting */
		assert_true(crew_committed(c, i, 0) > began[i]);
	assert_true(nbetween >= nenough);
	rig_commit_set(&c->s);
	crew_check_equals_memory(c);
	for (unsigned i = 0; i < c->s.n; i++) {
		assert_int_equal(rig_ndirty(c->s.h[i]), 0);
		crew_check_protections(c->m[i], npages_each(c));
	}
}
