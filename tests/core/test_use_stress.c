/* SPDX-License-Identifier: MIT */
/*
 * Eight threads use a view while others resize, export, commit and close it.
 *
 * Each user has a place of its own in every page, where it counts. Pages below NKEPT are never cut off: what
 * a user reads there is what it stored last. In pages above it can also be zero, after a shrink.
 *
 * STRESS_OPS: how often the view is resized (10000; a quarter of that in the later cases).
 */
#include "rig.h"
#include <sched.h>

enum {
	NUSERS = 8,
	NKEPT = 4,
	NMAX = 1000,
};

struct user {
	pthread_t thread;
	unsigned no;
	uint64_t random;
	uint64_t count[NMAX]; /* what it stored last */
	unsigned nrefused;
};

static struct vm_view view;
static struct vm_fileh *handle;
static bool stop;      /* (atomic) */
static unsigned ngone; /* (atomic) */
static struct user users[NUSERS];

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	(void)fprintf(stderr, "stress: %s\n", what);
	abort();
}

static uint64_t dice(uint64_t *random, uint64_t sides)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return (*random >> 8) % sides;
}

static bool is_over(void)
{
	return __atomic_load_n(&stop, __ATOMIC_ACQUIRE);
}

static unsigned nops(void)
{
	const char *s = getenv("STRESS_OPS");

	return s ? (unsigned)atoi(s) : rig_is_tsan() ? 2000 : 10000;
}

static void gone(struct vm_view *v)
{
	(void)v;
	__atomic_add_fetch(&ngone, 1, __ATOMIC_SEQ_CST);
}

static void open_view(struct vm_fileh *h, uint64_t npages)
{
	handle = h;
	ngone = 0;
	__atomic_store_n(&stop, false, __ATOMIC_RELEASE);
	memset(users, 0, sizeof(users));
	must(!vm_view_open(&view, h, npages * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, gone), "open");
}

/* ---- threads ---- */

/* One access at a page that exists while it is inside. */
static void count_one(struct user *u, char *addr, size_t len)
{
	uint64_t npages = len / VM_PAGE, pg = dice(&u->random, npages < NMAX ? npages : NMAX);
	char *place = addr + pg * VM_PAGE + 64 * u->no;
	uint64_t value = rig_load64(place);

	must(value == u->count[pg] || (pg >= NKEPT && !value), "a place holds what was not stored there");
	rig_store64(place, ++u->count[pg]);
}

/* Until the view is closed, or all is over. */
static void *use(void *arg)
{
	struct user *u = arg;
	void *addr;
	size_t len;
	int err;

	while (!is_over()) {
		err = vm_view_enter(&view, &addr, &len);
		if (err == -EBADF)
			return NULL;
		must(!err || err == -EAGAIN, "enter");
		if (err) {
			u->nrefused++;
		} else {
			count_one(u, addr, len);
			must(!vm_view_leave(&view), "leave");
		}
		if (dice(&u->random, 4) == 0)
			(void)sched_yield();
	}
	return NULL;
}

/* Keeps pointers for a while: they are good, and the memory is the same, until it gives them back. */
static void *export(void *arg)
{
	struct user *u = arg;
	void *addr;
	size_t len;
	int err;

	while (!is_over()) {
		err = vm_view_export(&view, &addr, &len);
		if (err == -EBADF)
			return NULL;
		must(!err || err == -EAGAIN, "export");
		for (unsigned i = 0; !err && i < 20; i++) {
			count_one(u, addr, len);
			must(__atomic_load_n(&view.addr, __ATOMIC_RELAXED) == addr, "exported memory moved");
			if (i % 5 == 0)
				(void)sched_yield();
		}
		if (!err)
			must(!vm_view_unexport(&view), "unexport");
		for (unsigned i = 0; i < 20; i++)
			(void)sched_yield();
	}
	return NULL;
}

/* By one page up or down, staying between NKEPT and NMAX. */
static uint64_t next_npages(uint64_t npages, uint64_t *random)
{
	bool down = npages == NMAX || (npages > NKEPT && dice(random, 4) == 0);

	return down ? npages - 1 : npages + 1;
}

static void resize_often(unsigned n, unsigned *ret_nagain, unsigned *ret_nbusy)
{
	uint64_t npages = NKEPT, want, random = 88172645463325252ull;
	unsigned nagain = 0, nbusy = 0;
	int err;

	while (n) {
		want = next_npages(npages, &random);
		err = vm_view_resize(&view, want * VM_PAGE, 0, NULL);
		must(!err || err == -EAGAIN || err == -EBUSY, "resize");
		nagain += err == -EAGAIN;
		nbusy += err == -EBUSY;
		if (err) {
			(void)sched_yield();
			continue;
		}
		npages = want;
		n--;
	}
	*ret_nagain = nagain;
	*ret_nbusy = nbusy;
}

static void *commit(void *arg)
{
	(void)arg;
	while (!is_over()) {
		must(!rig_try_commit(handle), "commit");
		for (unsigned i = 0; i < 200 && !is_over(); i++)
			(void)sched_yield();
	}
	return NULL;
}

static void start(unsigned nexporters)
{
	for (unsigned i = 0; i < NUSERS; i++) {
		users[i].no = i;
		users[i].random = 0x9e3779b97f4a7c15ull * (i + 1);
		must(!pthread_create(&users[i].thread, NULL, i < nexporters ? export : use, &users[i]),
		     "pthread_create");
	}
}

static void join(void)
{
	for (unsigned i = 0; i < NUSERS; i++)
		must(!pthread_join(users[i].thread, NULL), "pthread_join");
}

/* ---- tests ---- */

/* What the users stored in pages that were always there is in the file. */
static void check_file(struct rig *r)
{
	rig_commit(r->h);
	for (unsigned i = 0; i < NUSERS; i++)
		for (uint64_t pg = 0; pg < NKEPT; pg++) {
			uint64_t value;

			rig_get(r->f, pg * VM_PAGE + 64 * i, &value, sizeof(value));
			must(value == users[i].count[pg], "a store is lost");
		}
}

static void run(struct rig *r, unsigned nexporters)
{
	unsigned nresizes = nexporters || rig_is_lazy(r) ? nops() / 4 : nops(), nagain, nbusy;
	pthread_t committer;

	rig_open_sparse(r, NKEPT * VM_PAGE);
	open_view(r->h, NKEPT);
	start(nexporters);
	must(!pthread_create(&committer, NULL, commit, NULL), "pthread_create");
	resize_often(nresizes, &nagain, &nbusy);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	join();
	must(!pthread_join(committer, NULL), "pthread_join");
	print_message("%u resizes, of which refused: %u in use, %u exported\n", nresizes, nagain, nbusy);
	check_file(r);
	must(!vm_view_close(&view) && ngone == 1, "close");
	must(!vm_fileh_nvmas(r->h), "a mapping is left");
}

static void users_lose_nothing_while_the_view_is_resized(struct rig *r)
{
	run(r, 0);
}

static void users_and_exporters_lose_nothing_while_the_view_is_resized(struct rig *r)
{
	run(r, 3);
}

static void *resize_until_closed(void *arg)
{
	uint64_t npages = NKEPT, random = 1;
	int err;

	(void)arg;
	do {
		npages = next_npages(npages, &random);
		err = vm_view_resize(&view, npages * VM_PAGE, 0, NULL);
		must(!err || err == -EAGAIN || err == -EBUSY || err == -EBADF, "resize");
	} while (err != -EBADF);
	return NULL;
}

static pthread_barrier_t go;
static void *close_it(void *arg)
{
	(void)arg;
	(void)pthread_barrier_wait(&go);
	must(!vm_view_close(&view), "close");
	return NULL;
}

/* Users, exporters, one who resizes, two who close. */
static void whoever_is_the_last_one_out_the_mapping_goes_once(struct rig *r)
{
	pthread_t closers[2], resizer;

	rig_open(r, NKEPT * VM_PAGE);
	(void)pthread_barrier_init(&go, NULL, 3);
	for (unsigned round = 0; round < nops() / 40; round++) {
		rig_discard(r->h);
		rig_resize(r->h, 0);
		rig_resize(r->h, NKEPT * VM_PAGE);
		open_view(r->h, NKEPT);
		start(round % NUSERS);
		must(!pthread_create(&resizer, NULL, resize_until_closed, NULL), "pthread_create");
		for (unsigned i = 0; i < 2; i++)
			must(!pthread_create(&closers[i], NULL, close_it, NULL), "pthread_create");
		(void)pthread_barrier_wait(&go);
		for (unsigned i = 0; i < 2; i++)
			must(!pthread_join(closers[i], NULL), "pthread_join");
		must(!pthread_join(resizer, NULL), "pthread_join");
		join();
		must(ngone == 1, "gone, but not once");
		must(!vm_fileh_nvmas(r->h), "a mapping is left");
	}
}

static const struct rig_case cases[] = {
	RIG_BOTH(users_lose_nothing_while_the_view_is_resized),
	RIG_BOTH(users_and_exporters_lose_nothing_while_the_view_is_resized),
	RIG_BOTH(whoever_is_the_last_one_out_the_mapping_goes_once),
};
RIG_MAIN(cases)
