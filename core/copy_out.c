/* SPDX-License-Identifier: MIT */
/*
 * Copies of files as the program sees them: a commit's cut, into another place, that never becomes a commit.
 *
 *	base     what is committed, while nobody is held up
 *	busy     nothing is committed any more; the base once more, if something was
 *	cut      DIRTY -> STORING, each page stored into the copy      (the instant)
 *	then     STORING -> DIRTY, as if the commit had failed
 *
 * What is committed is in the storage; but a handle that shows a snapshot of that holds all of it itself.
 */
#include "internal.h"
#include <errno.h>

#define NO_BASE UINT64_MAX

/* What is committed now is what the base of c will be. *ret_same: it is that already. Busy, no lock held. */
static int settle(struct vm_fileh *h, bool *ret_same, struct vm_copy *c, uint64_t *ret_len)
{
	const struct vm_backend_ops *ops = h->file->ops;
	const struct vm_ctl *ctl = h->ctl;
	/* all of it in its final place */
	int err = ops->checkpoint && !ops->hold ? ops->checkpoint(h->file) : 0;

	vm_fileh_lock(h);
	*ret_same = c->base_txid == ctl->txid && c->base_gen == ctl->gen;
	*ret_len = ctl->size_low < ctl->size_committed ? ctl->size_low : ctl->size_committed;
	c->base_txid = ctl->txid;
	c->base_gen = ctl->gen;
	vm_fileh_unlock(h);
	return err;
}

typedef int read_fn(struct vm_fileh *h, uint64_t start, size_t npages, void *buf, uint64_t len);

static int read_ram(struct vm_fileh *h, uint64_t start, size_t npages, void *buf, uint64_t len)
{
	(void)len;
	return vm_ram_copy(&h->ram, start, npages, buf);
}

/* Copy pages [start, stop). */
static int copy_pages(struct vm_fileh *h, struct vm_copy *c, uint64_t start, uint64_t stop, read_fn *read,
		      uint64_t len)
{
	int err = 0;

	while (!err && start < stop) {
		size_t n = stop - start < VM_BATCH_NPAGES ? (size_t)(stop - start) : VM_BATCH_NPAGES;

		err = read(h, start, n, h->scratch, len);
		if (!err)
			err = c->store(c, start, n, h->scratch);
		start += n;
	}
	return err;
}

static int copy_storage(struct vm_fileh *h, struct vm_copy *c, uint64_t len)
{
	const struct vm_backend_ops *ops = h->file->ops;
	uint64_t start = 0, stop = len, off = 0;
	int err = 0;

	while (!err && off < len) {
		if (ops->nextdata)
			err = ops->nextdata(h->file, off, &start, &stop);
		stop = stop < len ? stop : len;
		if (!err && start < len)
			err = copy_pages(h, c, start >> VM_PAGE_SHIFT, vm_npages(stop), vm_load_read, len);
		off = start < len ? stop : len;
	}
	return err == -ENXIO ? 0 : err;
}

/* Of a handle that holds all of its snapshot. What is stored meanwhile comes with the cut. */
static int copy_ram(struct vm_fileh *h, struct vm_copy *c)
{
	uint64_t end = vm_npages(vm_fileh_size(h)), stop;
	int err = 0;

	for (uint64_t pg = 0; !err && pg < end; pg = stop) {
		pg = vm_ram_next(&h->ram, pg, end, &stop);
		err = copy_pages(h, c, pg, stop, read_ram, 0);
	}
	return err;
}

/* The first base, beside the program's commits. */
static int begin_base(struct vm_fileh *h, struct vm_copy *c)
{
	uint64_t len;
	bool same;
	int err;

	vm_fileh_begin_busy(h);
	err = settle(h, &same, c, &len);
	vm_fileh_end_busy(h);
	if (err)
		return err;
	err = h->file->ops->hold ? 1 : c->base(c, len);
	if (err)
		c->base_gen = NO_BASE;
	return err < 0 ? err : 0;
}

/* It is what is committed now. Busy, no lock held. */
static int renew_base(struct vm_fileh *h, struct vm_copy *c, bool overwrite)
{
	const struct vm_backend_ops *ops = h->file->ops;
	uint64_t len;
	bool same;
	int err = settle(h, &same, c, &len);

	if (!err)
		err = vm_need_scratch(h);
	if (!err && !same)
		err = c->base(c, ops->hold ? 0 : len);
	if (err >= 0 && !same && ops->hold)
		err = copy_ram(h, c);
	else if (err == 1)
		err = copy_storage(h, c, len);
	/* the snapshot that a handle of those shows is not changed by others */
	if (!err && !overwrite && !ops->hold && ops->changed)
		err = ops->changed(h->file, 0);
	return err > 0 ? -EBUSY : err;
}

int vm_copy_out(struct vm_fileh **h, struct vm_copy **c, unsigned n, bool overwrite)
{
	bool changed;
	int err = 0;

	for (unsigned i = 0; !err && i < n; i++)
		err = begin_base(h[i], c[i]);
	if (err)
		return err;
	vm_begin_busy(h, n);
	for (unsigned i = 0; i < n; i++)
		h[i]->part = (struct vm_part){.copy = c[i]};
	for (unsigned i = 0; !err && i < n; i++)
		err = renew_base(h[i], c[i], overwrite);
	if (!err)
		err = vm_look(h, n, &changed);
	if (!err)
		err = vm_cut(h, n, overwrite);
	for (unsigned i = 0; i < n; i++) {
		vm_fileh_lock(h[i]);
		vm_page_store_failed(h[i]);
		c[i]->size = h[i]->part.txn.size;
		c[i]->txid = h[i]->ctl->txid;
		c[i]->npages = h[i]->part.npages;
		vm_fileh_unlock(h[i]);
		h[i]->part.copy = NULL;
		vm_fileh_end_busy(h[i]);
	}
	return err;
}
