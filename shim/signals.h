/* SPDX-License-Identifier: MIT */
/* Signals that we share with the program. */
#ifndef SHIM_SIGNALS_H
#define SHIM_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define SHIM_SIG_BIT(signo) (1ull << ((signo)-1))

/* A set as the kernel has it. */
static inline uint64_t shim_sigset_bits(const sigset_t *set)
{
	uint64_t bits;

	memcpy(&bits, set, sizeof(bits));
	return bits;
}

static inline sigset_t shim_sigset_of(uint64_t bits)
{
	sigset_t set;

	sigemptyset(&set);
	memcpy(&set, &bits, sizeof(bits));
	return set;
}

/* rt_sigprocmask(2) on the kernel's own mask. */
void shim_sigmask(int how, const uint64_t *set, uint64_t *ret_old);

/* Install what pol_signals_wanted() asks for now. Entered. */
void shim_signals_sync(void);
/* Become the keeper of the program's masks and dispositions. Entered. */
void shim_signals_start(void);
/* May the kernel have a handler of ours for signo, now or when the program sets one? If not, libc may set a
 * handler with a mask that has no fault signal. Not entered. */
bool shim_signals_share(int signo);
/* sigaction(2) in the program's view. 0 or -errno. Not entered. */
int shim_signals_action(int signo, const struct sigaction *act, struct sigaction *old);
/* Bits of the fault signals that must stay deliverable whatever the program blocks. */
uint64_t shim_signals_unblockable(void);
/* Fault signals that the program believes blocked in this thread, whose mask the kernel has as that. */
uint64_t shim_signals_blocked(uint64_t kernels);
/* The program's own change of that: bits of set that are unblockable. */
void shim_signals_change_mask(int how, uint64_t set, uint64_t kernels);
/* Call its handler of a fault signal with the mask that it asked for. */
void shim_signals_call(const struct sigaction *sa, int signo, siginfo_t *info, ucontext_t *uc);
void shim_signals_send_self(int signo);
/* Send again what arrived while we were inside, or while the program believed it blocked. */
void shim_signals_flush(void);

void shim_signals_lock(void);
void shim_signals_unlock(void);

#endif
