/* SPDX-License-Identifier: MIT */
/* The exits that run no destructor, the one of the main thread alone, and the fork that runs no atfork handler. (fork itself runs ours; vfork
 * cannot be wrapped, its child is told by shim_is_stranger; quick_exit runs what start.c registered.) */
#include "real.h"
#include "enter.h"

#define SHIM_TAKE_PROC(x) x

SHIM_EXPORT _Noreturn void _exit(int status)
{
	shim_exiting();
	shim_real._exit(status);
	__builtin_unreachable();
}

static void thread_exiting(void)
{
	if (!shim_is_idle() && !shim_is_stranger() && gettid() == getpid())
		pol_main_thread_ends();
}

SHIM_EXPORT _Noreturn void pthread_exit(void *ret)
{
	thread_exiting();
	shim_real.pthread_exit(ret);
	__builtin_unreachable();
}

SHIM_EXPORT _Noreturn void thrd_exit(int ret)
{
	thread_exiting();
	shim_real.thrd_exit(ret);
	__builtin_unreachable();
}

SHIM_EXPORT pid_t _Fork(void)
{
	pid_t pid;
	int saved;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real._Fork();
	shim_fork_prepare();
	pid = shim_real._Fork();
	saved = errno;
	if (pid == 0)
		shim_fork_child();
	else
		shim_fork_parent();
	errno = saved;
	return pid;
}

#include "alias.h"
