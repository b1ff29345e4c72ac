/* SPDX-License-Identifier: MIT */
/*
 * All locks of the process, and their order.
 *
 *	rank              guards                                        taken while holding
 *	VM_RANK_MAP       the address map: which vma lies where         nothing
 *	VM_RANK_FILEH     one handle: page states, size, transaction    MAP
 *	VM_RANK_FD        the table of our own descriptors              MAP, FILEH
 *	VM_RANK_LIMIT     the soft limit of descriptors, while raised   MAP, FILEH, FD
 *
 * A thread takes locks in rising rank and at most one of a rank (fork, which takes all, is the exception and
 * says so). Checked in every build. No lock is held while a backend or the program runs.
 *
 * The lock of a handle lies in memory shared with other processes and is robust: a holder that dies leaves
 * it to the next, who is told.
 */
#ifndef VM_LOCK_H
#define VM_LOCK_H

#include "robust.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum vm_rank { VM_RANK_MAP = 1, VM_RANK_FILEH, VM_RANK_FD, VM_RANK_LIMIT };

struct vm_lock {
	union {
		pthread_mutex_t mutex;	 /* of this process */
		struct vm_robust robust; /* between processes */
	};
	bool is_shared; /* (fixed) */
	uint32_t rank;	/* (fixed) */
};

#define VM_LOCK_INIT(r)                                                                                      \
	{                                                                                                    \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (r)                                              \
	}

/* Prepare a lock in shared memory: between processes, robust. */
void vm_lock_init_shared(struct vm_lock *l, enum vm_rank rank);
/* Take it. Returns true when the former holder died inside: what it guards may be half changed. */
bool vm_lock(struct vm_lock *l);
/* The same for msec at most: 1 when the former holder died, -EBUSY. */
int vm_lock_within(struct vm_lock *l, unsigned msec);
void vm_unlock(struct vm_lock *l);
bool vm_lock_is_held(enum vm_rank rank);
/* fork only: one of several of the same rank, in a fixed order. */
bool vm_lock_another(struct vm_lock *l);
void vm_unlock_another(struct vm_lock *l, bool last);
/* In a forked child: it holds nothing, and l, private to the process, which it took before the fork, is free. */
void vm_lock_fork_child(void);
void vm_unlock_fork_child(struct vm_lock *l);

/* Wait for a change of *seq, without losing one: read seq under the lock, unlock, vm_wait(seq, value).
 * Returns after a wake, a change, or timeout_msec. Works between processes. */
void vm_wait(uint32_t *seq, uint32_t seen, unsigned timeout_msec);
#define VM_FOREVER UINT32_MAX
/* When msec have passed from now on, and whether they have. VM_FOREVER: never. */
uint64_t vm_deadline(unsigned msec);
bool vm_is_past(uint64_t deadline);
/* Tell all waiters that something changed. */
void vm_wake(uint32_t *seq);

#endif
