/* SPDX-License-Identifier: MIT */
/*
 * Loads and stores by pointers that only the kernel would have looked at: a bad one is EFAULT, not the end of
 * the program. They are made by code whose faults the signal handler knows, as the kernel does it for its
 * own. Pages of ours are loaded, or made writable, by the touch, as for any code; so nothing here may run
 * between shim_enter and shim_leave, or under a lock.
 *
 * Only while a file is live: then the handler stands.
 */
#ifndef SHIM_COPY_H
#define SHIM_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of it, or false; what comes before the bad byte was copied. */
bool shim_copy(void *dst, const void *src, size_t len);
/* Can every page of the range be loaded from (or, write: stored to)? Leaves the bytes as they are, also those
 * that another thread stores meanwhile. */
bool shim_touch(const void *addr, size_t len, bool write);
/* Copy a string and its end into dst; false when it is longer, or cannot be read: dst then has what could be. */
bool shim_copy_string(char *dst, size_t len, const char *src);
/* The length of a string, with its end, all of it readable; 0: it is not. */
size_t shim_string_size(const char *s);

/* uc: of a fault that nobody resolves. True: it was one of ours, and the access ends as failed. */
bool shim_copy_recover(void *uc);

#endif
