/* SPDX-License-Identifier: MIT */
/* mremap of handles. */
#include "internal.h"
#include "uapi.h"
#include "vm_procmaps.h"
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
		    next->shared != v->shared || next->writable != v->writable || next->dontfork != v->dontfork ||
		    next->nofork != v->nofork)
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

/* The kernel has v at another place, or with another length, than [start, stop), as which it shall be tracked
 * again. */
static int track_back(struct vma *v, uintptr_t start, uintptr_t stop)
{
	int err = put_back(v->start, v->stop - v->start, start, stop);

	if (err)
		return err;
	v->start = start;
	v->stop = stop;
	return vm_vma_track(v->fileh, v);
}

/* Can a mapping become longer where it is, up to stop? Asked first, since one that cannot is best left alone.
 * Other reasons than that something is there are the kernel's to find. */
static bool has_room(uintptr_t start, uintptr_t stop)
{
	void *p = vm_sys->mmap((void *)start, stop - start, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	return vm_sys_err(p) ? vm_sys_err(p) != -EEXIST : !vm_sys->munmap(p, stop - start);
}

/* [start, stop), which is one, moves or changes its length: nothing is stored meanwhile, and afterwards it is
 * tracked anew. */
static int move(uintptr_t start, uintptr_t stop, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t to = (uintptr_t)new_addr, to_stop = flags & MREMAP_FIXED ? to + vm_page_up(new_len) : to;
	struct vma *v;
	void *p;
	int err;

	if (start + vm_page_up(new_len) > stop && !(flags & MREMAP_MAYMOVE) && !has_room(stop, start + vm_page_up(new_len)))
		return -ENOMEM;
	err = vm_vma_begin_unmap(start, stop);
	if (err)
		return err;
	err = vm_vma_begin_unmap(to, to_stop); /* what is there goes, as the kernel has it go */
	if (err) {
		vm_vma_end_unmap(start, stop, false);
		return err;
	}
	err = vm_vma_for_range(start, stop, flatten);
	if (err)
		goto stay;
	v = vm_vma_at(start);
	p = *ret_addr = vm_sys->mremap((void *)start, stop - start, new_len, flags, new_addr);
	err = vm_sys_err(p);
	if (err)
		goto stay;
	vm_vma_end_unmap(to, to_stop, true);
	if (!v) /* unmapped behind our back, and something else moved */
		return 0;
	vm_vma_untrack_range(v->stop, stop);
	vm_vma_remove(v);
	if (v->shared)
		vm_engine_ops->detach(v);
	v->start = (uintptr_t)p;
	v->stop = v->start + vm_page_up(new_len);
	v->dontfork = false;
	err = vm_vma_track(v->fileh, v);
	if (!err)
		return 0;
	if (track_back(v, start, stop)) {
		/* The pages are safe in ram; only the program's view of them is lost, which it is told. */
		(void)vm_sys->munmap((void *)v->start, v->stop - v->start);
		vm_vma_free(v);
	}
	return err;
stay:
	stay(start, stop);
	vm_vma_end_unmap(to, to_stop, false);
	return err;
}

/* Several of ours, each to its place, and holes between them (Linux 6.17). What fails leaves the rest where
 * it is, as there. */
static int move_all(uintptr_t start, uintptr_t stop, uintptr_t to, void **ret_addr)
{
	const uintptr_t delta = to - start;
	int err = 0;
	size_t i;
	void *p;

	while (!err && (i = vm_vma_index(start)) < vm_nvmas && vm_vmas[i]->start < stop) {
		uintptr_t from = vm_vmas[i]->start, end = vm_vmas[i]->stop;

		err = move(from, end, end - from, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(from + delta), &p);
		start = end;
	}
	*ret_addr = (void *)to;
	return err;
}

struct others {
	uintptr_t start, stop;
	bool found;
};

static void find_other(const struct vm_procmap *m, void *arg)
{
	struct others *o = arg;

	o->found |= m->start < o->stop && o->start < m->stop && !vm_vma_at(m->start > o->start ? m->start : o->start);
}

/* Is all that is mapped in [start, stop) ours? */
static bool is_ours(uintptr_t start, uintptr_t stop)
{
	struct others o = {start, stop, false};

	return !vm_procmaps_for_each(find_other, &o) && !o.found;
}

/* A private mapping stays, without what it had of its own: that is in a second one. */
static int move_private_pages(struct vma *v, uintptr_t start, size_t len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t to = (uintptr_t)new_addr, to_stop = flags & MREMAP_FIXED ? to + len : to;
	struct vma *second = vm_vma_alloc();
	struct vm_fileh *h = v->fileh;
	int err;

	if (!second)
		return -ENOMEM;
	*second = *v;
	second->pgoff += (start - v->start) >> VM_PAGE_SHIFT;
	err = vm_vma_begin_unmap(to, to_stop);
	if (err)
		goto free;
	*ret_addr = vm_sys->mremap((void *)start, len, len, flags, new_addr);
	err = vm_sys_err(*ret_addr);
	vm_vma_end_unmap(to, to_stop, !err);
	if (err)
		goto free;
	second->start = (uintptr_t)*ret_addr;
	second->stop = second->start + len;
	err = vm_vma_track(h, second);
	if (!err)
		return 0;
	(void)vm_sys->munmap(*ret_addr, len); /* just made */
free:
	vm_vma_free(second);
	return err;
}

/* What is none of ours moves to where something of ours is. */
static int move_other(uintptr_t start, size_t len, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t to = (uintptr_t)new_addr, to_stop = flags & MREMAP_FIXED ? to + vm_page_up(new_len) : to;
	int err = vm_vma_begin_unmap(to, to_stop);

	if (err)
		return err;
	*ret_addr = vm_sys->mremap((void *)start, len, new_len, flags, new_addr);
	err = vm_sys_err(*ret_addr);
	vm_vma_end_unmap(to, to_stop, !err);
	return err;
}

static bool is_good_target(uintptr_t start, uintptr_t stop, uintptr_t to, size_t len, int flags)
{
	uintptr_t to_stop = to + vm_page_up(len);

	if ((flags & MREMAP_DONTUNMAP) && stop - start != vm_page_up(len))
		return false;
	return to % VM_PAGE == 0 && to_stop > to && (flags & MREMAP_MAYMOVE) && (to_stop <= start || stop <= to);
}

/* A private mapping has nobody to load the pages that it grows by. Nothing of its handle is dropped while
 * there is one. */
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
	if (!to || from >= to) {
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

/* A second mapping of the same pages. Map lock held, released on return. */
static int copy(struct vma *v, uintptr_t start, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uint64_t off = (v->pgoff << VM_PAGE_SHIFT) + (start - v->start);
	int prot = v->prot, fixed = flags & MREMAP_FIXED ? MAP_FIXED : 0, err;
	bool writable = v->writable, shared = v->shared, nofork = v->nofork;
	struct vm_fileh *h = v->fileh;

	vm_fileh_pin(h);
	vm_unlock(&vm_map_lock);
	if (!shared)
		err = -EINVAL;
	else if (!(flags & MREMAP_MAYMOVE))
		err = -ENOMEM;
	else
		err = vm_map_within(h, new_addr, new_len, prot, MAP_SHARED | fixed, off, writable, wait_msec, ret_addr);
	if (!err && nofork)
		err = vm_advise(*ret_addr, new_len, MADV_DONTFORK);
	vm_fileh_unpin(h);
	return err;
}

/* What is cut off is unmapped, whatever it is; the rest is left alone. Map lock held. */
static int shrink(uintptr_t start, uintptr_t stop)
{
	int err;

	if (start == stop)
		return 0;
	err = vm_vma_begin_unmap(start, stop);
	if (err)
		return err;
	err = vm_sys->munmap((void *)start, stop - start);
	vm_vma_end_unmap(start, stop, !err);
	return err;
}

int vm_remap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	uintptr_t start = (uintptr_t)old, stop = start + vm_page_up(old_len);
	bool has_target = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
	struct vma *v;
	int err;

	old_len = vm_page_up(old_len);
	if (start % VM_PAGE || !new_len || stop < start || vm_page_up(new_len) < new_len ||
	    (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) ||
	    (has_target && !is_good_target(start, stop, (uintptr_t)new_addr, new_len, flags)))
		return -EINVAL;
	err = load_growth(start, stop, new_len);
	if (err)
		return err;
	err = vm_map_lock_thawed(NULL, start, stop, wait_msec);
	if (err)
		return err;
	v = vm_vma_at(start);
	if (v && is_one(v, stop)) {
		if (!old_len || ((flags & MREMAP_DONTUNMAP) && v->shared))
			return copy(v, start, new_len, flags, has_target ? new_addr : NULL, ret_addr);
		if (flags & MREMAP_DONTUNMAP)
			err = move_private_pages(v, start, old_len, flags, new_addr, ret_addr);
		else
			err = vm_vma_split(start, stop);
		if (!err && !(flags & MREMAP_DONTUNMAP))
			err = move(start, stop, new_len, flags, new_addr, ret_addr);
	} else if (v && !has_target && vm_page_up(new_len) <= old_len) {
		*ret_addr = old;
		err = shrink(start + vm_page_up(new_len), stop);
	} else if (!vm_vma_touches(start, stop)) {
		err = move_other(start, old_len, new_len, flags, new_addr, ret_addr);
	} else if (flags == (MREMAP_MAYMOVE | MREMAP_FIXED) && v && old_len == vm_page_up(new_len) && is_ours(start, stop)) {
		err = vm_vma_split(start, stop);
		if (!err)
			err = move_all(start, stop, (uintptr_t)new_addr, ret_addr);
	} else {
		err = -EFAULT; /* crosses mappings */
	}
	vm_vma_publish(); /* not before: who touches what is being moved has to wait for the lock */
	vm_unlock(&vm_map_lock);
	return err;
}
