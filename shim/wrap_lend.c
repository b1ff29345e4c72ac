/* SPDX-License-Identifier: MIT */
/* The wrappers of lend.def. With nothing live each is a branch and libc's. */
#include "real.h"
#include "lend.h"

/* As long as the kernel's mask; what libc's is longer by is left alone. */
#define SHIM_KERNEL_SIGSET 8

/* What the kernel looks at of an fd_set. */
static size_t shim_fdset_size(int n)
{
	return n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
}

#define LEND(type, name, parameters, arguments, what, aliases)                                               \
	SHIM_BORROWED(type, name, parameters, arguments)                                                     \
	static __attribute__((noinline)) type lend_##name parameters                                         \
	{                                                                                                    \
		struct shim_loan loan;                                                                       \
                                                                                                             \
		loan.n = 0;                                                                                  \
		what SHIM_LENDING_CALL(name, arguments);                                                     \
	}                                                                                                    \
	SHIM_EXPORT type name parameters                                                                     \
	{                                                                                                    \
		return shim_is_quiet() ? shim_real.name arguments : lend_##name arguments;                   \
	}
#include "lend.def"
#undef LEND

#define SHIM_TAKE_LEND(x) x
#include "alias.h"
