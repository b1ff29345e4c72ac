/* SPDX-License-Identifier: MIT */
/* mmap and munmap of handles. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* The handle of [start, stop), or h, that is frozen. Map lock held. */
static struct vm_fileh *find_frozen(struct vm_fileh *h, uintptr_t start, uintptr_t stop)
{
	if (h && __atomic_load_n(&h->frozen, __ATOMIC_SEQ_CST))
		return h;
	for (size_t i = vm_vma_index(start); i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		if (__atomic_load_n(&vm_vmas[i]->fileh->frozen, __ATOMIC_SEQ_CST))
			return vm_vmas[i]->fileh;
	return NULL;
}

int vm_map_lock_thawed(struct vm_fileh *h, uintptr_t start, uintptr_t stop, unsigned msec)
{
	struct vm_fileh *frozen;
	uint64_t until = 0;

	for (;;) {
		vm_lock(&vm_map_lock);
		frozen = find_frozen(h, start, stop);
		if (!frozen)
			return 0;
		if (!until) /* nobody asks for the time who need not wait */
			until = vm_deadline(msec);
		vm_fileh_pin(frozen);
		vm_unlock(&vm_map_lock);
		vm_wait_for_thaw(frozen, msec);
		vm_fileh_unpin(frozen);
		if (vm_is_past(until))
			return -EAGAIN;
	}
}

/* ---- map ---- */

/* The kernel must not fill pages at mmap time: those not loaded would become zeros. Filling comes after. */
#define FILLING (MAP_POPULATE | MAP_LOCKED)

static void *host_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	bool shared = !(flags & MAP_PRIVATE);

	flags = (flags & ~(MAP_TYPE | FILLING)) | (shared ? MAP_SHARED : MAP_PRIVATE);
	/* mlockall(MCL_FUTURE) fills as MAP_LOCKED does: no access until the engine watches */
	return vm_sys->mmap(addr, len, shared ? PROT_NONE : prot, flags, h->ram.fd, (off_t)off);
}

int vm_vma_track(struct vm_fileh *h, struct vma *v)
{
	int err;

	vm_fileh_lock(h);
	vm_fileh_peer(h)->may_store |= v->shared && v->writable;
	err = vm_pagemap_reserve(&h->pagemap, v->pgoff, vm_vma_pgstop(v));
	if (!err && v->shared)
		err = vm_engine_ops->attach(v);
	if (!err && v->shared) {
		err = vm_engine_ops->protect(v, v->pgoff, vm_vma_pgstop(v));
		if (!err)
			err = vm_vma_insert(v);
		if (err)
			vm_engine_ops->detach(v);
	} else if (!err) {
		err = vm_vma_insert(v);
	}
	vm_fileh_unlock(h);
	return err;
}

int vm_map_within(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable,
		  unsigned msec, void **ret_addr)
{
	uint64_t pgoff = off >> VM_PAGE_SHIFT, pgstop;
	struct vma *v;
	void *p;
	int err;

	if (!len)
		return -EINVAL;
	if (vm_page_up(len) < len)
		return -ENOMEM;
	pgstop = pgoff + (vm_page_up(len) >> VM_PAGE_SHIFT);
	if (pgstop > VM_MAX_PGOFF)
		return -EOVERFLOW;
	/* a private mapping has nobody to load its pages; a filled one wants them now */
	if (h->lazy && (flags & (MAP_PRIVATE | FILLING))) {
		err = vm_load(h, pgoff, pgstop);
		if (err)
			return err;
	}
	/* what is frozen may be half replaced: nobody gets another view of it */
	err = vm_map_lock_thawed(h, 0, 0, msec);
	if (err)
		return err;
	err = flags & MAP_FIXED ? vm_forget_locked((uintptr_t)addr, (uintptr_t)addr + vm_page_up(len)) : 0;
	if (err)
		goto unlock;
	p = host_map(h, addr, len, prot, flags, off);
	err = vm_sys_err(p);
	if (err)
		goto unlock;
	v = vm_vma_alloc();
	if (!v) {
		err = -ENOMEM;
		goto unmap;
	}
	v->start = (uintptr_t)p;
	v->stop = v->start + vm_page_up(len);
	v->pgoff = pgoff;
	v->fileh = h;
	v->prot = prot;
	v->shared = !(flags & MAP_PRIVATE);
	v->writable = writable;
	err = vm_vma_track(h, v);
	if (err)
		goto free;
	vm_unlock(&vm_map_lock);
	if (h->lazy && (flags & MAP_PRIVATE)) { /* what an invalidation dropped again before it knew of this mapping */
		err = vm_load(h, pgoff, pgstop);
		if (err) {
			(void)vm_unmap(p, len); /* err is the one to report */
			return err;
		}
	}
	/* Best effort after the mapping stands, like the kernel's. Filling a private mapping gives it copies of its own. */
	if ((flags & FILLING) && (flags & MAP_PRIVATE) && prot != PROT_NONE)
		(void)vm_sys->madvise(p, vm_page_up(len), prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	else if (flags & MAP_LOCKED)
		(void)vm_sys->madvise(p, len, MADV_WILLNEED);
	*ret_addr = p;
	return 0;
free:
	vm_vma_free(v);
unmap:
	(void)vm_sys->munmap(p, len); /* just made */
unlock:
	vm_unlock(&vm_map_lock);
	return err;
}

int vm_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable, void **ret_addr)
{
	return vm_map_within(h, addr, len, prot, flags, off, writable, VM_FOREVER, ret_addr);
}

/* ---- unmap ---- */

int vm_vma_last_harvest(struct vma *v)
{
	int err;

	if (!v->shared || !v->writable)
		return 0;
	vm_fileh_lock(v->fileh);
	err = vm_freeze_vma(v);
	if (!err)
		err = vm_engine_ops->harvest(v, v->pgoff, vm_vma_pgstop(v));
	vm_fileh_unlock(v->fileh);
	return err;
}

static void untrack(struct vma *v)
{
	if (v->shared)
		vm_engine_ops->detach(v);
	vm_vma_remove(v);
	vm_vma_free(v);
}

int vm_vma_for_range(uintptr_t start, uintptr_t stop, int (*fn)(struct vma *v))
{
	int err = vm_vma_split(start, stop);

	for (size_t i = vm_vma_index(start); !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		err = fn(vm_vmas[i]);
	return err;
}

int vm_vma_reprotect(struct vma *v)
{
	int err;

	if (!v->shared)
		return 0;
	vm_fileh_lock(v->fileh);
	err = vm_engine_ops->protect(v, v->pgoff, vm_vma_pgstop(v));
	vm_fileh_unlock(v->fileh);
	return err;
}

void vm_vma_untrack_range(uintptr_t start, uintptr_t stop)
{
	size_t i;

	while ((i = vm_vma_index(start)) < vm_nvmas && vm_vmas[i]->start < stop)
		untrack(vm_vmas[i]);
}

int vm_unmap(void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);
	int err;

	if (start % VM_PAGE || !len || stop <= start)
		return vm_sys->munmap(addr, len); /* the kernel's own answer */
	vm_lock(&vm_map_lock);
	err = vm_vma_for_range(start, stop, vm_vma_last_harvest);
	if (!err)
		err = vm_sys->munmap(addr, len);
	if (!err)
		vm_vma_untrack_range(start, stop);
	else
		(void)vm_vma_for_range(start, stop, vm_vma_reprotect); /* as before; err is the one to report */
	vm_vma_publish();
	vm_unlock(&vm_map_lock);
	return err;
}

/* Keep the addresses of v taken, by nothing. */
static int reserve_addresses(struct vma *v)
{
	return vm_sys_err(vm_sys->mmap((void *)v->start, v->stop - v->start, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
}

int vm_forget_locked(uintptr_t start, uintptr_t stop)
{
	int err;

	if (start % VM_PAGE || stop <= start)
		return 0; /* the call that follows fails */
	err = vm_vma_for_range(start, stop, vm_vma_last_harvest);
	if (!err)
		err = vm_vma_for_range(start, stop, reserve_addresses);
	if (!err)
		vm_vma_untrack_range(start, stop);
	else
		(void)vm_vma_for_range(start, stop, vm_vma_reprotect); /* as before; err is the one to report */
	vm_vma_publish();
	return err;
}

int vm_forget(void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr;
	int err;

	vm_lock(&vm_map_lock);
	err = vm_forget_locked(start, start + vm_page_up(len));
	vm_unlock(&vm_map_lock);
	return err;
}

void vm_for_each_mapped(void *addr, size_t len, vm_mapped_fn *fn, void *arg)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);
	struct vm_fileh *h, *last = NULL;
	size_t i;

	for (;;) {
		vm_lock(&vm_map_lock);
		i = vm_vma_index(start);
		h = i < vm_nvmas && vm_vmas[i]->start < stop ? vm_vmas[i]->fileh : NULL;
		if (h)
			start = vm_vmas[i]->stop;
		vm_unlock(&vm_map_lock);
		if (!h)
			return;
		if (h != last)
			fn(h, arg);
		last = h;
	}
}
