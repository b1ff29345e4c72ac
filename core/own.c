/* SPDX-License-Identifier: MIT */
/*
 * Where our own memory lies. The kernel would put it into the holes that a program makes in its mappings, and
 * a program that unmaps a part and later, in one call, all of it, would unmap ours, too. So it is kept
 * together in a place of its own, far below where the kernel goes on: an address hint, no more.
 */
#include "vm_backend.h"
#include "vm_sys.h"
#include <sys/mman.h>

#define AWAY   (64ul << 30) /* from what the kernel gives first */
#define WINDOW (32ul << 30) /* then it starts over */

static uintptr_t used; /* (atomic) */

/* The kernel puts libraries where it begins, and we are in one. */
static void *place(size_t len)
{
	const size_t align = VM_BLKSIZE; /* neighbours become one mapping to the kernel */
	uintptr_t here = (uintptr_t)&used;

	len = (len + align - 1) & ~(align - 1);
	if (here < 2 * AWAY || len > WINDOW / 4)
		return NULL;
	here = (here - AWAY) & ~(align - 1);
	return (void *)(here + __atomic_fetch_add(&used, len, __ATOMIC_RELAXED) % (WINDOW - WINDOW / 4));
}

void *vm_own_map(size_t len, int prot, int flags, int fd, off_t off)
{
	return vm_sys->mmap(place(len), len, prot, flags, fd, off);
}

void *vm_own_grow(void *p, size_t len, size_t new_len)
{
	void *to = vm_own_map(new_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (vm_sys_err(to))
		return to;
	p = vm_sys->mremap(p, len, new_len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (vm_sys_err(p))
		(void)vm_sys->munmap(to, new_len); /* just made */
	return p;
}
