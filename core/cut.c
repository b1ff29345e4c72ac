/* SPDX-License-Identifier: MIT */
/*
 * The cut: one instant, whose stores a commit holds.
 *
 *	round 1	  harvest (what was stored into is protected again), store those pages
 *	round n	  harvest again; pages stored into meanwhile are stored again, whole
 *	...	  until a harvest finds nothing new
 *
 * At that last harvest every page equals what was stored for it: that is the instant, and nobody was stopped.
 * If a busy program does not let it settle, the pages that stay hot are frozen, then everything. With the
 * segv engine the first round is frozen already: a protection that is taken away cannot tell a second store
 * from a first.
 *
 * Of several files each round is one of all of them: the looks and the copies of a round come before any look
 * of the next. So if that finds nothing in any of them, they stood still together while the last copies were
 * made:
 *
 *	file 1	 look ... copy ....................... look
 *	file 2	      look ... copy .......................  look
 *				     ◀─ the instant ─▶
 */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

#define ROUNDS_FREE   3u  /* without a freeze */
#define ROUNDS_FROZEN 6u  /* with the hot pages frozen; then all of it */
#define ROUNDS_MAX    40u /* ten seconds: one that is stopped goes on again and again, and never answers */

struct cut {
	struct vm_fileh **h;
	unsigned n;
	bool overwrite;
	unsigned round;
	bool single;  /* this thread is the only one here that could store */
	bool alone;   /* and there is no other process that could */
	bool asked;   /* the others look in this round, too ... */
	bool early;   /* ... and were asked in the one before already */
	bool froze;   /* they hold still */
	bool stopped; /* one of them is stopped, and cannot look */
};

static bool freezes(const struct cut *c)
{
	return c->stopped || c->round >= ROUNDS_FROZEN || vm_engine_ops == &vm_engine_segv;
}

/* Who has the files? must_freeze: an engine that cannot tell a second store from a first. */
static void survey(struct cut *c, bool *must_freeze)
{
	*must_freeze = false;
	c->single = c->alone = vm_thread_is_alone();
	for (unsigned k = 0; k < c->n; k++) {
		struct vm_fileh *h = c->h[k];

		vm_fileh_lock(h);
		h->ctl->joined = false;
		for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
			if (!h->ctl->peers[i].pid)
				continue;
			*must_freeze |= h->ctl->peers[i].protects;
			c->alone &= i == h->peer;
		}
		h->part.valid = h->ctl->size_low >> VM_PAGE_SHIFT;
		vm_fileh_unlock(h);
	}
}

int vm_need_scratch(struct vm_fileh *h)
{
	void *p;

	if (h->scratch)
		return 0;
	p = vm_own_map(VM_BATCH_NPAGES * VM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm_sys_err(p))
		return vm_sys_err(p);
	h->scratch = p;
	return 0;
}

/* How far through the pages of a round. */
struct walk {
	size_t i;	/* run */
	uint64_t npages; /* of it are behind us */
};

typedef int piece_fn(struct vm_fileh *h, uint64_t start, uint64_t n, char *buf, uint64_t valid);

/* fn for the next pages, as many as scratch takes. */
static int for_batch(struct vm_fileh *h, struct walk *w, piece_fn *fn, uint64_t valid)
{
	uint64_t room = VM_BATCH_NPAGES;
	char *buf = h->scratch;
	int err = 0;

	while (!err && room && w->i < h->round.n) {
		const struct vm_pgrun *run = &h->round.run[w->i];
		uint64_t start = run->start + w->npages, n = run->stop - start < room ? run->stop - start : room;

		err = fn(h, start, n, buf, valid);
		buf += n * VM_PAGE;
		room -= n;
		w->npages += n;
		if (start + n == run->stop)
			*w = (struct walk){.i = w->i + 1};
	}
	return err;
}

static int copy_piece(struct vm_fileh *h, uint64_t start, uint64_t n, char *buf, uint64_t valid)
{
	(void)valid;
	return vm_ram_copy(&h->ram, start, n, buf);
}

static int store(struct vm_fileh *h, uint64_t start, uint64_t n, const char *buf, unsigned flags)
{
	struct vm_copy *copy = h->part.copy;

	return copy ? copy->store(copy, start, n, buf) : h->file->ops->storeblk(h->file, start, n, buf, flags);
}

static int store_piece(struct vm_fileh *h, uint64_t start, uint64_t n, char *buf, uint64_t valid)
{
	uint64_t below = start >= valid ? 0 : n < valid - start ? n : valid - start;
	int err = below ? store(h, start, below, buf, 0) : 0;

	if (!err && below < n)
		err = store(h, start + below, n - below, buf + below * VM_PAGE, VM_STORE_AGAIN);
	return err;
}

static void begin_ask_all(struct cut *c, enum vm_ask ask)
{
	for (unsigned k = 0; k < c->n; k++)
		vm_ask_begin(c->h[k], ask);
}

static int end_ask_all(struct cut *c)
{
	int err = 0, e;

	for (unsigned k = 0; k < c->n; k++) {
		e = vm_ask_end(c->h[k]);
		err = err ? err : e;
	}
	return err;
}

/* Give the pages of one round to the backend; differences to the storage may not be left out of what is
 * stored again, and where that has none. last: these are the last copies of the round. */
static int store_round(struct cut *c, struct vm_fileh *h, bool last)
{
	uint64_t valid = c->round ? 0 : h->part.valid;
	struct walk copied = {0}, stored = {0};
	int err = 0;

	while (!err && copied.i < h->round.n) {
		err = for_batch(h, &copied, copy_piece, valid);
		if (!err && last && copied.i == h->round.n) {
			begin_ask_all(c, VM_ASK_HARVEST);
			c->early = true;
		}
		if (!err)
			err = for_batch(h, &stored, store_piece, valid);
	}
	for (size_t i = 0; i < h->round.n; i++)
		h->part.npages += h->round.run[i].stop - h->round.run[i].start;
	return err;
}

/* asks: the others look for the next round as soon as the last page is copied. */
static int store_all(struct cut *c, bool asks)
{
	unsigned last = c->n;
	int err = 0;

	while (last && !c->h[last - 1]->round.n)
		last--;
	for (unsigned k = 0; !err && k < last; k++) {
		struct vm_fileh *h = c->h[k];

		if (h->round.n && !h->part.begun && !h->part.copy) /* stored into since the look */
			err = vm_part_begin(h, c->overwrite);
		if (!err)
			err = store_round(c, h, asks && k == last - 1);
	}
	return err;
}

/* Have the others look. */
static int ask_all(struct cut *c)
{
	bool suspect = false;
	int err;

	c->froze |= c->round >= ROUNDS_FREE;
	if (!c->early)
		begin_ask_all(c, c->froze ? VM_ASK_FREEZE : VM_ASK_HARVEST);
	c->early = false;
	err = end_ask_all(c);
	for (unsigned k = 0; k < c->n; k++)
		suspect |= c->h[k]->ctl->suspect;
	/* One that is stopped does not tell what it stored: everything is compared. The others stand still
	 * for that, or it would be done in each round. */
	c->stopped = !err && suspect;
	if (c->stopped && !c->froze) {
		c->froze = true;
		begin_ask_all(c, VM_ASK_FREEZE);
		err = end_ask_all(c);
	}
	return err;
}

/* One harvest. Locks held. The pages new since the last one are in h->round. */
static int harvest(struct cut *c, struct vm_fileh *h)
{
	const bool all = freezes(c);
	int err = 0;

	if (all || c->round >= ROUNDS_FREE)
		err = vm_freeze(h, all ? NULL : &h->round, false);
	h->round.n = 0;
	/* what the caller's look has just harvested is round 0; a frozen round must be harvested under the
	 * freeze */
	if (!err && ((c->round && !c->single) || h->frozen))
		err = vm_harvest(h);
	if (!err)
		err = vm_page_suspect(h);
	if (!err)
		err = vm_page_begin_store(h, &h->round);
	return err;
}

/* This process's look. *ret_done: it is the last one that is needed. */
static int harvest_all(struct cut *c, bool *ret_done)
{
	bool done = !c->alone;
	int err = 0;

	for (unsigned k = 0; !err && k < c->n; k++) {
		struct vm_fileh *h = c->h[k];

		vm_lock(&vm_map_lock);
		vm_fileh_lock(h);
		h->part.stopped = c->stopped ? vm_ask_stopped(h) : 0;
		/* a writer in vm_fileh_write is no store that a harvest sees: none is inside (gate) */
		err = harvest(c, h);
		/* Nothing new, or nobody who could have, when all of it is frozen. And the others' looks came
		 * before this one: none of them stored in between. */
		done = done && (!h->round.n || freezes(c)) && c->asked && vm_ask_still_holds(h, h->part.stopped);
		h->part.txn.size = h->ctl->size;
		h->part.txn.size_low = h->ctl->size_low;
		vm_fileh_unlock(h);
		vm_unlock(&vm_map_lock);
	}
	*ret_done = !err && (done || c->alone);
	return err;
}

/* Was nobody storing while the last pages were copied, whom this process did not know of? One that was stopped
 * may have been let go: then whether it has answered since does not matter. And a child that was on its way
 * when this process found itself alone may be there by now; where others are, who comes waits while they are
 * frozen, or comes after the last copy. */
static bool still_holds(struct cut *c)
{
	bool holds = true, joined = false;

	for (unsigned k = 0; k < c->n; k++) {
		vm_fileh_lock(c->h[k]);
		holds &= vm_ask_still_holds(c->h[k], c->h[k]->part.stopped);
		joined |= c->h[k]->ctl->joined;
		vm_fileh_unlock(c->h[k]);
	}
	holds &= !c->alone || !joined;
	c->alone &= !joined;
	return holds;
}

static void thaw_all(struct cut *c)
{
	for (unsigned k = 0; k < c->n; k++) {
		if (__atomic_load_n(&c->h[k]->frozen, __ATOMIC_SEQ_CST)) { /* by this cut: it is the busy one */
			vm_lock(&vm_map_lock);
			vm_fileh_lock(c->h[k]);
			vm_thaw(c->h[k]);
			vm_fileh_unlock(c->h[k]);
			vm_unlock(&vm_map_lock);
		}
		if (c->froze)
			vm_ask_thaw(c->h[k]);
	}
}

int vm_cut(struct vm_fileh **h, unsigned n, bool overwrite)
{
	struct cut c = {.h = h, .n = n, .overwrite = overwrite};
	bool done = false;
	int err = 0;

	for (unsigned k = 0; !err && k < n; k++)
		err = vm_need_scratch(h[k]);
	if (err)
		return err;
	survey(&c, &c.asked);
	c.froze = c.asked;
	for (; !err && !done; c.round++, c.asked = true) {
		if (c.asked)
			err = ask_all(&c);
		if (!err)
			err = harvest_all(&c, &done);
		/* from the next round on, or the one after it, they are asked to freeze */
		if (!err)
			err = store_all(&c, !done && !c.froze && c.round + 1 < ROUNDS_FREE);
		if (!err && done && (c.stopped || c.alone))
			done = still_holds(&c);
		if (!err && !done && c.stopped && c.round >= ROUNDS_MAX)
			err = -ETIMEDOUT;
	}
	thaw_all(&c);
	return err;
}
