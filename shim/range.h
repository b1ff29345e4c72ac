/* SPDX-License-Identifier: MIT */
/*
 * Is an address ours? Asked before nearly every call, so most answers come from the spans in which something
 * was ever mapped, without a lock; only within one policy is asked, and that has to be entered.
 */
#ifndef SHIM_RANGE_H
#define SHIM_RANGE_H

#include "enter.h"

#define SHIM_NSPANS 16u /* the last one takes in all that finds no place */

/* [start, stop); they only grow. */
struct shim_span {
	_Atomic(uintptr_t) start, stop;
};
extern struct shim_span shim_spans[SHIM_NSPANS];
extern atomic_uint shim_nspans;

/* Policy placed a mapping here. */
void shim_range_add(const void *addr, size_t len);
/* The slow half of shim_range_is_managed. */
bool shim_range_ask(uintptr_t start, size_t len);

/* Can [addr, addr + len) touch a managed mapping? No more than a guess; no work, in no context wrong. */
static inline bool shim_range_is_near(const void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + len < start ? UINTPTR_MAX : start + len;
	unsigned i, n = atomic_load_explicit(&shim_nspans, memory_order_acquire);

	for (i = 0; i < n; i++)
		if (start < atomic_load_explicit(&shim_spans[i].stop, memory_order_relaxed) &&
		    stop > atomic_load_explicit(&shim_spans[i].start, memory_order_relaxed))
			return len;
	return false;
}

/* Does [addr, addr + len) touch a managed mapping? Not entered; errno untouched. */
static inline bool shim_range_is_managed(const void *addr, size_t len)
{
	return shim_range_is_near(addr, len) && shim_range_ask((uintptr_t)addr, len);
}

#endif
