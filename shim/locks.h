/* SPDX-License-Identifier: MIT */
/* The program's locks on managed files: the calls that take one or give one up. */
#ifndef SHIM_LOCKS_H
#define SHIM_LOCKS_H

#include <fcntl.h>

enum shim_lock { SHIM_LOCK_NONE, SHIM_LOCK_TAKES, SHIM_LOCK_GIVES };

/* What fcntl with cmd and lk does. A file is live. */
enum shim_lock shim_lock_of_fcntl(int cmd, const struct flock *lk);
/* Around the call, which returns ret: what the program stored under a lock is due before the lock is given
 * up, whether that works out or not; what others stored comes in once it has been given one. */
void shim_lock_before(int fd, enum shim_lock how);
void shim_lock_after(int fd, enum shim_lock how, int ret);

#endif
