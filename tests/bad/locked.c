/* SPDX-License-Identifier: MIT */
/*
 * A process that locks itself in with a file mapped: only what it needs itself is allowed (read, write,
 * memory, signals, exit, and msync unless it does without), everything else is refused, or ends it. It says
 * what its calls say.
 *
 *	locked FILE refuse|kill [more]	more: what txmap asks of such a filter (txmap(7)) is allowed, too
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEN   (16u * 4096)
#define NCODE 100

static struct sock_filter code[NCODE];
static unsigned short ncode;

static void allow(unsigned nr)
{
	code[ncode++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
	code[ncode++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
}

static const unsigned own[] = {
	__NR_read,	     __NR_write, __NR_mmap,	 __NR_munmap,	    __NR_mprotect,
	__NR_futex,	     __NR_brk,	 __NR_msync,	 __NR_rt_sigreturn, __NR_rt_sigaction,
	__NR_rt_sigprocmask, __NR_exit,	 __NR_exit_group};
static const unsigned more[] = {__NR_clock_gettime, __NR_close,	     __NR_fcntl,   __NR_fdatasync,
				__NR_flock,	    __NR_fstat,	     __NR_geteuid, __NR_getpid,
				__NR_getrandom,	    __NR_gettid,     __NR_ioctl,   __NR_lseek,
				__NR_mkdirat,	    __NR_newfstatat, __NR_openat,  __NR_pread64,
				__NR_prlimit64,	    __NR_pwritev2,   __NR_statx,   __NR_unlinkat};

static int lock_in(int argc, char **argv)
{
	struct sock_fprog prog = {.filter = code};

	code[ncode++] =
		(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		allow(own[i]);
	for (size_t i = 0; argc > 3 && i < sizeof(more) / sizeof(*more); i++)
		allow(more[i]);
	code[ncode++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, !strcmp(argv[2], "kill")
									      ? SECCOMP_RET_KILL_PROCESS
									      : SECCOMP_RET_ERRNO | EPERM);
	prog.len = ncode;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void say(const char *what, int ret)
{
	char line[100];
	int n = snprintf(line, sizeof(line), "%s: %s\n", what, ret ? strerrorname_np(errno) : "ok");

	if (write(1, line, (size_t)n) != n)
		_exit(3);
}

int main(int argc, char **argv)
{
	int fd = argc > 2 ? open(argv[1], O_RDWR) : -1;
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return 2;
	memcpy(p, "one", 3);
	say("before", msync(p, LEN, MS_SYNC));
	if (lock_in(argc, argv))
		return 77;
	for (unsigned off = 0; off < LEN; off += 4096)
		memcpy(p + off, "two", 3);
	say("stored", memcmp(p + LEN - 4096, "two", 3));
	say("msync", msync(p, LEN, MS_SYNC));
	say("munmap", munmap(p, LEN));
	_exit(0);
}
