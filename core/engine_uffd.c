/* SPDX-License-Identifier: MIT */
/*
 * userfaultfd(2): WP_ASYNC tells which pages were stored into (the kernel clears the write-protect bit by
 * itself, for its own stores, too; PAGEMAP_SCAN reads and sets it again), MISSING loads on first touch.
 *
 * Invariant: where a page table exists below a mapping of ours, every entry in it is write-protected or was
 * stored into. An absent entry of an unprotected table would count as stored into, so a region of 2 MiB (one
 * page table) is protected as a whole ("armed") before its first page is put into ram. Where no table exists
 * the scan skips the region, so that a large sparse mapping costs nothing.
 */
#include "uffd.h"
#include "uapi.h"
#include <errno.h>
#include <sys/mman.h>

static int uffd_will_fill(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_arm(v, start, stop);
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

/* The kernel dropped the marks with the pages; nobody can have stored there since, as long as a touch has to
 * be loaded first. */
static int uffd_emptied(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = 0;

	if (!v->fileh->lazy)
		return 0;
	if (v->fileh->poison) /* marks that punching a hole leaves */
		err = vm_sys->madvise((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT, MADV_DONTNEED);
	for (uint64_t r = vm_region_of(v, start); !err && start < stop; r++) {
		uint64_t from, to;

		vm_region_pages(v, r, &from, &to);
		if (to > stop)
			to = stop;
		if (vm_is_armed(v, r))
			err = vm_protect_pages(v, start, to);
		start = to;
	}
	return err;
}

/* ---- mappings ---- */

/* What can have been touched through other mappings. */
static int arm_known(struct vma *v)
{
	uint64_t start, stop, skip, end = vm_vma_pgstop(v);
	int err = 0;

	for (start = v->pgoff; !err && (start = vm_held_regions(v, start, end, &stop)) < end; start = stop)
		err = vm_arm(v, start, stop);
	/* a page that is known, but not in ram, was zeroed, and a touch brings it back */
	for (start = v->pgoff; !err && start < end; start = stop) {
		start = vm_pagemap_find_not(&v->fileh->pagemap, start, end, VM_EMPTY);
		if (start == end)
			break;
		err = vm_arm(v, start, start + 1);
		vm_region_pages(v, vm_region_of(v, start), &skip, &stop);
	}
	return err;
}

/* Nobody stored through v yet. Of a handle that others have, too, all of it is armed; where that takes long
 * the server does it. */
static int arm(struct vma *v)
{
	int err = 0;

	v->fresh = true;
	if (!v->fileh->ctl->was_shared) {
		err = arm_known(v);
		v->fresh = false;
	} else if (!v->writable) {
		return 0; /* and nobody ever will */
	} else if (vm_settles_at_once(v)) {
		err = vm_settle_all(v);
	} else {
		__atomic_store_n(&v->fileh->unsettled, VM_UNSETTLED_SOON, __ATOMIC_RELEASE);
	}
	return err;
}

static int uffd_attach(struct vma *v)
{
	int err;

	err = vm_armed_alloc(v);
	if (err)
		return err;
	err = v->fileh->lazy ? vm_uffd_need_thread() : 0;
	if (!err)
		err = vm_uffd_register(v->start, v->stop - v->start, v->fileh->lazy);
	if (!err)
		err = arm(v);
	if (!err && v->fileh->lazy && !v->dontfork) {
		/* A child made behind our back would see, and make, zeros where pages are not loaded. */
		err = vm_sys->madvise((void *)v->start, v->stop - v->start, MADV_DONTFORK);
		v->dontfork = !err;
	}
	if (err)
		vm_armed_free(v);
	return err;
}

/* Scan where ram holds pages, region by region: a scan of an empty range would build its page tables. All the
 * processes of a handle do so at once: its lock is taken only where there is something to note. */
static int scan_held(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t from, to;
	int err = 0;

	vm_fileh_unlock(v->fileh);
	for (; !err && (from = vm_held_regions(v, start, stop, &to)) < stop; start = to)
		err = vm_scan_regions(v, from, to);
	vm_fileh_lock(v->fileh);
	return err;
}

/* End of the run of armed regions from r on; a few others in between cost less than one more scan. */
#define GAP_MAX 4u
static uint64_t armed_run(const struct vma *v, uint64_t r, uint64_t last)
{
	uint64_t end = r;

	if (!vm_is_armed(v, r))
		return r;
	for (; r <= last && r < end + GAP_MAX; r++)
		if (vm_is_armed(v, r))
			end = r + 1;
	return end;
}

/* It cannot be known: then every page may have been stored into. But that is no reason for this process to
 * commit at its end what another one may be in the middle of: the last one of them will. */
static void note_all(struct vma *v, uint64_t start, uint64_t stop)
{
	struct vm_fileh *h = v->fileh;
	bool stored_here = h->stored_here;

	vm_page_note_stored(h, start, stop);
	h->stored_here = stored_here;
	h->ctl->owed = true;
	h->blind = h->noted = true;
}

static int scan(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t r, end, last = vm_region_of(v, stop - 1), from, to, skip;
	int err = 0;

	/* Pages that appear behind our back, holes or those that another process put into ram, can be
	 * anywhere. */
	if (!v->fileh->lazy || v->fileh->ctl->was_shared)
		return scan_held(v, start, stop);
	for (r = vm_region_of(v, start); !err && r <= last; r = end) {
		if (r % 64 == 0 && !v->armed[r / 64]) {
			end = r + 64;
			continue;
		}
		end = armed_run(v, r, last);
		if (end > r) {
			vm_region_pages(v, r, &from, &skip);
			vm_region_pages(v, end - 1, &skip, &to);
			err = vm_scan_regions(v, from, to);
		}
		end++;
	}
	return err;
}

static int uffd_harvest(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = v->fresh ? 0 : scan(v, start, stop);

	/* the program locked itself in: a seccomp filter */
	if (err != -ENOSYS && err != -EPERM && err != -EACCES)
		return err;
	note_all(v, start, stop);
	return 0;
}

static int uffd_protect(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_sys->mprotect((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT,
				v->fresh ? v->prot & ~PROT_WRITE : v->prot);
}

static int uffd_settle(struct vma *v)
{
	bool was_fresh = v->fresh;
	int err = vm_settle_some(v);

	if (!err && was_fresh && !__atomic_load_n(&v->fileh->frozen, __ATOMIC_SEQ_CST)) /* else the thaw does it */
		err = uffd_protect(v, v->pgoff, vm_vma_pgstop(v));
	return err;
}

static int uffd_touched(struct vma *v, uint64_t pgoff, bool write)
{
	(void)write;
	/* a freeze ended between the touch and now, or could not give the access back */
	return uffd_protect(v, pgoff, pgoff + 1) ? -ENOMEM : 0;
}

/* A mapping that mremap puts beside one of the same file becomes one with it, and loses its registration: the
 * kernel then takes the other's, too. So it goes without. */
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
		BUG_ON(!vm_is_armed(v, vm_region_of(v, pg)));
		vm_region_pages(v, vm_region_of(v, pg), &skip, &pg);
	}
}

static int uffd_start(const char **ret_why)
{
	return vm_uffd_open(false, ret_why);
}

static int uffd_fork_child(const char **ret_why)
{
	vm_uffd_close();
	vm_uffd_thread_fork_child();
	return vm_uffd_open(true, ret_why);
}

const struct vm_engine_ops vm_engine_uffd = {
	.name = "uffd",
	.start = uffd_start,
	.stop = vm_uffd_close,
	.attach = uffd_attach,
	.detach = vm_armed_free,
	.settle = uffd_settle,
	.split = vm_armed_split,
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
