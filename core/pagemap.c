/* SPDX-License-Identifier: MIT */
#include "pagemap.h"
#include "bug.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_LEN (VM_PAGEMAP_FANOUT * sizeof(uint8_t *))

void vm_pagemap_init(struct vm_pagemap *pm, int *fd, uint64_t base)
{
	memset(pm, 0, sizeof(*pm));
	pm->fd = fd;
	pm->base = base;
}

void vm_pagemap_fini(struct vm_pagemap *pm)
{
	for (unsigned i = 0; i < VM_PAGEMAP_FANOUT; i++) {
		if (!pm->dir[i])
			continue;
		for (unsigned j = 0; j < VM_PAGEMAP_FANOUT; j++)
			if (pm->dir[i][j])
				(void)vm_sys->munmap(pm->dir[i][j], VM_WINDOW_NPAGES); /* ours, aligned */
		(void)vm_sys->munmap(pm->dir[i], DIR_LEN);
		pm->dir[i] = NULL;
	}
}

/* The slot for window w, or NULL when its directory does not exist. */
static uint8_t **slot(struct vm_pagemap *pm, uint64_t w)
{
	uint8_t **dir = w < VM_PAGEMAP_FANOUT * VM_PAGEMAP_FANOUT ? pm->dir[w / VM_PAGEMAP_FANOUT] : NULL;

	return dir ? &dir[w % VM_PAGEMAP_FANOUT] : NULL;
}

static int make_dirs(struct vm_pagemap *pm, uint64_t first, uint64_t last)
{
	for (uint64_t i = first / VM_PAGEMAP_FANOUT; i <= last / VM_PAGEMAP_FANOUT; i++) {
		if (pm->dir[i])
			continue;
		void *p = vm_own_map(DIR_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(p))
			return vm_sys_err(p);
		pm->dir[i] = p;
	}
	return 0;
}

/* Map windows [first, last], all missing, in one piece. */
static int map_windows(struct vm_pagemap *pm, uint64_t first, uint64_t last)
{
	uint64_t off = pm->base + first * VM_WINDOW_NPAGES, len = (last - first + 1) * VM_WINDOW_NPAGES;
	struct stat st;
	uint8_t *p;
	int err;

	err = vm_sys->fstat(*pm->fd, &st);
	if (!err && (uint64_t)st.st_size < off + len)
		err = vm_sys->ftruncate(*pm->fd, (off_t)(off + len));
	if (err)
		return err;
	p = vm_own_map(len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *pm->fd, (off_t)off);
	if (vm_sys_err(p))
		return vm_sys_err(p);
	(void)vm_sys->madvise(p, len, MADV_DONTDUMP); /* only keeps core dumps small */
	for (uint64_t w = first; w <= last; w++)
		*slot(pm, w) = p + (w - first) * VM_WINDOW_NPAGES;
	return 0;
}

int vm_pagemap_reserve(struct vm_pagemap *pm, uint64_t start, uint64_t stop)
{
	uint64_t w, last, end;
	int err;

	if (start >= stop)
		return 0;
	if (stop > VM_MAX_PGOFF)
		return -EFBIG;
	w = start / VM_WINDOW_NPAGES;
	last = (stop - 1) / VM_WINDOW_NPAGES;
	err = make_dirs(pm, w, last);
	for (; !err && w <= last; w++) {
		if (*slot(pm, w))
			continue;
		for (end = w; end < last && !*slot(pm, end + 1); end++)
			;
		err = map_windows(pm, w, end);
		w = end;
	}
	return err;
}

uint8_t *vm_pagemap_at(struct vm_pagemap *pm, uint64_t pgoff, uint64_t *ret_n)
{
	uint8_t **s = slot(pm, pgoff / VM_WINDOW_NPAGES);

	BUG_ON(!s || !*s);
	*ret_n = VM_WINDOW_NPAGES - pgoff % VM_WINDOW_NPAGES;
	return *s + pgoff % VM_WINDOW_NPAGES;
}

static bool is_reserved(struct vm_pagemap *pm, uint64_t pgoff)
{
	uint8_t **s = pgoff < VM_MAX_PGOFF ? slot(pm, pgoff / VM_WINDOW_NPAGES) : NULL;

	return s && *s;
}

uint8_t vm_pagemap_peek(struct vm_pagemap *pm, uint64_t pgoff)
{
	uint64_t n;

	return is_reserved(pm, pgoff) ? *vm_pagemap_at(pm, pgoff, &n) : VM_EMPTY;
}

/* Next page at or after pgoff whose byte can be other than EMPTY, or stop: skips holes of the memfd. */
static uint64_t next_used(struct vm_pagemap *pm, uint64_t pgoff, uint64_t stop)
{
	off_t off = vm_sys->lseek(*pm->fd, (off_t)(pm->base + pgoff), SEEK_DATA);

	if (off == -ENXIO)
		return stop;
	if (off < 0) /* who cannot know skips nothing */
		return pgoff;
	pgoff = (uint64_t)off - pm->base;
	return pgoff < stop ? pgoff : stop;
}

/* Another process may have used a window that this one never mapped. */
static void need_window(struct vm_pagemap *pm, uint64_t pgoff)
{
	if (!is_reserved(pm, pgoff) && vm_pagemap_reserve(pm, pgoff, pgoff + 1))
		BUG_ON("no memory for a window of the page map");
}

uint64_t vm_pagemap_find(struct vm_pagemap *pm, uint64_t start, uint64_t stop, uint8_t state)
{
	uint64_t n;

	BUG_ON(state == VM_EMPTY);
	if (stop > VM_MAX_PGOFF)
		stop = VM_MAX_PGOFF;
	while (start < stop) {
		uint64_t chunk = VM_BLKSIZE - start % VM_BLKSIZE; /* one page of the map */
		uint8_t *p, *hit;

		if (start % VM_BLKSIZE == 0 || !is_reserved(pm, start)) {
			start = next_used(pm, start, stop);
			chunk = VM_BLKSIZE - start % VM_BLKSIZE;
			if (start >= stop)
				break;
			need_window(pm, start);
		}
		p = vm_pagemap_at(pm, start, &n);
		if (chunk > stop - start)
			chunk = stop - start;
		hit = memchr(p, state, chunk);
		if (hit)
			return start + (uint64_t)(hit - p);
		start += chunk;
	}
	return stop;
}

uint64_t vm_pagemap_find_not(struct vm_pagemap *pm, uint64_t start, uint64_t stop, uint8_t state)
{
	while (start < stop) {
		uint64_t n, i;
		uint8_t *p;

		if (start >= VM_MAX_PGOFF)
			return state == VM_EMPTY ? stop : start;
		/* do not make pages of a sparse map by looking at them */
		if (state == VM_EMPTY && start % VM_BLKSIZE == 0) {
			start = next_used(pm, start, stop);
			if (start >= stop)
				break;
		}
		need_window(pm, start);
		p = vm_pagemap_at(pm, start, &n);
		n = VM_BLKSIZE - start % VM_BLKSIZE;
		if (n > stop - start)
			n = stop - start;
		for (i = 0; i < n; i++)
			if (p[i] != state)
				return start + i;
		start += n;
	}
	return stop;
}
