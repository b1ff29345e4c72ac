/* SPDX-License-Identifier: MIT */
/* mremap in all its forms. */
#include "fsx.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* The pages that were at from are at to now, with what they have of their own. */
static void model_move(uint32_t from, uint32_t n, uint32_t to, uint32_t new_n)
{
	struct apage first = arena[from], *old = calloc(n, sizeof(*old));
	static uint32_t id = 1u << 30;

	if (!old)
		abort();
	memcpy(old, arena + from, n * sizeof(*old));
	for (uint32_t i = 0; i < n; i++)
		arena[from + i].own = NULL;
	model_unmap(from, n);
	first.id = ++id;
	model_map(to, new_n, &first);
	for (uint32_t i = 0; i < n; i++)
		if (i < new_n)
			arena[to + i].own = old[i].own;
		else
			free(old[i].own);
	free(old);
}

static void *remap(uint32_t from, uint32_t n, uint32_t new_n, int flags, uint32_t to)
{
	return mremap(ARENA + (uint64_t)from * PAGE, n * (size_t)PAGE, new_n * (size_t)PAGE, flags,
		      ARENA + (uint64_t)to * PAGE);
}

/* In place, or to wherever the kernel likes, and from there back into the arena. */
static void remap_free(uint32_t from, uint32_t n, uint32_t new_n)
{
	bool may_move = one_in(2), fits;
	uint32_t to = (uint32_t)below(set.npages - new_n);
	uint8_t *p, *q, *at = ARENA + (uint64_t)from * PAGE;

	if (from + new_n > set.npages)
		return; /* what is behind the arena is not known */
	fits = new_n <= n || is_free(from + n, new_n - n);
	say("mremap arena page %u + %u to + %u%s", from, n, new_n, may_move ? " MAYMOVE" : "");
	if (!fits && may_move && !is_free(to, new_n))
		return;
	p = remap(from, n, new_n, may_move ? MREMAP_MAYMOVE : 0, 0);
	if (!fits && !may_move) {
		expect("mremap", (long)p, -ENOMEM);
		return;
	}
	if (p == MAP_FAILED || (p != at && !may_move))
		expect("mremap", (long)p, (long)at);
	if (p == at) {
		model_move(from, n, from, new_n);
		return;
	}
	if (fits)
		to = from; /* either is right */
	q = mremap(p, new_n * (size_t)PAGE, new_n * (size_t)PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   ARENA + (uint64_t)to * PAGE);
	expect("mremap back", (long)q, (long)(ARENA + (uint64_t)to * PAGE));
	model_move(from, n, to, new_n);
}

static void remap_fixed(uint32_t from, uint32_t n, uint32_t new_n)
{
	uint32_t to = (uint32_t)below(set.npages - new_n);
	bool crosses = to < from + n && from < to + new_n;
	void *p;

	say("mremap arena page %u + %u to + %u FIXED at %u", from, n, new_n, to);
	unmapping();
	p = remap(from, n, new_n, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (crosses) {
		expect("mremap onto itself", (long)p, -EINVAL);
		return;
	}
	expect("mremap", (long)p, (long)(ARENA + (uint64_t)to * PAGE));
	model_move(from, n, to, new_n);
	unmapped();
}

/* A second mapping of the same pages. */
static void remap_copy(uint32_t from, uint32_t n)
{
	struct apage first = arena[from];
	uint32_t to = (uint32_t)below(set.npages - n);
	bool is_dontunmap = one_in(2), crosses = to < from + n && from < to + n;
	static uint32_t id = 1u << 31;
	void *p;

	if (crosses)
		return;
	say("mremap arena page %u + %u %s FIXED at %u", from, n, is_dontunmap ? "DONTUNMAP" : "from length 0", to);
	unmapping();
	p = remap(from, is_dontunmap ? n : 0, n, MREMAP_MAYMOVE | MREMAP_FIXED | (is_dontunmap ? MREMAP_DONTUNMAP : 0),
		  to);
	if (first.kind == PRIVATE && !is_dontunmap) {
		expect("mremap", (long)p, -EINVAL);
		return;
	}
	expect("mremap", (long)p, (long)(ARENA + (uint64_t)to * PAGE));
	first.id = ++id;
	model_map(to, n, &first);
	for (uint32_t i = 0; i < n; i++) { /* what a private mapping has of its own goes along */
		arena[to + i].own = arena[from + i].own;
		arena[from + i].own = NULL;
	}
	unmapped();
}

/* A part of a mapping shows other pages of its file. */
static void op_nonlinear(void)
{
	uint32_t pg = random_page(), n, pgoff = (uint32_t)below(one_in(2) ? 8 : set.npages);
	struct apage first;
	static uint32_t id = 3u << 30;

	if (pg == set.npages)
		return;
	n = (uint32_t)between(1, run_of(pg));
	first = arena[pg];
	say("remap_file_pages arena page %u + %u: %s page %u", pg, n, sh->f[first.file].name, pgoff);
	unmapping();
	if (first.kind == PRIVATE || !first.maywrite) {
		expect("remap_file_pages", remap_file_pages(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE, 0, pgoff, 0), -EINVAL);
		return;
	}
	expect("remap_file_pages", remap_file_pages(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE, 0, pgoff,
						    one_in(2) ? MAP_NONBLOCK : 0), 0);
	first.pgoff = pgoff;
	first.id = ++id;
	model_map(pg, n, &first);
	unmapped();
}

/* Locked, and not any more. */
static void op_lock(void)
{
	uint32_t pg = random_page(), n, i;
	uint8_t *at = ARENA + (uint64_t)pg * PAGE;
	unsigned char vec[256];
	bool on_fault = one_in(4);
	int want = 0;

	if (pg == set.npages || (arena[pg].kind == PRIVATE && (arena[pg].prot & PROT_WRITE))) /* which is filled with copies */
		return;
	n = (uint32_t)between(1, run_of(pg) < sizeof(vec) ? run_of(pg) : sizeof(vec));
	for (i = 0; i < n && !on_fault; i++)
		if (!can_touch(pg + i, false) && !can_touch(pg + i, true))
			want = -ENOMEM;
	say("mlock arena page %u + %u%s", pg, n, on_fault ? " on fault" : "");
	expect("mlock", mlock2(at, n * (size_t)PAGE, on_fault ? MLOCK_ONFAULT : 0), want);
	expect("msync", msync(at, n * (size_t)PAGE, MS_INVALIDATE), -EBUSY);
	expect("madvise", madvise(at, n * (size_t)PAGE, MADV_DONTNEED), -EINVAL);
	expect("mincore", mincore(at, n * (size_t)PAGE, vec), 0);
	for (i = 0; i < n && !on_fault && !want; i++)
		if (!(vec[i] & 1))
			mismatch("a locked page is not in memory: arena page %u", pg + i);
	expect("munlock", munlock(at, n * (size_t)PAGE), 0);
}

static void op_remap(void)
{
	uint32_t pg = random_page(), n, new_n;

	if (pg == set.npages)
		return;
	n = run_of(pg);
	if (n > 1 && one_in(2))
		n = (uint32_t)between(1, n);
	new_n = one_in(3) ? n : one_in(2) ? (uint32_t)between(1, n) : n + random_npages();
	if (new_n >= set.npages / 2)
		return;
	switch (below(4)) {
	case 0:
		remap_copy(pg, n);
		break;
	case 1:
		remap_fixed(pg, n, new_n);
		break;
	default:
		remap_free(pg, n, new_n);
	}
}

const struct op ops_remap[] = {
	{"remap", 25, op_remap}, {"nonlinear", 6, op_nonlinear}, {"lock", 6, op_lock},
	{NULL, 0, NULL},
};
