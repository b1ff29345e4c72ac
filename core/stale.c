/* SPDX-License-Identifier: MIT */
/*
 * Mappings that are ours no more, though nobody told us: a program, or a library in it, can make system calls that no
 * wrapper sees. What lies at their addresses then is somebody else's memory.
 */
#include "internal.h"
#include "procmaps.h"
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

struct look {
	const struct vma *v;
	dev_t dev;
	ino_t ino;
	uintptr_t pos;	     /* up to here it is known */
	struct vm_runs gone; /* addresses, in pages */
	int err;
};

static void gone_until(struct look *l, uintptr_t addr)
{
	if (l->pos < addr && !l->err)
		l->err = vm_runs_add(&l->gone, l->pos >> VM_PAGE_SHIFT, addr >> VM_PAGE_SHIFT);
}

static void look_at(const struct vm_procmap *m, void *arg)
{
	struct look *l = arg;
	uintptr_t start = m->start > l->pos ? m->start : l->pos, stop = m->stop < l->v->stop ? m->stop : l->v->stop;

	if (start >= stop || m->ino != l->ino || m->dev != l->dev || m->shared != l->v->shared ||
	    (m->off >> VM_PAGE_SHIFT) + ((start - m->start) >> VM_PAGE_SHIFT) !=
		    l->v->pgoff + ((start - l->v->start) >> VM_PAGE_SHIFT))
		return;
	gone_until(l, start);
	l->pos = stop;
}

/* Which parts of v are gone? */
static int find_gone(struct look *l, const struct vma *v)
{
	struct stat st;
	int err;

	l->v = v;
	l->pos = v->start;
	err = vm_sys->fstat(v->fileh->ram.fd, &st);
	if (err)
		return err;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	err = vm_procmaps_for_each(look_at, l);
	if (!err)
		gone_until(l, v->stop);
	return err ? err : l->err;
}

size_t vm_vma_drop_stale(uintptr_t start, uintptr_t stop, struct vm_fileh *locked)
{
	size_t n = 0;

	while (start < stop) {
		size_t i = vm_vma_index(start);
		struct look l = {0};
		struct vma *v;

		if (i == vm_nvmas || vm_vmas[i]->start >= stop)
			break;
		v = vm_vmas[i];
		start = v->stop;
		if ((!locked || v->fileh == locked) && !find_gone(&l, v))
			for (size_t r = 0; r < l.gone.n; r++)
				n += !drop(l.gone.run[r].start << VM_PAGE_SHIFT, l.gone.run[r].stop << VM_PAGE_SHIFT, locked);
		vm_runs_free(&l.gone);
	}
	return n;
}
