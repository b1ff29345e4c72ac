/* SPDX-License-Identifier: MIT */
/* The size of a handle: part of the transaction, seen by the program at once. */
#include "internal.h"
#include <errno.h>

static int will_empty(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_engine_ops->will_empty ? vm_engine_ops->will_empty(v, start, stop) : 0;
}

/* The pages are gone; an engine that cannot say so now gives their places no rights, or sees stores that were
 * none. */
static int emptied(struct vma *v, uint64_t start, uint64_t stop)
{
	(void)vm_engine_ops->emptied(v, start, stop);
	return 0;
}

int vm_zero_tail(struct vm_fileh *h, uint64_t size, uint64_t stop)
{
	static const char zeros[VM_BLKSIZE];
	uint64_t pg = size >> VM_PAGE_SHIFT, end = vm_page_up(size);

	if (stop < end)
		end = stop;
	if (end <= size || vm_ram_first(&h->ram, pg, pg + 1) > pg)
		return 0; /* a page that is not in ram holds nothing, and must not come to be here */
	return vm_sys_pwrite_full(h->ram.fd, zeros, end - size, (off_t)size);
}

int vm_set_size_locked(struct vm_fileh *h, uint64_t size)
{
	struct vm_ctl *ctl = h->ctl;
	uint64_t was = vm_npages(ctl->size), now = vm_npages(size);
	int err;

	err = vm_pagemap_reserve(&h->pagemap, now, was); /* the pages that go, so that nothing fails later */
	if (!err)
		err = vm_vma_for_each(h, now, was, will_empty);
	if (!err)
		err = vm_zero_tail(h, ctl->size, size);
	if (!err)
		err = vm_ram_resize(&h->ram, size);
	if (err) {
		if (size > ctl->size)
			(void)vm_ram_resize(&h->ram, ctl->size); /* zeros may have made it longer */
		(void)vm_vma_for_each(h, now, was, vm_engine_ops->protect); /* err is the one to report */
		return err;
	}
	ctl->size = size;
	ctl->gen++; /* a load under way may carry what the shrink took away */
	if (now < was) {
		(void)vm_page_drop(h, now, was); /* gone with the resize: no state may outlive them */
		(void)vm_vma_for_each(h, now, was, emptied);
	}
	return 0;
}

static int change_size(struct vm_fileh *h, uint64_t size)
{
	uint64_t was;
	int err;

	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	was = h->ctl->size;
	err = vm_set_size_locked(h, size);
	if (!err && size < h->ctl->size_low)
		h->ctl->size_low = size;
	h->stored_here |= !err && size != was;
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	return err;
}

int vm_fileh_resize_busy(struct vm_fileh *h, uint64_t size)
{
	uint64_t was = vm_fileh_size(h);
	int err = change_size(h, size);

	if (err)
		return err;
	err = vm_load_private(h, was, size);
	if (err)
		(void)change_size(h, was); /* err is the one to report */
	return err;
}

int vm_fileh_resize(struct vm_fileh *h, uint64_t size)
{
	int err;

	if (vm_npages(size) > VM_MAX_PGOFF)
		return -EFBIG;
	vm_fileh_begin_busy(h);
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_CLOSED);
	vm_fileh_unlock(h);
	err = vm_fileh_resize_busy(h, size);
	vm_fileh_end_busy(h);
	return err;
}
