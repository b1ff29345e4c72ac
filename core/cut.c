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
 */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

#define ROUNDS_FREE   3u /* without a freeze */
#define ROUNDS_FROZEN 6u /* with the hot pages frozen; then all of it */

/* Has anybody an engine that cannot tell a second store from a first? */
static bool must_freeze(struct vm_fileh *h)
{
	bool must = false;

	vm_fileh_lock(h);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		must |= h->ctl->peers[i].pid && h->ctl->peers[i].protects;
	vm_fileh_unlock(h);
	return must;
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

static int store_piece(struct vm_fileh *h, uint64_t start, uint64_t n, char *buf, uint64_t valid)
{
	uint64_t below = start >= valid ? 0 : n < valid - start ? n : valid - start;
	int err = below ? h->file->ops->storeblk(h->file, start, below, buf, 0) : 0;

	if (!err && below < n)
		err = h->file->ops->storeblk(h->file, start + below, n - below, buf + below * VM_PAGE, VM_STORE_AGAIN);
	return err;
}

/* Give the pages of one round to the backend, whole from page valid on: differences to the storage may not be
 * left out there. asks: the others look for the next round as soon as the last page is copied; *ret_asked:
 * they do. */
static int store_round(struct vm_fileh *h, uint64_t valid, bool asks, bool *ret_asked)
{
	struct walk copied = {0}, stored = {0};
	int err = 0;

	*ret_asked = false;
	while (!err && copied.i < h->round.n) {
		err = for_batch(h, &copied, copy_piece, valid);
		if (!err && asks && copied.i == h->round.n) {
			vm_ask_begin(h, VM_ASK_HARVEST);
			*ret_asked = true;
		}
		if (!err)
			err = for_batch(h, &stored, store_piece, valid);
	}
	return err;
}

/* One harvest. Locks held. The pages new since the last one are in h->round. single: this thread is the only
 * one here that could store. */
static int harvest_round(struct vm_fileh *h, unsigned round, bool single, bool freeze_all)
{
	int err = 0;

	freeze_all |= round >= ROUNDS_FROZEN || vm_engine_ops == &vm_engine_segv;
	if (freeze_all || round >= ROUNDS_FREE)
		err = vm_freeze(h, freeze_all ? NULL : &h->round, false);
	h->round.n = 0;
	/* what the caller's look has just harvested is round 0; a frozen round must be harvested under the
	 * freeze */
	if (!err && ((round && !single) || h->frozen))
		err = vm_harvest(h);
	if (!err)
		err = vm_page_suspect(h);
	if (!err)
		err = vm_page_begin_store(h, &h->round);
	return err;
}

int vm_cut(struct vm_fileh *h, struct vm_txn *ret_txn, uint64_t *ret_npages)
{
	bool single = vm_thread_is_alone(), alone = false, done = false, stopped = false;
	bool must = must_freeze(h), asked = must, froze = must, begun = false;
	unsigned nstopped = 0; /* when the round began */
	uint64_t valid = 0; /* pages of the storage: beyond size_low its bytes will be gone */
	int err = vm_need_scratch(h);

	*ret_npages = 0;
	for (unsigned round = 0; !err && !done; round++) {
		if (asked) {
			froze |= round >= ROUNDS_FREE;
			if (!begun)
				vm_ask_begin(h, froze ? VM_ASK_FREEZE : VM_ASK_HARVEST);
			err = vm_ask_end(h);
			/* One that is stopped does not tell what it stored: everything is compared. The
			 * others stand still for that, or it would be done in each round. */
			stopped = !err && h->ctl->suspect;
			if (stopped && !froze) {
				froze = true;
				err = vm_ask(h, VM_ASK_FREEZE);
			}
			if (err)
				break;
		}
		vm_lock(&vm_map_lock);
		vm_fileh_lock(h);
		nstopped = stopped ? vm_ask_nstopped(h) : 0;
		/* a writer in vm_fileh_write is no store that a harvest sees: none is inside (gate) */
		err = harvest_round(h, round, single, stopped);
		if (!round) {
			alone = single && !vm_fileh_has_others(h);
			valid = h->ctl->size_low >> VM_PAGE_SHIFT;
		}
		/* Nothing new, or nobody who could have (when all of it is frozen at the latest): all that
		 * was stored for this commit equals memory now. */
		done = !err && (!h->round.n || alone || (h->frozen && (round == 0 || stopped || round >= ROUNDS_FROZEN)));
		/* The others' looks came before this one, which is the instant: none of them stored in
		 * between. */
		done = done && (alone || (asked && vm_ask_still_holds(h, nstopped)));
		asked = true;
		ret_txn->size = h->ctl->size;
		ret_txn->size_low = h->ctl->size_low;
		ret_txn->txid = h->ctl->txid + 1;
		vm_fileh_unlock(h);
		vm_unlock(&vm_map_lock);
		/* what is stored again is stored whole; from the next round on, or the one after it, they are
		 * asked to freeze */
		if (!err)
			err = store_round(h, round ? 0 : valid, !done && !froze && round + 1 < ROUNDS_FREE, &begun);
		/* One that was stopped may have been let go while its pages were copied: then it stored, and
		 * whether it has answered since does not matter. */
		if (!err && done && stopped) {
			vm_fileh_lock(h);
			done = vm_ask_still_holds(h, nstopped);
			vm_fileh_unlock(h);
		}
		for (size_t i = 0; i < h->round.n; i++)
			*ret_npages += h->round.run[i].stop - h->round.run[i].start;
	}
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	vm_thaw(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	if (froze)
		vm_ask_thaw(h);
	return err;
}
