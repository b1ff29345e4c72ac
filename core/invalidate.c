/* SPDX-License-Identifier: MIT */
/* Invalidate, discard, and take in what others committed: which pages go, and what the size is then. */
#include "drop.h"
#include <errno.h>

/* Back to the storage: h->plan says so. */
static int plan_discard(struct vm_fileh *h)
{
	struct vm_held *held = &h->part.held;
	struct vm_plan *p = &h->plan;
	int err = vm_hold(h, held);

	*p = (struct vm_plan){.stop = VM_MAX_PGOFF, .dirty = true, .whole = true};
	p->held = held->is_held ? held : NULL;
	vm_fileh_lock(h);
	p->size = p->storage_size = held->news.resized ? held->news.size : h->ctl->size_committed;
	/* a shrink took clean bytes away from there on */
	p->clean_from = h->ctl->size_low < h->ctl->size_committed ? h->ctl->size_low >> VM_PAGE_SHIFT : UINT64_MAX;
	vm_fileh_unlock(h);
	return err;
}

int vm_discard(struct vm_fileh **h, unsigned n)
{
	int err = 0;

	vm_begin_busy(h, n);
	for (unsigned i = 0; i < n; i++)
		h[i]->part.held = (struct vm_held){0};
	for (unsigned i = 0; !err && i < n; i++)
		err = plan_discard(h[i]);
	if (!err)
		err = vm_drop(h, n);
	for (unsigned i = 0; i < n; i++) {
		vm_let_go(h[i], &h[i]->part.held, !err);
		vm_fileh_end_busy(h[i]);
	}
	return err;
}

int vm_catch_up(struct vm_fileh *h, const struct vm_held *held, bool overwrite, struct vm_commit_result *ret)
{
	int err;

	if (!held->changed.n && !held->news.resized)
		return 0;
	h->plan = (struct vm_plan){.held = held, .overwrite = overwrite, .kept = ret, .clean_from = UINT64_MAX};
	err = vm_drop(&h, 1);
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_OPEN);
	vm_fileh_unlock(h);
	return err;
}

/* The size after an invalidation: the storage's when all of the file is invalidated, unless the program has
 * one of its own that is not committed. */
static int find_size(struct vm_fileh *h, struct vm_plan *p)
{
	struct vm_ctl *ctl = h->ctl;

	vm_fileh_lock(h);
	p->size = ctl->size;
	if (vm_size_is_changed(ctl))
		p->whole = false;
	vm_fileh_unlock(h);
	if (!p->whole)
		return 0;
	int err = h->file->ops->getsize(h->file, &p->storage_size);

	p->size = p->storage_size;
	return err;
}

static int is_changed(struct vm_fileh *h, const struct vm_held *held)
{
	const struct vm_backend_ops *ops = h->file->ops;

	if (held->is_held)
		return held->changed.n || held->news.resized;
	return ops->changed ? ops->changed(h->file, 0) : 0;
}

/* Busy; held by the caller, and what others committed is taken in, too. */
static int invalidate(struct vm_fileh *h, uint64_t off, uint64_t len, enum vm_on_dirty on_dirty,
		      const struct vm_held *held, struct vm_dropped *ret)
{
	struct vm_plan p = {
		.start = off >> VM_PAGE_SHIFT,
		.stop = VM_MAX_PGOFF,
		.clean = true,
		.dirty = on_dirty == VM_DIRTY_DROP,
		.fail_on_dirty = on_dirty == VM_DIRTY_FAIL,
		.clean_from = UINT64_MAX,
		.whole = !off && !len,
	};
	int err = on_dirty == VM_DIRTY_KEEP ? is_changed(h, held) : 0;

	/* what is kept, and was not stored, would go over what changed */
	p.fail_on_doubt = err > 0;
	if (err < 0)
		return err;
	err = 0;
	if (len && vm_npages(off + len) < p.stop)
		p.stop = vm_npages(off + len);
	if (p.whole)
		p.held = held->is_held ? held : NULL;
	else
		err = vm_catch_up(h, held, false, NULL); /* there is no snapshot of a part */
	if (!err)
		err = find_size(h, &p);
	h->plan = p;
	if (!err)
		err = vm_drop(&h, 1);
	/* what the storage is now has been taken note of: later commits compare with this state, and what was
	 * committed before must not be replayed over it. But not while pages are dirty that need not have been stored
	 * into: the next commit would put them over what changed there. (busy) */
	if (!err && h->file->ops->changed && !h->ctl->doubtful)
		err = h->file->ops->changed(h->file, 1);
	err = err > 0 ? 0 : err;
	*ret = (struct vm_dropped){.npages = h->plan.npages, .ndirty = h->plan.ndirty};
	return err;
}

int vm_fileh_invalidate(struct vm_fileh *h, uint64_t off, uint64_t len, enum vm_on_dirty on_dirty,
			uint64_t *ret_npages)
{
	struct vm_dropped dropped = {0};
	struct vm_held held;
	int err;

	if (len && off + len < off)
		return -EINVAL;
	vm_fileh_begin_busy(h);
	err = vm_hold(h, &held);
	if (!err)
		err = invalidate(h, off, len, on_dirty, &held, &dropped);
	vm_let_go(h, &held, !err);
	vm_fileh_end_busy(h);
	if (ret_npages)
		*ret_npages = dropped.npages;
	return err;
}

int vm_fileh_refresh(struct vm_fileh *h, bool anyway, enum vm_on_dirty on_dirty, struct vm_dropped *ret)
{
	struct vm_held held;
	int err, changed = 0;

	*ret = (struct vm_dropped){0};
	vm_fileh_begin_busy(h);
	err = vm_hold(h, &held);
	if (!err)
		err = changed = is_changed(h, &held);
	if (changed > 0 || (!err && anyway))
		err = invalidate(h, 0, 0, changed ? on_dirty : VM_DIRTY_KEEP, &held, ret);
	vm_let_go(h, &held, !err);
	vm_fileh_end_busy(h);
	return err ? err : changed;
}
