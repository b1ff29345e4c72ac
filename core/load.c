/* SPDX-License-Identifier: MIT */
/*
 * Loading: EMPTY -> LOADING -> LOADED.
 *
 *	1. begin: mark the pages, remember ctl->gen         (locks held)
 *	2. read them from the backend                       (no lock)
 *	3. end: still the same gen? put them into ram       (locks held)
 *
 * An invalidation between 1 and 3 raises gen: what was read may be old, so it is thrown away and read again.
 */
#include "internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static int engine_will_fill(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_engine_ops->will_fill ? vm_engine_ops->will_fill(v, start, stop) : 0;
}

static int engine_filled(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_engine_ops->filled ? vm_engine_ops->filled(v, start, stop) : 0;
}

int vm_load_read(struct vm_fileh *h, uint64_t start, size_t npages, void *buf, uint64_t size_low)
{
	uint64_t off = start << VM_PAGE_SHIFT, len = npages << VM_PAGE_SHIFT, keep;
	int err;

	keep = off >= size_low ? 0 : size_low - off < len ? size_low - off : len;
	if (keep) {
		err = h->file->ops->loadblk(h->file, start, vm_npages(keep), buf);
		if (err)
			return err;
	}
	memset((char *)buf + keep, 0, len - keep);
	return 0;
}

/* One buffer is kept between loads: a fresh mapping would have to be faulted in each time. */
static void *spare; /* (atomic) */

static void *get_buffer(void)
{
	void *buf = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQ_REL);

	if (!buf)
		buf = vm_own_map(VM_BATCH_NPAGES * VM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	return buf;
}

static void put_buffer(void *buf)
{
	if (buf && !vm_sys_err(buf))
		buf = __atomic_exchange_n(&spare, buf, __ATOMIC_ACQ_REL);
	if (buf && !vm_sys_err(buf))
		(void)vm_sys->munmap(buf, VM_BATCH_NPAGES * VM_PAGE); /* ours, aligned */
}

static void lock_both(struct vm_fileh *h)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
}

static void unlock_both(struct vm_fileh *h)
{
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

/* Step 3. Locks held. */
static int put_into_ram(struct vm_fileh *h, uint64_t start, uint64_t stop, const void *buf)
{
	int err = vm_vma_for_each(h, start, stop, engine_will_fill);

	if (!err)
		err = vm_engine_ops->fill ? vm_engine_ops->fill(h, start, stop - start, buf)
					  : vm_ram_fill_missing(&h->ram, start, stop - start, buf, h->ctl->size);
	vm_page_end_load(h, start, stop, !err);
	if (!err)
		err = vm_vma_for_each(h, start, stop, engine_filled);
	return err;
}

/* Load [start, stop), which this thread marked LOADING at gen. */
static int load_batch(struct vm_fileh *h, uint64_t start, uint64_t stop, uint64_t gen, uint64_t size_low, void *buf)
{
	int err = vm_load_read(h, start, stop - start, buf, size_low);

	lock_both(h);
	/* a repair may have reset pages, and another thread may be loading them, or have done so */
	if (!err && h->ctl->gen == gen && vm_pagemap_find_not(&h->pagemap, start, stop, VM_LOADING) == stop)
		err = put_into_ram(h, start, stop, buf);
	else
		for (uint64_t pg = start; pg < stop; pg++)
			if (vm_page_state(h, pg) == VM_LOADING)
				vm_page_end_load(h, pg, pg + 1, false);
	vm_wake(&h->ctl->seq);
	unlock_both(h);
	return err;
}

static uint64_t stop_at_end(struct vm_fileh *h, uint64_t stop)
{
	uint64_t end = vm_npages(h->ctl->size);

	return stop < end ? stop : end;
}

int vm_load(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	void *buf = NULL;
	int err = 0;

	lock_both(h);
	stop = stop_at_end(h, stop);
	if (start < stop)
		err = vm_pagemap_reserve(&h->pagemap, start, stop);
	/* the size can change whenever the locks were gone */
	for (; !err && start < stop; stop = stop_at_end(h, stop)) {
		uint64_t end, gen = h->ctl->gen, low = h->ctl->size_low;

		switch (vm_page_state(h, start)) {
		case VM_EMPTY:
			break;
		case VM_LOADING: /* by another thread */
			vm_unlock(&vm_map_lock);
			vm_fileh_wait(h);
			vm_fileh_unlock(h);
			lock_both(h);
			continue;
		default:
			start++;
			continue;
		}
		if (!buf) {
			buf = get_buffer();
			err = vm_sys_err(buf);
			if (err)
				break;
		}
		end = stop - start > VM_BATCH_NPAGES ? start + VM_BATCH_NPAGES : stop;
		end = vm_page_begin_load(h, start, end);
		unlock_both(h);
		err = load_batch(h, start, end, gen, low, buf);
		lock_both(h);
		/* no step forward: when the batch was thrown away it is EMPTY again and comes once more */
	}
	unlock_both(h);
	put_buffer(buf);
	return err;
}

/* The first part of [*start, stop) that needs it; *start: behind it. */
static bool next_private(struct vm_fileh *h, uint64_t *start, uint64_t stop, uint64_t *ret_start, uint64_t *ret_stop)
{
	*ret_start = *ret_stop = stop;
	vm_lock(&vm_map_lock);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (i != h->peer && __atomic_load_n(&h->ctl->peers[i].nprivate, __ATOMIC_SEQ_CST)) {
			*ret_start = *start; /* who knows what another process shows */
			*ret_stop = stop;
		}
	for (size_t i = 0; i < vm_nvmas && h->nprivate; i++) {
		struct vma *v = vm_vmas[i];
		uint64_t from = v->pgoff > *start ? v->pgoff : *start, to = vm_vma_pgstop(v);

		if (v->fileh == h && !v->shared && from < to && from < *ret_start) {
			*ret_start = from;
			*ret_stop = to < stop ? to : stop;
		}
	}
	vm_unlock(&vm_map_lock);
	*start = *ret_stop;
	return *ret_start < stop;
}

int vm_load_private(struct vm_fileh *h, uint64_t was, uint64_t size)
{
	uint64_t start = was >> VM_PAGE_SHIFT, stop = vm_npages(size), from, to;
	int err = 0;

	while (!err && h->lazy && start < stop && next_private(h, &start, stop, &from, &to))
		err = vm_load(h, from, to);
	return err;
}

int vm_load_again(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	int err = vm_need_scratch(h);

	if (err)
		return err;
	lock_both(h);
	err = vm_vma_for_each(h, start, stop, engine_will_fill);
	unlock_both(h);
	while (!err && start < stop) {
		uint64_t end = stop - start > VM_BATCH_NPAGES ? start + VM_BATCH_NPAGES : stop;

		err = vm_load_read(h, start, end - start, h->scratch, h->ctl->size_low);
		if (!err)
			err = vm_ram_fill(&h->ram, start, end - start, h->scratch, h->ctl->size);
		start = end;
	}
	return err;
}
