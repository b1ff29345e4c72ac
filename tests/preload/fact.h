/* SPDX-License-Identifier: MIT */
/*
 * For programs that state facts about POSIX: each prints the same, and exits the same, with txmap preloaded
 * and without. They know nothing of txmap, use files named *.dat in the current directory, and define
 * `facts`.
 */
#ifndef FACT_H
#define FACT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE	  4096u
#define NPAGES(n) ((size_t)(n)*PAGE)

#define UNUSED __attribute__((unused))

static void facts(void);

/* "what: value" */
UNUSED static void fact(const char *what, long value)
{
	printf("%s: %ld\n", what, value);
	fflush(stdout);
}

/* The result of a call that returns -1 and errno. */
UNUSED static int called(const char *what, int ret)
{
	int err = errno;

	if (ret < 0)
		printf("%s: %d %s\n", what, ret, strerrorname_np(err));
	else
		printf("%s: ok\n", what);
	fflush(stdout);
	return ret;
}

UNUSED _Noreturn static void die(const char *what)
{
	printf("%s: failed: %s\n", what, strerror(errno));
	exit(99);
}

UNUSED static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 7 + i / PAGE + 1);
}

/* A file of len patterned bytes; the descriptor, O_RDWR. */
UNUSED static int make(const char *name, size_t len)
{
	unsigned char buf[PAGE];
	size_t i, n, done;
	int fd;

	(void)unlink(name);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		die(name);
	for (done = 0; done < len; done += n) {
		n = len - done < PAGE ? len - done : PAGE;
		for (i = 0; i < n; i++)
			buf[i] = pattern(done + i);
		if (write(fd, buf, n) != (ssize_t)n)
			die("write");
	}
	if (lseek(fd, 0, SEEK_SET) != 0)
		die("lseek");
	return fd;
}

UNUSED static unsigned char *map(int fd, size_t len)
{
	unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* A number that two runs share when the bytes are the same. */
UNUSED static unsigned long sum(const unsigned char *p, size_t len)
{
	unsigned long h = 1469598103934665603ul;

	while (len--)
		h = (h ^ *p++) * 1099511628211ul;
	return h;
}

/* ---- the file as any other program has it: this program again, without a preload ---- */

UNUSED static void raw(const char *name)
{
	char *argv[] = {(char *)"raw", (char *)"raw", (char *)name, NULL}, *envp[] = {NULL};
	pid_t pid;
	int st;

	fflush(stdout);
	pid = vfork();
	if (pid == 0) {
		execve("/proc/self/exe", argv, envp);
		_exit(97);
	}
	if (pid < 0 || waitpid(pid, &st, 0) != pid || st != 0)
		die("raw");
}

static int raw_main(const char *name)
{
	static unsigned char buf[1 << 20];
	int fd = open(name, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return 1;
	n = read(fd, buf, sizeof(buf));
	printf("file %s: %zd bytes, sum %lx\n", name, n, sum(buf, (size_t)n));
	return 0;
}

/* ---- faults ---- */

static sigjmp_buf fault_jmp;
static volatile sig_atomic_t fault_signo;
static void *volatile fault_addr;
static volatile int fault_code;

UNUSED static void on_fault(int signo, siginfo_t *info, void *uc)
{
	(void)uc;
	fault_signo = signo;
	fault_addr = info->si_addr;
	fault_code = info->si_code;
	siglongjmp(fault_jmp, 1);
}

UNUSED static void catch_faults(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	if (sigaction(SIGSEGV, &sa, NULL) || sigaction(SIGBUS, &sa, NULL))
		die("sigaction");
}

/* What one access does; catch_faults() came before. */
UNUSED static void touch(const char *what, volatile unsigned char *p, int store)
{
	fault_signo = 0;
	if (sigsetjmp(fault_jmp, 1) == 0) {
		if (store)
			*p = (unsigned char)store;
		else
			(void)*p;
	}
	if (fault_signo)
		printf("%s: %s, address %s\n", what, fault_signo == SIGBUS ? "SIGBUS" : "SIGSEGV",
		       fault_addr == p ? "right" : "wrong");
	else
		printf("%s: ok\n", what);
	fflush(stdout);
}

/* What sigaction says of a signal; mine: the handler that is meant, or NULL. */
UNUSED static void action(const char *what, int signo, void (*mine)(int))
{
	struct sigaction sa;
	int i, n = 0;

	if (sigaction(signo, NULL, &sa))
		die("sigaction");
	for (i = 1; i < 65; i++)
		n += sigismember(&sa.sa_mask, i) == 1;
	printf("%s: SIG%s %s flags %x mask %d%s\n", what, sigabbrev_np(signo),
	       sa.sa_handler == SIG_DFL		  ? "default"
	       : sa.sa_handler == SIG_IGN	  ? "ignored"
	       : mine && sa.sa_handler == mine ? "ours"
						  : "handler",
	       (unsigned)sa.sa_flags, n, sigismember(&sa.sa_mask, SIGSEGV) ? " with SEGV" : "");
	fflush(stdout);
}

/* The exit of a child: as a shell would tell it. */
UNUSED static void ended(const char *what, pid_t pid)
{
	int st;

	if (pid < 0 || waitpid(pid, &st, 0) != pid)
		die(what);
	if (WIFSIGNALED(st))
		printf("%s: signal %s\n", what, sigabbrev_np(WTERMSIG(st)));
	else
		printf("%s: exit %d\n", what, WEXITSTATUS(st));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "raw") == 0)
		return raw_main(argv[2]);
	facts();
	return 0;
}

#endif
