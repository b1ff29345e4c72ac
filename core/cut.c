/* SPDX-License-Identifier: MIT */
/*
 * The cut: one instant, whose stores a commit holds.
 *
 *	round 1	  harvest (what was stored into is protected again), store those pages
 *	round n	  harvest again; pages stored into meanwhile are stored again, whole
 *	...	  until a harvest finds nothing new
 *
 * At that last harvest every page equals what was stored for it: that is the instant, and nobody was stopped. If a busy
 * program does not let it settle, the pages that stay hot are frozen, then everything. With the segv engine
 * the first round is frozen already: a protection that is taken away cannot tell a second store from a first.
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

/* Give the pages of one round to the backend. size_low: the smallest size that storage below it is still valid. */
static int store_round(struct vm_fileh *h, uint64_t size_low, bool again)
{
	int err = 0;

	for (size_t i = 0; !err && i < h->round.n; i++) {
		uint64_t start = h->round.run[i].start, stop = h->round.run[i].stop;

		while (!err && start < stop) {
			uint64_t n = stop - start < VM_BATCH_NPAGES ? stop - start : VM_BATCH_NPAGES;
			/* Beyond size_low the storage's bytes will be gone: no difference to them may be left out. */
			uint64_t valid = size_low >> VM_PAGE_SHIFT;
			bool whole = again || start >= valid;

			if (!whole && start + n > valid)
				n = valid - start;
			err = vm_ram_copy(&h->ram, start, n, h->scratch);
			if (!err)
				err = h->file->ops->storeblk(h->file, start, n, h->scratch,
							     whole ? VM_STORE_AGAIN : 0);
			start += n;
		}
	}
	return err;
}

/* One harvest. Locks held. The pages new since the last one are in h->round. single: this thread is the only one here that
 * could store. */
static int harvest_round(struct vm_fileh *h, unsigned round, bool single, bool freeze_all)
{
	int err = 0;

	freeze_all |= round >= ROUNDS_FROZEN || vm_engine_ops == &vm_engine_segv;
	if (freeze_all || round >= ROUNDS_FREE)
		err = vm_freeze(h, freeze_all ? NULL : &h->round, false);
	h->round.n = 0;
	/* what the caller's look has just harvested is round 0; a frozen round must be harvested under the freeze */
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
	bool must = must_freeze(h), asked = must, froze = must;
	uint64_t size_low = 0;
	int err = vm_need_scratch(h);

	*ret_npages = 0;
	for (unsigned round = 0; !err && !done; round++) {
		if (asked) {
			froze |= round >= ROUNDS_FREE;
			err = vm_ask(h, froze ? VM_ASK_FREEZE : VM_ASK_HARVEST);
			/* One that is stopped does not tell what it stored: everything is compared. The others stand
			 * still for that, or it would be done in each round. */
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
		/* a writer in vm_fileh_write is no store that a harvest sees: none is inside (gate) */
		err = harvest_round(h, round, single, stopped);
		if (!round) {
			alone = single && !vm_fileh_has_others(h);
			size_low = h->ctl->size_low;
		}
		/* Nothing new, or nobody who could have (when all of it is frozen at the latest): all that was stored for
		 * this commit equals memory now. */
		done = !err && (!h->round.n || alone || (h->frozen && (round == 0 || stopped || round >= ROUNDS_FROZEN)));
		/* The others' looks came before this one, which is the instant: none of them stored in between. */
		done = done && (alone || (asked && vm_ask_still_holds(h)));
		asked = true;
		ret_txn->size = h->ctl->size;
		ret_txn->size_low = h->ctl->size_low;
		ret_txn->txid = h->ctl->txid + 1;
		vm_fileh_unlock(h);
		vm_unlock(&vm_map_lock);
		if (!err)
			err = store_round(h, size_low, round > 0);
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
