/* SPDX-License-Identifier: MIT */
/*
 *	confine denied|usermode COMMAND [ARG...]
 *
 * Runs it, and all its children, where userfaultfd is not to be had at all, or only for faults of user mode
 * (as an ordinary user has it). The command is what it was before in all else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USER_MODE_ONLY 1	    /* UFFD_USER_MODE_ONLY */
#define DEV_NEW	       _IO(0xAA, 0) /* USERFAULTFD_IOC_NEW, of /dev/userfaultfd */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOW(arg)    (offsetof(struct seccomp_data, args[arg]) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0))
#define LOAD_ARG(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(n))
/* Steps to skip when equal, or not. */
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define HAS(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (yes), (no))

int main(int argc, char **argv)
{
	unsigned allowed = argc > 1 && !strcmp(argv[1], "usermode") ? USER_MODE_ONLY : 0;
	struct sock_filter code[] = {
		LOAD(nr),
		IS(__NR_userfaultfd, 3, 0), /* flags are its first argument */
		IS(__NR_ioctl, 0, 6),
		LOAD_ARG(1),
		IS(DEV_NEW, 2, 4), /* and of this its third */
		LOAD_ARG(0),
		BPF_STMT(BPF_JMP | BPF_JA, 1),
		LOAD_ARG(2),
		HAS(allowed, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(*code), .filter = code};

	if (argc < 3 || (!allowed && strcmp(argv[1], "denied"))) {
		fprintf(stderr, "usage: confine denied|usermode COMMAND [ARG...]\n");
		return 2;
	}
	/* the rest is allowed: set-user-ID programs are tested elsewhere */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
		perror("seccomp");
		return 99;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
