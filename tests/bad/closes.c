/* SPDX-License-Identifier: MIT */
/*
 *	closes FILE READY HOW
 *
 * A daemon with FILE mapped, which stores "one" at 0, closes all descriptors, writes its number to READY and
 * waits for a signal. HOW: loop, close_range, closefrom, syscall; or bare, which no library can see.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void close_bare(void)
{
#if defined(__x86_64__)
	register long rax asm("rax") = SYS_close_range;

	asm volatile("syscall" : "+r"(rax) : "D"(0L), "S"(~0UL), "d"(0L) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 asm("x8") = SYS_close_range, x0 asm("x0") = 0, x1 asm("x1") = -1, x2 asm("x2") = 0;

	asm volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
#endif
}

static void close_all(const char *how)
{
	if (!strcmp(how, "loop"))
		for (int i = 0; i < sysconf(_SC_OPEN_MAX); i++)
			(void)close(i);
	else if (!strcmp(how, "close_range"))
		(void)close_range(0, ~0U, 0);
	else if (!strcmp(how, "closefrom"))
		closefrom(0);
	else if (!strcmp(how, "syscall"))
		(void)syscall(SYS_close_range, 0, ~0U, 0);
	else
		close_bare();
}

int main(int argc, char **argv)
{
	int fd = argc == 4 ? open(argv[1], O_RDWR) : -1;
	char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sigset_t set;
	int sig;

	if (p == MAP_FAILED || daemon(1, 1))
		return 1;
	memcpy(p, "one", 3);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	close_all(argv[3]);
	fd = open(argv[2], O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd != 0 || dprintf(fd, "%d\n", getpid()) < 0 || close(fd))
		return 2;
	(void)sigwait(&set, &sig);
	return p[4096] == 'o' ? 0 : 3;
}
