/* SPDX-License-Identifier: MIT */
/* One view of a file, and its users. */
#ifndef USE_RIG_H
#define USE_RIG_H

#include "rig.h"

#define RW (PROT_READ | PROT_WRITE)

static struct vm_view view;
static unsigned ngone;

static inline void gone(struct vm_view *v)
{
	assert_ptr_equal(v, &view);
	ngone++;
}

static inline void open_view(struct rig *r, size_t len, uint64_t off)
{
	ngone = 0;
	assert_int_equal(vm_view_open(&view, r->h, len, RW, MAP_SHARED, off, gone), 0);
}

static inline char *enter(size_t *ret_len)
{
	void *addr;
	size_t len;

	assert_int_equal(vm_view_enter(&view, &addr, &len), 0);
	if (ret_len)
		*ret_len = len;
	return addr;
}

static inline void leave(void)
{
	assert_int_equal(vm_view_leave(&view), 0);
}

static inline char *export(void)
{
	void *addr;
	size_t len;

	assert_int_equal(vm_view_export(&view, &addr, &len), 0);
	return addr;
}

static inline int try_enter(void)
{
	void *addr;
	size_t len;

	return vm_view_enter(&view, &addr, &len);
}

static inline int try_export(void)
{
	void *addr;
	size_t len;

	return vm_view_export(&view, &addr, &len);
}

static inline int resize(uint64_t npages)
{
	return vm_view_resize(&view, npages * VM_PAGE, 0, NULL);
}

static inline size_t len_of_view(void)
{
	size_t len;

	(void)enter(&len);
	leave();
	return len;
}

/* Nothing of ours, nor anything else, can be put right behind the view: it cannot grow where it is. */
static inline void *wall(void)
{
	char *at = (char *)view.addr + view.maplen;
	void *p = mmap(at, VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_true(p == at || (p == MAP_FAILED && errno == EEXIST)); /* something else does as well */
	return p == MAP_FAILED ? NULL : p;
}

static inline void unwall(void *p)
{
	if (p)
		assert_int_equal(munmap(p, VM_PAGE), 0);
}

/* Room behind the view: it can. The view lies in a place that was wide enough. */
static inline void open_view_with_room(struct rig *r, uint64_t npages, uint64_t npages_room)
{
	char *place =
		mmap(NULL, (npages + npages_room) * VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	assert_ptr_not_equal(place, MAP_FAILED);
	open_view(r, npages * VM_PAGE, 0);
	assert_int_equal(
		vm_remap(view.addr, view.maplen, view.maplen, MREMAP_MAYMOVE | MREMAP_FIXED, place, &p), 0);
	view.addr = place;
	rig_store8(place, rig_load8(place)); /* what core maps for its first store must not take the room */
	if (npages_room)
		assert_int_equal(munmap(place + npages * VM_PAGE, npages_room * VM_PAGE), 0);
}

static inline int unmapped_all(const char *p, uint64_t npages)
{
	unsigned char in[64];

	for (uint64_t i = 0; i < npages; i++)
		if (!mincore((void *)(p + i * VM_PAGE), VM_PAGE, in) || errno != ENOMEM)
			return 0;
	return 1;
}

#endif
