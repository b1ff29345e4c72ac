/* SPDX-License-Identifier: MIT */
/* Between drop.c and invalidate.c: pages go. */
#ifndef VM_DROP_H
#define VM_DROP_H

#include "internal.h"

/* Carry out the plan of each of h[n], as one instant for the program. Busy, no lock held; the gates stay
 * closed. */
int vm_drop(struct vm_fileh **h, unsigned n);

#endif
