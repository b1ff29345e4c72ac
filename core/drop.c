/* SPDX-License-Identifier: MIT */
/*
 * Pages go, the next touch loads them again.
 *
 * A lazy handle frees the pages from ram: one call of the kernel, which keeps touches of the range out until
 * it is done, so several pages change at one instant. Where nobody would load a page again on touch (eager
 * handles, private mappings) the new content is put in place of the old, the program frozen meanwhile.
 */
#include "drop.h"
#include <errno.h>

#define TRIES 40u /* five seconds: one that is stopped goes on again and again, and never answers */

static int engine_emptied(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_engine_ops->emptied(v, start, stop);
}

static bool is_dropped(const struct vm_plan *p, enum vm_page_state s, uint64_t pgoff)
{
	return (s == VM_EMPTY && p->empty) || (s == VM_LOADED && (p->clean || pgoff >= p->clean_from)) ||
	       (s == VM_DIRTY && p->dirty);
}

/* The page after pgoff that may be in another state. */
static uint64_t next_page(struct vm_fileh *h, uint64_t pgoff, uint64_t stop)
{
	return vm_page_state(h, pgoff) != VM_EMPTY
		       ? pgoff + 1
		       : vm_pagemap_find_not(&h->pagemap, pgoff + 1, stop, VM_EMPTY);
}

/* Next run of pages in [start, stop) that are to go. */
static uint64_t next_run(struct vm_fileh *h, const struct vm_plan *p, uint64_t start, uint64_t stop,
			 uint64_t *ret_stop)
{
	while (start < stop && !is_dropped(p, vm_page_state(h, start), start))
		start = next_page(h, start, stop);
	*ret_stop = start;
	while (*ret_stop < stop && is_dropped(p, vm_page_state(h, *ret_stop), *ret_stop))
		*ret_stop = next_page(h, *ret_stop, stop);
	return start;
}

/* Pages of a lazy handle go. Locks held. */
static int drop_run(struct vm_fileh *h, uint64_t start, uint64_t stop, bool counts)
{
	uint64_t n;
	int err = vm_engine_ops->will_empty ? vm_vma_for_each(h, start, stop, vm_engine_ops->will_empty) : 0;

	if (!err)
		err = vm_ram_punch(&h->ram, start, stop);
	if (err) {
		(void)vm_vma_for_each(h, start, stop, vm_engine_ops->protect); /* err is the one to report */
		return err;
	}
	n = vm_page_drop(h, start, stop);
	h->plan.npages += counts ? n : 0;
	return vm_vma_for_each(h, start, stop, engine_emptied);
}

/* Of the pages [start, stop) those that are to go. */
static int collect_range(struct vm_fileh *h, const struct vm_plan *p, uint64_t start, uint64_t stop)
{
	uint64_t end;
	int err = 0;

	if (stop > vm_npages(h->ctl->size))
		stop = vm_npages(h->ctl->size);
	if (start < stop)
		err = vm_pagemap_reserve(&h->pagemap, start, stop);
	while (!err && start < stop) {
		start = next_run(h, p, start, stop, &end);
		if (start < end)
			err = vm_runs_add(&h->round, start, end);
		start = end;
	}
	return err;
}

/* Does what others committed go by the plan's own range already? */
static bool takes_all(const struct vm_plan *p)
{
	return !p->held || (p->clean && !p->start && p->stop == VM_MAX_PGOFF);
}

/* Collect the pages that are to go into h->round. Locks held. */
static int collect(struct vm_fileh *h, const struct vm_plan *p)
{
	const struct vm_plan clean = {.clean = true};
	int err;

	h->round.n = 0;
	err = collect_range(h, p, p->start, p->stop);
	for (size_t i = 0; !err && !takes_all(p) && i < p->held->changed.n; i++)
		err = collect_range(h, &clean, p->held->changed.run[i].start, p->held->changed.run[i].stop);
	return err;
}

/* Old pages out. Busy, gate closed, locks held. */
static int drop(struct vm_fileh *h, bool counts)
{
	int err = 0;

	for (size_t i = 0; !err && i < h->round.n; i++)
		err = drop_run(h, h->round.run[i].start, h->round.run[i].stop, counts);
	return err;
}

/* New content in place of the old. Busy, gate closed, no lock held (the backend is read), mappings frozen. */
static int replace(struct vm_fileh *h)
{
	int err = 0;

	for (size_t i = 0; !err && i < h->round.n; i++) {
		uint64_t start = h->round.run[i].start, stop = h->round.run[i].stop;

		err = vm_load_again(h, start, stop);
		if (err)
			break;
		vm_fileh_lock(h);
		h->plan.npages += vm_page_drop(h, start, stop);
		(void)vm_page_begin_load(h, start, stop); /* they are there, only newer */
		vm_page_end_load(h, start, stop, true);
		vm_fileh_unlock(h);
	}
	return err;
}

/* On an eager handle a page that was never loaded is a hole; after an invalidation the storage may have data
 * there. */
static int collect_holes_in(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	const struct vm_backend_ops *ops = h->file->ops;
	uint64_t size = h->ctl->size, off = start << VM_PAGE_SHIFT, from, to;
	int err = 0;

	if (stop > vm_npages(size))
		stop = vm_npages(size);
	while (!err && off < stop << VM_PAGE_SHIFT) {
		from = off;
		to = stop << VM_PAGE_SHIFT;
		if (ops->nextdata) {
			err = ops->nextdata(h->file, off, &from, &to);
			if (err == -ENXIO)
				return 0;
			if (err)
				break;
		}
		for (uint64_t pg = from >> VM_PAGE_SHIFT; !err && pg < vm_npages(to) && pg < stop; pg++)
			if (vm_page_state(h, pg) == VM_EMPTY)
				err = vm_runs_add(&h->round, pg, pg + 1);
		off = to;
	}
	return err;
}

static int collect_holes(struct vm_fileh *h, const struct vm_plan *p)
{
	int err = collect_holes_in(h, p->start, p->stop);

	for (size_t i = 0; !err && !takes_all(p) && i < p->held->changed.n; i++)
		err = collect_holes_in(h, p->held->changed.run[i].start, p->held->changed.run[i].stop);
	return err;
}

/* Dirty pages among those that others committed; what the plan drops in any case does not count. */
static uint64_t count_conflicts(struct vm_fileh *h, const struct vm_plan *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->held->changed.n; i++) {
		uint64_t pg = p->held->changed.run[i].start, stop = p->held->changed.run[i].stop;

		for (; (pg = vm_pagemap_find(&h->pagemap, pg, stop, VM_DIRTY)) < stop; pg++)
			n += !(p->dirty && p->start <= pg && pg < p->stop);
	}
	return n;
}

/* What others committed, and was changed here, too. All stores are known, those of a process that died
 * perhaps too well: then nothing tells what is ours. Locks held. */
static int meet_others(struct vm_fileh *h, const struct vm_plan *p, bool suspect)
{
	uint64_t n = count_conflicts(h, p);
	bool size = p->held->news.resized && !(p->dirty && p->whole) && vm_size_is_changed(h->ctl);

	if (!n && !size)
		return 0;
	if (!p->overwrite || suspect)
		return -EBUSY;
	p->kept->overwrote = true;
	p->kept->noverwritten = n;
	return 0;
}

/* Would every mapping of every process load a page again that was dropped? A private one has nobody who does;
 * segv protects what is not loaded, which only the process itself can do. Locks held. */
static bool all_would_load(struct vm_fileh *h)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (h->ctl->peers[i].nprivate ||
		    (i != h->peer && h->ctl->peers[i].pid && h->ctl->peers[i].protects))
			return false;
	return true;
}

/* Keep stores out and learn of all that were made. alone: nobody else here could store. Locks held. */
static int settle(struct vm_fileh *h, bool alone)
{
	struct vm_plan *p = &h->plan;
	bool suspect;
	int err;

	p->in_place = !h->lazy || !all_would_load(h);
	p->size_was = h->ctl->size;
	/* Dirty pages that are kept or respected: no store may slip in between. Those that go: a store must
	 * not go if one that came before it stays. */
	err = p->in_place || !p->dirty || !alone ? vm_freeze(h, NULL, false) : 0;
	vm_fileh_repair(h);
	p->stopped = vm_ask_stopped(h);
	suspect = h->ctl->suspect;
	if (!err)
		err = vm_harvest_all(h);
	if (!err && p->held)
		err = meet_others(h, p, suspect);
	if (!err && (p->fail_on_dirty || (p->fail_on_doubt && h->ctl->doubtful)) &&
	    vm_pagemap_find(&h->pagemap, p->start, p->stop, VM_DIRTY) < p->stop)
		err = -EBUSY;
	if (!err && p->in_place)
		err = vm_freeze(h, NULL, true);
	return err;
}

/* Of a lazy handle everything is dropped, or, where that cannot be, what may be where no page was loaded.
 * Locks held. */
static int drop_now(struct vm_fileh *h, struct vm_plan p)
{
	int err;

	p.empty = p.clean && h->lazy;
	if (p.in_place) {
		p.clean = p.dirty = false;
		p.clean_from = UINT64_MAX;
	}
	err = collect(h, &p);
	return err ? err : drop(h, !p.in_place);
}

/* Nothing of the program's own goes, only what others made old. */
static bool is_catch_up(const struct vm_plan *p)
{
	return p->held && p->start == p->stop;
}

/* Where others committed another size: that, or the program's own, which then replaces it. Gate closed, locks
 * held. */
static void size_of_others(struct vm_fileh *h, struct vm_plan *p)
{
	bool own = vm_size_is_changed(h->ctl);

	p->size = own || !p->held->news.resized ? h->ctl->size : p->held->news.size;
	p->whole = p->held->news.resized;
	p->storage_size = p->held->news.size;
	p->own_size_stays = own;
}

/* Locks held. */
static int start_drop(struct vm_fileh *h)
{
	struct vm_plan *p = &h->plan;
	struct vm_ctl *ctl = h->ctl;
	int err;

	if (!p->in_place && !all_would_load(h)) { /* a child that was on its way has come since */
		p->in_place = true;
		err = vm_freeze(h, NULL, true);
		if (err)
			return err;
	}
	if (is_catch_up(p))
		size_of_others(h, p);
	/* a storage that became shorter takes no stores along that are to be kept: the handle stays longer */
	if (!p->dirty && p->size < ctl->size &&
	    vm_pagemap_find(&h->pagemap, p->size >> VM_PAGE_SHIFT, VM_MAX_PGOFF, VM_DIRTY) < VM_MAX_PGOFF)
		p->size = ctl->size;
	if (p->size != ctl->size) {
		err = vm_set_size_locked(h, p->size);
		if (err)
			return err;
	}
	if (p->dirty)
		p->ndirty += ctl->npages[VM_DIRTY];
	ctl->torn |= p->dirty || is_catch_up(p); /* until all of it has gone */
	if (p->whole) {
		ctl->size_committed = p->storage_size;
		if (!p->own_size_stays || p->size < ctl->size_low)
			ctl->size_low = p->size;
		if (p->storage_size < ctl->size_low)
			ctl->size_low = p->storage_size;
	}
	ctl->gen++;
	err = !p->in_place || h->lazy ? drop_now(h, *p) : 0;
	if (!err && p->in_place)
		err = collect(h, p);
	return err;
}

/* What needs the storage. No lock held. */
static int finish_drop(struct vm_fileh *h)
{
	struct vm_plan *p = &h->plan;
	int err = p->in_place && !h->lazy ? collect_holes(h, p) : 0;

	if (!err && p->in_place)
		err = replace(h);
	return err ? err : vm_load_private(h, p->size_was, p->size);
}

/* Nobody is inside. */
static void begin_drop(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_CLOSED);
	h->plan.was_torn = h->ctl->torn;
	vm_fileh_unlock(h);
}

/* The others stand still. */
static int stop_others(struct vm_fileh **h, unsigned n)
{
	int err = 0, e;

	for (unsigned i = 0; i < n; i++)
		vm_ask_begin(h[i], VM_ASK_FREEZE_ALL);
	for (unsigned i = 0; i < n; i++) {
		e = vm_ask_end(h[i]);
		err = err ? err : e;
	}
	return err;
}

static void end_drop(struct vm_fileh *h, int err)
{
	const struct vm_plan *p = &h->plan;

	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	vm_thaw(h);
	if (!err) {
		/* only a discard of everything mends what a failed one left */
		h->ctl->torn = p->was_torn && !(p->dirty && p->whole);
		h->ctl->doubtful &= !(p->dirty && !p->start && p->stop == VM_MAX_PGOFF);
		h->stored_here &= vm_fileh_is_changed(h);
	}
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	vm_ask_thaw(h);
}

static int drop_all(struct vm_fileh **h, unsigned n, bool alone)
{
	int err = stop_others(h, n);

	/* all stand still before anything goes */
	for (unsigned i = 0; !err && i < n; i++) {
		vm_lock(&vm_map_lock);
		vm_fileh_lock(h[i]);
		err = settle(h[i], alone);
		vm_fileh_unlock(h[i]);
		vm_unlock(&vm_map_lock);
	}
	for (unsigned i = 0; !err && i < n; i++) {
		vm_lock(&vm_map_lock);
		vm_fileh_lock(h[i]);
		err = start_drop(h[i]);
		vm_fileh_unlock(h[i]);
		vm_unlock(&vm_map_lock);
	}
	for (unsigned i = 0; !err && i < n; i++)
		err = finish_drop(h[i]);
	return err;
}

/* Did nobody who was stopped go on meanwhile? */
static bool all_stood_still(struct vm_fileh **h, unsigned n)
{
	bool stood = true;

	for (unsigned i = 0; i < n; i++) {
		vm_fileh_lock(h[i]);
		stood &= vm_ask_still_holds(h[i], h[i]->plan.stopped);
		vm_fileh_unlock(h[i]);
	}
	return stood;
}

/* One did: what he stored into a page before that went is gone, what he stored into another one afterwards, be it
 * earlier, is not. All stores of now go, then; where stores are to stay there is no way back. */
static int take_all(struct vm_fileh **h, unsigned n)
{
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		vm_fileh_lock(h[i]);
		h[i]->ctl->suspect = true; /* he may have told of them before they went */
		vm_fileh_unlock(h[i]);
		err = h[i]->plan.dirty ? err : -EBUSY;
	}
	return err;
}

int vm_drop(struct vm_fileh **h, unsigned n)
{
	const bool alone = vm_thread_is_alone();
	unsigned tries = 0;
	int err;

	for (unsigned i = 0; i < n; i++)
		begin_drop(h[i]);
	do
		err = tries++ < TRIES ? drop_all(h, n, alone) : -ETIMEDOUT;
	while (!err && !all_stood_still(h, n) && !(err = take_all(h, n)));
	for (unsigned i = 0; i < n; i++)
		end_drop(h[i], err);
	return err;
}
