/* SPDX-License-Identifier: MIT */
/* Between drop.c and invalidate.c: pages go. */
#ifndef VM_DROP_H
#define VM_DROP_H

#include "internal.h"

/* What is to go, and what the handle is afterwards. */
struct vm_plan {
	uint64_t start, stop;  /* [start, stop) pgoff */
	bool clean, dirty;     /* pages in these states go */
	bool empty;	       /* and what may be where none was loaded: the mark of a load that failed */
	bool fail_on_dirty;    /* -EBUSY when a page of the range is dirty */
	uint64_t clean_from;   /* pages from here on go, clean as they may be */
	uint64_t size;	       /* new size */
	uint64_t storage_size; /* the storage's, when whole */
	bool whole;	       /* storage and handle agree on the size afterwards */
	uint64_t ndirty;	/* when whole: dirty pages that go, as it turned out */
	const struct vm_held *held;    /* what others committed goes, too, when it is clean; or NULL */
	bool overwrite;		       /* what is not clean of that stays, else -EBUSY ... */
	struct vm_commit_result *kept; /* ... and is told here */
	bool own_size_stays; /* it is not the storage's afterwards, and beyond ctl->size_low that is gone */
};

/* Carry out the plan, as one instant for the program. Busy, no lock held; the gate stays closed. */
int vm_drop_pages(struct vm_fileh *h, struct vm_plan *p, uint64_t *npages);

#endif
