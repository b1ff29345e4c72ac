/* SPDX-License-Identifier: MIT */
/* Processes made by number. */
#ifndef SHIM_PROC_H
#define SHIM_PROC_H

#include <stdbool.h>
#include <stdint.h>

/* SYS_clone or SYS_clone3 with the arguments p, which mean this. The result as syscall(2)'s. */
long shim_clone_by_number(long nr, uint64_t flags, bool has_stack, void *const *p);

#endif
