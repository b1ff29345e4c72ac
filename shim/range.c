/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "range.h"

_Atomic(uintptr_t) shim_hull_start = UINTPTR_MAX;
_Atomic(uintptr_t) shim_hull_stop;

#define MAX_PAGE 65536u /* a mapping ends with its last page: the hull may be wider, not narrower */

void shim_range_add(const void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + len + MAX_PAGE, seen;

	seen = atomic_load(&shim_hull_start);
	while (start < seen && !atomic_compare_exchange_weak(&shim_hull_start, &seen, start))
		;
	seen = atomic_load(&shim_hull_stop);
	while (stop > seen && !atomic_compare_exchange_weak(&shim_hull_stop, &seen, stop))
		;
}

bool shim_range_ask(const void *addr, size_t len)
{
	struct shim_scope s;
	bool managed;

	shim_enter(&s);
	managed = pol_addr_is_managed(addr, len);
	shim_leave(&s);
	return managed;
}
