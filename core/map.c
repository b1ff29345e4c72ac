/* SPDX-License-Identifier: MIT */
/* mmap, munmap, mprotect, madvise, mremap of handles. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static size_t page_up(size_t len)
{
	return (len + VM_PAGE - 1) & ~(VM_PAGE - 1);
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

static int track(struct vm_fileh *h, struct vma *v)
{
	int err;

	vm_fileh_lock(h);
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

int vm_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable, void **ret_addr)
{
	uint64_t pgoff = off >> VM_PAGE_SHIFT, pgstop;
	struct vma *v;
	void *p;
	int err;

	if (!len)
		return -EINVAL;
	if (page_up(len) < len)
		return -ENOMEM;
	pgstop = pgoff + (page_up(len) >> VM_PAGE_SHIFT);
	if (pgstop > VM_MAX_PGOFF)
		return -EOVERFLOW;
	/* a private mapping has nobody to load its pages; a filled one wants them now */
	if (h->lazy && (flags & (MAP_PRIVATE | FILLING))) {
		err = vm_load(h, pgoff, pgstop);
		if (err)
			return err;
	}
	vm_lock(&vm_map_lock);
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
	v->stop = v->start + page_up(len);
	v->pgoff = pgoff;
	v->fileh = h;
	v->prot = prot;
	v->shared = !(flags & MAP_PRIVATE);
	v->writable = writable;
	err = track(h, v);
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
	if (flags & MAP_LOCKED) /* like the kernel's, best effort after the mapping stands */
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

/* ---- unmap ---- */

/* Everything stored through v is known after this, and nothing more can be stored. Map lock held. */
static int last_harvest(struct vma *v)
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

/* Calls fn for each of our mappings within [start, stop), after cutting them at the ends. Map lock held. */
static int for_range(uintptr_t start, uintptr_t stop, int (*fn)(struct vma *v))
{
	int err = vm_vma_split(start, stop);

	for (size_t i = vm_vma_index(start); !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		err = fn(vm_vmas[i]);
	return err;
}

static int reprotect(struct vma *v)
{
	return v->shared ? vm_engine_ops->protect(v, v->pgoff, vm_vma_pgstop(v)) : 0;
}

static int reprotect_locked(struct vma *v)
{
	vm_fileh_lock(v->fileh);
	int err = reprotect(v);

	vm_fileh_unlock(v->fileh);
	return err;
}

static void untrack_range(uintptr_t start, uintptr_t stop)
{
	size_t i;

	while ((i = vm_vma_index(start)) < vm_nvmas && vm_vmas[i]->start < stop)
		untrack(vm_vmas[i]);
}

int vm_unmap(void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + page_up(len);
	int err;

	if (start % VM_PAGE || !len || stop <= start)
		return vm_sys->munmap(addr, len); /* the kernel's own answer */
	vm_lock(&vm_map_lock);
	err = for_range(start, stop, last_harvest);
	if (!err)
		err = vm_sys->munmap(addr, len);
	if (!err)
		untrack_range(start, stop);
	else
		(void)for_range(start, stop, reprotect_locked); /* as before; err is the one to report */
	vm_unlock(&vm_map_lock);
	return err;
}

/* Keep the addresses of v taken, by nothing. */
static int reserve_addresses(struct vma *v)
{
	return vm_sys_err(vm_sys->mmap((void *)v->start, v->stop - v->start, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
}

int vm_forget(void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + page_up(len);
	int err;

	if (start % VM_PAGE || !len || stop <= start)
		return 0; /* the call that follows fails */
	vm_lock(&vm_map_lock);
	err = for_range(start, stop, last_harvest);
	if (!err)
		err = for_range(start, stop, reserve_addresses);
	if (!err)
		untrack_range(start, stop);
	else
		(void)for_range(start, stop, reprotect_locked); /* as before; err is the one to report */
	vm_unlock(&vm_map_lock);
	return err;
}

void vm_for_each_mapped(void *addr, size_t len, vm_mapped_fn *fn, void *arg)
{
	uintptr_t start = (uintptr_t)addr, stop = start + page_up(len);
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

/* ---- protect and advise ---- */

/* Is the program allowed this protection on v? */
static int may_protect(const struct vma *v, int prot)
{
	return v->shared && (prot & PROT_WRITE) && !v->writable ? -EACCES : 0;
}

int vm_protect(void *addr, size_t len, int prot)
{
	uintptr_t start = (uintptr_t)addr, stop = start + page_up(len);
	int err;

	if (start % VM_PAGE || !len || stop <= start)
		return vm_sys->mprotect(addr, len, prot);
	vm_lock(&vm_map_lock);
	err = vm_vma_split(start, stop);
	for (size_t i = vm_vma_index(start); !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		err = may_protect(vm_vmas[i], prot);
	if (err)
		goto unlock;
	/* The kernel first, for its own verdict on all of it, but without more than the engine allows. A frozen
	 * range gets its rights at the thaw. */
	err = vm_sys->mprotect(addr, len, vm_engine_ops == &vm_engine_segv ? prot & ~PROT_WRITE : prot);
	for (size_t i = vm_vma_index(start); !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++) {
		struct vma *v = vm_vmas[i];

		v->prot = prot;
		vm_fileh_lock(v->fileh);
		if (v->shared && __atomic_load_n(&v->fileh->frozen, __ATOMIC_SEQ_CST))
			err = vm_freeze_vma(v);
		else
			err = reprotect(v);
		vm_fileh_unlock(v->fileh);
	}
unlock:
	vm_unlock(&vm_map_lock);
	return err;
}

static int remove_pages(struct vm_fileh *h, uint64_t start, uint64_t len)
{
	uint64_t size = vm_fileh_size(h);

	if (start >= size)
		return 0;
	return vm_fileh_zero(h, start, len < size - start ? len : size - start);
}

/* MADV_REMOVE: a hole in the file, which is a change of the transaction. */
static int advise_remove(uintptr_t start, uintptr_t stop)
{
	while (start < stop) {
		struct vm_fileh *h = NULL;
		uint64_t off = 0, len = 0;
		size_t i;

		vm_lock(&vm_map_lock);
		i = vm_vma_index(start);
		if (i < vm_nvmas && vm_vmas[i]->start <= start && vm_vmas[i]->shared) {
			h = vm_vmas[i]->fileh;
			off = (vm_vmas[i]->pgoff << VM_PAGE_SHIFT) + (start - vm_vmas[i]->start);
			len = (vm_vmas[i]->stop < stop ? vm_vmas[i]->stop : stop) - start;
		}
		vm_unlock(&vm_map_lock);
		if (!h)
			return -EINVAL;
		int err = remove_pages(h, off, len);

		if (err)
			return err;
		start += len;
	}
	return 0;
}

int vm_advise(void *addr, size_t len, int advice)
{
	uintptr_t start = (uintptr_t)addr, stop = start + page_up(len);

	if (start % VM_PAGE || stop < start)
		return vm_sys->madvise(addr, len, advice);
	switch (advice) {
	case MADV_REMOVE:
		return advise_remove(start, stop);
	case MADV_DONTNEED: /* a shared mapping keeps its stores; dropping page tables would only hide them from us */
	case MADV_DOFORK:   /* what is not loaded must not be seen by a child; loaded mappings fork anyway */
		return 0;
	default:
		return vm_sys->madvise(addr, len, advice);
	}
}

/* ---- remap ---- */

/* v moves or changes its length: nothing is stored meanwhile, and afterwards it is tracked anew. */
static int move(struct vma *v, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	struct vm_fileh *h = v->fileh;
	uint64_t pgstop = v->pgoff + (page_up(new_len) >> VM_PAGE_SHIFT);
	void *p;
	int err;

	if (pgstop > VM_MAX_PGOFF)
		return -EINVAL;
	err = last_harvest(v);
	if (err)
		return err;
	vm_fileh_lock(h);
	err = v->shared ? vm_engine_ops->flatten(v) : 0;
	vm_fileh_unlock(h);
	if (err)
		goto restore;
	p = vm_sys->mremap((void *)v->start, v->stop - v->start, new_len, flags, new_addr);
	err = vm_sys_err(p);
	if (err)
		goto restore;
	vm_vma_remove(v);
	if (v->shared)
		vm_engine_ops->detach(v);
	v->start = (uintptr_t)p;
	v->stop = v->start + page_up(new_len);
	v->dontfork = false;
	err = track(h, v);
	if (err) {
		/* The pages are safe in ram; only the program's view of them is lost, which it is told. */
		(void)vm_sys->munmap(p, new_len);
		vm_vma_free(v);
		return err;
	}
	*ret_addr = p;
	return 0;
restore:
	(void)reprotect_locked(v); /* as before; err is the one to report */
	return err;
}

int vm_remap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t start = (uintptr_t)old, stop = start + page_up(old_len);
	struct vma *v;
	int err;

	if (start % VM_PAGE || !new_len || stop < start || page_up(new_len) < new_len ||
	    (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)))
		return vm_sys_err(vm_sys->mremap(old, old_len, new_len, flags, new_addr)) ?: -EINVAL;
	vm_lock(&vm_map_lock);
	v = vm_vma_at(start);
	if (!v || stop > v->stop) {
		err = -EFAULT; /* crosses mappings */
		goto unlock;
	}
	if (!old_len || (flags & MREMAP_DONTUNMAP)) { /* a second mapping of the same pages */
		struct vm_fileh *h = v->fileh;
		uint64_t off = (v->pgoff << VM_PAGE_SHIFT) + (start - v->start);
		int prot = v->prot, fixed = flags & MREMAP_FIXED ? MAP_FIXED : 0;
		bool writable = v->writable, shared = v->shared;

		vm_unlock(&vm_map_lock);
		if (!shared || !(flags & MREMAP_MAYMOVE))
			return -EINVAL;
		return vm_map(h, new_addr, new_len, prot, MAP_SHARED | fixed, off, writable, ret_addr);
	}
	err = vm_vma_split(start, stop);
	if (!err)
		err = move(vm_vma_at(start), new_len, flags, new_addr, ret_addr);
unlock:
	vm_unlock(&vm_map_lock);
	return err;
}
