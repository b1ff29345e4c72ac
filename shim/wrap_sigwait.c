/* SPDX-License-Identifier: MIT */
/* Masks for a while, and by bits. A handler that runs inside such a wait has its mask, too: no fault signal
 * may be in it (signals.c). */
#include "real.h"
#include "enter.h"
#include "own.h"
#include "signals.h"
#include <string.h>

#define SHIM_TAKE_SIGWAIT(x) x

/* The mask for the kernel: the program's, or a copy without fault signals. */
static const sigset_t *without_faults(const sigset_t *set, sigset_t *copy)
{
	if (!set || shim_is_idle())
		return set;
	*copy = *set;
	sigdelset(copy, SIGSEGV);
	sigdelset(copy, SIGBUS);
	return copy;
}

SHIM_EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t copy;

	return shim_real.sigsuspend(without_faults(set, &copy));
}

SHIM_EXPORT int ppoll(struct pollfd *fds, nfds_t nfds, const struct timespec *timeout, const sigset_t *set)
{
	sigset_t copy;

	return shim_real.ppoll(fds, nfds, timeout, without_faults(set, &copy));
}

SHIM_EXPORT int pselect(int nfds, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *timeout,
			const sigset_t *set)
{
	sigset_t copy;

	return shim_real.pselect(nfds, in, out, ex, timeout, without_faults(set, &copy));
}

SHIM_EXPORT int epoll_pwait(int epfd, struct epoll_event *events, int nevents, int timeout,
			    const sigset_t *set)
{
	sigset_t copy;

	return shim_real.epoll_pwait(epfd, events, nevents, timeout, without_faults(set, &copy));
}

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
