/* SPDX-License-Identifier: MIT */
/*
 * Commit: in two steps, store and mark stored.
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

static int look_here(struct vm_fileh *h, bool *ret_changed)
{
	int err;

	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	err = h->ctl->torn ? -EIO : vm_harvest_all(h);
	*ret_changed = vm_fileh_is_changed(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	return err;
}

/* Is there anything to commit? */
static int look(struct vm_fileh *h, bool *ret_changed)
{
	bool others, asks;
	int err, theirs = 0;

	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_READERS);
	others = vm_fileh_has_others(h);
	vm_fileh_unlock(h);
	asks = others && h->others_touch; /* those that are at work look while this process does */
	h->others_touch = false;
	if (asks)
		vm_ask_begin(h, VM_ASK_HARVEST);
	err = look_here(h, ret_changed);
	if (others && !asks && !err && !*ret_changed) { /* else what they stored comes with the cut */
		vm_ask_begin(h, VM_ASK_HARVEST);
		asks = true;
	}
	if (asks) {
		theirs = vm_ask_end(h);
		vm_fileh_lock(h);
		if (!theirs)
			theirs = vm_page_suspect(h); /* of one that is stopped */
		*ret_changed = vm_fileh_is_changed(h);
		vm_fileh_unlock(h);
	}
	return err ? err : theirs;
}

static int store_and_commit(struct vm_fileh *h, const struct vm_held *held, bool durable, struct vm_txn *txn,
			    uint64_t *ret_npages)
{
	const struct vm_backend_ops *ops = h->file->ops;
	int err;

	err = ops->begin(h->file);
	if (err)
		return err;
	err = vm_cut(h, txn, ret_npages);
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_OPEN); /* what is written from here on belongs to the next commit */
	vm_fileh_unlock(h);
	if (held->is_held)
		txn->txid = held->news.txid + 1;
	if (!err)
		err = ops->commit(h->file, txn, durable ? VM_COMMIT_DURABLE : 0);
	if (err < 0)
		ops->abort(h->file);
	return err;
}

/* The commit has happened: the state of the handle follows. */
static void mark_stored(struct vm_fileh *h, const struct vm_txn *txn)
{
	struct vm_ctl *ctl = h->ctl;

	vm_page_mark_stored(h);
	ctl->txid = txn->txid;
	ctl->size_committed = txn->size;
	/* shrunk again while the commit was on its way? then that is what the next one must do */
	ctl->size_low = ctl->size < txn->size ? ctl->size : txn->size;
	h->stored_here &= vm_fileh_is_changed(h);
	ctl->owed &= vm_fileh_is_changed(h);
	h->committed_here = true;
}

static int commit(struct vm_fileh *h, bool durable, bool overwrite, struct vm_commit_result *ret)
{
	const struct vm_backend_ops *ops = h->file->ops;
	struct vm_txn txn = {0};
	struct vm_held held;
	uint64_t npages = 0;
	bool changed = false, seen;
	int err;

	ret->overwrote = false;
	ret->noverwritten = 0;
	vm_fileh_begin_busy(h);
	err = vm_hold(h, &held);
	if (!err)
		err = vm_catch_up(h, &held, overwrite, ret);
	seen = !err;
	if (!err)
		err = look(h, &changed);
	if (!err && changed && !overwrite && ops->changed && ops->changed(h->file, 0))
		err = -EBUSY;
	if (!err && changed)
		err = store_and_commit(h, &held, durable, &txn, &npages);
	if (err == 1) { /* false alarms: every page equals the storage */
		txn.txid = h->ctl->txid;
		npages = err = 0;
	}
	else if (!err && durable && ops->checkpoint && h->ctl->lazy_pending)
		err = ops->checkpoint(h->file); /* nothing new, but what was committed lazily must reach the disk */
	vm_fileh_lock(h);
	if (!err && changed) {
		mark_stored(h, &txn);
		h->ctl->lazy_pending = !durable;
	} else if (err) {
		vm_page_store_failed(h);
	} else if (durable) {
		h->ctl->lazy_pending = false;
	}
	ret->txid = h->ctl->txid;
	ret->npages = npages;
	vm_fileh_unlock(h);
	vm_let_go(h, &held, seen);
	vm_fileh_end_busy(h);
	return err;
}

int vm_commit(struct vm_fileh **h, unsigned n, bool durable, bool overwrite, struct vm_commit_result *ret)
{
	int err = 0;

	for (unsigned i = 0; !err && i < n; i++)
		err = commit(h[i], durable, overwrite, &ret[i]);
	return err;
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
