/* SPDX-License-Identifier: MIT */
/* The only writer of page states: each function is one arrow of the table in types.h. */
#include "internal.h"
#include <errno.h>
#include <string.h>

static void set(struct vm_fileh *h, uint8_t *p, enum vm_page_state to)
{
	uint64_t *n = h->ctl->npages;

	if (*p != VM_EMPTY) {
		BUG_ON(*p >= VM_NSTATES || !n[*p]);
		n[*p]--;
	}
	if (to != VM_EMPTY)
		n[to]++;
	*p = to;
}

static uint8_t *at(struct vm_fileh *h, uint64_t pgoff)
{
	uint64_t n;

	return vm_pagemap_at(&h->pagemap, pgoff, &n);
}

enum vm_page_state vm_page_state(struct vm_fileh *h, uint64_t pgoff)
{
	return vm_pagemap_peek(&h->pagemap, pgoff);
}

void vm_page_recount(struct vm_fileh *h)
{
	uint64_t n[VM_NSTATES] = {0};

	for (uint64_t pg = 0; (pg = vm_pagemap_find_not(&h->pagemap, pg, VM_MAX_PGOFF, VM_EMPTY)) < VM_MAX_PGOFF; pg++)
		n[vm_page_state(h, pg)]++;
	memcpy(h->ctl->npages, n, sizeof(n));
}

uint64_t vm_page_begin_load(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	for (; start < stop; start++) {
		uint8_t *p = at(h, start);

		if (*p != VM_EMPTY)
			break;
		set(h, p, VM_LOADING);
	}
	return start;
}

void vm_page_end_load(struct vm_fileh *h, uint64_t start, uint64_t stop, bool loaded)
{
	for (; start < stop; start++) {
		uint8_t *p = at(h, start);

		BUG_ON(*p != VM_LOADING);
		set(h, p, loaded ? VM_LOADED : VM_EMPTY);
	}
}

void vm_page_mark_dirty(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	for (; start < stop; start++) {
		uint8_t *p = at(h, start);

		if (*p == VM_LOADING)
			continue;
		h->stored_here = true; /* also where another process did before */
		if (*p != VM_DIRTY)
			set(h, p, VM_DIRTY);
	}
}

/* A page that an eager handle never loaded is a hole. Zeros there are no change: a read made them, most
 * likely, in a page table that was never protected. */
static bool is_still_hole(struct vm_fileh *h, uint64_t pgoff)
{
	uint64_t chunk[64], off = pgoff << VM_PAGE_SHIFT, stop = off + VM_PAGE;

	for (; off < stop; off += sizeof(chunk)) {
		ssize_t n = vm_sys->pread(h->ram.fd, chunk, sizeof(chunk), (off_t)off);

		if (n < 0)
			return false;
		memset((char *)chunk + n, 0, sizeof(chunk) - (size_t)n); /* beyond the end */
		for (size_t i = 0; i < sizeof(chunk) / sizeof(*chunk); i++)
			if (chunk[i])
				return false;
	}
	return true;
}

static void note_held(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	for (; start < stop; start++)
		if (h->lazy || !is_still_hole(h, start))
			vm_page_mark_dirty(h, start, start + 1);
}

void vm_page_note_stored(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	/* An EMPTY page that ram does not hold cannot have been stored into: the engine saw a page table that
	 * was never protected there. One that ram holds can, also of a lazy handle: a private mapping that
	 * reads beyond what is loaded makes zeros there. */
	while (start < stop) {
		uint64_t used = vm_pagemap_find_not(&h->pagemap, start, stop, VM_EMPTY), held, held_stop;

		while (start < used) {
			held = vm_ram_next(&h->ram, start, used, &held_stop);
			note_held(h, held, held_stop);
			start = held_stop;
		}
		for (start = used; start < stop && vm_page_state(h, start) != VM_EMPTY; start++)
			vm_page_mark_dirty(h, start, start + 1);
	}
}

int vm_page_suspect(struct vm_fileh *h)
{
	uint64_t end = h->ctl->suspect ? vm_npages(h->ctl->size) : 0, stop;
	int err = 0;

	for (uint64_t start = 0; !err && start < end; start = stop) {
		start = vm_ram_next(&h->ram, start, end, &stop);
		if (start < end)
			err = vm_pagemap_reserve(&h->pagemap, start, stop);
		if (!err) {
			h->ctl->doubtful |= start < stop;
			vm_page_mark_dirty(h, start, stop);
		}
	}
	h->ctl->suspect = err;
	return err;
}

int vm_page_begin_store(struct vm_fileh *h, struct vm_runs *runs)
{
	const uint64_t end = VM_MAX_PGOFF;
	uint64_t start, stop, left = h->ctl->npages[VM_DIRTY];
	size_t n = runs->n;

	for (start = 0; left; start = stop) {
		start = vm_pagemap_find(&h->pagemap, start, end, VM_DIRTY);
		BUG_ON(start == end); /* the count is exact */
		for (stop = start; left && vm_page_state(h, stop) == VM_DIRTY; stop++, left--)
			;
		if (vm_runs_add(runs, start, stop)) {
			runs->n = n;
			return -ENOMEM;
		}
	}
	for (; n < runs->n; n++)
		for (start = runs->run[n].start; start < runs->run[n].stop; start++)
			if (vm_page_state(h, start) == VM_DIRTY)
				set(h, at(h, start), VM_STORING);
	return 0;
}

static void all_storing_to(struct vm_fileh *h, enum vm_page_state to)
{
	const uint64_t end = VM_MAX_PGOFF;
	uint64_t pgoff = 0;

	while (h->ctl->npages[VM_STORING]) {
		pgoff = vm_pagemap_find(&h->pagemap, pgoff, end, VM_STORING);
		BUG_ON(pgoff == end);
		set(h, at(h, pgoff), to);
		pgoff++;
	}
}

void vm_page_mark_stored(struct vm_fileh *h)
{
	all_storing_to(h, VM_LOADED);
}

void vm_page_store_failed(struct vm_fileh *h)
{
	all_storing_to(h, VM_DIRTY);
}

uint64_t vm_page_drop(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	uint64_t n = 0;

	while ((start = vm_pagemap_find_not(&h->pagemap, start, stop, VM_EMPTY)) < stop) {
		uint8_t *p = at(h, start++);

		if (*p == VM_LOADING)
			continue;
		set(h, p, VM_EMPTY);
		n++;
	}
	return n;
}
