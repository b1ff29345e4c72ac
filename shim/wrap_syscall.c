/* SPDX-License-Identifier: MIT */
/* syscall(2): a call that we interpose is the same one when it comes by its number (syscall.def). */
#include "real.h"
#include "buf.h"
#include "lend.h"
#include "own.h"
#include "proc.h"
#include "signals.h"
#include <linux/futex.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <sys/syscall.h>

#define SHIM_TAKE_SYSCALL(x) x

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define P(i) p[i]
#define N(i) ((size_t)p[i])
#define I(i) ((int)(long)p[i])
#define F(i) ((off_t)p[i])

static long plain(long nr, void *const *p)
{
	return shim_real.syscall(nr, p[0], p[1], p[2], p[3], p[4], p[5]);
}

/* ---- masks: no fault signal is ever blocked (signals.c) ---- */

static const void *without_faults(const void *set, uint64_t *copy)
{
	if (!set || !shim_copy(copy, set, sizeof(*copy)))
		return set;
	*copy &= ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1));
	return copy;
}

/* pselect6's last: where the mask is, and its size. */
static const void *without_faults_sized(const void *sized, uint64_t *copy, const void **pair)
{
	if (!sized || !shim_copy(pair, sized, 2 * sizeof(*pair)))
		return sized;
	pair[0] = without_faults(pair[0], copy);
	return pair;
}

static long sigprocmask_by_number(int how, const void *set, void *old, size_t size, void *const *p)
{
	uint64_t bits = 0;
	sigset_t in, out;

	if (size != sizeof(bits) || (set && !shim_copy(&bits, set, sizeof(bits))))
		return plain(SYS_rt_sigprocmask, p);
	in = shim_sigset_of(bits);
	if (shim_own_sigprocmask(how, set ? &in : NULL, &out))
		return -1;
	bits = shim_sigset_bits(&out);
	return !old || shim_copy(old, &bits, sizeof(bits)) ? 0 : shim_return(-EFAULT);
}

struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static long sigaction_by_number(int signo, const void *act, void *old, size_t size, void *const *p)
{
	struct kernel_sigaction k = {0};
	struct sigaction in, out;

	/* 32 and 33 are libc's own: its sigaction knows nothing of them */
	if (size != sizeof(k.mask) || signo == 32 || signo == 33 || (act && !shim_copy(&k, act, sizeof(k))))
		return plain(SYS_rt_sigaction, p);
	in.sa_handler = k.handler;
	in.sa_flags = (int)k.flags;
	in.sa_restorer = k.restorer;
	in.sa_mask = shim_sigset_of(k.mask);
	if (shim_own_sigaction(signo, act ? &in : NULL, &out))
		return -1;
	k.handler = out.sa_handler;
	k.flags = (unsigned)out.sa_flags;
	k.restorer = out.sa_restorer;
	k.mask = shim_sigset_bits(&out.sa_mask);
	return !old || shim_copy(old, &k, sizeof(k)) ? 0 : shim_return(-EFAULT);
}

/* ---- those that need a look ---- */

/* What openat does as well goes there, for O_TRUNC; the descriptor of the others is looked at when it is
 * used. */
static long openat2_by_number(int dirfd, const char *path, const void *how, size_t size, void *const *p)
{
	struct open_how h;

	if (size != sizeof(h) || !shim_copy(&h, how, sizeof(h)) || !(h.flags & O_TRUNC) || h.resolve ||
	    h.flags > INT32_MAX)
		return plain(SYS_openat2, p);
	return shim_own_openat(dirfd, path, (int)h.flags, (mode_t)h.mode);
}

/* The words stay where they are: others wait for the same ones. */
static void ready_futex(void *const *p)
{
	bool stores = false;

	switch (I(1) & FUTEX_CMD_MASK) {
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case FUTEX_WAKE_OP:
	case FUTEX_CMP_REQUEUE_PI:
	case FUTEX_WAIT_REQUEUE_PI:
		stores = true;
	}
	shim_buf_prepare(P(0), sizeof(uint32_t), stores);
	shim_buf_prepare(P(4), sizeof(uint32_t), stores);
	shim_buf_prepare(P(3), sizeof(struct timespec), false);
}

static long futex_by_number(void *const *p)
{
	if (!shim_range_is_managed(P(0), 1) && !shim_range_is_managed(P(3), 1) &&
	    !shim_range_is_managed(P(4), 1))
		return plain(SYS_futex, p);
	return SHIM_READY(ready_futex(p), plain(SYS_futex, p));
}

/* The first two arguments on both machines. */
static long clone_by_number(void *const *p)
{
	return shim_clone_by_number(SYS_clone, N(0), P(1), p);
}

static long clone3_by_number(void *const *p)
{
	struct clone_args a = {0};

	/* what it cannot be is the kernel's to say */
	if (N(1) < CLONE_ARGS_SIZE_VER0 || !shim_copy(&a, P(0), CLONE_ARGS_SIZE_VER0))
		return plain(SYS_clone3, p);
	return shim_clone_by_number(SYS_clone3, a.flags, a.stack, p);
}

/* ---- the rest ---- */

#define MASK(set)	     set = (void *)without_faults(set, &mask);
#define MASK_AND_SIZE(sized) sized = (void *)without_faults_sized(sized, &mask, sized_mask);
#define OWN(number, name, arguments)
#define LENT(number, what)                                                                                   \
	case SYS_##number:                                                                                   \
		what break;

static long to_kernel(long nr, void **p)
{
	struct shim_loan loan;
	const void *sized_mask[2];
	uint64_t mask;
	long ret;
	int i;

	loan.n = 0;
	switch (nr) {
#include "syscall.def"
	default:
		for (i = 0; i < 6; i++)
			shim_buf_ready_around(P(i));
	}
	ret = plain(nr, p);
	shim_loan_end(&loan, ret);
	return ret;
}

#undef OWN
#undef LENT
#define LENT(number, what)
/* It is no cancellation point, as our wrappers are. */
#define OWN(number, name, arguments)                                                                         \
	case SYS_##number:                                                                                   \
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);                               \
		ret = (long)shim_own_##name arguments;                                                       \
		(void)pthread_setcancelstate(cancel, NULL);                                                  \
		return ret;

static long by_number(long nr, void **p)
{
	int cancel;
	long ret;

	switch (nr) {
#include "syscall.def"
	case SYS_futex:
		return futex_by_number(p);
	case SYS_clone:
		return clone_by_number(p);
	case SYS_clone3:
		return clone3_by_number(p);
	case SYS_openat2:
		return openat2_by_number(I(0), P(1), P(2), N(3), p);
	case SYS_rt_sigaction:
		return sigaction_by_number(I(0), P(1), P(2), N(3), p);
	case SYS_rt_sigprocmask:
		return sigprocmask_by_number(I(0), P(1), P(2), N(3), p);
	case SYS_exit_group:
		shim_own__exit(I(0));
	}
	return to_kernel(nr, p);
}

SHIM_EXPORT long syscall(long nr, ...)
{
	void *p[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		p[i] = va_arg(ap, void *);
	va_end(ap);
	return shim_is_idle() || shim_is_behind(__builtin_return_address(0)) ? plain(nr, p)
									     : by_number(nr, p);
}

#include "alias.h"
