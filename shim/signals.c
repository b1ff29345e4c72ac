/* SPDX-License-Identifier: MIT */
/*
 * Our handlers in front of the program's.
 *
 * A signal is *taken* when the kernel has our handler for it; prog[] then says what the program set, which is
 * what it reads back and what our handler ends in. Two kinds are taken, when pol_signals_wanted() says so:
 * SIGSEGV and SIGBUS, because a store is a fault with some engines; and signals that trigger something. For
 * the second kind, the kernel gets the program's own flags and mask beside our handler, so that delivery is
 * as the program asked.
 *
 * From the start on, fault signals are never really blocked (masks.c).
 */
#include "real.h"
#include "copy.h"
#include "enter.h"
#include "own_stack.h"
#include "signals.h"
#include <ucontext.h>

#define BIT(signo) SHIM_SIG_BIT(signo)
#define FAULTS	   (BIT(SIGSEGV) | BIT(SIGBUS))
#define TERMS	   (BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP))
#define NSIGS	   64

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000 /* set by libc, read back by the program */
#endif
/* What the kernel makes of others is its own business: they are read back as it says. */
#define SA_KNOWN                                                                                             \
	(SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER | (int)SA_RESETHAND)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* async signals blocked */
static struct sigaction prog[NSIGS + 1];		 /* of the taken ones (lock) */
static _Atomic(uint64_t) taken;				 /* (lock; read without) */
static _Atomic(uint64_t) unblockable;			 /* FAULTS, once active */
static uint64_t stripped[2]; /* handlers whose mask has SIGSEGV, SIGBUS in the program's view (lock) */

void shim_signals_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void shim_signals_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

uint64_t shim_signals_unblockable(void)
{
	return atomic_load_explicit(&unblockable, memory_order_relaxed);
}

bool shim_signals_share(int signo)
{
	uint64_t shared = FAULTS | atomic_load(&taken) | pol_signals_wanted();
	struct shim_scope s;

	if (shared & BIT(signo))
		return true;
	shim_enter(&s);
	shim_signals_lock();
	stripped[0] &= ~BIT(signo);
	stripped[1] &= ~BIT(signo);
	shim_signals_unlock();
	shim_leave(&s);
	return false;
}

static bool has_handler(const struct sigaction *sa)
{
	return sa->sa_handler != SIG_DFL && sa->sa_handler != SIG_IGN;
}

/* ---- installing (lock held) ---- */

static void on_fault(int signo, siginfo_t *info, void *uc);
static void on_trigger(int signo, siginfo_t *info, void *uc);

/* Fault signals leave the mask of *sa; stripped[] remembers them for the program's view. */
static void strip(int signo, struct sigaction *sa)
{
	uint64_t ub = shim_signals_unblockable();
	int i, f;

	for (i = 0; i < 2; i++) {
		f = i ? SIGBUS : SIGSEGV;
		stripped[i] &= ~BIT(signo);
		if ((ub & BIT(f)) && sigismember(&sa->sa_mask, f)) {
			stripped[i] |= BIT(signo);
			sigdelset(&sa->sa_mask, f);
		}
	}
}

/* Give the kernel what stands for *sa, the program's wish. 0 or -errno. */
static int install(int signo, const struct sigaction *sa, bool take)
{
	struct sigaction k = *sa;
	bool handled = has_handler(sa);

	if (take && (BIT(signo) & FAULTS)) {
		k.sa_sigaction = on_fault;
		/* Without a program's handler nothing tells which stack suits: the alternate one, if there is
		 * one */
		k.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART |
			     (handled ? sa->sa_flags & SA_ONSTACK : SA_ONSTACK) | (sa->sa_flags & ~SA_KNOWN);
		sigemptyset(&k.sa_mask);
	} else if (take) {
		k.sa_sigaction = on_trigger;
		if (!handled)
			sigemptyset(&k.sa_mask);
		k.sa_flags =
			SA_SIGINFO | (handled ? sa->sa_flags & ~(int)SA_RESETHAND : SA_RESTART | SA_ONSTACK);
		strip(signo, &k);
	} else {
		strip(signo, &k);
	}
	return shim_real.sigaction(signo, &k, NULL) == 0 ? 0 : -errno;
}

/* The program's view of signo. */
static void get_view(int signo, struct sigaction *ret)
{
	if (atomic_load(&taken) & BIT(signo)) {
		*ret = prog[signo];
		return;
	}
	(void)shim_real.sigaction(signo, NULL, ret);
	if (stripped[0] & BIT(signo))
		sigaddset(&ret->sa_mask, SIGSEGV);
	if (stripped[1] & BIT(signo))
		sigaddset(&ret->sa_mask, SIGBUS);
}

/* Should the kernel have our handler, given what the program set? An ignored TERM stays ignored, by its
 * children too. */
static bool is_to_take(int signo, const struct sigaction *sa)
{
	return (pol_signals_wanted() & BIT(signo)) && !((BIT(signo) & TERMS) && sa->sa_handler == SIG_IGN);
}

static int set_view(int signo, const struct sigaction *sa)
{
	bool take = is_to_take(signo, sa);
	int err = install(signo, sa, take);

	if (err < 0)
		return err;
	if (!take) {
		atomic_fetch_and(&taken, ~BIT(signo));
		return 0;
	}
	prog[signo] = *sa;
	atomic_fetch_or(&taken, BIT(signo));
	return 0;
}

/* What the program set, as it would read it back from the kernel. */
static void finish_view(int signo)
{
	struct sigaction k;

	if (!(atomic_load(&taken) & BIT(signo)))
		return;
	(void)shim_real.sigaction(signo, NULL, &k);
	prog[signo].sa_flags = (prog[signo].sa_flags & SA_KNOWN) | (k.sa_flags & ~SA_KNOWN);
	prog[signo].sa_restorer = k.sa_restorer;
	sigdelset(&prog[signo].sa_mask, SIGKILL);
	sigdelset(&prog[signo].sa_mask, SIGSTOP);
}

void shim_signals_start(void)
{
	struct sigaction sa;
	int signo;

	shim_signals_lock();
	atomic_store(&unblockable, FAULTS);
	for (signo = 1; signo <= NSIGS; signo++) {
		if (shim_real.sigaction(signo, NULL, &sa) == 0 && has_handler(&sa))
			(void)set_view(signo, &sa); /* of a constructor that was there before us */
	}
	shim_signals_unlock();
	shim_signals_sync();
}

void shim_signals_sync(void)
{
	uint64_t wanted = pol_signals_wanted();
	struct sigaction sa;
	int signo, saved = errno;

	shim_signals_lock();
	for (signo = 1; signo <= NSIGS; signo++) {
		if (!((wanted ^ atomic_load(&taken)) & BIT(signo)))
			continue;
		get_view(signo, &sa);
		if (is_to_take(signo, &sa) != !!(atomic_load(&taken) & BIT(signo)))
			(void)set_view(signo, &sa);
	}
	shim_signals_unlock();
	errno = saved;
}

int shim_signals_action(int signo, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction in, out;
	struct shim_scope s;
	int err = 0, saved = errno;

	if (act)
		in = *act; /* before the lock: it may lie in a managed page */
	shim_enter(&s);
	shim_signals_lock();
	get_view(signo, &out);
	if (act && (err = set_view(signo, &in)) == 0)
		finish_view(signo);
	shim_signals_unlock();
	shim_leave(&s);
	errno = saved;
	if (!err && old)
		*old = out;
	return err;
}

/* ---- delivering ---- */

/* What the program wants done with signo now; a one-shot handler is used up. */
static struct sigaction take_action(int signo)
{
	struct sigaction sa, reset;
	struct shim_scope s;

	shim_enter(&s);
	shim_signals_lock();
	get_view(signo, &sa);
	if (has_handler(&sa) && (sa.sa_flags & (int)SA_RESETHAND)) {
		reset = sa;
		reset.sa_handler = SIG_DFL;
		(void)set_view(signo, &reset);
	}
	shim_signals_unlock();
	shim_leave(&s);
	return sa;
}

/* The default action, for good: a fault happens again when we return, the rest is sent again. */
static void die(int signo, bool happens_again)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	uint64_t bit = BIT(signo);

	(void)shim_real.sigaction(signo, &dfl, NULL);
	if (happens_again)
		return;
	shim_signals_send_self(signo);
	shim_sigmask(SIG_UNBLOCK, &bit, NULL);
}

/* A fault signal that is the program's. raised: by the kernel for an instruction, which it cannot ignore or
 * block. repeats: the instruction would raise this very signal again. */
static void deliver_fault(int signo, siginfo_t *info, ucontext_t *uc, bool raised, bool repeats)
{
	bool is_blocked = shim_signals_blocked(shim_sigset_bits(&uc->uc_sigmask)) & BIT(signo);
	struct sigaction sa;

	if (!raised && is_blocked) {
		shim_tls.deferred |= BIT(signo);
		return;
	}
	sa = take_action(signo);
	if (has_handler(&sa) && !is_blocked)
		shim_signals_call(&sa, signo, info, uc);
	else if (raised || sa.sa_handler != SIG_IGN)
		die(signo, repeats);
}

struct work {
	int signo;
	siginfo_t *info; /* of a fault, or NULL */
	ucontext_t *uc;
	bool ends;
	int ret;
};

static void work(void *arg)
{
	struct work *w = arg;

	if (w->info)
		w->ret = pol_fault(w->info, w->uc);
	else
		pol_signal(w->signo, w->ends);
}

/* Not on the program's stack. The kernel would begin its alternate one anew, under us, for the one handler
 * that nothing else keeps away here: glibc's for setuid(2). */
static void work_apart(struct work *w)
{
	const stack_t *alt = &w->uc->uc_stack;
	const uint64_t setxid = BIT(33);
	struct shim_scope s;

	shim_enter(&s);
	if ((uintptr_t)w - (uintptr_t)alt->ss_sp < alt->ss_size && !(alt->ss_flags & SS_DISABLE))
		shim_sigmask(SIG_BLOCK, &setxid, NULL);
	shim_on_own_stack(work, w);
	shim_leave(&s);
}

static void on_fault(int signo, siginfo_t *info, void *uc)
{
	bool raised = info->si_code > 0, was_inside = shim_tls.inside != 0;
	struct work w = {.info = info, .uc = uc};
	int saved = errno;
	siginfo_t bus;

	if (raised) {
		work_apart(&w);
		errno = saved;
		if (w.ret > 0 || shim_copy_recover(uc))
			return;
	}
	if (was_inside && !raised) {
		shim_tls.deferred |= BIT(signo); /* the program's handler must not run on top of our locks */
		return;
	}
	if (was_inside) {
		pol_crash(info, uc);
		die(signo, true);
		return;
	}
	if (w.ret < 0 && signo != SIGBUS) {
		/* A page of ours that cannot be had: what the kernel says of a file's */
		bus = *info;
		bus.si_signo = signo = SIGBUS;
		bus.si_code = BUS_ADRERR;
		deliver_fault(signo, &bus, uc, true, false);
	} else {
		deliver_fault(signo, info, uc, raised, raised);
	}
	errno = saved;
}

static void on_trigger(int signo, siginfo_t *info, void *uc)
{
	struct sigaction sa = take_action(signo);
	struct work w = {.signo = signo, .uc = uc, .ends = sa.sa_handler == SIG_DFL && (BIT(signo) & TERMS)};
	int saved = errno;

	work_apart(&w);
	errno = saved;
	if (has_handler(&sa))
		sa.sa_sigaction(signo, info,
				uc); /* a plain handler ignores the last two, as with the kernel */
	else if (w.ends)
		die(signo, false);
}
