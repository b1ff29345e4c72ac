/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of ours beyond the program's soft limit, when there is none left below it: the limit is raised
 * as far as the hard one for the length of one call. The number that comes out is one that the program cannot
 * get.
 */
#include "internal.h"
#include "sys_stub.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct vm_lock lock = VM_LOCK_INIT(VM_RANK_LIMIT);

static int limit(const struct rlimit *new, struct rlimit *ret_old)
{
	return (int)sys6(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)new, (long)ret_old, 0, 0);
}

static bool is_beyond(long nr, long b, long ret)
{
	return ret == -EMFILE ||
	       (ret == -EINVAL && nr == SYS_fcntl && (b == F_DUPFD || b == F_DUPFD_CLOEXEC));
}

long vm_sys_fd(long nr, long a, long b, long c, long d)
{
	long ret = sys6(nr, a, b, c, d, 0, 0);
	struct rlimit old, raised, now;

	if (!is_beyond(nr, b, ret))
		return ret;
	vm_lock(&lock); /* also against a fork, whose child would keep it */
	if (!limit(NULL, &old) && old.rlim_cur < old.rlim_max) {
		raised = (struct rlimit){old.rlim_max, old.rlim_max};
		if (!limit(&raised, NULL)) {
			ret = sys6(nr, a, b, c, d, 0, 0);
			/* the program may have set another one just now */
			if (!limit(NULL, &now) && now.rlim_cur == raised.rlim_cur &&
			    now.rlim_max == raised.rlim_max)
				(void)limit(&old, NULL); /* it is what it was, and lower than what is */
		}
	}
	vm_unlock(&lock);
	return ret;
}

void vm_fdlimit_fork_prepare(void)
{
	vm_lock(&lock);
}

void vm_fdlimit_fork_parent(void)
{
	vm_unlock(&lock);
}

void vm_fdlimit_fork_child(void)
{
	vm_unlock_fork_child(&lock);
}
