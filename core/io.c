/* SPDX-License-Identifier: MIT */
/*
 * Reading and writing a handle like a file. The kernel copies between the program's buffers and ram, so that
 * bad addresses, short counts and managed buffers come out as always. Readers and one writer are inside at a
 * time, counted in our entry of ctl->peers; a commit's cut keeps writers out, an invalidation readers, too
 * (vm_fileh_gate).
 */
#include "internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static void enter_reader(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	while (h->ctl->gate == VM_GATE_CLOSED)
		vm_fileh_wait(h);
	vm_fileh_peer(h)->nreaders++;
	vm_fileh_unlock(h);
}

static bool has_writer(struct vm_ctl *ctl)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (ctl->peers[i].pid && ctl->peers[i].nwriters)
			return true;
	return false;
}

static void enter_writer(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	while (h->ctl->gate != VM_GATE_OPEN || has_writer(h->ctl))
		vm_fileh_wait(h);
	vm_fileh_peer(h)->nwriters++;
	vm_fileh_peer(h)->may_store = true;
	vm_fileh_unlock(h);
}

static void leave_reader(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	vm_fileh_peer(h)->nreaders--;
	if (h->ctl->gate != VM_GATE_OPEN)
		vm_wake(&h->ctl->seq);
	vm_fileh_unlock(h);
}

static void leave_writer(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	vm_fileh_peer(h)->nwriters--;
	vm_wake(&h->ctl->seq);
	vm_fileh_unlock(h);
}

static uint64_t total(const struct iovec *iov, int niov)
{
	uint64_t len = 0;

	for (int i = 0; i < niov; i++)
		len += iov[i].iov_len;
	return len;
}

ssize_t vm_fileh_read(struct vm_fileh *h, const struct iovec *iov, int niov, uint64_t off)
{
	uint64_t len = total(iov, niov), size;
	ssize_t n = 0;
	int err = 0;

	if (off > INT64_MAX || len > INT64_MAX - off)
		return -EINVAL;
	enter_reader(h);
	size = vm_fileh_size(h);
	if (off < size) {
		if (h->lazy)
			err = vm_load(h, off >> VM_PAGE_SHIFT, vm_npages(len < size - off ? off + len : size));
		/* ram's size is the handle's: the kernel stops at the end by itself */
		n = err ? err : vm_sys->preadv(h->ram.fd, iov, niov, (off_t)off);
	}
	leave_reader(h);
	return n;
}

/* Both locks, once none of [start, stop) is LOADING: a load from before a shrink can still be on its way, and
 * would take what is written now for its own. */
static int lock_when_loaded(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	int err;

	for (;;) {
		vm_lock(&vm_map_lock);
		vm_fileh_lock(h);
		err = vm_pagemap_reserve(&h->pagemap, start, stop);
		if (err || vm_pagemap_find(&h->pagemap, start, stop, VM_LOADING) == stop)
			return err;
		vm_unlock(&vm_map_lock);
		vm_fileh_wait(h);
		vm_fileh_unlock(h);
	}
}

/* Make the pages of [off, off + len) such that a write to ram is seen: loaded below the end, known above it. */
static int ready_for_write(struct vm_fileh *h, uint64_t off, uint64_t len, uint64_t size)
{
	uint64_t start = off >> VM_PAGE_SHIFT, stop = vm_npages(off + len), pg;
	int err = 0;

	if (h->lazy && start < vm_npages(size)) /* an append to the last page keeps its beginning */
		err = vm_load(h, start, stop);
	if (err)
		return err;
	err = lock_when_loaded(h, start, stop);
	/* On an eager handle a page that is not in ram may have been stored into since: to prepare it now
	 * would hide that. Without, at worst a read of it counts as a store. */
	if (!err && h->lazy && vm_engine_ops->will_fill)
		err = vm_vma_for_each(h, start, stop, vm_engine_ops->will_fill);
	for (pg = start > vm_npages(size) ? start : vm_npages(size); !err && pg < stop; pg++)
		if (vm_page_begin_load(h, pg, pg + 1) == pg + 1)
			vm_page_end_load(h, pg, pg + 1, true); /* beyond the end: zeros, without reading */
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	return err;
}

/* It came short: what was made ready beyond the end is taken back. Locks held. */
static void trim(struct vm_fileh *h, uint64_t stop)
{
	uint64_t end = vm_npages(h->ctl->size);

	(void)vm_ram_resize(&h->ram, h->ctl->size); /* the kernel makes the file longer before it copies */
	if (end >= stop)
		return;
	(void)vm_page_drop(h, end, stop);
	(void)vm_vma_for_each(h, end, stop, vm_engine_ops->emptied); /* nobody touches them before they are loaded */
}

/* n bytes of len at off were written, which was made ready. */
static void wrote(struct vm_fileh *h, uint64_t off, uint64_t n, uint64_t len)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	if (n) {
		vm_page_mark_dirty(h, off >> VM_PAGE_SHIFT, vm_npages(off + n));
		if (off + n > h->ctl->size)
			h->ctl->size = off + n;
	}
	if (n < len)
		trim(h, vm_npages(off + len));
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

/* What is written lies in mappings of ours? Load it first: the kernel holds the memfd's lock while it copies
 * from there, and who loads may need that lock. Inside, so that nothing is dropped again. */
static int load_buffers(const struct iovec *iov, int niov)
{
	int err = 0;

	for (int i = 0; !err && i < niov; i++)
		err = vm_load_mapped(iov[i].iov_base, iov[i].iov_len);
	return err ? -EFAULT : 0;
}

ssize_t vm_fileh_write(struct vm_fileh *h, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off)
{
	uint64_t len = total(iov, niov), size;
	bool ready = false;
	ssize_t n = 0;
	int err;

	enter_writer(h);
	size = vm_fileh_size(h);
	if (off == VM_APPEND)
		off = size;
	if (off > INT64_MAX || len > INT64_MAX - off)
		err = -EINVAL;
	else if (vm_npages(off + len) > VM_MAX_PGOFF)
		err = -EFBIG;
	else
		err = load_buffers(iov, niov);
	if (!err) {
		err = ready_for_write(h, off, len, size);
		ready = !err;
	}
	if (!err && len)
		err = vm_zero_tail(h, size, off);
	if (!err && len)
		n = vm_sys->pwritev(h->ram.fd, iov, niov, (off_t)off);
	if (ready)
		wrote(h, off, n > 0 ? (uint64_t)n : 0, len);
	if (n > 0 && off > size)
		(void)vm_load_private(h, size, off); /* zeros; n bytes were written in any case */
	leave_writer(h);
	if (ret_off)
		*ret_off = off;
	return err ? err : n;
}

int vm_fileh_zero(struct vm_fileh *h, uint64_t off, uint64_t len)
{
	static const char zeros[VM_BLKSIZE];
	uint64_t stop = off + len;
	int err;

	enter_writer(h);
	if (stop > vm_fileh_size(h))
		stop = vm_fileh_size(h);
	err = off < stop ? ready_for_write(h, off, stop - off, vm_fileh_size(h)) : 0;
	while (!err && off < stop) {
		uint64_t n = VM_PAGE - off % VM_PAGE;

		if (n == VM_PAGE && stop - off >= VM_PAGE) {
			n = (stop - off) & ~(uint64_t)(VM_PAGE - 1);
			err = vm_ram_punch(&h->ram, off >> VM_PAGE_SHIFT, (off + n) >> VM_PAGE_SHIFT);
		} else {
			n = n < stop - off ? n : stop - off;
			err = vm_sys_pwrite_full(h->ram.fd, zeros, n, (off_t)off);
		}
		if (!err)
			wrote(h, off, n, n);
		off += n;
	}
	leave_writer(h);
	return err;
}
