/* SPDX-License-Identifier: MIT */
/*
 * SEEK_DATA and SEEK_HOLE. Data are the pages stored into since the last commit, and what storage says it
 * has. A byte of a hole is zero in any case; that a page of zeros counts as data, as one that was punched
 * does, is no error.
 */
#include "internal.h"
#include <errno.h>
#include <unistd.h>

static uint64_t find_changed(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	uint64_t dirty = vm_pagemap_find(&h->pagemap, start, stop, VM_DIRTY);

	return vm_pagemap_find(&h->pagemap, start, dirty, VM_STORING);
}

/* The first data of [off, size), or size; *ret_stop: so far at least they go. Stores of other processes, and
 * of killed ones, are not known here: then all is data. */
static uint64_t next_data(struct vm_fileh *h, uint64_t off, uint64_t size, uint64_t *ret_stop)
{
	const struct vm_backend_ops *ops = h->file->ops;
	uint64_t at, low, start, stop;
	bool shared;

	vm_fileh_lock(h);
	at = find_changed(h, off >> VM_PAGE_SHIFT, vm_npages(size)) << VM_PAGE_SHIFT;
	low = h->ctl->size_low; /* what storage has behind it is gone */
	shared = h->ctl->was_shared;
	vm_fileh_unlock(h);

	if (at <= off || shared || !ops->nextdata) {
		*ret_stop = shared || !ops->nextdata ? size : at + VM_PAGE;
		return off;
	}
	*ret_stop = at + VM_PAGE;
	/* asked after the pages: what is committed meanwhile counts on one side at least */
	if (off < low && !ops->nextdata(h->file, off, &start, &stop) && start < at && start < low) {
		at = start;
		*ret_stop = stop < low ? stop : low;
	}
	return at < size ? at : size;
}

off_t vm_fileh_seek(struct vm_fileh *h, off_t off, int whence)
{
	uint64_t size, at, stop, pos = (uint64_t)off;
	int err;

	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	size = h->ctl->size;
	err = vm_harvest(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	if (err)
		return err;
	if (off < 0 || pos >= size)
		return -ENXIO;
	at = next_data(h, pos, size, &stop);
	if (whence == SEEK_DATA)
		return at < size ? (off_t)at : -ENXIO;
	while (at == pos && pos < size) {
		pos = stop < size ? stop : size;
		if (pos < size)
			at = next_data(h, pos, size, &stop);
	}
	return (off_t)pos;
}
