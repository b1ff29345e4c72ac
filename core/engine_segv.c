/* SPDX-License-Identifier: MIT */
/*
 * SIGSEGV and mprotect(2), for every kernel: PROT_NONE until loaded, PROT_READ until stored into. The
 * program's protection is never exceeded.
 *
 * Every run of writable pages is one more kernel mapping, of which a process has about 65,530. The more
 * runs there are, the wider the block that one store opens; pages opened on the side count as stored into,
 * and the commit finds them unchanged.
 */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

static int segv_start(const char **ret_why)
{
	(void)ret_why; /* says why uffd is not in use */
	return 0;
}

static void segv_stop(void)
{
}

static int set_prot(const struct vma *v, uint64_t start, uint64_t stop, int prot)
{
	int allowed = v->prot | (v->prot & PROT_WRITE ? PROT_READ : 0); /* what may be written can be read, on all machines */

	return vm_sys->mprotect((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT, prot & allowed);
}

/* PROT_NONE where a page is to be loaded first, else all but PROT_WRITE. */
static int segv_protect(struct vma *v, uint64_t start, uint64_t stop)
{
	const int readable = ~PROT_WRITE;
	int err = 0;

	if (!v->fileh->lazy)
		return set_prot(v, start, stop, readable);
	while (!err && start < stop) {
		bool empty = vm_page_state(v->fileh, start) <= VM_LOADING;
		uint64_t end = start;

		while (end < stop && (vm_page_state(v->fileh, end) <= VM_LOADING) == empty)
			end = empty ? vm_pagemap_find_not(&v->fileh->pagemap, end + 1, stop, VM_EMPTY) : end + 1;
		err = set_prot(v, start, end, empty ? PROT_NONE : readable);
		start = end;
	}
	return err;
}

/* Where a page is gone and still has rights, ram's zeros would be seen, or a store into the next one go
 * unseen. */
static int segv_will_empty(struct vma *v, uint64_t start, uint64_t stop)
{
	return set_prot(v, start, stop, PROT_NONE);
}

static int segv_attach(struct vma *v)
{
	return segv_protect(v, v->pgoff, vm_vma_pgstop(v));
}

static void segv_detach(struct vma *v)
{
	vm_runs_free(&v->rw);
}

static int segv_split(struct vma *v, struct vma *tail)
{
	/* both keep the list; each looks at its own part only */
	for (size_t i = 0; i < v->rw.n; i++)
		if (v->rw.run[i].stop > tail->pgoff) {
			int err = vm_runs_add(&tail->rw, v->rw.run[i].start, v->rw.run[i].stop);
			if (err) {
				vm_runs_free(&tail->rw);
				return err;
			}
		}
	return 0;
}

/* The part of run i that v shows; false: none. */
static bool clip(const struct vma *v, size_t i, uint64_t *ret_start, uint64_t *ret_stop)
{
	uint64_t pgstop = vm_vma_pgstop(v);

	*ret_start = v->rw.run[i].start > v->pgoff ? v->rw.run[i].start : v->pgoff;
	*ret_stop = v->rw.run[i].stop < pgstop ? v->rw.run[i].stop : pgstop;
	return *ret_start < *ret_stop;
}

static int segv_harvest(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t from, to;
	int err = 0;

	(void)start, (void)stop; /* a whole mapping at a time: what is protected leaves the list */
	for (size_t i = 0; i < v->rw.n; i++) {
		if (!clip(v, i, &from, &to))
			continue;
		/* protect first: a store after the note would be lost. Taking rights away can fail only by
		 * needing one more kernel mapping; then the page stays writable and on the list. */
		int e = segv_protect(v, from, to);

		vm_page_note_stored(v->fileh, from, to);
		if (e)
			err = e;
	}
	if (!err)
		v->rw.n = 0;
	return err;
}

static uint64_t block_npages(const struct vma *v)
{
	size_t n = v->rw.n;

	return n < 1024 ? 1 : n < 4096 ? 16 : n < 8192 ? 128 : n < 16384 ? 2048 : 65536;
}

/* The block of width pages around pgoff, without pages that are not loaded. */
static void block_around(struct vma *v, uint64_t pgoff, uint64_t width, uint64_t *ret_start, uint64_t *ret_stop)
{
	uint64_t start = pgoff / width * width, stop = start + width;

	if (start < v->pgoff)
		start = v->pgoff;
	if (stop > vm_vma_pgstop(v))
		stop = vm_vma_pgstop(v);
	*ret_start = start;
	*ret_stop = stop;
	if (!v->fileh->lazy)
		return;
	for (*ret_start = pgoff; *ret_start > start && vm_page_state(v->fileh, *ret_start - 1) > VM_LOADING;)
		--*ret_start;
	for (*ret_stop = pgoff + 1; *ret_stop < stop && vm_page_state(v->fileh, *ret_stop) > VM_LOADING;)
		++*ret_stop;
}

static bool is_writable_now(const struct vma *v, uint64_t pgoff)
{
	for (size_t i = v->rw.n; i-- > 0;)
		if (v->rw.run[i].start <= pgoff && pgoff < v->rw.run[i].stop)
			return true;
	return false;
}

static int make_writable(struct vma *v, uint64_t pgoff)
{
	uint64_t start, stop, width = block_npages(v);
	int err;

	for (;; width *= 16) {
		block_around(v, pgoff, width, &start, &stop);
		if (vm_page_state(v->fileh, pgoff) != VM_DIRTY || !is_writable_now(v, pgoff))
			err = vm_runs_add(&v->rw, start, stop);
		else
			err = 0;
		if (err)
			return err;
		err = set_prot(v, start, stop, PROT_READ | PROT_WRITE | PROT_EXEC);
		if (err != -ENOMEM || stop - start == vm_vma_pgstop(v) - v->pgoff || width > VM_MAX_PGOFF)
			break;
	}
	if (!err)
		vm_page_mark_dirty(v->fileh, pgoff, pgoff + 1);
	return err;
}

static int segv_touched(struct vma *v, uint64_t pgoff, bool write)
{
	enum vm_page_state state = vm_page_state(v->fileh, pgoff);

	if (v->fileh->lazy && state <= VM_LOADING)
		return -EAGAIN;
	bool writable = state == VM_DIRTY && is_writable_now(v, pgoff);
	int err;

	if (write) {
		err = make_writable(v, pgoff);
		return err ? err : !writable;
	}
	/* loaded by another process, or it came to be by a write(2) */
	return set_prot(v, pgoff, pgoff + 1, writable ? PROT_READ | PROT_WRITE | PROT_EXEC : ~PROT_WRITE);
}

static int segv_flatten(struct vma *v)
{
	return vm_sys->mprotect((void *)v->start, v->stop - v->start, PROT_NONE);
}

static int segv_fork_child(const char **ret_why)
{
	(void)ret_why;
	return 0; /* the child has the parent's protections, and the parent's lists of writable pages */
}

const struct vm_engine_ops vm_engine_segv = {
	.name = "segv",
	.start = segv_start,
	.stop = segv_stop,
	.attach = segv_attach,
	.detach = segv_detach,
	.split = segv_split,
	.filled = segv_protect,
	.will_empty = segv_will_empty,
	.emptied = segv_protect,
	.harvest = segv_harvest,
	.protect = segv_protect,
	.touched = segv_touched,
	.flatten = segv_flatten,
	.fork_child = segv_fork_child,
};
