/* SPDX-License-Identifier: MIT */
/*
 * What lies in managed memory is replaced, for the length of a call, by memory of ours: the kernel stops at a
 * protected or missing page where a store of the program's would go on. What it left there then goes to the
 * program's memory by ordinary stores, which always arrive. So a commit that protects pages while the call
 * waits costs nothing: no EFAULT, no datagram or event that was taken and could not be handed over.
 *
 * A pointer that is bad stays as it is: the kernel knows what to say. In a wrapper, with `loan` in scope:
 *
 *	READS(p, n)		the kernel reads n bytes
 *	FILLS(p, n)		it may read, and store to, any of n bytes; what it left alone is not stored to
 *	FILLS_BY(p, n, unit)	it stores as many units as the call returns
 *	STRING(p)		a path or name
 *	IN_PLACE(p, n)		n bytes are read, too many to copy: made ready where they are
 */
#ifndef SHIM_LEND_H
#define SHIM_LEND_H

#include "copy.h"
#include "range.h"
#include <sys/uio.h>

#define SHIM_LOAN_MAX	8    /* pointers of one call */
#define SHIM_LOAN_STACK 1024 /* what is lent on the stack, without asking for sure whether it is managed */
#define SHIM_STRING_MAX 4097 /* a path of PATH_MAX is too long, as natively */

enum shim_lend {
	SHIM_READS,
	SHIM_FILLS,
	SHIM_FILLS_BY,
};

struct shim_loan {
	unsigned n;
	struct shim_lent {
		char *prog, *ours;
		const char *before; /* what the program had: of it, what changed goes back */
		size_t len, unit;   /* unit: as many of these as the call returns go back */
		size_t mapped;	    /* bytes at ours, when it is a mapping */
	} lent[SHIM_LOAN_MAX];
};

/* p is managed, or near such memory, which does no harm. stack: room for SHIM_LENT bytes, or NULL. Returns
 * what the kernel gets. errno untouched, as below. */
void *shim_lend(struct shim_loan *loan, const void *p, size_t len, enum shim_lend how, size_t unit,
		void *stack);
/* len bytes for the length of the call, or NULL. */
void *shim_lend_room(struct shim_loan *loan, size_t len);
char *shim_lend_string(const char *s, char *stack);
/* For a list of buffers that the kernel fills: one of ours as long as all of them; iov_len 0: one is bad, or
 * there is nothing to fill. Then, to them, the ret bytes that came. The list itself can be read. */
struct iovec shim_lend_list(struct shim_loan *loan, const struct iovec *iov, size_t niov);
void shim_lend_scatter(const struct iovec *one, ssize_t ret, const struct iovec *iov);
/* The call returned ret. */
void shim_loan_end(struct shim_loan *loan, long ret);
/* It was cancelled. */
void shim_loan_drop(void *loan);

/* For FILLS there is one more copy of it. */
#define SHIM_LENT(len, how) ((how) == SHIM_FILLS ? 2 * (len) : (len))

/* An array's size; 0 when there is no such. */
static inline size_t shim_bytes(size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? 0 : bytes;
}

/* What the kernel looks at of a sigset_t, and of an fd_set. */
#define SHIM_KERNEL_SIGSET 8
static inline size_t shim_fdset_size(int n)
{
	return n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
}

/* *p, which the kernel will look at before the length it tells is used; 0: it cannot be read. */
static inline unsigned shim_peek(const void *p)
{
	unsigned val = 0;

	return p && shim_copy(&val, p, sizeof(val)) ? val : 0;
}

#define SHIM_LEND(p, n, how, unit)                                                                           \
	do {                                                                                                 \
		const size_t len_ = (n);                                                                     \
		if (shim_range_is_near(p, len_) &&                                                           \
		    (len_ <= SHIM_LOAN_STACK || shim_range_ask((uintptr_t)(p), len_)))                       \
			p = shim_lend(&loan, p, len_, how, unit,                                             \
				      len_ <= SHIM_LOAN_STACK ? __builtin_alloca(SHIM_LENT(len_, how))       \
							      : NULL);                                       \
	} while (0);
#define READS(p, n)	     SHIM_LEND(p, n, SHIM_READS, 0)
#define FILLS(p, n)	     SHIM_LEND(p, n, SHIM_FILLS, 0)
#define FILLS_BY(p, n, unit) SHIM_LEND(p, n, SHIM_FILLS_BY, unit)
#define STRING(p)                                                                                            \
	do {                                                                                                 \
		if (shim_range_is_near(p, 1))                                                                \
			p = shim_lend_string(p, __builtin_alloca(SHIM_STRING_MAX + 1));                      \
	} while (0);
#define IN_PLACE(p, n)                                                                                       \
	do {                                                                                                 \
		const size_t len_ = (n);                                                                     \
		if (shim_range_is_managed(p, len_))                                                          \
			(void)shim_touch(p, len_, false);                                                    \
	} while (0);

/* Around a call that may be a cancellation point. A function of its own: what it calls with was settled
 * before. */
#define SHIM_BORROWED(type, name, parameters, arguments)                                                     \
	static __attribute__((noinline))                                                                     \
	type borrowed_##name(struct shim_loan *loan_, SHIM_UNPAREN parameters)                               \
	{                                                                                                    \
		type ret_;                                                                                   \
                                                                                                             \
		pthread_cleanup_push(shim_loan_drop, loan_);                                                 \
		ret_ = shim_real.name arguments;                                                             \
		pthread_cleanup_pop(0);                                                                      \
		shim_loan_end(loan_, (long)ret_);                                                            \
		return ret_;                                                                                 \
	}
#define SHIM_UNPAREN(...) __VA_ARGS__

#define SHIM_LENDING_CALL(name, arguments)                                                                   \
	return loan.n ? borrowed_##name(&loan, SHIM_UNPAREN arguments) : shim_real.name arguments

#endif
