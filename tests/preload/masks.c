/* SPDX-License-Identifier: MIT */
/* Threads that block every signal, as worker threads do, use the mapping all the same; signals that the
 * program waits for reach it. */
#include "fact.h"
#include <pthread.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/time.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt is still called */

static unsigned char *p;
static int nready, go, nbad;

static void show_mask(const char *what)
{
	sigset_t set;
	int i, n = 0;

	pthread_sigmask(SIG_SETMASK, NULL, &set);
	for (i = 1; i <= 64; i++)
		n += sigismember(&set, i) == 1;
	printf("%s: %d signals, SEGV %d\n", what, n, sigismember(&set, SIGSEGV));
	fflush(stdout);
}

/* Blocks before there is any mapping. */
static void *worker(void *arg)
{
	size_t me = (size_t)arg, i;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	__atomic_add_fetch(&nready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
		sched_yield();
	for (i = 0; i < 64; i++) {
		if (p[NPAGES(i) + me] != pattern(NPAGES(i) + me))
			__atomic_add_fetch(&nbad, 1, __ATOMIC_SEQ_CST);
		p[NPAGES(i) + me] = (unsigned char)me;
		if (i % 16 == me && msync(p, NPAGES(64), MS_SYNC))
			__atomic_add_fetch(&nbad, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static int nhandled;

static void count(int signo)
{
	(void)signo;
	nhandled++;
}

/* Touches pages that nobody loaded, with the mask of the wait it interrupts. */
static void toucher(int signo)
{
	static size_t n = 21;

	p[NPAGES(n++)] = (unsigned char)signo;
}

static void facts(void)
{
	pthread_t th[4];
	struct itimerval soon = {.it_value = {.tv_usec = 20000}};
	struct signalfd_siginfo info;
	struct sigaction sa = {.sa_handler = count}, old;
	sigset_t set, was;
	size_t i;
	int fd, sfd, signo;

	sigfillset(&sa.sa_mask);
	sigaction(SIGUSR2, &sa, NULL); /* before the mapping */
	for (i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, worker, (void *)i);
	while (__atomic_load_n(&nready, __ATOMIC_SEQ_CST) < 4)
		sched_yield();
	fd = make("masks.dat", NPAGES(64));
	p = map(fd, NPAGES(64));
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	fact("wrong", nbad);

	show_mask("start");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, &was);
	kill(getpid(), SIGTERM);
	fact("sigwait", sigwait(&set, &signo) * 256 + signo);
	sfd = signalfd(-1, &set, SFD_CLOEXEC);
	kill(getpid(), SIGINT);
	fact("signalfd", read(sfd, &info, sizeof(info)) * 256 + (long)info.ssi_signo);
	p[NPAGES(20)] = 's';
	fact("signalfd into the mapping", (kill(getpid(), SIGUSR1), read(sfd, p + NPAGES(20), sizeof(info))));
	show_mask("three blocked");
	pthread_sigmask(SIG_SETMASK, &was, NULL);

	sigfillset(&set);
	sigdelset(&set, SIGALRM);
	signal(SIGALRM, toucher);
	setitimer(ITIMER_REAL, &soon, NULL);
	called("sigsuspend with all but one blocked", sigsuspend(&set));
	setitimer(ITIMER_REAL, &soon, NULL);
	called("pselect with all but one blocked", pselect(0, NULL, NULL, NULL, NULL, &set));
	fact("their handler stored", p[NPAGES(21)] + p[NPAGES(22)]);
	show_mask("afterwards");
	fact("by bits", sigblock(1 << (SIGSEGV - 1) | 1 << (SIGHUP - 1)));
	fact("by bits", sigsetmask(0));

	sigaction(SIGUSR2, NULL, &old);
	fact("a full mask reads back",
	     sigismember(&old.sa_mask, SIGSEGV) + sigismember(&old.sa_mask, SIGBUS));
	signal(SIGUSR2, count);
	sigaction(SIGUSR2, NULL, &old);
	fact("and a new one", sigismember(&old.sa_mask, SIGSEGV) + sigismember(&old.sa_mask, SIGUSR2));
	fact("restarts", (old.sa_flags & SA_RESTART) != 0);
	siginterrupt(SIGTERM, 1);
	signal(SIGTERM, count);
	sigaction(SIGTERM, NULL, &old);
	fact("TERM interrupts", (old.sa_flags & SA_RESTART) == 0);
	siginterrupt(SIGTERM, 0);
	sigaction(SIGTERM, NULL, &old);
	fact("TERM restarts", (old.sa_flags & SA_RESTART) != 0);
	raise(SIGTERM);
	fact("handled", nhandled);
	signal(SIGTERM, SIG_IGN);
	raise(SIGTERM);
	fact("ignored", nhandled);
	memset(p + NPAGES(20), 0, PAGE);
	called("msync", msync(p, NPAGES(64), MS_SYNC));
	raw("masks.dat");
}
