/* SPDX-License-Identifier: MIT */
/* Processes that have a handle together by fork. In a child nothing is asserted: it tells by its exit status. */
#ifndef FORK_RIG_H
#define FORK_RIG_H

#include "rig.h"

enum { NPAGES = 64 };

static inline char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static inline char *open_and_map(struct rig *r)
{
	rig_open(r, NPAGES * VM_PAGE);
	return rig_map(r->h, 0, NPAGES);
}

/* Pages whose first byte is not what the file holds. */
static inline int nwrong(char *m)
{
	int n = 0;

	for (uint64_t pg = 0; pg < NPAGES; pg++)
		n += (uint8_t)rig_load8(at(m, pg)) != rig_byte(pg);
	return n;
}

static inline void wait_for_word(int fd)
{
	char byte;

	while (vm_sys->read(fd, &byte, 1) == -EINTR)
		;
}

#endif
