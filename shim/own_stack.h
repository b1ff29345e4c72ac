/* SPDX-License-Identifier: MIT */
/* A stack of ours for work in a signal handler. */
#ifndef SHIM_OWN_STACK_H
#define SHIM_OWN_STACK_H

/* fn(arg) there, or, while all are in use, where we are. The kernel does not know that an alternate stack is
 * in use meanwhile: it is an error to let a handler with SA_ONSTACK run. Signal handler context. */
void shim_on_own_stack(void (*fn)(void *arg), void *arg);

#endif
