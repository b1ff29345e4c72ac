/* SPDX-License-Identifier: MIT */
/*
 * Our own wrappers for our own use, where just what the program would get is wanted. They have hidden names,
 * since a call to an exported one could end up in another library in front of us.
 */
#ifndef SHIM_OWN_H
#define SHIM_OWN_H

#include "real.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

#define SHIM_OWN(name)                                                                                       \
	extern __typeof__(name) shim_own_##name __attribute__((alias(#name), visibility("hidden")));

extern __typeof__(open) shim_own_open;
extern __typeof__(read) shim_own_read;
extern __typeof__(write) shim_own_write;
extern __typeof__(lseek) shim_own_lseek;
extern __typeof__(close) shim_own_close;
extern __typeof__(fclose) shim_own_fclose;
extern __typeof__(dup) shim_own_dup;
extern __typeof__(dup3) shim_own_dup3;
extern __typeof__(fcntl) shim_own_fcntl;
extern __typeof__(getcwd) shim_own_getcwd;
extern __typeof__(sendmsg) shim_own_sendmsg;
extern __typeof__(recvmsg) shim_own_recvmsg;
extern __typeof__(sigprocmask) shim_own_sigprocmask;

/* Is f a stream that wrap_stdio.c made? It closes its descriptor by our own close. */
_Bool shim_is_on_our_calls(FILE *f);

#endif
