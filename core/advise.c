/* SPDX-License-Identifier: MIT */
/* madvise and mlock of handles. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <sys/mman.h>

/* ---- pieces ---- */

/* Of a range: a part of one shared mapping of ours, or (v NULL) what lies before the next one. */
struct piece {
	uintptr_t start, stop;
	struct vma *v;
};

static struct piece piece_at(uintptr_t start, uintptr_t stop)
{
	struct piece p = {start, stop, NULL};
	size_t i = vm_vma_index(start);

	while (i < vm_nvmas && vm_vmas[i]->start < stop && !vm_vmas[i]->shared)
		i++;
	if (i == vm_nvmas || vm_vmas[i]->start >= stop)
		return p;
	if (vm_vmas[i]->start > start) {
		p.stop = vm_vmas[i]->start;
	} else {
		p.v = vm_vmas[i];
		p.stop = p.v->stop < stop ? p.v->stop : stop;
	}
	return p;
}

static int host_advise(const struct piece *p, int advice)
{
	return vm_sys->madvise((void *)p->start, p->stop - p->start, advice);
}

/* Nobody but the kernel knows what is locked; MS_INVALIDATE asks for just that. */
static bool is_locked(uintptr_t start, uintptr_t stop)
{
	return vm_sys->msync((void *)start, stop - start, MS_INVALIDATE) == -EBUSY;
}

/* The first page of [start, stop) that is locked, or stop. */
static uintptr_t first_locked(uintptr_t start, uintptr_t stop)
{
	uintptr_t good = start, bad = stop;

	if (!is_locked(start, stop))
		return stop;
	while (bad - good > VM_PAGE) {
		uintptr_t mid = good + (bad - good) / VM_PAGE / 2 * VM_PAGE;

		if (is_locked(start, mid))
			bad = mid;
		else
			good = mid;
	}
	return good;
}

/* ---- one advice for one shared piece; map lock held ---- */

/* A hole in the file, which is a change of the transaction. */
static int remove_pages(const struct piece *p)
{
	struct vma *v = p->v;
	struct vm_fileh *h = v->fileh;
	uintptr_t stop = first_locked(p->start, p->stop);
	uint64_t off = (v->pgoff << VM_PAGE_SHIFT) + (p->start - v->start), len = stop - p->start, size;
	int err = 0;

	if (len && !v->writable)
		return -EACCES;
	vm_fileh_pin(h);
	vm_unlock(&vm_map_lock);
	size = vm_fileh_size(h);
	if (len && off < size)
		err = vm_fileh_zero(h, off, len < size - off ? len : size - off);
	vm_fileh_unpin(h);
	vm_lock(&vm_map_lock);
	return !err && stop < p->stop ? -EINVAL : err;
}

static int set_nofork(const struct piece *p, bool nofork)
{
	int err = 0;

	if (!p->v->dontfork) /* else the kernel keeps it from children in any case, and fork.c makes it anew */
		err = host_advise(p, nofork ? MADV_DONTFORK : MADV_DOFORK);
	if (!err)
		p->v->nofork = nofork;
	return err;
}

static int advise_shared(const struct piece *p, int advice)
{
	switch (advice) {
	case MADV_REMOVE:
		return remove_pages(p);
	case MADV_DONTNEED: /* keeps what was stored; dropping page tables would only hide it from us */
		return is_locked(p->start, p->stop) ? -EINVAL : 0;
	case MADV_DONTFORK:
	case MADV_DOFORK:
		return set_nofork(p, advice == MADV_DONTFORK);
	case MADV_COLLAPSE:
		return -EINVAL; /* as for a file that is mapped for writing */
	default: /* DONTNEED_LOCKED, and how ram is dumped and in what sizes its pages come, which is for us to say */
		return 0;
	}
}

static int advise_pieces(uintptr_t start, uintptr_t stop, int advice)
{
	int err = 0, hole = 0;

	vm_lock(&vm_map_lock);
	if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
		err = vm_vma_split(start, stop) ? -EAGAIN : 0; /* what the kernel says for lack of memory */
	while (!err && start < stop) {
		struct piece p = piece_at(start, stop);

		err = p.v ? advise_shared(&p, advice) : host_advise(&p, advice);
		if (err == -ENOMEM) { /* a hole: told at the end */
			hole = err;
			err = 0;
		}
		start = p.stop;
	}
	vm_unlock(&vm_map_lock);
	return err ? err : hole;
}

int vm_advise(void *addr, size_t len, int advice)
{
	uintptr_t start = (uintptr_t)addr, stop = start + vm_page_up(len);

	if (start % VM_PAGE || stop <= start)
		return vm_sys->madvise(addr, len, advice);
	switch (advice) {
	case MADV_REMOVE:
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_COLLAPSE:
		return advise_pieces(start, stop, advice);
	default:
		return vm_sys->madvise(addr, len, advice);
	}
}

/* ---- mlock ---- */

int vm_mlock(const void *addr, size_t len, unsigned flags)
{
	int err = -ENOMEM;

	/* It fills, and stops at a page that it has no rights to: ours are made ready before, and again when
	 * a commit took them back in between. */
	for (int i = 0; i < 2 && err == -ENOMEM; i++) {
		if (!flags)
			(void)vm_prepare(addr, len, false); /* the kernel says what is wrong */
		err = vm_sys->mlock2(addr, len, flags);
	}
	return err;
}
