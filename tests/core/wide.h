/* SPDX-License-Identifier: MIT */
/* A file that a commit copies in three steps, so that another process can do a thing between two of them. */
#ifndef WIDE_H
#define WIDE_H

#include "board.h"

enum { WIDE = 2 * VM_BATCH_NPAGES + 10, LAST = WIDE - 1 };

static inline char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

/* Every page of it is stored into, and not committed. */
static inline char *open_and_fill(struct rig *r)
{
	char *m;

	clear_board();
	rig_open(r, WIDE * VM_PAGE);
	m = rig_map(r->h, 0, WIDE);
	for (uint64_t pg = 0; pg < WIDE; pg++)
		rig_store8(at(m, pg), 9);
	return m;
}

#endif
