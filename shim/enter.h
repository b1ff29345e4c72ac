/* SPDX-License-Identifier: MIT */
/*
 * The border between the program and us.
 *
 * A wrapper first asks shim_is_idle(): then nothing is ours to do and the call is libc's, untouched. Work of
 * ours is done between shim_enter and shim_leave: no asynchronous signal and no cancellation arrives there,
 * and calls that come back to our own names go straight to libc.
 */
#ifndef SHIM_ENTER_H
#define SHIM_ENTER_H

#include "pol.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum shim_state {
	SHIM_NEW,    /* nobody started us yet */
	SHIM_INERT,  /* no rule, or not in a position to manage: everything is libc's */
	SHIM_ACTIVE, /* rules exist */
};
extern _Atomic(enum shim_state) shim_state;

struct shim_tls {
	uint64_t blocked;  /* fault signals that the program believes blocked in this thread */
	uint64_t held;	   /* more of them, while a fault handler of its own runs (signals.c) */
	uint64_t deferred; /* fault signals sent by kill(2) that wait for their moment */
	uint16_t inside;   /* depth of shim_enter */
	bool resolving;	   /* in shim_resolve */
};
extern __thread struct shim_tls shim_tls __attribute__((tls_model("initial-exec")));

struct shim_scope {
	uint64_t mask;	    /* the thread's signal mask before */
	int cancel;	    /* its cancelability before */
	struct pol_file *m; /* the live file, referenced (shim_begin) */
};

/* Become active or inert. Idempotent; the constructor, or the first mmap of a file when that comes earlier. */
void shim_start(void);
/* A vfork child, or one made by a bare clone(2): our memory is its parent's, our descriptors are not ours to
 * manage. */
bool shim_is_stranger(void);

void shim_enter(struct shim_scope *s);
void shim_leave(struct shim_scope *s);

/* The process ends in the ordinary way: what is due then. */
void shim_exiting(void);

/* Around fork: locks of the shim, then policy's. */
void shim_fork_prepare(void);
void shim_fork_parent(void);
void shim_fork_child(void);

static inline bool shim_is_idle(void)
{
	enum shim_state st = atomic_load_explicit(&shim_state, memory_order_acquire);

	if (__builtin_expect(st == SHIM_ACTIVE, 1))
		return shim_tls.inside != 0;
	if (__builtin_expect(st == SHIM_NEW, 0))
		shim_resolve();
	return true;
}

/* Idle, or nothing was ever mapped: no descriptor's data and no buffer is ours. */
static inline bool shim_is_quiet(void)
{
	return shim_is_idle() || pol_nlive() == 0;
}

/* The one place where -errno becomes errno. */
static inline ssize_t shim_return(ssize_t ret)
{
	if (__builtin_expect(ret >= 0, 1))
		return ret;
	errno = (int)-ret;
	return -1;
}

#endif
