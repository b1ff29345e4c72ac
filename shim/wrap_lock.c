/* SPDX-License-Identifier: MIT */
/* The program's locks on its files. */
#include "real.h"
#include "enter.h"
#include "copy.h"
#include "fd.h"
#include "locks.h"

#define SHIM_TAKE_LOCK(x) x

/* Errors are logged, and the stores kept: the lock itself is the kernel's business. */
static void tell(int fd, enum pol_event ev)
{
	struct shim_scope s;

	if (shim_is_quiet() || shim_is_stranger() || !shim_begin(fd, &s))
		return;
	(void)pol_event(s.m, ev);
	(void)shim_end(&s, 0);
}

void shim_lock_before(int fd, enum shim_lock how)
{
	if (how == SHIM_LOCK_GIVES)
		tell(fd, POL_EV_UNLOCK);
}

void shim_lock_after(int fd, enum shim_lock how, int ret)
{
	if (how == SHIM_LOCK_TAKES && ret == 0)
		tell(fd, POL_EV_LOCK);
}

enum shim_lock shim_lock_of_fcntl(int cmd, const struct flock *lk)
{
	short type;

	if ((cmd != F_SETLK && cmd != F_SETLKW && cmd != F_OFD_SETLK && cmd != F_OFD_SETLKW) || !lk ||
	    !shim_copy(&type, &lk->l_type, sizeof(type)))
		return SHIM_LOCK_NONE;
	return type == F_UNLCK ? SHIM_LOCK_GIVES : SHIM_LOCK_TAKES;
}

SHIM_EXPORT int flock(int fd, int op)
{
	enum shim_lock how = op & LOCK_UN ? SHIM_LOCK_GIVES : SHIM_LOCK_TAKES;
	int ret;

	/* a shared lock after an exclusive one lets others look */
	shim_lock_before(fd, op & LOCK_SH ? SHIM_LOCK_GIVES : how);
	ret = shim_real.flock(fd, op);
	shim_lock_after(fd, how, ret);
	return ret;
}

SHIM_EXPORT int lockf(int fd, int cmd, off_t len)
{
	enum shim_lock how = cmd == F_ULOCK  ? SHIM_LOCK_GIVES
			     : cmd == F_TEST ? SHIM_LOCK_NONE
					     : SHIM_LOCK_TAKES;
	int ret;

	shim_lock_before(fd, how);
	ret = shim_real.lockf(fd, cmd, len);
	shim_lock_after(fd, how, ret);
	return ret;
}

#include "alias.h"
