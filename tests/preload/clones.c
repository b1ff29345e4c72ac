/* SPDX-License-Identifier: MIT */
/* Children that fork(3) did not make: clone(2) and clone3(2) as functions and by number, with a memory of
 * their own or their parent's. They find what their parent stored, also on pages that nobody loaded, and what
 * they store is in the file. */
#include "fact.h"
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

static unsigned char *p;
static int fd;

/* 0: all that a child does went well. */
static int in_child(int i)
{
	size_t k, at = NPAGES(8 + 4 * i);
	char c;

	for (k = 0; k < NPAGES(4); k += 512) /* first touched here */
		if (p[at + k] != pattern(at + k))
			return 50;
	if (p[0] != 'a')
		return 51;
	p[at] = (unsigned char)('0' + i);
	p[1 + i] = (unsigned char)('0' + i);
	if (pread(fd, &c, 1, (off_t)at) != 1 || c != '0' + i)
		return 52;
	return i == 2 && msync(p, PAGE, MS_SYNC) ? 53 : 7;
}

static int child(void *arg)
{
	return in_child(*(int *)arg);
}

static void done(const char *what, pid_t pid, int i)
{
	ended(what, pid);
	fact("seen", p[1 + i] * 256 + p[NPAGES(8 + 4 * i)]);
	p[NPAGES(8 + 4 * i) + 1] = 'p';
	called("msync", msync(p, PAGE, MS_SYNC));
	raw("clones.dat");
}

static void facts(void)
{
	static char stack[65536] __attribute__((aligned(64)));
	struct clone_args args = {.exit_signal = SIGCHLD};
	int i = 0;
	pid_t pid;

	fd = make("clones.dat", NPAGES(64));
	p = map(fd, NPAGES(64));
	p[0] = 'a';

	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		_exit(in_child(i));
	done("clone by number", pid, i++);

	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		_exit(in_child(i));
	done("clone3 by number", pid, i++);

	pid = clone(child, stack + sizeof(stack), SIGCHLD, &i);
	done("clone with a stack", pid, i++);

	pid = clone(child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &i);
	done("clone in its parent's memory", pid, i++);

	pid = vfork();
	if (pid == 0)
		_exit(in_child(i));
	done("vfork", pid, i++);
	called("clone with a bad flag",
	       (int)syscall(SYS_clone, CLONE_THREAD | SIGCHLD, NULL, NULL, NULL, NULL));
	called("clone3 of a bad size", (int)syscall(SYS_clone3, &args, 8));
	fact("untouched bytes", p[NPAGES(60)] == pattern(NPAGES(60)));
}
