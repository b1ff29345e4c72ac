/* SPDX-License-Identifier: MIT */
/*
 * Which page tables below a mapping are write-protected as a whole, by regions of 2 MiB: what one page table
 * covers.
 *
 * A mapping of a handle that other processes have, too, is to be armed as far as the file goes, since they
 * put pages into ram without telling. That takes 2.5 ms for a GiB, so it is done piece by piece by the thread
 * that serves the others (vm_settle); until then the mapping is fresh, and nobody can store through it: what
 * is read there meanwhile does not count as stored into.
 */
#include "uffd.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SETTLE_AT_ONCE 64u   /* regions: 0.3 ms */
#define SETTLE_PIECE   4u    /* so long, 20 us, others wait for a lock, ours or the kernel's */
#define SETTLE_REGIONS 2048u /* beyond, 4 GiB, only what ram holds: the page tables are 8 MiB by then */

uint64_t vm_region_of(const struct vma *v, uint64_t pgoff)
{
	/* page tables cover aligned addresses, not aligned file offsets */
	return vm_vma_addr(v, pgoff) / (VM_REGION_NPAGES * VM_PAGE) - v->start / (VM_REGION_NPAGES * VM_PAGE);
}

static uint64_t nregions(const struct vma *v)
{
	return vm_region_of(v, vm_vma_pgstop(v) - 1) + 1;
}

static size_t armed_len(const struct vma *v)
{
	return (nregions(v) + 63) / 64 * 8;
}

bool vm_is_armed(const struct vma *v, uint64_t r)
{
	return v->armed[r / 64] >> (r % 64) & 1;
}

static void set_armed(struct vma *v, uint64_t first, uint64_t last)
{
	for (; first <= last; first++)
		v->armed[first / 64] |= 1ull << (first % 64);
}

int vm_armed_alloc(struct vma *v)
{
	void *p;

	v->armed = &v->armed_few;
	v->armed_few = 0;
	v->settled = v->pgoff;
	if (nregions(v) <= 64)
		return 0;
	p = vm_own_map(armed_len(v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);
	if (vm_sys_err(p))
		return vm_sys_err(p);
	v->armed = p;
	return 0;
}

void vm_armed_free(struct vma *v)
{
	if (v->armed && v->armed != &v->armed_few)
		(void)vm_sys->munmap(v->armed, armed_len(v)); /* ours, aligned */
	v->armed = NULL;
	v->fresh = false;
}

int vm_armed_split(struct vma *v, struct vma *tail)
{
	uint64_t first = vm_region_of(v, tail->pgoff);
	int err = vm_armed_alloc(tail);

	if (err)
		return err;
	for (uint64_t r = 0; r < nregions(tail); r++)
		if (vm_is_armed(v, first + r))
			tail->armed[r / 64] |= 1ull << (r % 64);
	/* what v's own array was sized for shrinks with it; keep the mapping's length findable */
	if (v->armed != &v->armed_few) {
		struct vma head = *v;
		uint64_t *whole = v->armed;
		size_t whole_len = armed_len(v);

		head.stop = tail->start;
		err = vm_armed_alloc(&head);
		if (err) {
			vm_armed_free(tail);
			return err;
		}
		memcpy(head.armed, whole, armed_len(&head));
		v->armed_few = head.armed_few;
		v->armed = head.armed == &head.armed_few ? &v->armed_few : head.armed;
		(void)vm_sys->munmap(whole, whole_len);
	}
	return 0;
}

void vm_region_pages(const struct vma *v, uint64_t r, uint64_t *ret_start, uint64_t *ret_stop)
{
	uintptr_t size = VM_REGION_NPAGES * VM_PAGE, base = v->start / size * size + r * size;
	uintptr_t start = base > v->start ? base : v->start,
		  stop = base + size < v->stop ? base + size : v->stop;

	*ret_start = v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT);
	*ret_stop = v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT);
}

uint64_t vm_held_regions(const struct vma *v, uint64_t start, uint64_t stop, uint64_t *ret_stop)
{
	uint64_t first = vm_ram_first(&v->fileh->ram, start, stop), next = first, skip;

	*ret_stop = stop;
	if (first == stop)
		return stop;
	do
		vm_region_pages(v, vm_region_of(v, next), &skip, ret_stop);
	while (*ret_stop < stop && (next = vm_ram_first(&v->fileh->ram, *ret_stop, stop)) < stop &&
	       vm_region_of(v, next) == vm_region_of(v, *ret_stop));
	vm_region_pages(v, vm_region_of(v, first), &first, &skip);
	return first;
}

int vm_protect_pages(const struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_uffd_protect(vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT);
}

/* Without the handle's lock it is taken only where there is something to note. */
static void note(uintptr_t start, uintptr_t stop, void *arg)
{
	struct vma *v = arg;
	uint64_t from = v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT);
	uint64_t to = v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT);
	bool locked = vm_lock_is_held(VM_RANK_FILEH);

	if (!locked && vm_ram_first(&v->fileh->ram, from, to) == to)
		return;
	v->fileh->noted = true;
	if (!locked)
		vm_fileh_lock(v->fileh);
	vm_page_note_stored(v->fileh, from, to);
	if (!locked)
		vm_fileh_unlock(v->fileh);
}

int vm_scan_regions(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = vm_uffd_scan(vm_vma_addr(v, start), vm_vma_addr(v, stop), note, v);

	if (!err)
		set_armed(v, vm_region_of(v, start), vm_region_of(v, stop - 1));
	return err;
}

/* Nothing can have been stored there: nobody could, or no page of it is in ram. Otherwise protecting would
 * hide that; a scan tells, and protects, in one step. */
static bool is_clean(const struct vma *v)
{
	return v->fresh || (vm_lock_is_held(VM_RANK_FILEH) && v->fileh->lazy && !v->fileh->ctl->was_shared);
}

static int arm_regions(struct vma *v, uint64_t first, uint64_t last)
{
	uint64_t from, to, skip;
	int err;

	vm_region_pages(v, first, &from, &skip);
	vm_region_pages(v, last, &skip, &to);
	if (!is_clean(v))
		return vm_scan_regions(v, from, to);
	err = vm_protect_pages(v, from, to);
	if (!err)
		set_armed(v, first, last);
	return err;
}

int vm_arm(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t last = vm_region_of(v, stop - 1), first;
	int err = 0;

	for (uint64_t r = vm_region_of(v, start); !err && r <= last; r++) {
		if (vm_is_armed(v, r))
			continue;
		for (first = r; r < last && !vm_is_armed(v, r + 1);)
			r++;
		err = arm_regions(v, first, r);
	}
	return err;
}

/* ---- mappings that are armed as far as the file goes ---- */

/* End of the pages of v that are in the file. ram says it without a lock. */
static uint64_t file_end(const struct vma *v)
{
	uint64_t end = vm_vma_pgstop(v);
	struct stat st;

	if (!vm_sys->fstat(v->fileh->ram.fd, &st) && vm_npages((uint64_t)st.st_size) < end)
		end = vm_npages((uint64_t)st.st_size);
	return end;
}

/* The next piece of [start, end) that is to be armed; end: none is. */
static uint64_t next_piece(const struct vma *v, uint64_t start, uint64_t end, uint64_t *ret_stop)
{
	uint64_t last, skip;

	*ret_stop = end;
	if (vm_region_of(v, start) >= SETTLE_REGIONS)
		start = vm_held_regions(v, start, end, ret_stop);
	if (start == end)
		return end;
	last = vm_region_of(v, start) + SETTLE_PIECE - 1;
	if (last < vm_region_of(v, *ret_stop - 1))
		vm_region_pages(v, last, &skip, ret_stop);
	return start;
}

/* One piece; 1: there is more. */
static int settle_piece(struct vma *v)
{
	uint64_t end = file_end(v), start = v->settled, stop;
	int err;

	if (start >= end)
		return 0;
	start = next_piece(v, start, end, &stop);
	err = start < end ? vm_arm(v, start, stop) : 0;
	if (!err)
		v->settled = stop;
	return err ? err : stop < end;
}

int vm_settle_all(struct vma *v)
{
	int err;

	while ((err = settle_piece(v)) > 0)
		;
	v->fresh &= err != 0;
	return err;
}

bool vm_settles_at_once(const struct vma *v)
{
	uint64_t end = file_end(v);

	return end <= v->pgoff || vm_region_of(v, end - 1) < SETTLE_AT_ONCE;
}

int vm_settle_some(struct vma *v)
{
	int err = settle_piece(v);

	v->fresh &= err != 0;
	return err;
}
