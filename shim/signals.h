/* SPDX-License-Identifier: MIT */
/* Signals that we share with the program. */
#ifndef SHIM_SIGNALS_H
#define SHIM_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

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
/* Send again what arrived while we were inside, or while the program believed it blocked. */
void shim_signals_flush(void);

void shim_signals_lock(void);
void shim_signals_unlock(void);

#endif
