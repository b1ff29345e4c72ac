/* SPDX-License-Identifier: MIT */
#include "reader.h"

#define XXH_INLINE_ALL
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

/* The frame's runs behind those that there are. */
static bool take_runs(struct reader *r, const uint8_t *f)
{
	const uint8_t *p = f + FRAME, *stop = p + u32(f + 88);

	while (p < stop) {
		struct reader_run run;

		if (stop - p < 16)
			return false;
		run = (struct reader_run){u64(p), u32(p + 8), p + 16, u32(p + 12) & 1};
		p += 16;
		if (run.len > (uint64_t)(stop - p) || run.off > (uint64_t)INT64_MAX - run.len)
			return false;
		p += run.len;
		if (r->nruns == READER_RUNS)
			abort();
		if (run.len)
			r->run[r->nruns++] = run;
	}
	return true;
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
		if (!take_runs(r, f) ||
		    (is_commit && (u64(f + 72) > (uint64_t)INT64_MAX || u64(f + 80) > u64(f + 72)))) {
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

void reader_read(struct reader *r, const uint8_t *bytes, size_t len)
{
	const uint8_t *slot[2] = {bytes, bytes + 4096}, *best = NULL;

	r->generation = r->salt = r->dev = r->ino = r->igen = 0;
	r->ncommits = r->end = r->size = r->last_txid = r->nruns = 0;
	for (int i = 0; i < 2; i++) {
		if (!is_valid_slot(slot[i]))
			continue;
		if (u32(slot[i] + 8) != 1) {
			r->state = READER_FOREIGN;
			return;
		}
		if (!best || u64(slot[i] + 24) > u64(best + 24))
			best = slot[i];
	}
	if (!best || len < START) {
		/* any frame header that verifies: an older one is newer than no header at all */
		r->state = is_proven(r, bytes, START, len, 0) ? READER_DAMAGED
			   : has_magic(slot[0]) || has_magic(slot[1]) ||
					   (len < 8 && !memcmp(bytes, "\nTXJRNL1", len)) ||
					   (is_zero(slot[0], HEADER) && is_zero(slot[1], HEADER))
				   ? READER_EMPTY
				   : READER_FOREIGN;
		return;
	}
	r->generation = u64(best + 24);
	r->salt = u64(best + 32);
	r->dev = u64(best + 48);
	r->ino = u64(best + 56);
	r->igen = u64(best + 64);
	r->size = u64(best + 72);
	read_frames(r, bytes, len);
}

/* [start, stop) of the file is bytes, NULL: zeros. */
static void put(uint64_t off, uint8_t *buf, uint64_t start, uint64_t stop, const uint8_t *bytes)
{
	for (uint64_t at = start > off ? start : off; at < stop && at < off + 4096; at++)
		buf[at - off] = bytes ? bytes[at - start] : 0;
}

void reader_replay(const struct reader *r, uint64_t off, uint8_t *buf)
{
	for (uint64_t i = 0; i < r->ncommits; i++) {
		const struct reader_commit *c = &r->commit[i];

		put(off, buf, c->cut, UINT64_MAX, NULL);
		for (int base = c->has_base; base >= 0; base--) {
			for (size_t k = c->first; k < c->first + c->nruns; k++) {
				const struct reader_run *run = &r->run[k];
				uint64_t stop = run->off + run->len;

				if (run->base == base)
					put(off, buf, run->off, stop < c->size ? stop : c->size, run->bytes);
			}
		}
	}
}
