/* SPDX-License-Identifier: MIT */
/*
 * Private mappings that the program made before its file had a handle are the kernel's own, of the file.
 * Natively they show what is stored through shared ones. So when a handle comes they are exchanged, at their
 * addresses:
 *
 *	1. the new one, of ram, is made somewhere else, with copies of the pages that the old one has of its own
 *	2. it is moved over the old one
 *
 * Stores meanwhile fault, and wait for the map lock. Code is left alone.
 */
#include "internal.h"
#include "vm_procmaps.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define FEW 32u
struct find {
	uintptr_t probe; /* a mapping of the file: the kernel's name for it */
	dev_t dev;
	ino_t ino;
	unsigned n;
	struct vm_procmap map[FEW];
};

static void find_name(const struct vm_procmap *m, void *arg)
{
	struct find *f = arg;

	if (m->start <= f->probe && f->probe < m->stop) {
		f->dev = m->dev;
		f->ino = m->ino;
	}
}

static void find_private(const struct vm_procmap *m, void *arg)
{
	struct find *f = arg;

	if (m->ino == f->ino && m->dev == f->dev && !m->shared && !(m->prot & PROT_EXEC) && f->n < FEW)
		f->map[f->n++] = *m;
}

/* What stat(2) says is not what all file systems have in /proc/self/maps. */
static int learn_name(struct find *f, int fd)
{
	void *p = vm_sys->mmap(NULL, VM_PAGE, PROT_NONE, MAP_PRIVATE, fd, 0);
	int err = vm_sys_err(p);

	if (err)
		return err;
	f->probe = (uintptr_t)p;
	err = vm_procmaps_for_each(find_name, f);
	(void)vm_sys->munmap(p, VM_PAGE); /* just made */
	return !err && !f->ino ? -ENOENT : err;
}

#define PM_FILE	   (1ull << 61)
#define PM_PRESENT (3ull << 62) /* or swapped */

/* Copies the pages that [start, stop) has of its own to to; with to 0 it only counts them. Number or -errno. */
static int64_t copy_own(uintptr_t start, uintptr_t stop, uintptr_t to)
{
	int fd = vm_sys->openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	uint64_t entry[512];
	int64_t n = 0;
	ssize_t got;

	if (fd < 0)
		return fd;
	for (uintptr_t at = start; at < stop;) {
		size_t want = (stop - at) >> VM_PAGE_SHIFT < 512 ? (stop - at) >> VM_PAGE_SHIFT : 512;

		got = vm_sys->pread(fd, entry, want * 8, (off_t)((at >> VM_PAGE_SHIFT) * 8));
		if (got < 8) {
			n = got < 0 ? got : -EIO;
			break;
		}
		for (ssize_t i = 0; i < got / 8; i++, at += VM_PAGE) {
			if (!(entry[i] & PM_PRESENT) || (entry[i] & PM_FILE))
				continue;
			n++;
			if (to)
				memcpy((void *)(to + (at - start)), (void *)at, VM_PAGE);
		}
	}
	(void)vm_sys->close(fd); /* was only read */
	return n;
}

/* Steps 1 and 2. v is known already, and nobody stores into it. Map lock held. */
static int exchange(struct vma *v, uintptr_t own_stop)
{
	size_t len = v->stop - v->start;
	int64_t nown = copy_own(v->start, own_stop, 0);
	void *p, *q;
	int err;

	if (nown < 0)
		return (int)nown;
	/* rights to write cost memory that the kernel keeps ready */
	p = vm_sys->mmap(NULL, len, nown ? v->prot | PROT_READ | PROT_WRITE : v->prot, MAP_PRIVATE, v->fileh->ram.fd,
			 (off_t)(v->pgoff << VM_PAGE_SHIFT));
	err = vm_sys_err(p);
	if (err)
		return err;
	if (nown) {
		nown = copy_own(v->start, own_stop, (uintptr_t)p);
		err = nown < 0 ? (int)nown : vm_sys->mprotect(p, len, v->prot);
	}
	if (!err) {
		q = vm_sys->mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)v->start);
		err = vm_sys_err(q);
	}
	if (err)
		(void)vm_sys->munmap(p, len); /* just made */
	return err;
}

static int adopt(struct vm_fileh *h, const struct vm_procmap *m)
{
	uint64_t pgoff = m->off >> VM_PAGE_SHIFT, npages = (m->stop - m->start) >> VM_PAGE_SHIFT, end;
	struct vma *v;
	int err = h->lazy ? vm_load(h, pgoff, pgoff + npages) : 0;

	if (err)
		return err;
	(void)vm_map_lock_thawed(h, 0, 0, VM_FOREVER); /* cannot fail */
	err = vm_vma_drop_gone(m->start, m->stop);
	v = err ? NULL : vm_vma_alloc();
	if (!v) {
		err = err ? err : -ENOMEM;
		goto unlock;
	}
	v->start = m->start;
	v->stop = m->stop;
	v->pgoff = pgoff;
	v->fileh = h;
	v->prot = m->prot;
	err = vm_vma_track(h, v);
	if (err) {
		vm_vma_free(v);
		goto unlock;
	}
	/* beyond the end of the file nobody has a page of his own */
	end = vm_npages(h->ctl->size);
	end = pgoff + npages < end ? pgoff + npages : end > pgoff ? end : pgoff;
	err = vm_sys->mprotect((void *)v->start, v->stop - v->start, PROT_READ);
	if (!err)
		err = exchange(v, vm_vma_addr(v, end));
	if (err) {
		(void)vm_sys->mprotect((void *)v->start, v->stop - v->start, v->prot); /* as before */
		vm_vma_remove(v);
		vm_vma_free(v);
		vm_vma_publish();
	}
unlock:
	vm_unlock(&vm_map_lock);
	if (!err && h->lazy) /* what an invalidation dropped before it knew of this mapping */
		err = vm_load(h, pgoff, pgoff + npages);
	return err;
}

int vm_adopt_private(struct vm_fileh *h, int fd, void (*tell)(const void *addr, size_t len))
{
	struct find f = {0};
	int err = learn_name(&f, fd);

	do {
		f.n = 0;
		if (!err)
			err = vm_procmaps_for_each(find_private, &f);
		for (unsigned i = 0; !err && i < f.n; i++) {
			tell((void *)f.map[i].start, f.map[i].stop - f.map[i].start);
			err = adopt(h, &f.map[i]);
		}
	} while (!err && f.n == FEW);
	return err;
}
