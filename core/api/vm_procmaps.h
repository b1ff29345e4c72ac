/* SPDX-License-Identifier: MIT */
/* What the kernel has mapped: /proc/self/maps. Slow; for what cannot be known otherwise. */
#ifndef VM_PROCMAPS_H
#define VM_PROCMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vm_procmap {
	uintptr_t start, stop;
	int prot;
	bool shared;
	uint64_t off;
	dev_t dev; /* of the file, and its inode; ino 0: none */
	ino_t ino;
};

/* Calls fn for every mapping of the process, by address. 0 or -errno. */
int vm_procmaps_for_each(void (*fn)(const struct vm_procmap *m, void *arg), void *arg);

#endif
