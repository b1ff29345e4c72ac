/* SPDX-License-Identifier: MIT */
/* mremap of handles. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <sys/mman.h>

static unsigned wait_msec = 10000;

void vm_set_remap_wait(unsigned msec)
{
	wait_msec = msec;
}

/* Is [v->start, stop) one mapping to the kernel? mprotect may have cut it in pieces that are alike again. */
static bool is_one(const struct vma *v, uintptr_t stop)
{
	while (v->stop < stop) {
		const struct vma *next = vm_vma_at(v->stop);

		if (!next || next->fileh != v->fileh || next->pgoff != vm_vma_pgstop(v) || next->prot != v->prot ||
		    next->shared != v->shared || next->writable != v->writable || next->dontfork != v->dontfork)
			return false;
		v = next;
	}
	return true;
}

static int flatten(struct vma *v)
{
	int err;

	if (!v->shared)
		return 0;
	vm_fileh_lock(v->fileh);
	err = vm_engine_ops->flatten(v);
	vm_fileh_unlock(v->fileh);
	return err;
}

static int watch_again(struct vma *v)
{
	int err;

	if (!v->shared)
		return 0;
	vm_fileh_lock(v->fileh);
	vm_engine_ops->detach(v);
	err = vm_engine_ops->attach(v);
	if (!err)
		err = vm_engine_ops->protect(v, v->pgoff, vm_vma_pgstop(v));
	vm_fileh_unlock(v->fileh);
	return err;
}

/* What was made ready to move stays. A piece that nobody can watch ends: what was stored there is known. */
static void stay(uintptr_t start, uintptr_t stop)
{
	size_t i = vm_vma_index(start);

	while (i < vm_nvmas && vm_vmas[i]->start < stop) {
		struct vma *v = vm_vmas[i];

		if (watch_again(v)) {
			(void)vm_sys->munmap((void *)v->start, v->stop - v->start); /* ours, aligned */
			vm_vma_untrack_range(v->start, v->stop);
		} else {
			i++;
		}
	}
}

/* [from, from + from_len), which was [start, stop) before, is that again: if nobody took the place meanwhile. */
static int put_back(uintptr_t from, size_t from_len, uintptr_t start, uintptr_t stop)
{
	int flags = 0;

	if (from != start) {
		void *p = vm_sys->mmap((void *)start, stop - start, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (vm_sys_err(p))
			return vm_sys_err(p);
		flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	}
	return vm_sys_err(vm_sys->mremap((void *)from, from_len, stop - start, flags, (void *)start));
}

/* The kernel has v at another place, or with another length, than [start, stop), as which it shall be tracked again. */
static int track_back(struct vma *v, uintptr_t start, uintptr_t stop)
{
	int err = put_back(v->start, v->stop - v->start, start, stop);

	if (err)
		return err;
	v->start = start;
	v->stop = stop;
	return vm_vma_track(v->fileh, v);
}

/* Can a mapping become longer where it is, up to stop? Asked first, since one that cannot is best left alone. Other
 * reasons than that something is there are the kernel's to find. */
static bool has_room(uintptr_t start, uintptr_t stop)
{
	void *p = vm_sys->mmap((void *)start, stop - start, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	return vm_sys_err(p) ? vm_sys_err(p) != -EEXIST : !vm_sys->munmap(p, stop - start);
}

/* [start, stop), which is one, moves or changes its length: nothing is stored meanwhile, and afterwards it is tracked
 * anew. */
static int move(uintptr_t start, uintptr_t stop, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	struct vma *v = vm_vma_at(start);
	struct vm_fileh *h = v->fileh;
	uint64_t pgstop = v->pgoff + (vm_page_up(new_len) >> VM_PAGE_SHIFT);
	void *p;
	int err;

	if (pgstop > VM_MAX_PGOFF)
		return -EINVAL;
	if (start + vm_page_up(new_len) > stop && !(flags & MREMAP_MAYMOVE) && !has_room(stop, start + vm_page_up(new_len)))
		return -ENOMEM;
	err = vm_vma_for_range(start, stop, vm_vma_last_harvest);
	if (err)
		goto reprotect;
	err = vm_vma_for_range(start, stop, flatten);
	if (err)
		goto stay;
	p = vm_sys->mremap((void *)start, stop - start, new_len, flags, new_addr);
	err = vm_sys_err(p);
	if (err)
		goto stay;
	vm_vma_untrack_range(v->stop, stop);
	vm_vma_remove(v);
	if (v->shared)
		vm_engine_ops->detach(v);
	v->start = (uintptr_t)p;
	v->stop = v->start + vm_page_up(new_len);
	v->dontfork = false;
	err = vm_vma_track(h, v);
	if (!err) {
		*ret_addr = p;
		return 0;
	}
	if (track_back(v, start, stop)) {
		/* The pages are safe in ram; only the program's view of them is lost, which it is told. */
		(void)vm_sys->munmap((void *)v->start, v->stop - v->start);
		vm_vma_free(v);
	}
	return err;
stay:
	stay(start, stop);
	return err;
reprotect:
	(void)vm_vma_for_range(start, stop, vm_vma_reprotect); /* as before; err is the one to report */
	return err;
}

static bool is_good_target(uintptr_t start, uintptr_t stop, uintptr_t to, size_t len, int flags)
{
	uintptr_t to_stop = to + vm_page_up(len);

	return to % VM_PAGE == 0 && to_stop > to && (flags & MREMAP_MAYMOVE) && (to_stop <= start || stop <= to);
}

/* A private mapping has nobody to load the pages that it grows by. Nothing of its handle is dropped while there is one. */
static int load_growth(uintptr_t start, uintptr_t stop, size_t new_len)
{
	uint64_t from, to = 0;
	struct vm_fileh *h;
	struct vma *v;
	int err;

	vm_lock(&vm_map_lock);
	v = vm_vma_at(start);
	if (v && !v->shared && v->fileh->lazy) {
		from = v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT);
		to = v->pgoff + ((start + vm_page_up(new_len) - v->start) >> VM_PAGE_SHIFT);
	}
	if (!to || from >= to || to > VM_MAX_PGOFF) {
		vm_unlock(&vm_map_lock);
		return 0;
	}
	h = v->fileh;
	vm_fileh_pin(h);
	vm_unlock(&vm_map_lock);
	err = vm_load(h, from, to);
	vm_fileh_unpin(h);
	return err;
}

int vm_remap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t start = (uintptr_t)old, stop = start + vm_page_up(old_len);
	struct vma *v;
	int err;

	if (start % VM_PAGE || !new_len || stop < start || vm_page_up(new_len) < new_len ||
	    (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) ||
	    ((flags & MREMAP_FIXED) && !is_good_target(start, stop, (uintptr_t)new_addr, new_len, flags)))
		return -EINVAL;
	err = load_growth(start, stop, new_len);
	if (err)
		return err;
	err = vm_map_lock_thawed(NULL, start, stop, wait_msec);
	if (err)
		return err;
	v = vm_vma_at(start);
	if (!v || !is_one(v, stop)) {
		err = -EFAULT; /* crosses mappings */
		goto unlock;
	}
	if (!old_len || (flags & MREMAP_DONTUNMAP)) { /* a second mapping of the same pages */
		struct vm_fileh *h = v->fileh;
		uint64_t off = (v->pgoff << VM_PAGE_SHIFT) + (start - v->start);
		int prot = v->prot, fixed = flags & MREMAP_FIXED ? MAP_FIXED : 0;
		bool writable = v->writable, shared = v->shared;

		if (!shared || !(flags & MREMAP_MAYMOVE)) {
			err = -EINVAL;
			goto unlock;
		}
		vm_fileh_pin(h);
		vm_unlock(&vm_map_lock);
		err = vm_map_within(h, new_addr, new_len, prot, MAP_SHARED | fixed, off, writable, wait_msec, ret_addr);
		vm_fileh_unpin(h);
		return err;
	}
	if (flags & MREMAP_FIXED) /* what was there goes, as the kernel has it go */
		err = vm_forget_locked((uintptr_t)new_addr, (uintptr_t)new_addr + vm_page_up(new_len));
	else
		err = 0;
	if (!err)
		err = vm_vma_split(start, stop);
	if (!err)
		err = move(start, stop, new_len, flags, new_addr, ret_addr);
unlock:
	vm_vma_publish(); /* not before: who touches what is being moved has to wait for the lock */
	vm_unlock(&vm_map_lock);
	return err;
}
