/* SPDX-License-Identifier: MIT */
/*
 * Commit: in two steps, store and mark stored; of all its files in each step.
 *
 *	busy, writers out ── cut: DIRTY -> STORING, storeblk ── commit ──▶ STORING -> LOADED
 *	                          └── any error ── abort ────────────────▶ STORING -> DIRTY
 *
 * A page stored into after the cut is DIRTY, not STORING, by then, and stays so.
 */
#include "internal.h"
#include <errno.h>

bool vm_fileh_is_changed(struct vm_fileh *h)
{
	struct vm_ctl *ctl = h->ctl;

	return ctl->npages[VM_DIRTY] || vm_size_is_changed(ctl);
}

int vm_harvest_all(struct vm_fileh *h)
{
	int err;

	vm_fileh_repair(h);
	err = vm_harvest(h);
	return err ? err : vm_page_suspect(h);
}

void vm_begin_busy(struct vm_fileh **h, unsigned n)
{
	const struct vm_fileh *last = NULL;

	/* L1: two who want the same files do not wait for each other */
	for (unsigned k = 0; k < n; k++) {
		struct vm_fileh *next = NULL;

		for (unsigned i = 0; i < n; i++)
			if ((!last || vm_fileh_is_before(last, h[i])) && (!next || vm_fileh_is_before(h[i], next)))
				next = h[i];
		BUG_ON(!next); /* one of them twice */
		vm_fileh_begin_busy(next);
		last = next;
	}
}

/* What others committed comes first: where each handle shows a snapshot. */
static int catch_up(struct vm_fileh *h, bool overwrite, struct vm_commit_result *ret)
{
	int err = vm_hold(h, &h->part.held);

	if (!err)
		err = vm_catch_up(h, &h->part.held, overwrite, ret);
	h->part.seen = !err;
	return err;
}

/* ---- look: is there anything to commit? ---- */

static void keep_writers_out(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_READERS);
	h->part.has_others = vm_fileh_has_others(h);
	vm_fileh_unlock(h);
}

/* Those that were at work look while this process does. */
static void begin_look(struct vm_fileh *h)
{
	h->part.asks = h->part.has_others && h->others_touch;
	h->others_touch = false;
	if (h->part.asks)
		vm_ask_begin(h, VM_ASK_HARVEST);
}

static int look_here(struct vm_fileh *h)
{
	struct vm_part *part = &h->part;
	int err;

	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	err = h->ctl->torn ? -EIO : vm_harvest_all(h);
	part->changed = vm_fileh_is_changed(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	if (part->has_others && !part->asks && !err && !part->changed) { /* else what they stored comes with the cut */
		vm_ask_begin(h, VM_ASK_HARVEST);
		part->asks = true;
	}
	return err;
}

static int end_look(struct vm_fileh *h)
{
	int err;

	if (!h->part.asks)
		return 0;
	err = vm_ask_end(h);
	vm_fileh_lock(h);
	if (!err)
		err = vm_page_suspect(h); /* of one that is stopped */
	h->part.changed = vm_fileh_is_changed(h);
	vm_fileh_unlock(h);
	return err;
}

int vm_look(struct vm_fileh **h, unsigned n, bool *ret_changed)
{
	int err = 0, e;

	for (unsigned i = 0; i < n; i++)
		keep_writers_out(h[i]);
	for (unsigned i = 0; i < n; i++)
		begin_look(h[i]);
	for (unsigned i = 0; i < n; i++) {
		e = look_here(h[i]);
		err = err ? err : e;
	}
	*ret_changed = false;
	for (unsigned i = 0; i < n; i++) {
		e = end_look(h[i]);
		err = err ? err : e;
		*ret_changed |= h[i]->part.changed;
	}
	return err;
}

/* ---- store, and commit ---- */

static int look_for_conflict(struct vm_fileh *h, bool overwrite)
{
	const struct vm_backend_ops *ops = h->file->ops;
	int changed = !overwrite && ops->changed ? ops->changed(h->file, 0) : 0;

	h->part.conflict = changed > 0;
	return changed > 0 ? -EBUSY : changed;
}

int vm_part_begin(struct vm_fileh *h, bool overwrite)
{
	int err = look_for_conflict(h, overwrite);

	if (!err)
		err = h->file->ops->begin(h->file);
	h->part.begun = !err;
	return err;
}

/* The same for all: one more than the highest. */
static uint64_t next_txid(struct vm_fileh **h, unsigned n)
{
	uint64_t txid, max = 0;

	for (unsigned i = 0; i < n; i++) {
		txid = h[i]->part.held.is_held ? h[i]->part.held.news.txid : h[i]->ctl->txid;
		max = txid > max ? txid : max;
	}
	return max + 1;
}

/* 1: nothing has changed after all. */
static int commit_parts(struct vm_fileh **h, unsigned n, bool durable)
{
	const uint64_t txid = next_txid(h, n);
	unsigned left = 0;
	int err = 0;

	for (unsigned i = 0; i < n; i++)
		left += h[i]->part.begun;
	for (unsigned i = 0; err >= 0 && i < n; i++) {
		if (!h[i]->part.begun)
			continue;
		h[i]->part.txn.txid = txid;
		err = h[i]->file->ops->commit(h[i]->file, &h[i]->part.txn,
					      (durable ? VM_COMMIT_DURABLE : 0) | (--left ? VM_COMMIT_PART : 0));
	}
	return err;
}

static int store_and_commit(struct vm_fileh **h, unsigned n, bool durable, bool overwrite)
{
	int err = 0;

	for (unsigned i = 0; !err && n > 1 && i < n; i++) /* no storage makes ready for what cannot be */
		if (h[i]->part.changed)
			err = look_for_conflict(h[i], overwrite);
	for (unsigned i = 0; !err && i < n; i++)
		if (h[i]->part.changed)
			err = vm_part_begin(h[i], overwrite);
	if (!err)
		err = vm_cut(h, n, overwrite);
	for (unsigned i = 0; i < n; i++) {
		vm_fileh_lock(h[i]);
		vm_fileh_gate(h[i], VM_GATE_OPEN); /* what is written from here on belongs to the next commit */
		vm_fileh_unlock(h[i]);
	}
	if (!err)
		err = commit_parts(h, n, durable);
	for (unsigned i = 0; err < 0 && i < n; i++)
		if (h[i]->part.begun)
			h[i]->file->ops->abort(h[i]->file);
	return err;
}

/* Nothing new, but what was committed lazily must reach the disk. */
static int make_durable(struct vm_fileh **h, unsigned n)
{
	int err = 0;

	for (unsigned i = 0; !err && i < n; i++)
		if (h[i]->ctl->lazy_pending && h[i]->file->ops->checkpoint)
			err = h[i]->file->ops->checkpoint(h[i]->file);
	return err;
}

/* The commit has happened: the state of the handle follows. */
static void mark_stored(struct vm_fileh *h, const struct vm_txn *txn)
{
	struct vm_ctl *ctl = h->ctl;

	vm_page_mark_stored(h);
	ctl->doubtful = false;
	ctl->size_committed = txn->size;
	/* shrunk again while the commit was on its way? then that is what the next one must do */
	ctl->size_low = ctl->size < txn->size ? ctl->size : txn->size;
	h->stored_here &= vm_fileh_is_changed(h);
	ctl->owed &= vm_fileh_is_changed(h);
	h->committed_here = true;
}

/* result: of the whole. */
static void end_part(struct vm_fileh *h, bool durable, int result, struct vm_commit_result *ret)
{
	struct vm_part *part = &h->part;

	vm_fileh_lock(h);
	if (result < 0)
		vm_page_store_failed(h);
	else if (part->begun)
		mark_stored(h, &part->txn);
	if (!result && part->begun) {
		h->ctl->txid = part->txn.txid;
		ret->npages = part->npages;
		h->ctl->lazy_pending = !durable;
	}
	if (result >= 0 && durable)
		h->ctl->lazy_pending = false;
	ret->txid = h->ctl->txid;
	ret->conflict = part->conflict;
	vm_fileh_unlock(h);
	vm_let_go(h, &part->held, part->seen);
	vm_fileh_end_busy(h);
}

int vm_commit(struct vm_fileh **h, unsigned n, bool durable, bool overwrite, struct vm_commit_result *ret)
{
	bool changed = false;
	int err = 0;

	vm_begin_busy(h, n);
	for (unsigned i = 0; i < n; i++) {
		BUG_ON(h[i]->file->ops != h[0]->file->ops);
		ret[i] = (struct vm_commit_result){0};
		h[i]->part = (struct vm_part){0};
	}
	for (unsigned i = 0; !err && i < n; i++)
		err = catch_up(h[i], overwrite, &ret[i]);
	if (!err)
		err = vm_look(h, n, &changed);
	if (!err && changed)
		err = store_and_commit(h, n, durable, overwrite);
	else if (!err && durable)
		err = make_durable(h, n);
	for (unsigned i = 0; i < n; i++)
		end_part(h[i], durable, err, &ret[i]);
	return err < 0 ? err : 0;
}

static int checkpoint(struct vm_fileh *h)
{
	int err = h->file->ops->checkpoint ? h->file->ops->checkpoint(h->file) : 0;

	if (!err)
		h->committed_here = h->ctl->lazy_pending = false;
	return err;
}

int vm_fileh_checkpoint(struct vm_fileh *h)
{
	int err;

	vm_fileh_begin_busy(h);
	err = checkpoint(h);
	vm_fileh_end_busy(h);
	return err;
}

int vm_fileh_idle(struct vm_fileh *h)
{
	int err;

	vm_fileh_begin_busy(h);
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	err = vm_harvest(h);
	vm_fileh_peer(h)->harvested = !err && (!h->nvmas || vm_thread_is_alone()); /* other threads go on until the end */
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	if (!err && h->file->ops->idle) /* also when others have it: the last one of them may not be able to */
		err = h->file->ops->idle(h->file);
	if (!err && h->committed_here)
		h->committed_here = h->ctl->lazy_pending = false;
	vm_fileh_end_busy(h);
	return err;
}

int vm_fileh_rename_begin(struct vm_fileh *h)
{
	int err = 0;

	vm_fileh_begin_busy(h);
	if (h->file->ops->idle && !vm_fileh_is_shared(h)) /* what the others hold moves along */
		err = h->file->ops->idle(h->file);
	if (err)
		vm_fileh_end_busy(h);
	return err;
}

void vm_fileh_rename_end(struct vm_fileh *h, bool moved)
{
	if (moved && h->file->ops->moved)
		h->file->ops->moved(h->file);
	vm_fileh_end_busy(h);
}

void vm_fileh_times_begin(struct vm_fileh *h)
{
	vm_fileh_begin_busy(h);
	if (h->file->ops->times)
		h->file->ops->times(h->file, 0);
}

void vm_fileh_times_end(struct vm_fileh *h)
{
	if (h->file->ops->times)
		h->file->ops->times(h->file, 1);
	vm_fileh_end_busy(h);
}

int vm_fileh_reserve(struct vm_fileh *h, uint64_t off, uint64_t len)
{
	int err;

	if (!h->file->ops->reserve)
		return -EOPNOTSUPP;
	vm_fileh_begin_busy(h);
	err = h->file->ops->reserve(h->file, off, len);
	vm_fileh_end_busy(h);
	return err;
}
