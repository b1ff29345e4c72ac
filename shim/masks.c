/* SPDX-License-Identifier: MIT */
/*
 * The masks that the program believes in.
 *
 * Fault signals are never really blocked: not by the program's masks, not while one of its handlers runs. A
 * thread that blocks them today, as many worker threads block everything, may touch a managed page tomorrow,
 * where natively nothing would happen. What the program blocks stands in shim_tls.blocked.
 *
 * While one of its fault handlers runs, what that blocks stands in shim_tls.held. Handlers are left by
 * siglongjmp, too, and only the kernel's mask tells: so one more signal is blocked there meanwhile, HELD,
 * that nobody else uses. (It is glibc's for pthread_cancel, which can wait. glibc keeps it out of the masks
 * that programs set.)
 */
#include "real.h"
#include "enter.h"
#include "signals.h"
#include <sys/syscall.h>

static const uint64_t HELD = SHIM_SIG_BIT(32);

uint64_t shim_signals_blocked(uint64_t kernels)
{
	return shim_tls.blocked | (kernels & HELD ? shim_tls.held : 0);
}

void shim_signals_change_mask(int how, uint64_t set, uint64_t kernels)
{
	bool is_held = kernels & HELD;

	switch (how) {
	case SIG_BLOCK:
		*(is_held ? &shim_tls.held : &shim_tls.blocked) |= set;
		break;
	case SIG_UNBLOCK:
		shim_tls.held &= ~set;
		shim_tls.blocked &= ~set;
		break;
	default:
		shim_tls.held = is_held ? set : 0;
		shim_tls.blocked = is_held ? shim_tls.blocked & set : set;
	}
	if (is_held) /* glibc left it out of the mask that was set */
		shim_sigmask(shim_tls.held ? SIG_BLOCK : SIG_UNBLOCK, &HELD, NULL);
	if (shim_tls.deferred)
		shim_signals_flush();
}

void shim_signals_call(const struct sigaction *sa, int signo, siginfo_t *info, ucontext_t *uc)
{
	const uint64_t faults = shim_signals_unblockable(), blocked = shim_tls.blocked, held = shim_tls.held;
	uint64_t before = shim_sigset_bits(&uc->uc_sigmask), mask = before | shim_sigset_bits(&sa->sa_mask);

	if (!(sa->sa_flags & SA_NODEFER))
		mask |= SHIM_SIG_BIT(signo);
	shim_tls.held = (before & HELD ? held : 0) | (mask & faults);
	mask = (mask & ~faults) | (shim_tls.held ? HELD : 0);
	shim_sigmask(SIG_SETMASK, &mask, NULL);
	sa->sa_sigaction(signo, info, uc); /* a plain handler ignores the last two, as with the kernel */
	shim_tls.held = held;
	shim_tls.blocked = blocked;
	before = shim_sigset_bits(
		&uc->uc_sigmask); /* it may have put another one there; sigreturn does this, too */
	shim_sigmask(SIG_SETMASK, &before, NULL);
	if (shim_tls.deferred)
		shim_signals_flush(); /* arrived meanwhile */
}

void shim_signals_send_self(int signo)
{
	(void)shim_real.syscall(SYS_tgkill, getpid(), gettid(), signo);
}

void shim_signals_flush(void)
{
	uint64_t mask, due;
	int signo;

	shim_sigmask(SIG_BLOCK, NULL, &mask);
	due = shim_tls.deferred & ~shim_signals_blocked(mask);
	shim_tls.deferred &= ~due;
	for (signo = 1; due; signo++, due >>= 1)
		if (due & 1)
			shim_signals_send_self(signo);
}
