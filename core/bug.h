/* SPDX-License-Identifier: MIT */
/* Programming errors: one line, a backtrace (libunwind), abort. On in every build. */
#ifndef VM_BUG_H
#define VM_BUG_H

#define BUG_ON(cond)                                                                                         \
	do {                                                                                                 \
		if (__builtin_expect(!!(cond), 0))                                                           \
			vm_bug(#cond, __FILE__, __LINE__);                                                   \
	} while (0)

/* Prints "txmap: BUG: what (file:line)" and a backtrace to stderr, then aborts. Any context. */
_Noreturn void vm_bug(const char *what, const char *file, int line);

#endif
