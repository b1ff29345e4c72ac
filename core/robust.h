/* SPDX-License-Identifier: MIT */
/*
 * A robust lock between processes that touches no memory but its own.
 *
 * A thread's robust mutexes, the program's and ours, are one list (robust_list(7) in the kernel's
 * documentation), and pthread_mutex_lock stores into the neighbour it puts its own before. That may be a
 * mutex of the program's in a file that we manage: a page that is protected at that moment, perhaps by who
 * waits for the lock. The kernel follows the list in one direction only, so we put ours in front without
 * telling the neighbour, and take it out before the program runs again.
 */
#ifndef VM_ROBUST_H
#define VM_ROBUST_H

#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>

/* All zeros: free. The word stands as far from the link as in the C library's mutexes, as one list demands. */
struct vm_robust {
	uint32_t word; /* the holder's thread id, and the bits of futex(2) */
	uint32_t unused[7];
	struct robust_list link;
};

/* Take it when it is free. -EBUSY: it is not. -EOWNERDEAD: taken, and the former holder died. */
int vm_robust_try(struct vm_robust *r);
/* Wait for it. 0 or -EOWNERDEAD. */
int vm_robust_lock(struct vm_robust *r);
/* The same for msec at most: -ETIMEDOUT. */
int vm_robust_lock_within(struct vm_robust *r, unsigned msec);
void vm_robust_unlock(struct vm_robust *r);

#endif
