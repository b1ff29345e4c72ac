/* SPDX-License-Identifier: MIT */
/* The program's own SIGSEGV and SIGBUS handlers: set by each call there is, before or after the mapping; they
 * get the program's faults with the kernel's word for them, on the stack that they asked for, and may leave
 * as they like. */
#include "fact.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/auxv.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sigset and its like are still called */

sighandler_t bsd_signal(int signo, sighandler_t handler); /* exported for old programs only */

#define NSETTERS 5
static const char *const setter_names[NSETTERS] = {"sigaction", "signal", "bsd_signal", "sysv_signal",
						   "sigset"};

static unsigned char *p;
static int fd;
static volatile char *volatile nowhere = (volatile char *)24;
static stack_t alt;
static volatile int on_alt, other_blocked, ncalls;

static bool is_within(const void *q, const stack_t *ss)
{
	return (const char *)q >= (char *)ss->ss_sp && (const char *)q < (char *)ss->ss_sp + ss->ss_size;
}

static void jumper(int signo)
{
	sigset_t now;

	sigprocmask(SIG_SETMASK, NULL, &now);
	other_blocked = sigismember(&now, signo) * 2 + sigismember(&now, SIGUSR1);
	on_alt = is_within(&now, &alt);
	fault_signo = signo;
	ncalls++;
	siglongjmp(fault_jmp, 1);
}

static void jumper3(int signo, siginfo_t *info, void *uc)
{
	ucontext_t *c = uc;

	fault_addr = info->si_addr;
	fault_code = info->si_code;
	if (c->uc_stack.ss_size != alt.ss_size && alt.ss_size)
		fault_code = -77;
	jumper(signo);
}

static int set_by(int setter, int signo)
{
	struct sigaction sa = {.sa_handler = jumper};

	switch (setter) {
	case 0:
		return sigaction(signo, &sa, NULL);
	case 1:
		return signal(signo, jumper) == SIG_ERR;
	case 2:
		return bsd_signal(signo, jumper) == SIG_ERR;
	case 3:
		return sysv_signal(signo, jumper) == SIG_ERR;
	default:
		return sigset(signo, jumper) == SIG_ERR;
	}
}

/* One access whose fault jumps here. */
static void jumps(const char *what, volatile unsigned char *q, int store)
{
	fault_signo = 0;
	fault_code = 0;
	fault_addr = NULL;
	if (sigsetjmp(fault_jmp, 1) == 0) {
		if (store)
			*q = (unsigned char)store;
		else
			(void)*q;
	}
	printf("%s: signal %d code %d address %s, itself blocked %d, USR1 %d, alternate stack %d\n", what,
	       fault_signo, fault_code,
	       fault_addr == q ? "right"
	       : fault_addr    ? "wrong"
			       : "none",
	       other_blocked / 2, other_blocked % 2, on_alt);
	fflush(stdout);
}

/* In a child, since each leaves the process with a handler. */
static void by_setter(int setter, int before)
{
	char what[64];
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid) {
		snprintf(what, sizeof(what), "%s %s", setter_names[setter], before ? "before" : "after");
		ended(what, pid);
		return;
	}
	if (before && (set_by(setter, SIGSEGV) || set_by(setter, SIGBUS)))
		die("set");
	fd = open("faults.dat", O_RDWR);
	p = map(fd, NPAGES(40));
	if (!before && (set_by(setter, SIGSEGV) || set_by(setter, SIGBUS)))
		die("set");
	action("set", SIGSEGV, jumper);
	jumps("managed", p + NPAGES((unsigned)setter), 's');
	jumps("beyond the end", p + NPAGES(36), 0);
	jumps("null", (volatile unsigned char *)nowhere, 0);
	action("afterwards", SIGSEGV, jumper);
	jumps("managed", p + NPAGES(8 + (unsigned)setter), 's');
	_exit(0);
}

static void codes(void)
{
	struct sigaction sa = {.sa_sigaction = jumper3, .sa_flags = SA_SIGINFO};
	unsigned char *guard, *hole;

	sigaddset(&sa.sa_mask, SIGUSR1);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	guard = mmap(NULL, NPAGES(3), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	hole = guard + PAGE;
	munmap(hole, PAGE);
	jumps("read-only page", guard + 5, 'x');
	jumps("hole", hole + 6, 0);
	mprotect(p + NPAGES(3), PAGE, PROT_NONE);
	jumps("managed, no access", p + NPAGES(3) + 7, 0);
	mprotect(p + NPAGES(3), PAGE, PROT_READ);
	jumps("managed, read", p + NPAGES(3) + 7, 0);
	jumps("managed, store", p + NPAGES(3) + 7, 'x');
	mprotect(p + NPAGES(3), PAGE, PROT_READ | PROT_WRITE);
	jumps("managed, store again", p + NPAGES(3) + 7, 'x');
	jumps("not canonical", (unsigned char *)(0xdeadull << 48), 0);
	jumps("beyond the end", p + NPAGES(36) + 3, 0);
	munmap(p + NPAGES(5), PAGE);
	jumps("unmapped", p + NPAGES(5) + 3, 0);
	jumps("behind it", p + NPAGES(6) + 3, 'y');
	sa.sa_flags |= SA_NODEFER;
	sigaction(SIGSEGV, &sa, NULL);
	jumps("not deferred", hole, 0);
	sa.sa_flags |= (int)SA_RESETHAND;
	sigaction(SIGSEGV, &sa, NULL);
	jumps("one shot", hole, 0);
	action("then", SIGSEGV, jumper);
	jumps("managed", p + NPAGES(10), 'z');
	munmap(guard, PAGE);
	munmap(hole + PAGE, PAGE);
}

/* Again and again out of the handler on the smallest alternate stack there may be, and faults of ours on it
 * between. */
static void small_stack(void *memory, size_t size)
{
	struct sigaction sa = {.sa_sigaction = jumper3, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t now;
	volatile int i, good = 0;

	alt = (stack_t){.ss_sp = memory, .ss_size = size};
	if (sigaltstack(&alt, NULL))
		die("sigaltstack");
	sigaction(SIGSEGV, &sa, NULL);
	for (i = 0; i < 100; i++) {
		on_alt = 0;
		if (sigsetjmp(fault_jmp, 1) == 0)
			*nowhere = 1;
		sigaltstack(NULL, &now);
		p[NPAGES(12 + (unsigned)i % 20) + (unsigned)i]++;
		good += on_alt == 1 && now.ss_flags == 0 && fault_code == SEGV_MAPERR;
		if (i % 25 == 0 && msync(p, NPAGES(4), MS_SYNC))
			die("msync");
	}
	fact("on the alternate stack, and out of it", good);
	alt = (stack_t){.ss_flags = SS_DISABLE};
	sigaltstack(&alt, NULL);
	alt.ss_size = 0;
	alt.ss_sp = NULL;
}

/* Touches pages that nobody loaded, in a handler on the small alternate stack, and makes a fault of its own
 * there. */
static void nested(int signo)
{
	sigjmp_buf before;

	memcpy(before, fault_jmp, sizeof(before));
	p[NPAGES(33)] = (unsigned char)signo;
	if (sigsetjmp(fault_jmp, 1) == 0)
		*nowhere = 1;
	p[NPAGES(34)] = (unsigned char)(fault_signo + 1);
	memcpy(fault_jmp, before, sizeof(before));
}

static void within_a_handler(void *memory, size_t size)
{
	struct sigaction sa = {.sa_handler = nested, .sa_flags = SA_ONSTACK};

	alt = (stack_t){.ss_sp = memory, .ss_size = size};
	sigaltstack(&alt, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	sa.sa_handler = jumper;
	sigaction(SIGSEGV, &sa, NULL);
	raise(SIGUSR1);
	fact("touched in a handler, and a fault in it", p[NPAGES(33)] * 256 + p[NPAGES(34)]);
}

/* The stack overflows: only a handler on another stack can tell. */
static int deeper(int n)
{
	volatile char page[PAGE];

	page[0] = (char)n;
	if (n == INT32_MAX) /* never: the stack ends before */
		return 0;
	return page[0] + deeper(n + 1) + page[PAGE - 1];
}

static void *overflow(void *memory)
{
	struct sigaction sa = {.sa_handler = jumper, .sa_flags = SA_ONSTACK};

	alt = (stack_t){.ss_sp = memory, .ss_size = 65536};
	sigaltstack(&alt, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	ncalls = 0;
	for (volatile int i = 0; i < 3; i++)
		if (sigsetjmp(fault_jmp, 1) == 0)
			ncalls += deeper(0);
	fact("stack overflows that were told", ncalls);
	return NULL;
}

static void *touch_all(void *arg)
{
	size_t i, n = (size_t)arg;

	for (i = 0; i < 32; i++)
		p[NPAGES(i) + 100 + n]++;
	return NULL;
}

static void facts(void)
{
	size_t least = getauxval(AT_MINSIGSTKSZ) ? getauxval(AT_MINSIGSTKSZ) : 2048;
	static unsigned char stack[65536] __attribute__((aligned(64)));
	pthread_attr_t attr;
	pthread_t th;
	int i;

	close(make("faults.dat", NPAGES(36)));
	for (i = 0; i < NSETTERS; i++) {
		by_setter(i, 1);
		by_setter(i, 0);
	}
	fd = open("faults.dat", O_RDWR);
	p = map(fd, NPAGES(40));
	codes();
	munmap(p, NPAGES(40));
	p = map(fd, NPAGES(40));
	small_stack(stack, least + 4096);
	within_a_handler(stack, 2 * least + 2 * 4096);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN));
	munmap(p, NPAGES(40));
	p = map(fd, NPAGES(40));
	pthread_create(&th, &attr, touch_all, NULL);
	pthread_join(th, NULL);
	pthread_create(&th, NULL, overflow, stack);
	pthread_join(th, NULL);
	fact("and the mapping is there", p[NPAGES(33)]);
	called("msync", msync(p, NPAGES(36), MS_SYNC));
	raw("faults.dat");
}
