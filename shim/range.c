/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "range.h"

struct shim_span shim_spans[SHIM_NSPANS] = {[0 ... SHIM_NSPANS - 1] = {.start = UINTPTR_MAX}};
atomic_uint shim_nspans;

#define MAX_PAGE 65536u /* a mapping ends with its last page: a span may be wider, not narrower */

static void widen(struct shim_span *s, uintptr_t start, uintptr_t stop)
{
	uintptr_t seen = atomic_load(&s->stop);

	while (stop > seen && !atomic_compare_exchange_weak(&s->stop, &seen, stop))
		;
	seen = atomic_load(&s->start);
	while (start < seen && !atomic_compare_exchange_weak(&s->start, &seen, start))
		;
}

void shim_range_add(const void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + len + MAX_PAGE;
	unsigned i, n = atomic_load(&shim_nspans);

	for (i = 0; i < n; i++)
		if (start <= atomic_load(&shim_spans[i].stop) && stop >= atomic_load(&shim_spans[i].start)) {
			widen(&shim_spans[i], start, stop);
			return;
		}
	while (n < SHIM_NSPANS && !atomic_compare_exchange_weak(&shim_nspans, &n, n + 1))
		;
	widen(&shim_spans[n < SHIM_NSPANS ? n : SHIM_NSPANS - 1], start, stop);
}

bool shim_range_ask(uintptr_t start, size_t len)
{
	struct shim_scope s;
	bool managed;

	shim_enter(&s);
	managed = pol_addr_is_managed((void *)start, len);
	shim_leave(&s);
	return managed;
}
