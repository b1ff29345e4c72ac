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
 * From the start on, fault signals are never really blocked: not by the program's masks, not while one of its
 * handlers runs. A thread that blocks them today, as many worker threads block everything, may touch a
 * managed page tomorrow, where natively nothing would happen. What the program believes blocked stands in
 * shim_tls.blocked.
 */
#include "real.h"
#include "copy.h"
#include "enter.h"
#include "signals.h"
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define BIT(signo) (1ull << ((signo)-1))
#define FAULTS	   (BIT(SIGSEGV) | BIT(SIGBUS))
#define TERMS	   (BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP))
#define NSIGS	   64

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000 /* set by libc, read back by the program */
#endif

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

static uint64_t to_bits(const sigset_t *set)
{
	uint64_t bits;

	memcpy(&bits, set, sizeof(bits));
	return bits;
}

static bool has_handler(const struct sigaction *sa)
{
	return sa->sa_handler != SIG_DFL && sa->sa_handler != SIG_IGN;
}

static void send_self(int signo)
{
	(void)shim_real.syscall(SYS_tgkill, getpid(), gettid(), signo);
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
			     (handled ? sa->sa_flags & SA_ONSTACK : SA_ONSTACK);
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
	prog[signo].sa_flags = (prog[signo].sa_flags & ~SA_RESTORER) | (k.sa_flags & SA_RESTORER);
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

static void call(const struct sigaction *sa, int signo, siginfo_t *info, void *uc)
{
	sa->sa_sigaction(signo, info, uc); /* a plain handler ignores the last two, as with the kernel */
}

/* The default action, for good: a fault happens again when we return, the rest is sent again. */
static void die(int signo, bool happens_again)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	uint64_t bit = BIT(signo);

	(void)shim_real.sigaction(signo, &dfl, NULL);
	if (happens_again)
		return;
	send_self(signo);
	shim_sigmask(SIG_UNBLOCK, &bit, NULL);
}

/* A fault signal that is the program's. raised: by the kernel for an instruction, which it cannot ignore or
 * block. repeats: the instruction would raise this very signal again. */
static void deliver_fault(int signo, siginfo_t *info, ucontext_t *uc, bool raised, bool repeats)
{
	struct sigaction sa;
	uint64_t mask;

	if (!raised && (shim_tls.blocked & BIT(signo))) {
		shim_tls.deferred |= BIT(signo);
		return;
	}
	sa = take_action(signo);
	if (!has_handler(&sa) || (raised && (shim_tls.blocked & BIT(signo)))) {
		if (raised || sa.sa_handler != SIG_IGN)
			die(signo, repeats);
		return;
	}
	mask = to_bits(&uc->uc_sigmask) | to_bits(&sa.sa_mask);
	if (!(sa.sa_flags & SA_NODEFER))
		mask |= BIT(signo);
	mask &= ~shim_signals_unblockable();
	shim_sigmask(SIG_SETMASK, &mask, NULL);
	call(&sa, signo, info, uc);
	/* and sigreturn restores the mask of uc */
}

static void on_fault(int signo, siginfo_t *info, void *uc)
{
	bool raised = info->si_code > 0, was_inside = shim_tls.inside != 0;
	int saved = errno, r = 0;
	struct shim_scope s;
	siginfo_t bus;

	if (raised) {
		shim_enter(&s);
		r = pol_fault(info, uc);
		shim_leave(&s);
		errno = saved;
		if (r > 0 || shim_copy_recover(uc))
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
	if (r < 0 && signo != SIGBUS) {
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
	bool ends = sa.sa_handler == SIG_DFL && (BIT(signo) & TERMS);
	struct shim_scope s;
	int saved = errno;

	shim_enter(&s);
	pol_signal(signo, ends);
	shim_leave(&s);
	errno = saved;
	if (has_handler(&sa))
		call(&sa, signo, info, uc);
	else if (ends)
		die(signo, false);
}

void shim_signals_flush(void)
{
	uint64_t due = shim_tls.deferred & ~shim_tls.blocked;
	int signo;

	shim_tls.deferred &= ~due;
	for (signo = 1; signo <= NSIGS; signo++)
		if (due & BIT(signo))
			send_self(signo);
}
