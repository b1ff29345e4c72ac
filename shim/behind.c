/* SPDX-License-Identifier: MIT */
/* Other preloads between us and libc: calls of ours that are libc's to do go through them. One that does its
 * work by syscall(2) would come back to us with it, and for ever. */
#define _GNU_SOURCE 1
#include "real.h"
#include <dlfcn.h>
#include <link.h>

#define MAX 8u

struct span {
	uintptr_t start, stop;
};
static struct span libc, behind[MAX];
static unsigned nbehind;

static bool is_in(const struct span *s, uintptr_t addr)
{
	return s->start <= addr && addr < s->stop;
}

/* In: one address; out: the object around it. */
static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct span *s = arg, all = {UINTPTR_MAX, 0};

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		all.start = start < all.start ? start : all.start;
		all.stop = start + info->dlpi_phdr[i].p_memsz > all.stop ? start + info->dlpi_phdr[i].p_memsz
									 : all.stop;
	}
	if (!is_in(&all, s->start))
		return 0;
	*s = all;
	return 1;
}

static struct span object_of(const void *fn)
{
	struct span s = {(uintptr_t)fn, 0};

	(void)dl_iterate_phdr(find, &s); /* not found: empty */
	return s;
}

void shim_behind_note(const void *fn)
{
	uintptr_t addr = (uintptr_t)fn;

	if (!libc.stop)
		libc = object_of(dlsym(RTLD_NEXT, "gnu_get_libc_version"));
	if (is_in(&libc, addr) || shim_is_behind(fn) || nbehind + 2 > MAX)
		return;
	if (!nbehind)
		behind[nbehind++] =
			object_of(&behind); /* ours: one that jumps to syscall is not seen itself */
	behind[nbehind++] = object_of(fn);
}

bool shim_is_in_us(const void *fn)
{
	static struct span us;

	if (!us.stop)
		us = object_of(&behind);
	return is_in(&us, (uintptr_t)fn);
}

bool shim_is_in_libc(const void *fn)
{
	return is_in(&libc, (uintptr_t)fn);
}

bool shim_is_behind(const void *caller)
{
	for (unsigned i = 0; i < nbehind; i++)
		if (is_in(&behind[i], (uintptr_t)caller))
			return true;
	return false;
}
