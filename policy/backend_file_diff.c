/* SPDX-License-Identifier: MIT */
/* Changed byte runs between two states of some blocks. */
#include "backend_file.h"

#include <string.h>

#define MERGE_GAP 32u /* a gap shorter than this costs less than another run */
#define MAX_RUNS  8u  /* in a block; with more, and with more changed than this, the block is taken whole */
#define MOST	  (VM_BLKSIZE - VM_BLKSIZE / 4)

struct span {
	size_t start, stop;
};

static bool word_differs(const uint8_t *a, const uint8_t *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x != y;
}

/* Changed spans of one block; returns how many, at most MAX_RUNS. */
static unsigned diff_block(const uint8_t *a, const uint8_t *b, struct span *s)
{
	unsigned n = 0;
	size_t changed = 0;

	if (!memcmp(a, b, VM_BLKSIZE))
		return 0;
	for (size_t i = 0; i < VM_BLKSIZE; i += 8) {
		size_t start = i, stop = i + 8;

		if (!word_differs(a + i, b + i))
			continue;
		while (start < stop && a[start] == b[start])
			start++;
		while (stop > start && a[stop - 1] == b[stop - 1])
			stop--;
		if (start == stop) /* it changed back while we looked; it is stored again if that matters */
			continue;
		if (n && start - s[n - 1].stop < MERGE_GAP) {
			changed += stop - s[n - 1].stop;
			s[n - 1].stop = stop;
		} else if (n < MAX_RUNS) {
			changed += stop - start;
			s[n++] = (struct span){start, stop};
		} else {
			changed = VM_BLKSIZE;
		}
		if (changed > MOST) {
			s[0] = (struct span){0, VM_BLKSIZE};
			return 1;
		}
	}
	return n;
}

int pol_file_add_changes(struct vm_journal *j, uint32_t number, uint64_t off, const uint8_t *committed,
			 const uint8_t *now, size_t len)
{
	uint32_t flags = number << VM_RUN_FILE_SHIFT;
	struct span open = {0, 0};

	for (size_t blk = 0; blk < len; blk += VM_BLKSIZE) {
		struct span s[MAX_RUNS];
		unsigned n = diff_block(committed + blk, now + blk, s);

		for (unsigned i = 0; i < n; i++) {
			size_t start = blk + s[i].start, stop = blk + s[i].stop;

			if (open.stop > open.start && start - open.stop < MERGE_GAP) {
				open.stop = stop;
				continue;
			}
			if (open.stop > open.start) {
				int err = vm_journal_add(j, off + open.start, now + open.start,
							 open.stop - open.start, flags);
				if (err)
					return err;
			}
			open = (struct span){start, stop};
		}
	}
	if (open.stop == open.start)
		return 0;
	return vm_journal_add(j, off + open.start, now + open.start, open.stop - open.start, flags);
}
