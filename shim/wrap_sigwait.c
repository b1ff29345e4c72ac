/* SPDX-License-Identifier: MIT */
/* Masks for a while, and by bits. A handler that runs inside such a wait has its mask, too: no fault signal
 * may be in it (signals.c). */
#include "real.h"
#include "lend.h"
#include "own.h"
#include "signals.h"
#include <string.h>

#define SHIM_TAKE_SIGWAIT(x) x

/* The mask for the kernel: the program's, or a copy without fault signals. */
static const sigset_t *without_faults(const sigset_t *set, sigset_t *copy)
{
	if (!set || shim_is_idle())
		return set;
	sigemptyset(copy);
	if (!shim_copy(copy, set, SHIM_KERNEL_SIGSET))
		return set; /* the kernel cannot read it either */
	sigdelset(copy, SIGSEGV);
	sigdelset(copy, SIGBUS);
	return copy;
}

SHIM_EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t copy;

	return shim_real.sigsuspend(without_faults(set, &copy));
}

/* With what lies in managed memory lent (lend.h). */
#define WAIT(name, parameters, arguments, what)                                                              \
	SHIM_BORROWED(int, name, parameters, arguments)                                                      \
	SHIM_EXPORT int name parameters                                                                      \
	{                                                                                                    \
		struct shim_loan loan;                                                                       \
		sigset_t copy;                                                                               \
                                                                                                             \
		loan.n = 0;                                                                                  \
		set = without_faults(set, &copy);                                                            \
		if (shim_is_quiet())                                                                         \
			return shim_real.name arguments;                                                     \
		what SHIM_LENDING_CALL(name, arguments);                                                     \
	}

WAIT(ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *ts, const sigset_t *set), (fds, n, ts, set),
     FILLS(fds, shim_bytes(n, sizeof(*fds))) READS(ts, sizeof(*ts)))
WAIT(__ppoll_chk, (struct pollfd * fds, nfds_t n, const struct timespec *ts, const sigset_t *set, size_t size),
     (fds, n, ts, set, size), FILLS(fds, shim_bytes(n, sizeof(*fds))) READS(ts, sizeof(*ts)))
WAIT(pselect, (int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *ts, const sigset_t *set),
     (n, in, out, ex, ts, set),
     FILLS(in, shim_fdset_size(n)) FILLS(out, shim_fdset_size(n)) FILLS(ex, shim_fdset_size(n))
	     READS(ts, sizeof(*ts)))
WAIT(epoll_pwait, (int epfd, struct epoll_event *ev, int n, int timeout, const sigset_t *set),
     (epfd, ev, n, timeout, set), FILLS_BY(ev, shim_bytes(n > 0 ? (size_t)n : 0, sizeof(*ev)), sizeof(*ev)))
WAIT(epoll_pwait2,
     (int epfd, struct epoll_event *ev, int n, const struct timespec *ts, const sigset_t *set),
     (epfd, ev, n, ts, set),
     FILLS_BY(ev, shim_bytes(n > 0 ? (size_t)n : 0, sizeof(*ev)), sizeof(*ev)) READS(ts, sizeof(*ts)))

/* BSD's: the first 32 signals as a word. */
static int by_bits(int how, int mask)
{
	uint64_t bits = (unsigned)mask;
	sigset_t set, old;

	sigemptyset(&set);
	memcpy(&set, &bits, sizeof(bits));
	if (shim_own_sigprocmask(how, &set, &old))
		return -1;
	memcpy(&bits, &old, sizeof(bits));
	return (int)bits;
}

SHIM_EXPORT int sigblock(int mask)
{
	return shim_is_idle() ? shim_real.sigblock(mask) : by_bits(SIG_BLOCK, mask);
}

SHIM_EXPORT int sigsetmask(int mask)
{
	return shim_is_idle() ? shim_real.sigsetmask(mask) : by_bits(SIG_SETMASK, mask);
}

#include "alias.h"
