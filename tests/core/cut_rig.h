/* SPDX-License-Identifier: MIT */
/* Stores in order, and what the kernel is left with after a cut. */
#ifndef CUT_RIG_H
#define CUT_RIG_H

#include "rig.h"

static inline void put_release(void *p, uint64_t value)
{
	__atomic_store_n((uint64_t *)p, value, __ATOMIC_RELEASE);
}

/* Calls fn for the kernel's mappings that lie in [m, m + npages). Returns how many there are. */
static inline unsigned for_each_kernel_mapping(const char *m, uint64_t npages, void (*fn)(const char *perms))
{
	FILE *s = fopen("/proc/self/maps", "re");
	unsigned long start, stop_addr;
	char line[512], perms[8];
	unsigned n = 0;

	assert_non_null(s);
	while (fgets(line, sizeof(line), s)) {
		assert_int_equal(sscanf(line, "%lx-%lx %7s", &start, &stop_addr, perms), 3);
		if (stop_addr <= (uintptr_t)m || start >= (uintptr_t)m + npages * VM_PAGE)
			continue;
		fn(perms);
		n++;
	}
	(void)fclose(s);
	return n;
}

static inline void must_be_rw(const char *perms)
{
	if (rig_is_uffd())
		assert_string_equal(perms, "rw-s");
	else /* what was not stored into since is watched */
		assert_memory_equal(perms, "r", 1);
}

/* Nothing stays frozen. */
static inline void check_protections(const char *m, uint64_t npages)
{
	unsigned n = for_each_kernel_mapping(m, npages, must_be_rw);

	if (rig_is_uffd())
		assert_int_equal(n, 1);
}

#endif
