/* SPDX-License-Identifier: MIT */
/* mprotect of handles. */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef PROT_SEM
#define PROT_SEM 8 /* asm-generic/mman-common.h */
#endif

/* Is the program allowed this protection on v? */
static int may_protect(const struct vma *v, int prot)
{
	return v->shared && (prot & PROT_WRITE) && !v->writable ? -EACCES : 0;
}

/* Piece by piece, as the kernel does it: what lies before a gap is done when the gap is an error. Map lock
 * held. */
static int protect_pieces(uintptr_t start, uintptr_t stop, int prot)
{
	int err = 0;

	while (!err && start < stop) {
		size_t i = vm_vma_index(start);
		struct vma *v = i < vm_nvmas && vm_vmas[i]->start < stop ? vm_vmas[i] : NULL;
		uintptr_t end = !v ? stop : v->start > start ? v->start : v->stop;

		if (v && v->start == start)
			err = may_protect(v, prot);
		if (!err && (!v || v->start > start || !v->shared))
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

	prot &= ~PROT_SEM; /* means nothing */
	if (start % VM_PAGE || !len || stop <= start || (prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC)))
		return vm_sys->mprotect(addr, len, prot); /* fails */
	(void)vm_map_lock_thawed(NULL, start, stop, VM_FOREVER); /* cannot fail */
	err = vm_vma_split(start, stop);
	if (!err)
		err = protect_pieces(start, stop, prot);
	vm_unlock(&vm_map_lock);
	return err;
}
