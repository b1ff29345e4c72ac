/* SPDX-License-Identifier: MIT */
/* Exports the aliases of one family of calls.def, in the file that defines SHIM_TAKE_<FAMILY>(x) as x, and
 * gives each call its hidden name (own.h). The asm label keeps the names away from libc's declarations of
 * them, and so from their attributes. */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

#define ALIAS(name, also)                                                                                    \
	extern __typeof__(name) shim_alias_##also __asm__(#also)                                             \
		__attribute__((alias(#name), visibility("default")));

#define SHIM_OWN(name)                                                                                       \
	extern __typeof__(name) shim_own_##name __attribute__((alias(#name), visibility("hidden")));

#ifndef SHIM_TAKE_OPEN
#define SHIM_TAKE_OPEN(x)
#endif
#ifndef SHIM_TAKE_MADE
#define SHIM_TAKE_MADE(x)
#endif
#ifndef SHIM_TAKE_CLOSE
#define SHIM_TAKE_CLOSE(x)
#endif
#ifndef SHIM_TAKE_LOCK
#define SHIM_TAKE_LOCK(x)
#endif
#ifndef SHIM_TAKE_RW
#define SHIM_TAKE_RW(x)
#endif
#ifndef SHIM_TAKE_COPY
#define SHIM_TAKE_COPY(x)
#endif
#ifndef SHIM_TAKE_BUF
#define SHIM_TAKE_BUF(x)
#endif
#ifndef SHIM_TAKE_LOAD
#define SHIM_TAKE_LOAD(x)
#endif
#ifndef SHIM_TAKE_LEND
#define SHIM_TAKE_LEND(x)
#endif
#ifndef SHIM_TAKE_MSG
#define SHIM_TAKE_MSG(x)
#endif
#ifndef SHIM_TAKE_SYSCALL
#define SHIM_TAKE_SYSCALL(x)
#endif
#ifndef SHIM_TAKE_MAP
#define SHIM_TAKE_MAP(x)
#endif
#ifndef SHIM_TAKE_SYNC
#define SHIM_TAKE_SYNC(x)
#endif
#ifndef SHIM_TAKE_STAT
#define SHIM_TAKE_STAT(x)
#endif
#ifndef SHIM_TAKE_STDIO
#define SHIM_TAKE_STDIO(x)
#endif
#ifndef SHIM_TAKE_NAME
#define SHIM_TAKE_NAME(x)
#endif
#ifndef SHIM_TAKE_TIMES
#define SHIM_TAKE_TIMES(x)
#endif
#ifndef SHIM_TAKE_EXEC
#define SHIM_TAKE_EXEC(x)
#endif
#ifndef SHIM_TAKE_STACK
#define SHIM_TAKE_STACK(x)
#endif
#ifndef SHIM_TAKE_PROC
#define SHIM_TAKE_PROC(x)
#endif
#ifndef SHIM_TAKE_SIGWAIT
#define SHIM_TAKE_SIGWAIT(x)
#endif
#ifndef SHIM_TAKE_SIGNAL
#define SHIM_TAKE_SIGNAL(x)
#endif

#define CALL(family, name, aliases) SHIM_TAKE_##family(SHIM_OWN(name) aliases)
#include "calls.def"
#undef CALL
#undef ALIAS
#undef SHIM_OWN
