/* SPDX-License-Identifier: MIT */
#include "reader.h"

#define XXH_INLINE_ALL
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER 512u
#define FRAME  128u
#define START  8192u
#define SECTOR 512u
#define MIB    (1u << 20)

static uint64_t u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static bool has_magic(const uint8_t *slot)
{
	return !memcmp(slot, "\nTXJRNL1", 8);
}

static bool is_valid_slot(const uint8_t *slot)
{
	uint8_t copy[HEADER];

	memcpy(copy, slot, HEADER);
	memset(copy + 16, 0, 8);
	return has_magic(slot) && u64(slot + 16) == XXH3_64bits(copy, HEADER);
}

static bool is_frame_header(const uint8_t *bytes, uint64_t off)
{
	const uint8_t *f = bytes + off;

	return !memcmp(f, "\4TXFRAME", 8) && u64(f + 24) == off && u32(f + 88) <= MIB &&
	       u64(f + 120) == XXH3_64bits(f, 120);
}

static uint64_t space_of(const uint8_t *f)
{
	return (FRAME + (uint64_t)u32(f + 88) + SECTOR - 1) / SECTOR * SECTOR;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* Does a frame from off on prove that commit seq was durable, or that there was a newer header? */
static bool is_proven(const struct reader *r, const uint8_t *bytes, uint64_t off, size_t len, uint64_t seq)
{
	for (; off + FRAME <= len; off += SECTOR) {
		const uint8_t *f = bytes + off;

		if (is_frame_header(bytes, off) &&
		    (u64(f + 8) > r->generation ||
		     (u64(f + 8) == r->generation && u64(f + 16) == r->salt && u64(f + 48) >= seq)))
			return true;
	}
	return false;
}

static struct reader_file *file_of(struct reader *r, uint32_t number)
{
	size_t i = 0;

	while (i < r->nfiles && r->file[i].number != number)
		i++;
	if (i == READER_RUNS)
		abort();
	if (i == r->nfiles)
		r->file[r->nfiles++] = (struct reader_file){.number = number};
	return &r->file[i];
}

/* A run of a group: is it one that a writer would write? */
static bool note_run(struct reader *r, const uint8_t *run, uint64_t off, uint32_t len, uint64_t seq)
{
	uint32_t kind = u32(run + 12) & 255, number = u32(run + 12) >> 8;
	struct reader_file *f;

	if (!number || number >= 65536)
		return false;
	f = file_of(r, number);
	switch (kind) {
	case 0:
	case 1:
		f->bytes_seq = seq;
		return true;
	case 2:
		if (len != 8 || f->size_seq == seq || u64(run + 16) > off)
			return false;
		f->size_seq = seq;
		return true;
	case 4:
		if (off || len < 34 || strnlen((const char *)run + 48, len - 32) != len - 33)
			return false;
		f->is_named = true;
		return true;
	default:
		return false;
	}
}

/* The frame's runs behind those that there are. */
static bool take_runs(struct reader *r, const uint8_t *f)
{
	const uint8_t *p = f + FRAME, *stop = p + u32(f + 88);

	while (p < stop) {
		uint32_t flags;
		struct reader_run run;

		if (stop - p < 16)
			return false;
		flags = u32(p + 12);
		run = (struct reader_run){.file = flags >> 8,
					  .base = flags & 1,
					  .is_size = flags & 2,
					  .off = u64(p),
					  .len = u32(p + 8),
					  .bytes = p + 16};
		if (run.len > (uint64_t)(stop - p) - 16 || run.off > (uint64_t)INT64_MAX - run.len)
			return false;
		if (r->kind == READER_GROUP ? !note_run(r, p, run.off, (uint32_t)run.len, u64(f + 40))
					    : flags > 1)
			return false;
		p += 16 + run.len;
		if (run.is_size)
			run.len = u64(run.bytes);
		if ((!run.len && !run.is_size) || flags & 4)
			continue;
		if (r->nruns == READER_RUNS)
			abort();
		r->run[r->nruns++] = run;
	}
	return true;
}

/* Has each file of the commit that has bytes in it a name, and in this commit a size? */
static bool is_whole(const struct reader *r, uint64_t seq)
{
	for (size_t i = 0; i < r->nfiles; i++)
		if (r->file[i].bytes_seq == seq && (!r->file[i].is_named || r->file[i].size_seq != seq))
			return false;
	return true;
}

static bool is_good_end(const struct reader *r, const uint8_t *f)
{
	uint64_t size = u64(f + 72), cut = u64(f + 80);

	if (r->kind == READER_GROUP)
		return !size && !cut && is_whole(r, u64(f + 40));
	return size <= (uint64_t)INT64_MAX && cut <= size;
}

static void read_frames(struct reader *r, const uint8_t *bytes, size_t len)
{
	uint64_t off = START, prev = r->salt;
	size_t first = 0;

	r->end = off;
	while (off < len) {
		const uint8_t *f = bytes + off;
		bool is_commit;

		if (!is_frame_header(bytes, off) || u64(f + 96) != XXH3_64bits(f + FRAME, u32(f + 88)) ||
		    u64(f + 8) != r->generation || u64(f + 16) != r->salt || u64(f + 32) != prev ||
		    u64(f + 40) != r->ncommits + 1)
			break;
		is_commit = u32(f + 92) & 1;
		if (!take_runs(r, f) || (is_commit && !is_good_end(r, f))) {
			r->state = READER_DAMAGED; /* it verifies, and makes no sense */
			return;
		}
		off += space_of(f);
		prev = u64(f + 120);
		if (!is_commit)
			continue;
		r->commit[r->ncommits++] = (struct reader_commit){u64(f + 80), u64(f + 72), u32(f + 92) & 2,
								  first, r->nruns - first};
		first = r->nruns;
		r->end = off;
		r->size = u64(f + 72);
		r->last_txid = u64(f + 64);
	}
	r->state = is_proven(r, bytes, off, len, r->ncommits + 1) ? READER_DAMAGED
		   : r->ncommits				  ? READER_COMMITS
								  : READER_EMPTY;
}

/* The record of a stub, which says where its group's journal is. */
static bool is_stub_record(const uint8_t *f)
{
	uint32_t len = u32(f + 88);

	return !memcmp(f, "\4TXGROUP", 8) && u64(f + 24) == START && u64(f + 120) == XXH3_64bits(f, 120) &&
	       len >= 2 && len <= 4096 && u64(f + 96) == XXH3_64bits(f + FRAME, len) &&
	       strnlen((const char *)f + FRAME, len) == len - 1;
}

/* 1: of one file; 2: a group's, or a member's stub. */
static bool is_known(const uint8_t *slot)
{
	uint32_t version = u32(slot + 8), kind = u32(slot + 336);

	return version == 1 ? kind == READER_ONE
			    : version == 2 && (kind == READER_GROUP || kind == READER_STUB);
}

static void read_headless(struct reader *r, const uint8_t *bytes, size_t len)
{
	const uint8_t *slot[2] = {bytes, bytes + 4096};
	bool never = is_zero(slot[0], HEADER) && is_zero(slot[1], HEADER);

	/* any frame header that verifies: an older one is newer than no header at all */
	if (is_proven(r, bytes, START, len, 0) || (!never && is_stub_record(bytes + START)))
		r->state = READER_DAMAGED;
	else if (never || has_magic(slot[0]) || has_magic(slot[1]) ||
		 (len < 8 && !memcmp(bytes, "\nTXJRNL1", len)))
		r->state = READER_EMPTY;
	else
		r->state = READER_FOREIGN;
}

void reader_read(struct reader *r, const uint8_t *bytes, size_t len)
{
	const uint8_t *best = NULL;

	memset(r, 0, offsetof(struct reader, commit));
	r->nruns = r->nfiles = 0;
	for (const uint8_t *slot = bytes; slot <= bytes + 4096; slot += 4096) {
		if (!is_valid_slot(slot))
			continue;
		if (!is_known(slot)) {
			r->state = READER_FOREIGN;
			return;
		}
		if (!best || u64(slot + 24) > u64(best + 24))
			best = slot;
	}
	if (!best || (len < START && u32(best + 336) != READER_STUB)) {
		read_headless(r, bytes, len);
		return;
	}
	r->has_header = true;
	r->generation = u64(best + 24);
	r->salt = u64(best + 32);
	r->dev = u64(best + 48);
	r->ino = u64(best + 56);
	r->igen = u64(best + 64);
	r->size = u64(best + 72);
	r->kind = (enum reader_kind)u32(best + 336);
	r->group = u64(best + 344);
	if (r->kind != READER_STUB)
		read_frames(r, bytes, len);
	else
		r->state = is_stub_record(bytes + START) && u64(bytes + START + 16) == r->group
				   ? READER_MEMBER
				   : READER_DAMAGED;
}

/* [start, stop) of the file is bytes, NULL: zeros. */
static void put(uint64_t off, uint8_t *buf, uint64_t start, uint64_t stop, const uint8_t *bytes)
{
	for (uint64_t at = start > off ? start : off; at < stop && at < off + 4096; at++)
		buf[at - off] = bytes ? bytes[at - start] : 0;
}

/* Does the commit give the file a size? */
static bool find_size(const struct reader *r, const struct reader_commit *c, uint32_t file, uint64_t *size,
		      uint64_t *cut)
{
	if (r->kind == READER_ONE) {
		*size = c->size;
		*cut = c->cut;
		return true;
	}
	for (size_t k = c->first; k < c->first + c->nruns; k++) {
		if (r->run[k].file == file && r->run[k].is_size) {
			*size = r->run[k].off;
			*cut = r->run[k].len;
			return true;
		}
	}
	return false;
}

void reader_replay(const struct reader *r, uint32_t file, uint64_t off, uint8_t *buf, uint64_t *size)
{
	for (uint64_t i = 0; i < r->ncommits; i++) {
		const struct reader_commit *c = &r->commit[i];
		uint64_t cut;

		if (!find_size(r, c, file, size, &cut))
			continue;
		put(off, buf, cut, UINT64_MAX, NULL);
		for (int base = c->has_base; base >= 0; base--) {
			for (size_t k = c->first; k < c->first + c->nruns; k++) {
				const struct reader_run *run = &r->run[k];
				uint64_t stop = run->off + run->len;

				if (run->file == file && !run->is_size && run->base == base)
					put(off, buf, run->off, stop < *size ? stop : *size, run->bytes);
			}
		}
	}
}
