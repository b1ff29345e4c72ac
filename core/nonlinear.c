/* SPDX-License-Identifier: MIT */
/* remap_file_pages(2), as the kernel emulates it: a part of a shared mapping shows other pages of its file. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <sys/mman.h>

/* Is all of [start, stop) mapped as its first page is? */
static bool is_alike(const struct vma *v, uintptr_t stop)
{
	const struct vma *first = v;

	for (; v->stop < stop; v = vm_vma_at(v->stop)) {
		const struct vma *next = vm_vma_at(v->stop);

		if (!next || next->fileh != first->fileh || next->prot != first->prot || next->shared != first->shared ||
		    next->writable != first->writable || next->nofork != first->nofork)
			return false;
	}
	return true;
}

int vm_remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags)
{
	uintptr_t start = (uintptr_t)addr & ~(VM_PAGE - 1), stop = start + (len & ~(VM_PAGE - 1));
	size_t npages = len >> VM_PAGE_SHIFT;
	int fill = flags & MAP_NONBLOCK ? 0 : MAP_POPULATE, err = 0;
	struct vm_fileh *h = NULL;
	struct vma *v;
	void *p;

	if (prot || stop <= start || pgoff + npages < pgoff)
		return -EINVAL;
	vm_lock(&vm_map_lock);
	v = vm_vma_at(start);
	if (!v || !v->shared || !v->writable || !is_alike(v, stop)) { /* the kernel counts one without the right as private */
		err = -EINVAL;
	} else if (pgoff + npages > (uint64_t)INT64_MAX >> VM_PAGE_SHIFT) {
		err = -EOVERFLOW;
	} else {
		h = v->fileh;
		prot = v->prot;
		vm_fileh_pin(h);
		/* locked pages stay so */
		if (vm_sys->msync((void *)start, VM_PAGE, MS_INVALIDATE) == -EBUSY)
			fill |= MAP_LOCKED;
	}
	vm_unlock(&vm_map_lock);
	if (!h)
		return err;
	err = vm_map(h, (void *)start, stop - start, prot, MAP_SHARED | MAP_FIXED | fill, (uint64_t)pgoff << VM_PAGE_SHIFT, true,
		     &p);
	vm_fileh_unpin(h);
	return err;
}
