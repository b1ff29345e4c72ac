/* SPDX-License-Identifier: MIT */
/* Is an address ours? Asked before nearly every call, so most answers come from the hull of all that was ever
 * mapped, without a lock; only within it policy is asked, and that has to be entered. */
#ifndef SHIM_RANGE_H
#define SHIM_RANGE_H

#include "enter.h"

extern _Atomic(uintptr_t) shim_hull_start, shim_hull_stop;

/* Policy placed a mapping here. */
void shim_range_add(const void *addr, size_t len);
/* The slow half of shim_range_is_managed. */
bool shim_range_ask(const void *addr, size_t len);

/* Does [addr, addr + len) touch a managed mapping? Not entered; errno untouched. */
static inline bool shim_range_is_managed(const void *addr, size_t len)
{
	uintptr_t a = (uintptr_t)addr;

	if (!len || a >= atomic_load_explicit(&shim_hull_stop, memory_order_relaxed))
		return false;
	if (a + len > a && a + len <= atomic_load_explicit(&shim_hull_start, memory_order_relaxed))
		return false;
	return shim_range_ask(addr, len);
}

#endif
