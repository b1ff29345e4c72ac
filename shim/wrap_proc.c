/* SPDX-License-Identifier: MIT */
/* The exits that run no destructor, the one of the main thread alone, and the forks that run no atfork
 * handler. (fork itself runs ours; vfork cannot be wrapped, its child is told by shim_is_stranger; quick_exit
 * runs what start.c registered.) */
#include "real.h"
#include "enter.h"
#include "proc.h"
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>

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

/* ---- children that the atfork handlers do not see ---- */

static pid_t by_fork(void *arg)
{
	(void)arg;
	return shim_real._Fork();
}

/* make returns twice, as fork does, or in the parent only. */
static pid_t forked(pid_t (*make)(void *arg), void *arg)
{
	pid_t pid;
	int saved;

	shim_fork_prepare();
	pid = make(arg);
	saved = errno;
	if (pid == 0)
		shim_fork_child();
	else
		shim_fork_parent();
	errno = saved;
	return pid;
}

SHIM_EXPORT pid_t _Fork(void)
{
	return shim_is_idle() || shim_is_stranger() ? shim_real._Fork() : forked(by_fork, NULL);
}

/* A child with a memory of its own is a fork. One with its parent's is none of another process's business, as
 * after vfork; what shares its parent's descriptors, or counts processes anew, has no place among those that
 * share a file. */
static bool is_fork(uint64_t flags)
{
	return !(flags & (CLONE_VM | CLONE_FILES | CLONE_NEWPID)) && !shim_is_idle() && !shim_is_stranger();
}

/* What _Fork does in a child beside, and the bare call does not: the kernel knows of no robust list there,
 * and what is on it is its parent's. head: the parent's, at the same place. */
static void begin_child(struct robust_list_head *head)
{
	if (!head)
		return;
	head->list.next = &head->list;
	head->list_op_pending = NULL;
	(void)shim_real.syscall(SYS_set_robust_list, head, sizeof(*head)); /* valid arguments */
}

static struct robust_list_head *robust_list(void)
{
	struct robust_list_head *head = NULL;
	size_t len;

	return shim_real.syscall(SYS_get_robust_list, 0, &head, &len) ? NULL : head;
}

struct by_number {
	long nr;
	void *const *p;
};

static pid_t by_number(void *arg)
{
	struct robust_list_head *head = robust_list();
	const struct by_number *n = arg;
	pid_t pid = (pid_t)shim_real.syscall(n->nr, n->p[0], n->p[1], n->p[2], n->p[3], n->p[4], n->p[5]);

	if (pid == 0)
		begin_child(head);
	return pid;
}

long shim_clone_by_number(long nr, uint64_t flags, bool has_stack, void *const *p)
{
	struct by_number n = {nr, p};

	if (has_stack || !is_fork(flags))
		return shim_real.syscall(nr, p[0], p[1], p[2], p[3], p[4], p[5]);
	return forked(by_number, &n);
}

struct by_clone {
	int (*fn)(void *arg);
	void *stack;
	int flags;
	void *arg, *ptid, *tls, *ctid;
	struct robust_list_head *head;
};

/* The child, on its stack: what it began with is its copy. Where fn returns libc ends the one thread, and
 * there are ours. */
static int cloned(void *arg)
{
	const struct by_clone *c = arg;
	int status;

	begin_child(c->head);
	shim_fork_child();
	status = c->fn(c->arg);
	shim_exiting();
	shim_real._exit(status);
	__builtin_unreachable();
}

static pid_t by_clone(void *arg)
{
	struct by_clone *c = arg;

	c->head = robust_list();
	return shim_real.clone(cloned, c->stack, c->flags, c, c->ptid, c->tls, c->ctid);
}

SHIM_EXPORT int clone(int (*fn)(void *arg), void *stack, int flags, void *arg, ...)
{
	struct by_clone c = {.fn = fn, .stack = stack, .flags = flags, .arg = arg};
	va_list ap;

	va_start(ap, arg);
	c.ptid = va_arg(ap, void *);
	c.tls = va_arg(ap, void *);
	c.ctid = va_arg(ap, void *);
	va_end(ap);
	if (!fn || !is_fork((unsigned)flags))
		return shim_real.clone(fn, stack, flags, arg, c.ptid, c.tls, c.ctid);
	return forked(by_clone, &c);
}

#include "alias.h"
