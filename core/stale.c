/* SPDX-License-Identifier: MIT */
/*
 * Mappings that are ours no more, though nobody told us: a program, or a library in it, can make system calls
 * that no wrapper sees. What lies at their addresses then is somebody else's memory.
 */
#include "internal.h"
#include "vm_procmaps.h"
#include <sys/stat.h>

/* Nobody knows what was stored: all of it, then. A commit compares. */
static void suspect(struct vma *v, struct vm_fileh *locked)
{
	if (!v->shared || !v->writable)
		return;
	if (v->fileh != locked)
		vm_fileh_lock(v->fileh);
	vm_page_note_stored(v->fileh, v->pgoff, vm_vma_pgstop(v));
	if (v->fileh != locked)
		vm_fileh_unlock(v->fileh);
}

static int drop(uintptr_t start, uintptr_t stop, struct vm_fileh *locked)
{
	int err = vm_vma_split(start, stop);

	if (err)
		return err;
	for (size_t i = vm_vma_index(start); i < vm_nvmas && vm_vmas[i]->start < stop; i++)
		suspect(vm_vmas[i], locked);
	vm_vma_untrack_range(start, stop);
	return 0;
}

int vm_vma_drop_gone(uintptr_t start, uintptr_t stop)
{
	return vm_vma_touches(start, stop) ? drop(start, stop, NULL) : 0;
}

/* One pass over what the kernel has, side by side with what we have. */
struct look {
	struct vm_fileh *only; /* or NULL */
	size_t i;	       /* our mapping at hand */
	uintptr_t pos, stop;   /* up to pos it is known; of the range that is looked at */
	struct vm_fileh *h;    /* whose ram is this: */
	dev_t dev;
	ino_t ino;
	struct vm_runs gone; /* addresses, in pages */
	int err;
};

/* The mapping at hand, or NULL: there are no more. */
static const struct vma *at_hand(struct look *l)
{
	const struct vma *v = l->i < vm_nvmas && vm_vmas[l->i]->start < l->stop ? vm_vmas[l->i] : NULL;
	struct stat st;

	if (!v || l->err)
		return NULL;
	if (l->pos < v->start)
		l->pos = v->start;
	if (v->fileh != l->h) {
		l->h = v->fileh;
		l->err = vm_sys->fstat(v->fileh->ram.fd, &st);
		l->dev = st.st_dev;
		l->ino = st.st_ino;
	}
	return v;
}

static void gone_until(struct look *l, const struct vma *v, uintptr_t addr)
{
	if (l->pos < addr && !l->err && (!l->only || v->fileh == l->only))
		l->err = vm_runs_add(&l->gone, l->pos >> VM_PAGE_SHIFT, addr >> VM_PAGE_SHIFT);
	l->pos = addr;
}

static bool is_of(const struct vm_procmap *m, const struct look *l, const struct vma *v)
{
	return m->ino == l->ino && m->dev == l->dev && m->shared == v->shared &&
	       m->off - (v->pgoff << VM_PAGE_SHIFT) == m->start - v->start; /* or both negative */
}

static void look_at(const struct vm_procmap *m, void *arg)
{
	struct look *l = arg;
	const struct vma *v;

	while ((v = at_hand(l)) && v->start < m->stop) {
		uintptr_t start = m->start > l->pos ? m->start : l->pos, stop = m->stop < v->stop ? m->stop : v->stop;

		if (start < stop && is_of(m, l, v)) {
			gone_until(l, v, start);
			l->pos = stop;
		}
		if (v->stop > m->stop)
			return; /* more of it may come */
		gone_until(l, v, v->stop);
		l->i++;
	}
}

size_t vm_vma_drop_stale(uintptr_t start, uintptr_t stop, struct vm_fileh *locked)
{
	struct look l = {.only = locked, .i = vm_vma_index(start), .stop = stop};
	int err = vm_procmaps_for_each(look_at, &l);
	const struct vma *v;
	size_t n = 0;

	for (; !err && (v = at_hand(&l)); l.i++)
		gone_until(&l, v, v->stop);
	for (size_t r = 0; !err && !l.err && r < l.gone.n; r++)
		n += !drop(l.gone.run[r].start << VM_PAGE_SHIFT, l.gone.run[r].stop << VM_PAGE_SHIFT, locked);
	vm_runs_free(&l.gone);
	return n;
}
