/* SPDX-License-Identifier: MIT */
/* The program's signals are the program's: handlers, dispositions, masks, faults of its own. */
#include "fact.h"

static unsigned char *p;
static int fd;
static volatile sig_atomic_t nhandled, flags_seen;
static volatile char *volatile nowhere = (volatile char *)8;

static void show_mask(const char *what)
{
	sigset_t set;

	pthread_sigmask(SIG_SETMASK, NULL, &set);
	printf("%s: SEGV %d BUS %d USR1 %d TERM %d\n", what, sigismember(&set, SIGSEGV),
	       sigismember(&set, SIGBUS), sigismember(&set, SIGUSR1), sigismember(&set, SIGTERM));
	fflush(stdout);
}

static void plain(int signo)
{
	(void)signo;
	nhandled++;
}

/* Touches the mapping, on a page nobody loaded: no fault may be seen. */
static void toucher(int signo, siginfo_t *info, void *uc)
{
	sigset_t set;

	(void)uc;
	(void)info;
	p[NPAGES(20) + nhandled * PAGE] = (unsigned char)signo;
	nhandled++;
	sigprocmask(SIG_SETMASK, NULL, &set);
	flags_seen = sigismember(&set, SIGUSR2) * 2 + sigismember(&set, signo);
}

/* Makes the bad page good and returns, as garbage collectors do. */
static void repair(int signo, siginfo_t *info, void *uc)
{
	(void)signo;
	(void)uc;
	nhandled++;
	mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static void dies(const char *what, int how)
{
	sigset_t set;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid) {
		ended(what, pid);
		return;
	}
	p[NPAGES(30) + how] = 1;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	switch (how) {
	case 0:
		signal(SIGSEGV, SIG_DFL);
		*nowhere = 1;
		break;
	case 1:
		signal(SIGSEGV, SIG_IGN);
		*nowhere = 1;
		break;
	case 2:
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
		break;
	case 3:
		signal(SIGSEGV, SIG_IGN);
		raise(SIGSEGV);
		_exit(33);
	case 4: /* blocked: no handler runs for a fault */
		catch_faults();
		sigprocmask(SIG_BLOCK, &set, NULL);
		if (sigsetjmp(fault_jmp, 1) == 0)
			*nowhere = 1;
		_exit(34);
	case 5: /* blocked and sent: waits */
		signal(SIGSEGV, plain);
		nhandled = 0;
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGSEGV);
		if (nhandled)
			_exit(35);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		_exit(nhandled == 1 ? 36 : 37);
	case 6:
		signal(SIGBUS, SIG_DFL);
		p[NPAGES(40)] = 1;
		break;
	case 7: { /* one shot */
		struct sigaction sa = {.sa_handler = plain, .sa_flags = (int)SA_RESETHAND};

		sigaction(SIGSEGV, &sa, NULL);
		raise(SIGSEGV);
		action("after one shot", SIGSEGV, NULL);
		raise(SIGSEGV);
		break;
	}
	default:
		break;
	}
	_exit(99);
}

static void facts(void)
{
	struct sigaction sa = {.sa_sigaction = toucher, .sa_flags = SA_SIGINFO | SA_RESTART}, old;
	static unsigned char alt[65536];
	unsigned char *guard;
	stack_t ss = {.ss_sp = alt, .ss_size = sizeof(alt)};
	sigset_t set, was, before;

	fd = make("signals.dat", NPAGES(36));
	signal(SIGUSR1, plain); /* before the mapping */
	sigfillset(&sa.sa_mask);
	sigaction(SIGUSR2, &sa, NULL);
	p = map(fd, NPAGES(44));
	p[0] = 'a';

	action("untouched", SIGSEGV, NULL);
	action("untouched", SIGBUS, NULL);
	action("untouched", SIGTERM, NULL);
	action("untouched", SIGINT, NULL);
	action("before the mapping", SIGUSR1, NULL);
	action("before the mapping", SIGUSR2, NULL);
	raise(SIGUSR2);
	fact("handler with a full mask touches the mapping", nhandled);
	fact("masks in it", flags_seen);

	catch_faults();
	action("own handler", SIGSEGV, NULL);
	touch("null", (volatile unsigned char *)nowhere, 0);
	fact("code", fault_code);
	touch("managed page", p + NPAGES(2), 'b');
	guard = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	touch("read-only page", guard, 'x');
	fact("code", fault_code);
	touch("beyond the end", p + NPAGES(40), 0);
	fact("code", fault_code);
	touch("managed page again", p + NPAGES(3), 'c');

	sa.sa_sigaction = repair;
	sa.sa_flags = SA_SIGINFO | SA_NODEFER;
	nhandled = 0;
	sigaction(SIGSEGV, &sa, &old);
	fact("old is what was set", old.sa_sigaction == on_fault && (old.sa_flags & SA_SIGINFO));
	action("set", SIGSEGV, NULL);
	guard[0] = 'y';
	fact("repaired and gone on", guard[0] * 256 + nhandled);
	mprotect(p + NPAGES(5), PAGE, PROT_NONE);
	p[NPAGES(5)] = 'd';
	fact("repaired a page of the mapping", p[NPAGES(5)] * 256 + nhandled);
	fact("its other bytes", p[NPAGES(5) + 1] == pattern(NPAGES(5) + 1));

	/* the alternate stack */
	sigaltstack(&ss, NULL);
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGSEGV, &sa, NULL);
	action("on the alternate stack", SIGSEGV, NULL);
	touch("null", (volatile unsigned char *)nowhere, 0);
	touch("managed page", p + NPAGES(6), 'e');

	fact("signal returns the old one", (void *)signal(SIGSEGV, SIG_DFL) == (void *)on_fault);
	action("default again", SIGSEGV, NULL);
	signal(SIGTERM, plain);
	action("own", SIGTERM, NULL);
	nhandled = 0;
	raise(SIGTERM);
	fact("handled", nhandled);
	fact("and default", signal(SIGTERM, SIG_DFL) == plain);
	called("bad signal", sigaction(65, NULL, &old));
	called("KILL cannot be caught", sigaction(SIGKILL, &sa, NULL));

	show_mask("mask");
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &was);
	show_mask("blocked");
	p[NPAGES(7)] = 'f'; /* with SIGSEGV blocked */
	fact("stored", p[NPAGES(7)]);
	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, &before);
	show_mask("all blocked");
	fact("old mask had SEGV", sigismember(&before, SIGSEGV));
	p[NPAGES(8)] = 'g';
	called("msync with all blocked", msync(p, NPAGES(36), MS_SYNC));
	show_mask("still all blocked");
	sigprocmask(SIG_SETMASK, &was, &set);
	fact("old mask had BUS", sigismember(&set, SIGBUS));
	show_mask("restored");
	called("bad how", sigprocmask(77, &set, NULL));
	show_mask("unchanged");

	dies("default", 0);
	dies("ignored fault", 1);
	dies("sent, default", 2);
	dies("sent, ignored", 3);
	dies("fault while blocked", 4);
	dies("sent while blocked", 5);
	dies("beyond the end", 6);
	dies("one shot", 7);
	called("msync", msync(p, NPAGES(36), MS_SYNC));
	raw("signals.dat");
}
