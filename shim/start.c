/* SPDX-License-Identifier: MIT */
/* Becoming active, the border of shim_enter, fork, and the end of the process. */
#include "real.h"
#include "enter.h"
#include "range.h"
#include "fd.h"
#include "signals.h"
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

_Atomic(enum shim_state) shim_state;
__thread struct shim_tls shim_tls __attribute__((tls_model("initial-exec")));

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(pid_t) our_pid;	     /* the process that started us, or its forked child */
static struct shim_scope fork_scope; /* of the forking thread; written with all locks held */

/* The signals that say something about the very instruction, and glibc's own for setuid: never held back. */
#define SIG_BIT(signo) (1ull << ((signo)-1))
#define SIG_SYNC                                                                                             \
	(SIG_BIT(SIGSEGV) | SIG_BIT(SIGBUS) | SIG_BIT(SIGILL) | SIG_BIT(SIGFPE) | SIG_BIT(SIGTRAP) |         \
	 SIG_BIT(SIGSYS) | SIG_BIT(33))

/* The bare call: glibc's hides its internal signals, and its name is ours. It cannot fail with these
 * arguments. */
void shim_sigmask(int how, const uint64_t *set, uint64_t *ret_old)
{
	(void)shim_real.syscall(SYS_rt_sigprocmask, how, set, ret_old, sizeof(*set));
}

void shim_enter(struct shim_scope *s)
{
	static const uint64_t async = ~SIG_SYNC;

	s->m = NULL;
	shim_sigmask(SIG_BLOCK, &async, &s->mask);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s->cancel);
	shim_tls.inside++;
}

/* glibc's pthread_setcancelstate cancels at once where that may happen at any time and was asked for meanwhile,
 * but then what the thread ends with is not PTHREAD_CANCELED. With pthread_setcanceltype it is. */
static void allow_cancel(int state)
{
	int type;

	(void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	(void)pthread_setcancelstate(state, NULL);
	if (type != PTHREAD_CANCEL_DEFERRED)
		(void)pthread_setcanceltype(type, NULL);
}

void shim_leave(struct shim_scope *s)
{
	uint64_t unblockable = shim_signals_unblockable();

	shim_tls.inside--;
	/* The engine needs them from now on; the program goes on reading that they are blocked. */
	if (s->mask & unblockable) {
		shim_tls.blocked |= s->mask & unblockable;
		s->mask &= ~unblockable;
	}
	allow_cancel(s->cancel);
	shim_sigmask(SIG_SETMASK, &s->mask, NULL);
	if (__builtin_expect(shim_tls.deferred != 0, 0) && !shim_tls.inside)
		shim_signals_flush();
}

bool shim_is_stranger(void)
{
	return atomic_load_explicit(&our_pid, memory_order_relaxed) != getpid();
}

/* Is ours the definition that the program's calls find? Not in a copy that was dlopened, nor in the second of
 * two copies. The name is one that no other preload (a sanitizer's runtime) is known to define. */
static bool is_in_front(void)
{
	Dl_info found, ours;
	void *fn = dlsym(RTLD_DEFAULT, "__openat64_2");

	return fn && dladdr(fn, &found) && dladdr((void *)&shim_state, &ours) &&
	       found.dli_fbase == ours.dli_fbase;
}

/* glibc's, behind pthread_atfork. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

void shim_fork_prepare(void)
{
	struct shim_scope s;

	shim_enter(&s);
	shim_fd_lock();
	pol_fork_prepare();
	shim_signals_lock();
	fork_scope = s;
}

void shim_fork_parent(void)
{
	struct shim_scope s = fork_scope;

	shim_signals_unlock();
	pol_fork_parent();
	shim_fd_unlock();
	shim_leave(&s);
}

void shim_fork_child(void)
{
	struct shim_scope s = fork_scope;

	atomic_store(&our_pid, getpid());
	shim_tls.deferred = 0; /* what is pending is not inherited */
	shim_signals_unlock();
	pol_fork_child();
	shim_fd_unlock();
	shim_leave(&s);
}

void shim_exiting(void)
{
	struct shim_scope s;

	if (shim_is_idle() || shim_is_stranger())
		return;
	shim_enter(&s);
	(void)pol_event_all(POL_EV_EXIT); /* policy has logged it; the exit status is the program's */
	shim_leave(&s);
}

void shim_start(void)
{
	enum shim_state st = SHIM_INERT;
	struct shim_scope s;
	int saved = errno;

	if (atomic_load_explicit(&shim_state, memory_order_acquire) != SHIM_NEW || shim_tls.inside ||
	    shim_tls.resolving)
		return;
	shim_resolve();
	shim_enter(&s);
	(void)pthread_mutex_lock(&start_lock);
	if (atomic_load(&shim_state) == SHIM_NEW) {
		if (!getauxval(AT_SECURE) && is_in_front() && pol_start() > 0) {
			st = SHIM_ACTIVE;
			atomic_store(&our_pid, getpid());
			/* First registered: run last before the fork, first after it, last at quick_exit. As
			 * of no object: what pthread_atfork registers goes when exit runs our destructor, and
			 * other threads fork until the end. */
			(void)__register_atfork(shim_fork_prepare, shim_fork_parent, shim_fork_child, NULL);
			(void)at_quick_exit(shim_exiting);
			pol_set_signals_hook(shim_signals_sync);
			pol_set_range_hook(shim_range_add);
			shim_signals_start();
		}
		atomic_store_explicit(&shim_state, st, memory_order_release);
	}
	(void)pthread_mutex_unlock(&start_lock);
	shim_leave(&s);
	errno = saved;
}

__attribute__((constructor(101))) static void at_load(void)
{
	shim_start();
}

__attribute__((destructor(101))) static void at_unload(void)
{
	shim_exiting();
}
