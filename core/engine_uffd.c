/* SPDX-License-Identifier: MIT */
/*
 * userfaultfd(2): WP_ASYNC tells which pages were stored into (the kernel clears the write-protect bit by itself, for its
 * own stores, too; PAGEMAP_SCAN reads and sets it again), MISSING loads on first touch.
 *
 * Invariant: where a page table exists below a mapping of ours, every entry in it is write-protected or was stored
 * into. An absent entry of an unprotected table would count as stored into, so a region of 2 MiB (one page table)
 * is protected as a whole ("armed") before its first page is put into ram. Where no table exists the scan
 * skips the region, so that a large sparse mapping costs nothing.
 */
#include "uffd.h"
#include "uapi.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* ---- armed regions ---- */

static uint64_t region_of(const struct vma *v, uint64_t pgoff)
{
	/* page tables cover aligned addresses, not aligned file offsets */
	return vm_vma_addr(v, pgoff) / (VM_REGION_NPAGES * VM_PAGE) - v->start / (VM_REGION_NPAGES * VM_PAGE);
}

static uint64_t nregions(const struct vma *v)
{
	return region_of(v, vm_vma_pgstop(v) - 1) + 1;
}

static size_t armed_len(const struct vma *v)
{
	return (nregions(v) + 63) / 64 * 8;
}

static bool is_armed(const struct vma *v, uint64_t r)
{
	return v->armed[r / 64] >> (r % 64) & 1;
}

static int alloc_armed(struct vma *v)
{
	void *p;

	v->armed = &v->armed_few;
	v->armed_few = 0;
	if (nregions(v) <= 64)
		return 0;
	p = vm_own_map(armed_len(v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (vm_sys_err(p))
		return vm_sys_err(p);
	v->armed = p;
	return 0;
}

static void uffd_detach(struct vma *v)
{
	if (v->armed && v->armed != &v->armed_few)
		(void)vm_sys->munmap(v->armed, armed_len(v)); /* ours, aligned */
	v->armed = NULL;
}

/* Pages of region r that v shows. */
static void region_pages(const struct vma *v, uint64_t r, uint64_t *ret_start, uint64_t *ret_stop)
{
	uintptr_t size = VM_REGION_NPAGES * VM_PAGE, base = v->start / size * size + r * size;
	uintptr_t start = base > v->start ? base : v->start, stop = base + size < v->stop ? base + size : v->stop;

	*ret_start = v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT);
	*ret_stop = v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT);
}

static int protect_pages(const struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_uffd_protect(vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT);
}

static void note(uintptr_t start, uintptr_t stop, void *arg)
{
	struct vma *v = arg;

	vm_page_note_stored(v->fileh, v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT),
			    v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT));
}

/* Pages that another process put into ram may be in a region that is not armed, stored into: protecting them would hide
 * that. A scan tells, and protects, in one step. */
static int scan_and_protect(const struct vma *v, uint64_t start, uint64_t stop)
{
	if (v->fileh->ctl->was_shared)
		return vm_uffd_scan(vm_vma_addr(v, start), vm_vma_addr(v, stop), note,
				    (void *)v);
	return protect_pages(v, start, stop);
}

/* Arm all regions that [start, stop) touches; neighbours in one call. */
static int arm(struct vma *v, uint64_t start, uint64_t stop,
	       int (*protect)(const struct vma *v, uint64_t start, uint64_t stop))
{
	uint64_t last = region_of(v, stop - 1), from, to, skip;
	int err;

	for (uint64_t r = region_of(v, start); r <= last; r++) {
		if (is_armed(v, r))
			continue;
		uint64_t first = r;

		while (r < last && !is_armed(v, r + 1))
			r++;
		region_pages(v, first, &from, &skip);
		region_pages(v, r, &skip, &to);
		err = protect(v, from, to);
		if (err)
			return err;
		for (; first <= r; first++)
			v->armed[first / 64] |= 1ull << (first % 64);
	}
	return 0;
}

static int uffd_will_fill(struct vma *v, uint64_t start, uint64_t stop)
{
	return arm(v, start, stop, scan_and_protect);
}

/* Copy to addr, where the memfd's pages are missing; whole pages appear, never a part of one. */
static int copy_missing(struct vm_fileh *h, uintptr_t addr, uint64_t pgoff, size_t npages, const char *buf)
{
	size_t done = 0, len = npages * VM_PAGE;
	int err = 0;

	while (!err && done < len) {
		struct uffdio_copy c = {
			.dst = addr + done,
			.src = (uintptr_t)buf + done,
			.len = len - done,
			.mode = UFFDIO_COPY_MODE_WP | UFFDIO_COPY_MODE_DONTWAKE,
		};

		err = vm_sys->ioctl(vm_uffd_fd(), UFFDIO_COPY, &c);
		if (!err || c.copy > 0)
			done += !err ? c.len : (size_t)c.copy;
		if (err == -EAGAIN)
			err = 0;
		if (err == -EEXIST) { /* not missing after all: a private mapping read it, and made zeros */
			err = vm_ram_fill(&h->ram, pgoff + done / VM_PAGE, 1, buf + done, h->ctl->size);
			done += VM_PAGE;
		}
	}
	if (err)
		(void)vm_ram_punch(&h->ram, pgoff, pgoff + npages); /* the error to report is err */
	return err;
}

/* By UFFDIO_COPY, which also maps the pages where they are about to be touched, already protected. */
static int uffd_fill(struct vm_fileh *h, uint64_t pgoff, size_t npages, const void *buf)
{
	size_t len = npages * VM_PAGE;
	void *p;
	int err;

	if (!h->lazy || !vm_uffd_is_full())
		return vm_ram_fill_missing(&h->ram, pgoff, npages, buf, h->ctl->size);
	for (size_t i = 0; i < vm_nvmas; i++) {
		struct vma *v = vm_vmas[i];

		if (v->fileh == h && v->shared && v->pgoff <= pgoff && pgoff + npages <= vm_vma_pgstop(v))
			return copy_missing(h, vm_vma_addr(v, pgoff), pgoff, npages, buf);
	}
	p = vm_own_map(len, PROT_NONE, MAP_SHARED, h->ram.fd, (off_t)(pgoff << VM_PAGE_SHIFT));
	err = vm_sys_err(p);
	if (err)
		return err;
	err = vm_uffd_register((uintptr_t)p, len, true);
	if (!err)
		err = copy_missing(h, (uintptr_t)p, pgoff, npages, buf);
	(void)vm_sys->munmap(p, len); /* just made */
	return err;
}

/* The kernel dropped the marks with the pages; nobody can have stored there since, as long as a touch has to be
 * loaded first. */
static int uffd_emptied(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = 0;

	if (!v->fileh->lazy)
		return 0;
	if (v->fileh->poison) /* marks that punching a hole leaves */
		err = vm_sys->madvise((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT, MADV_DONTNEED);
	for (uint64_t r = region_of(v, start); !err && start < stop; r++) {
		uint64_t from, to;

		region_pages(v, r, &from, &to);
		if (to > stop)
			to = stop;
		if (is_armed(v, r))
			err = protect_pages(v, start, to);
		start = to;
	}
	return err;
}

/* ---- mappings ---- */

static int uffd_attach(struct vma *v)
{
	uint64_t start, stop, skip, end = vm_vma_pgstop(v);
	int err;

	err = alloc_armed(v);
	if (err)
		return err;
	err = v->fileh->lazy ? vm_uffd_need_thread() : 0;
	if (!err)
		err = vm_uffd_register(v->start, v->stop - v->start, v->fileh->lazy);
	/* nobody stored through it yet; a page that is known, but not in ram, was zeroed, and a touch brings it back */
	for (start = v->pgoff; !err && start < end; start = stop) {
		start = vm_ram_next(&v->fileh->ram, start, end, &stop);
		if (start < end)
			err = arm(v, start, stop, protect_pages);
	}
	for (start = v->pgoff; !err && start < end; start = stop) {
		start = vm_pagemap_find_not(&v->fileh->pagemap, start, end, VM_EMPTY);
		if (start == end)
			break;
		err = arm(v, start, start + 1, protect_pages);
		region_pages(v, region_of(v, start), &skip, &stop);
	}
	if (!err && v->fileh->lazy && !v->dontfork) {
		/* A child made behind our back would see, and make, zeros where pages are not loaded. */
		err = vm_sys->madvise((void *)v->start, v->stop - v->start, MADV_DONTFORK);
		v->dontfork = !err;
	}
	if (err)
		uffd_detach(v);
	return err;
}

static int uffd_split(struct vma *v, struct vma *tail)
{
	uint64_t first = region_of(v, tail->pgoff);
	int err = alloc_armed(tail);

	if (err)
		return err;
	for (uint64_t r = 0; r < nregions(tail); r++)
		if (is_armed(v, first + r))
			tail->armed[r / 64] |= 1ull << (r % 64);
	/* what v's own array was sized for shrinks with it; keep the mapping's length findable */
	if (v->armed != &v->armed_few) {
		struct vma head = *v;
		uint64_t *whole = v->armed;
		size_t whole_len = armed_len(v);

		head.stop = tail->start;
		err = alloc_armed(&head);
		if (err) {
			uffd_detach(tail);
			return err;
		}
		memcpy(head.armed, whole, armed_len(&head));
		v->armed_few = head.armed_few;
		v->armed = head.armed == &head.armed_few ? &v->armed_few : head.armed;
		(void)vm_sys->munmap(whole, whole_len);
	}
	return 0;
}

/* Scan where ram holds pages, region by region: a scan of an empty range would build its page tables. */
static int scan_held(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t from, to, skip;
	int err = 0;

	while (!err && (from = vm_ram_first(&v->fileh->ram, start, stop)) < stop) {
		region_pages(v, region_of(v, from), &from, &to);
		while (to < stop && vm_ram_first(&v->fileh->ram, to, stop) == to)
			region_pages(v, region_of(v, to), &skip, &to);
		err = vm_uffd_scan(vm_vma_addr(v, from), vm_vma_addr(v, to), note, v);
		start = to;
	}
	return err;
}

/* End of the run of armed regions from r on; a few others in between cost less than one more scan. */
#define GAP_MAX 4u
static uint64_t armed_run(const struct vma *v, uint64_t r, uint64_t last)
{
	uint64_t end = r;

	if (!is_armed(v, r))
		return r;
	for (; r <= last && r < end + GAP_MAX; r++)
		if (is_armed(v, r))
			end = r + 1;
	return end;
}

/* It cannot be known: then every page may have been stored into. But that is no reason for this process to commit at its
 * end what another one may be in the middle of: as long as there is one, that one will. */
static void note_all(struct vma *v, uint64_t start, uint64_t stop)
{
	struct vm_fileh *h = v->fileh;
	bool stored_here = h->stored_here || !vm_fileh_has_others(h);

	vm_page_note_stored(h, start, stop);
	h->stored_here = stored_here;
}

static int scan(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t r, end, last = region_of(v, stop - 1), from, to, skip;
	int err = 0;

	/* Pages that appear behind our back, holes or those that another process put into ram, can be anywhere. */
	if (!v->fileh->lazy || v->fileh->ctl->was_shared)
		return scan_held(v, start, stop);
	for (r = region_of(v, start); !err && r <= last; r = end) {
		if (r % 64 == 0 && !v->armed[r / 64]) {
			end = r + 64;
			continue;
		}
		end = armed_run(v, r, last);
		if (end > r) {
			region_pages(v, r, &from, &skip);
			region_pages(v, end - 1, &skip, &to);
			err = vm_uffd_scan(vm_vma_addr(v, from), vm_vma_addr(v, to), note, v);
		}
		end++;
	}
	return err;
}

static int uffd_harvest(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = scan(v, start, stop);

	/* the program locked itself in: a seccomp filter */
	if (err != -ENOSYS && err != -EPERM && err != -EACCES)
		return err;
	note_all(v, start, stop);
	return 0;
}

static int uffd_protect(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_sys->mprotect((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT, v->prot);
}

static int uffd_touched(struct vma *v, uint64_t pgoff, bool write)
{
	(void)write;
	/* a freeze ended between the touch and now, or could not give the access back */
	return uffd_protect(v, pgoff, pgoff + 1) ? -ENOMEM : 0;
}

/* A mapping that mremap puts beside one of the same file becomes one with it, and loses its registration: the kernel
 * then takes the other's, too. So it goes without. */
static int uffd_flatten(struct vma *v)
{
	int err = vm_sys->mprotect((void *)v->start, v->stop - v->start, PROT_NONE);

	return err ? err : vm_uffd_unregister(v->start, v->stop - v->start);
}

/* E1 */
static void uffd_check(struct vma *v)
{
	uint64_t pg, end = vm_vma_pgstop(v), stop, skip;

	if (!v->fileh->lazy || v->fileh->ctl->was_shared)
		return;
	for (pg = v->pgoff; (pg = vm_ram_next(&v->fileh->ram, pg, end, &stop)) < end;) {
		BUG_ON(!is_armed(v, region_of(v, pg)));
		region_pages(v, region_of(v, pg), &skip, &pg);
	}
}

static int uffd_fork_child(const char **ret_why)
{
	vm_uffd_close();
	vm_uffd_thread_fork_child();
	return vm_uffd_open(ret_why);
}

const struct vm_engine_ops vm_engine_uffd = {
	.name = "uffd",
	.start = vm_uffd_open,
	.stop = vm_uffd_close,
	.attach = uffd_attach,
	.detach = uffd_detach,
	.split = uffd_split,
	.fill = uffd_fill,
	.will_fill = uffd_will_fill,
	.emptied = uffd_emptied,
	.harvest = uffd_harvest,
	.protect = uffd_protect,
	.touched = uffd_touched,
	.flatten = uffd_flatten,
	.check = uffd_check,
	.fork_child = uffd_fork_child,
};
