/* SPDX-License-Identifier: MIT */
/* What files and mappings should be. */
#include "fsx.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct apage *arena;
bool stored_here[NFILES];

uint64_t npages_of(uint64_t size)
{
	return (size + PAGE - 1) / PAGE;
}

static unsigned index_of(const struct file *f)
{
	return (unsigned)(f - sh->f);
}

bool is_direct(const struct file *f)
{
	return !set.control || !f->live;
}

/* ---- a file ---- */

/* Long ranges go back to be holes: a sparse file's model is sparse. */
static void zero(uint8_t *p, uint64_t len)
{
	uint64_t head = -(uintptr_t)p % PAGE, body;

	if (len < 64 * PAGE || head >= len) {
		memset(p, 0, len);
		return;
	}
	body = (len - head) / PAGE * PAGE;
	memset(p, 0, head);
	if (madvise(p + head, body, MADV_REMOVE))
		memset(p + head, 0, body);
	memset(p + head + body, 0, len - head - body);
}

static void changed(struct file *f, uint64_t off, uint64_t len)
{
	if (len)
		memset(f->changed + off / PAGE, 1, npages_of(off + len) - off / PAGE);
	stored_here[index_of(f)] = true;
}

void model_write(struct file *f, uint64_t off, const void *buf, size_t len)
{
	if (!len)
		return;
	memcpy(f->cur + off, buf, len);
	if (off + len > f->size)
		f->size = off + len;
	if (is_direct(f)) {
		memcpy(f->com + off, buf, len);
		f->com_size = f->low = f->size;
	} else {
		changed(f, off, len);
	}
}

void model_zero(struct file *f, uint64_t off, uint64_t len)
{
	if (off >= f->size)
		return;
	len = len < f->size - off ? len : f->size - off;
	zero(f->cur + off, len);
	if (is_direct(f))
		zero(f->com + off, len);
	else
		changed(f, off, len);
}

/* Copies that a private mapping has of pages beyond the end are gone, too. */
static void drop_beyond_end(struct file *f)
{
	for (uint32_t pg = 0; pg < set.npages; pg++)
		if (arena[pg].own && &sh->f[arena[pg].file] == f && arena[pg].pgoff >= npages_of(f->size))
			drop_own(pg);
}

void model_resize(struct file *f, uint64_t size)
{
	uint64_t was = f->size;

	if (size == was)
		return;
	if (size < was)
		model_zero(f, size, was - size);
	f->size = size;
	if (size < was)
		drop_beyond_end(f);
	if (is_direct(f))
		f->com_size = f->low = size;
	else
		changed(f, size, 0);
	if (size < f->low)
		f->low = size;
}

static uint64_t npages_max(void)
{
	return npages_of(set.max_size) + MAX_IO / PAGE;
}

void model_commit(struct file *f)
{
	for (uint64_t pg = 0; pg < npages_max(); pg++)
		if (f->changed[pg])
			memcpy(f->com + pg * PAGE, f->cur + pg * PAGE, PAGE);
	memset(f->changed, 0, npages_max());
	f->com_size = f->low = f->size;
	f->unsure = false;
	stored_here[index_of(f)] = false;
}

void model_discard(struct file *f)
{
	uint64_t was = f->size;

	for (uint64_t pg = 0; pg < npages_max(); pg++)
		if (f->changed[pg])
			memcpy(f->cur + pg * PAGE, f->com + pg * PAGE, PAGE);
	memset(f->changed, 0, npages_max());
	f->size = f->low = f->com_size;
	if (f->size < was)
		drop_beyond_end(f);
	stored_here[index_of(f)] = false;
}

bool is_size_changed(const struct file *f)
{
	return f->size != f->com_size || f->low < f->com_size;
}

bool is_changed(const struct file *f)
{
	return is_size_changed(f) || memchr(f->changed, 1, npages_max());
}

void model_invalidate(struct file *f, uint64_t off, uint64_t len)
{
	uint64_t start = off / PAGE, stop = len ? npages_of(off + len) : npages_max(), end;
	uint8_t *p;

	if (stop > npages_max())
		stop = npages_max();
	for (uint64_t pg = start; pg < stop; pg++) {
		if (!f->changed[pg])
			continue;
		p = f->cur + pg * PAGE;
		memcpy(p, f->com + pg * PAGE, PAGE);
		/* beyond what was cut off, and beyond the end, there is nothing any more */
		end = f->low < f->size ? f->low : f->size;
		if (end < (pg + 1) * PAGE)
			memset(end > pg * PAGE ? p + end % PAGE : p, 0, end > pg * PAGE ? PAGE - end % PAGE : PAGE);
	}
	if (!off && !len && !is_size_changed(f))
		memset(f->changed, 0, npages_max());
	stored_here[index_of(f)] = false; /* perhaps: what this process stored may be what was dropped */
}

void model_outside_write(struct file *f, uint64_t off, const void *buf, size_t len)
{
	memcpy(f->com + off, buf, len);
	if (off + len > f->com_size)
		f->com_size = off + len;
	memset(f->changed + off / PAGE, 1, npages_of(off + len) - off / PAGE);
}

/* ---- the arena ---- */

static struct file *file_of(uint32_t pg)
{
	return &sh->f[arena[pg].file];
}

bool can_touch(uint32_t pg, bool write)
{
	const struct apage *a = &arena[pg];

	if (pg >= set.npages || a->kind == NOTHING || !(a->prot & (write ? PROT_WRITE : PROT_READ)))
		return false;
	return a->own || a->pgoff < npages_of(file_of(pg)->size);
}

bool is_mapped(uint32_t start, uint32_t n)
{
	for (uint32_t pg = start; pg < start + n; pg++)
		if (arena[pg].kind == NOTHING)
			return false;
	return true;
}

bool is_free(uint32_t start, uint32_t n)
{
	for (uint32_t pg = start; pg < start + n; pg++)
		if (arena[pg].kind != NOTHING)
			return false;
	return true;
}

uint32_t run_of(uint32_t pg)
{
	uint32_t n = 1;

	while (pg + n < set.npages && arena[pg + n].kind == arena[pg].kind && arena[pg + n].id == arena[pg].id &&
	       arena[pg + n].prot == arena[pg].prot && arena[pg + n].pgoff == arena[pg].pgoff + n)
		n++;
	return n;
}

unsigned nmapped(const struct file *f)
{
	unsigned n = 0;

	for (uint32_t pg = 0; pg < set.npages; pg++)
		n += arena[pg].kind != NOTHING && file_of(pg) == f;
	return n;
}

void drop_own(uint32_t pg)
{
	free(arena[pg].own);
	arena[pg].own = NULL;
}

void model_unmap(uint32_t start, uint32_t n)
{
	for (uint32_t pg = start; pg < start + n; pg++) {
		drop_own(pg);
		memset(&arena[pg], 0, sizeof(arena[pg]));
	}
}

void model_map(uint32_t start, uint32_t n, const struct apage *first)
{
	struct apage a = *first; /* it may lie in what is replaced */

	model_unmap(start, n);
	for (uint32_t i = 0; i < n; i++) {
		arena[start + i] = a;
		arena[start + i].own = NULL;
		a.pgoff++;
	}
}

void model_own(uint32_t pg)
{
	struct apage *a = &arena[pg];

	if (a->own || a->kind != PRIVATE)
		return;
	a->own = malloc(PAGE);
	if (!a->own)
		abort();
	memcpy(a->own, file_of(pg)->cur + (uint64_t)a->pgoff * PAGE, PAGE);
}

/* Does one of the pages [first, pg) show the same page of a file? Then what a store leaves depends on its
 * order. */
static bool is_alias(uint32_t first, uint32_t pg)
{
	for (uint32_t i = first; i < pg; i++)
		if ((arena[i].kind == SHARED || arena[pg].kind == SHARED) && arena[i].file == arena[pg].file &&
		    arena[i].pgoff == arena[pg].pgoff)
			return true;
	return false;
}

size_t touchable(uint64_t off, size_t len, bool write)
{
	size_t done = 0, n;

	while (done < len) {
		uint32_t pg = (uint32_t)((off + done) / PAGE);
		uint64_t at = (off + done) % PAGE, end = PAGE;

		if (!can_touch(pg, write) || (write && is_alias((uint32_t)(off / PAGE), pg)))
			break;
		if ((arena[pg].pgoff + 1) * (uint64_t)PAGE > file_of(pg)->size) {
			end = arena[pg].pgoff < npages_of(file_of(pg)->size) ? file_of(pg)->size % PAGE : 0;
			if (at >= end)
				break;
		}
		n = end - at < len - done ? end - at : len - done;
		done += n;
		if (end < PAGE)
			break;
	}
	return done;
}

/* fn for each piece of the arena's bytes that lies within one page. */
static void pieces(uint64_t off, uint8_t *buf, size_t len, void (*fn)(uint32_t pg, size_t at, uint8_t *buf, size_t n))
{
	while (len) {
		size_t n = PAGE - off % PAGE < len ? PAGE - off % PAGE : len;

		fn((uint32_t)(off / PAGE), off % PAGE, buf, n);
		off += n;
		buf += n;
		len -= n;
	}
}

static void load_piece(uint32_t pg, size_t at, uint8_t *buf, size_t n)
{
	const struct apage *a = &arena[pg];

	memcpy(buf, (a->own ? a->own : file_of(pg)->cur + (uint64_t)a->pgoff * PAGE) + at, n);
}

static void store_piece(uint32_t pg, size_t at, uint8_t *buf, size_t n)
{
	struct apage *a = &arena[pg];

	if (a->kind == SHARED) {
		model_write(file_of(pg), (uint64_t)a->pgoff * PAGE + at, buf, n);
		return;
	}
	model_own(pg);
	memcpy(a->own + at, buf, n);
}

void model_load(uint64_t off, void *buf, size_t len)
{
	pieces(off, buf, len, load_piece);
}

void model_store(uint64_t off, const void *buf, size_t len)
{
	pieces(off, (uint8_t *)buf, len, store_piece);
}

bool overlaps(uint64_t aoff, size_t alen, const struct file *f, uint64_t off, size_t len)
{
	for (uint32_t pg = (uint32_t)(aoff / PAGE); pg < npages_of(aoff + alen) && pg < set.npages; pg++)
		if (arena[pg].kind != NOTHING && file_of(pg) == f && (arena[pg].pgoff + 1) * (uint64_t)PAGE > off &&
		    (uint64_t)arena[pg].pgoff * PAGE < off + len)
			return true;
	return false;
}

uint32_t random_page(void)
{
	uint32_t pg = (uint32_t)below(set.npages);

	for (uint32_t i = 0; i < set.npages; i++, pg = (pg + 1) % set.npages)
		if (arena[pg].kind != NOTHING)
			return (uint32_t)(pg + below(one_in(4) ? run_of(pg) : 1 + run_of(pg) / 2));
	return set.npages;
}
