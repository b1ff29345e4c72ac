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

/* Nothing is filled before the engine watches: pages that are not loaded would become zeros. What the kernel
 * fills at once, because MAP_LOCKED or mlockall(MCL_FUTURE) says so, has no access until then. */
static void *host_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	bool shared = !(flags & MAP_PRIVATE);
	void *p;

	flags = (flags & ~(MAP_TYPE | MAP_POPULATE)) | (shared ? MAP_SHARED : MAP_PRIVATE);
	if (!shared)
		return vm_sys->mmap(addr, len, prot, flags & ~MAP_LOCKED, h->ram.fd, (off_t)off);
	p = vm_sys->mmap(addr, len, PROT_NONE, flags, h->ram.fd, (off_t)off);
	/* core dumps leave out what is mapped from files, but not what is mapped from our ram */
	if (!vm_sys_err(p))
		(void)vm_sys->madvise(p, vm_page_up(len), MADV_DONTDUMP); /* only makes cores large */
	return p;
}

/* What the flags ask for once the mapping stands. Best effort, like the kernel's. Filling a private mapping
 * gives it copies of its own. */
static void fill(void *p, size_t len, int prot, int flags)
{
	if (flags & MAP_LOCKED)
		(void)vm_sys->mlock2(p, len, 0);
	else if ((flags & MAP_POPULATE) && (flags & MAP_PRIVATE) && !(flags & MAP_NONBLOCK) && prot != PROT_NONE)
		(void)vm_sys->madvise(p, vm_page_up(len), prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

int vm_vma_track(struct vm_fileh *h, struct vma *v)
{
	int err;

	vm_fileh_lock(h);
	vm_fileh_peer(h)->may_store |= v->shared && v->writable;
	vm_fileh_peer(h)->harvested = false;
	err = vm_pagemap_reserve(&h->pagemap, v->pgoff, vm_vma_pgstop(v) < VM_MAX_PGOFF ? vm_vma_pgstop(v) : VM_MAX_PGOFF);
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
	vm_serve_wake(h);
	return err;
}

static struct vma *new_vma(struct vm_fileh *h, void *p, size_t len, int prot, int flags, uint64_t off, bool writable)
{
	struct vma *v = vm_vma_alloc();

	if (!v)
		return NULL;
	v->start = (uintptr_t)p;
	v->stop = v->start + vm_page_up(len);
	v->pgoff = off >> VM_PAGE_SHIFT;
	v->fileh = h;
	v->prot = prot;
	v->shared = !(flags & MAP_PRIVATE);
	v->writable = writable;
	return v;
}

/* The mapping and what is known of it, in place of what was there. Map lock held. */
static int map_and_track(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable,
			 void **ret_addr)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);
	bool replaces = flags & MAP_FIXED;
	struct vma *v = NULL;
	void *p;
	int err;

	if (replaces) {
		err = vm_vma_begin_unmap(start, stop);
		if (err)
			return err;
	}
	p = host_map(h, addr, len, prot, flags, off);
	err = vm_sys_err(p);
	if (replaces)
		vm_vma_end_unmap(start, stop, !err);
	if (err)
		return err;
	err = vm_vma_drop_gone((uintptr_t)p, (uintptr_t)p + vm_page_up(len));
	if (!err)
		v = new_vma(h, p, len, prot, flags, off, writable);
	if (!err)
		err = v ? vm_vma_track(h, v) : -ENOMEM;
	if (err) {
		(void)vm_sys->munmap(p, len); /* just made */
		if (v)
			vm_vma_free(v);
		return err;
	}
	*ret_addr = p;
	return 0;
}

int vm_map_within(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable,
		  unsigned msec, void **ret_addr)
{
	uint64_t pgoff = off >> VM_PAGE_SHIFT, pgstop = pgoff + (vm_page_up(len) >> VM_PAGE_SHIFT);
	/* a private mapping has nobody to load its pages; a filled one wants them now */
	bool loads = h->lazy && (flags & (MAP_PRIVATE | MAP_LOCKED | MAP_POPULATE));
	int err;

	if (!len)
		return -EINVAL;
	if (vm_page_up(len) < len)
		return -ENOMEM;
	if (loads) {
		err = vm_load(h, pgoff, pgstop);
		if (err)
			return err;
	}
	/* what is frozen may be half replaced: nobody gets another view of it */
	err = vm_map_lock_thawed(h, 0, 0, msec);
	if (err)
		return err;
	err = map_and_track(h, addr, len, prot, flags, off, writable, ret_addr);
	vm_vma_publish();
	vm_unlock(&vm_map_lock);
	if (!err && loads && (flags & MAP_PRIVATE)) { /* what an invalidation dropped again before it knew of this mapping */
		err = vm_load(h, pgoff, pgstop);
		if (err)
			(void)vm_unmap(*ret_addr, len); /* err is the one to report */
	}
	if (!err)
		fill(*ret_addr, len, prot, flags);
	return err;
}

int vm_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable, void **ret_addr)
{
	return vm_map_within(h, addr, len, prot, flags, off, writable, VM_FOREVER, ret_addr);
}

/* ---- unmap ---- */

static bool may_be_stored_to(const struct vma *v)
{
	return v->shared && v->writable;
}

/* Stores into [start, stop) fault, and wait for the map lock. Neighbours in one call: a process that has all
 * the mappings that the kernel grants must get rid of them, too. */
static int freeze_range(uintptr_t start, uintptr_t stop)
{
	int err = 0;

	for (size_t i = vm_vma_index(start), first; !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++) {
		if (!may_be_stored_to(vm_vmas[i]))
			continue;
		for (first = i; i + 1 < vm_nvmas && vm_vmas[i + 1]->start < stop && may_be_stored_to(vm_vmas[i + 1]) &&
				vm_vmas[i]->stop == vm_vmas[i + 1]->start;
		     i++)
			;
		err = vm_sys->mprotect((void *)vm_vmas[first]->start, vm_vmas[i]->stop - vm_vmas[first]->start, PROT_NONE);
	}
	return err;
}

static int last_harvest(struct vma *v)
{
	int err;

	if (!may_be_stored_to(v))
		return 0;
	vm_fileh_lock(v->fileh);
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

int vm_vma_begin_unmap(uintptr_t start, uintptr_t stop)
{
	int err;

	if (start % VM_PAGE || stop <= start)
		return 0; /* the call that follows fails */
	do {
		err = vm_vma_split(start, stop);
		if (!err)
			err = freeze_range(start, stop);
		if (!err)
			err = vm_vma_for_range(start, stop, last_harvest);
	} while (err && vm_vma_drop_stale(start, stop, NULL));
	if (err)
		vm_vma_end_unmap(start, stop, false);
	return err;
}

void vm_vma_end_unmap(uintptr_t start, uintptr_t stop, bool is_unmapped)
{
	if (start % VM_PAGE || stop <= start)
		return;
	if (is_unmapped)
		vm_vma_untrack_range(start, stop);
	else
		(void)vm_vma_for_range(start, stop, vm_vma_reprotect); /* as before; another error is the one to report */
}

/* Nothing of ours is to be in [addr, addr + len): before the kernel's call, and after it with its result. */
static int begin_unmap(void *addr, size_t len)
{
	int err;

	vm_lock(&vm_map_lock);
	err = vm_vma_begin_unmap((uintptr_t)addr, (uintptr_t)addr + vm_page_up(len));
	if (err) {
		vm_vma_publish();
		vm_unlock(&vm_map_lock);
	}
	return err;
}

static int end_unmap(void *addr, size_t len, int err)
{
	vm_vma_end_unmap((uintptr_t)addr, (uintptr_t)addr + vm_page_up(len), !err);
	vm_vma_publish();
	vm_unlock(&vm_map_lock);
	return err;
}

int vm_unmap(void *addr, size_t len)
{
	int err = begin_unmap(addr, len);

	if (err)
		return err;
	return end_unmap(addr, len, vm_sys->munmap(addr, len)); /* the kernel's own answer, also to what makes no sense */
}

int vm_map_other(void *addr, size_t len, int prot, int flags, int fd, uint64_t off, void **ret_addr)
{
	int err = begin_unmap(addr, len);

	if (err)
		return err;
	*ret_addr = vm_sys->mmap(addr, len, prot, flags, fd, (off_t)off);
	return end_unmap(addr, len, vm_sys_err(*ret_addr));
}

int vm_attach_segment(int id, void *addr, size_t len, int flags, void **ret_addr)
{
	int err = begin_unmap(addr, len);

	if (err)
		return err;
	*ret_addr = vm_sys->shmat(id, addr, flags);
	return end_unmap(addr, len, vm_sys_err(*ret_addr));
}

void vm_forget_gone(void *addr, size_t len)
{
	vm_lock(&vm_map_lock);
	(void)vm_vma_drop_gone((uintptr_t)addr, (uintptr_t)addr + vm_page_up(len)); /* no memory: found out later */
	vm_vma_publish();
	vm_unlock(&vm_map_lock);
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
