/* SPDX-License-Identifier: MIT */
/* The wrappers of lend.def. With nothing live each is a branch and libc's. */
#include "real.h"
#include "lend.h"

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
