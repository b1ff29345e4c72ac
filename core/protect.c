/* SPDX-License-Identifier: MIT */
/* mprotect and madvise of handles. */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

/* Is the program allowed this protection on v? */
static int may_protect(const struct vma *v, int prot)
{
	return v->shared && (prot & PROT_WRITE) && !v->writable ? -EACCES : 0;
}

/* Piece by piece, as the kernel does it: what lies before a gap is done when the gap is an error. Map lock held. */
static int protect_pieces(uintptr_t start, uintptr_t stop, int prot)
{
	int err = 0;

	while (!err && start < stop) {
		size_t i = vm_vma_index(start);
		struct vma *v = i < vm_nvmas && vm_vmas[i]->start < stop ? vm_vmas[i] : NULL;
		uintptr_t end = !v ? stop : v->start > start ? v->start : v->stop;

		if (!v || v->start > start || !v->shared)
			err = vm_sys->mprotect((void *)start, end - start, prot);
		if (!err && v && v->start == start) {
			int was = v->prot;

			v->prot = prot;
			err = vm_vma_reprotect(v); /* never more than the engine allows, not even for a moment */
			if (err)
				v->prot = was;
		}
		start = end;
	}
	return err;
}

int vm_protect(void *addr, size_t len, int prot)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);
	int err;

	if (start % VM_PAGE || !len || stop <= start || (prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC)))
		return vm_sys->mprotect(addr, len, prot);
	(void)vm_map_lock_thawed(NULL, start, stop, VM_FOREVER); /* cannot fail */
	err = vm_vma_split(start, stop);
	for (size_t i = vm_vma_index(start); !err && i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		err = may_protect(vm_vmas[i], prot);
	if (!err)
		err = protect_pieces(start, stop, prot);
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
		int err = -EINVAL;
		size_t i;

		vm_lock(&vm_map_lock);
		i = vm_vma_index(start);
		if (i < vm_nvmas && vm_vmas[i]->start <= start && !(vm_vmas[i]->shared && vm_vmas[i]->writable)) {
			err = -EACCES;
		} else if (i < vm_nvmas && vm_vmas[i]->start <= start) {
			h = vm_vmas[i]->fileh;
			off = (vm_vmas[i]->pgoff << VM_PAGE_SHIFT) + (start - vm_vmas[i]->start);
			len = (vm_vmas[i]->stop < stop ? vm_vmas[i]->stop : stop) - start;
		}
		vm_unlock(&vm_map_lock);
		if (h)
			err = remove_pages(h, off, len);
		if (err)
			return err;
		start += len;
	}
	return 0;
}

/* A shared mapping keeps its stores; dropping its page tables would only hide them from us. The kernel does the rest. */
static int advise_dontneed(uintptr_t start, uintptr_t stop)
{
	int err = 0;

	vm_lock(&vm_map_lock);
	while (!err && start < stop) {
		size_t i = vm_vma_index(start);
		struct vma *v = i < vm_nvmas && vm_vmas[i]->start < stop ? vm_vmas[i] : NULL;
		uintptr_t end = !v ? stop : v->start > start ? v->start : v->stop < stop ? v->stop : stop;

		if (!v || v->start > start || !v->shared)
			err = vm_sys->madvise((void *)start, end - start, MADV_DONTNEED);
		start = end;
	}
	vm_unlock(&vm_map_lock);
	return err;
}

int vm_advise(void *addr, size_t len, int advice)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);

	if (start % VM_PAGE || stop < start)
		return vm_sys->madvise(addr, len, advice);
	switch (advice) {
	case MADV_REMOVE:
		return advise_remove(start, stop);
	case MADV_DONTNEED:
		return advise_dontneed(start, stop);
	case MADV_DOFORK:   /* what is not loaded must not be seen by a child; loaded mappings fork anyway */
		return 0;
	default:
		return vm_sys->madvise(addr, len, advice);
	}
}
