/* SPDX-License-Identifier: MIT */
/* Dispositions and masks, as the program sees them (signals.c). */
#include "real.h"
#include "lend.h"
#include "own.h"
#include "signals.h"
#include <string.h>

#define SHIM_TAKE_SIGNAL(x) x

#define SA_INTERRUPT_ 0x20000000 /* what the System V signal sets; without a meaning on Linux */

static bool is_libcs(int signo)
{
	return shim_is_idle() || signo < 1 || signo > 64 || signo == SIGKILL || signo == SIGSTOP ||
	       signo == 32 || signo == 33 || shim_is_stranger();
}

SHIM_EXPORT int sigaction(int signo, const struct sigaction *act, struct sigaction *old)
{
	if (is_libcs(signo))
		return shim_real.sigaction(signo, act, old);
	return (int)shim_return(shim_signals_action(signo, act, old));
}

/* For calls that set a mask without fault signals: only a signal that we share concerns us. */
static bool is_unshared(int signo)
{
	return is_libcs(signo) || !shim_signals_share(signo);
}

/* What siginterrupt(3) asked of later calls of signal(3). */
static _Atomic(uint64_t) interrupting;

static sighandler_t set_handler(int signo, sighandler_t handler, int flags, bool mask_itself)
{
	struct sigaction act, old;
	int err;

	memset(&act, 0, sizeof(act));
	act.sa_handler = handler;
	act.sa_flags = flags;
	if (mask_itself)
		sigaddset(&act.sa_mask, signo);
	err = shim_signals_action(signo, &act, &old);
	if (err < 0) {
		(void)shim_return(err);
		return SIG_ERR;
	}
	return old.sa_handler;
}

SHIM_EXPORT sighandler_t signal(int signo, sighandler_t handler)
{
	if (is_unshared(signo) || handler == SIG_ERR)
		return shim_real.signal(signo, handler);
	return set_handler(signo, handler, atomic_load(&interrupting) & 1ull << (signo - 1) ? 0 : SA_RESTART,
			   true);
}

SHIM_EXPORT sighandler_t sysv_signal(int signo, sighandler_t handler)
{
	if (is_unshared(signo) || handler == SIG_ERR)
		return shim_real.sysv_signal(signo, handler);
	return set_handler(signo, handler, (int)SA_RESETHAND | SA_NODEFER | SA_INTERRUPT_, false);
}

SHIM_EXPORT int siginterrupt(int signo, int flag)
{
	struct sigaction sa;
	int err;

	if (is_unshared(signo))
		return shim_real.siginterrupt(signo, flag);
	err = shim_signals_action(signo, NULL, &sa);
	sa.sa_flags = flag ? sa.sa_flags & ~SA_RESTART : sa.sa_flags | SA_RESTART;
	if (!err)
		err = shim_signals_action(signo, &sa, NULL);
	if (!err && flag)
		atomic_fetch_or(&interrupting, 1ull << (signo - 1));
	else if (!err)
		atomic_fetch_and(&interrupting, ~(1ull << (signo - 1)));
	return (int)shim_return(err);
}

SHIM_EXPORT int sigignore(int signo)
{
	if (is_unshared(signo))
		return shim_real.sigignore(signo);
	return set_handler(signo, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

/* pthread_sigmask's result: an error number. */
static int change_mask(int how, const sigset_t *set, sigset_t *old)
{
	const uint64_t faults = shim_signals_unblockable();
	sigset_t wanted = {0}, real_set, view;
	uint64_t kernels, blocked;
	int err;

	if (set && !shim_copy(&wanted, set, SHIM_KERNEL_SIGSET))
		return EFAULT;
	real_set = shim_sigset_of(shim_sigset_bits(&wanted) & ~faults);
	err = shim_real.pthread_sigmask(how, set ? &real_set : NULL, &view);
	if (err)
		return err;
	kernels = shim_sigset_bits(&view);
	blocked = shim_signals_blocked(kernels);
	if (set)
		shim_signals_change_mask(how, shim_sigset_bits(&wanted) & faults, kernels);
	view = shim_sigset_of((kernels & ~SHIM_SIG_BIT(32)) | blocked);
	return !old || shim_copy(old, &view, SHIM_KERNEL_SIGSET) ? 0 : EFAULT;
}

static bool is_mask_libcs(void)
{
	return shim_is_idle() || !shim_signals_unblockable();
}

SHIM_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	if (is_mask_libcs())
		return shim_real.sigprocmask(how, set, old);
	return (int)shim_return(-change_mask(how, set, old));
}

SHIM_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return is_mask_libcs() ? shim_real.pthread_sigmask(how, set, old) : change_mask(how, set, old);
}

/* Also unblocks, or with SIG_HOLD only blocks. */
SHIM_EXPORT sighandler_t sigset(int signo, sighandler_t handler)
{
	sigset_t one, before;
	sighandler_t old;
	struct sigaction sa;

	if (is_unshared(signo))
		return shim_real.sigset(signo, handler);
	sigemptyset(&one);
	sigaddset(&one, signo);
	if (handler == SIG_HOLD) {
		(void)change_mask(SIG_BLOCK, &one, &before);
		(void)shim_signals_action(signo, NULL, &sa);
		old = sa.sa_handler;
	} else {
		old = set_handler(signo, handler, 0, false);
		if (old == SIG_ERR)
			return SIG_ERR;
		(void)change_mask(SIG_UNBLOCK, &one, &before);
	}
	return sigismember(&before, signo) ? SIG_HOLD : old;
}

#include "alias.h"
