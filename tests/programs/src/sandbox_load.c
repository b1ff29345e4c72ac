/* SPDX-License-Identifier: MIT */
/* A process that locks itself in with a file mapped, as man-db's children do: what its filter refuses is
 * nothing that it ever asked for itself, so its stores arrive all the same, and those of its children. */
#include "../../preload/fact.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LEN NPAGES(8)

static const int refused[] = {__NR_ioctl, __NR_userfaultfd, __NR_mkdirat, __NR_socket};
#define NREFUSED (sizeof(refused) / sizeof(*refused))

static void lock_in(void)
{
	struct sock_filter code[NREFUSED + 3] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog prog = {.len = NREFUSED + 3, .filter = code};

	for (size_t i = 0; i < NREFUSED; i++)
		code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i],
							   (unsigned char)(NREFUSED - i), 0);
	code[NREFUSED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[NREFUSED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		die("seccomp");
}

static void by_child(void)
{
	int fd = make("child.dat", LEN);
	unsigned char *p = map(fd, LEN);
	pid_t pid, grandchild;

	p[0] = 'a';
	pid = fork();
	if (pid == 0) {
		lock_in();
		p[NPAGES(1)] = 'b';
		grandchild = fork();
		if (grandchild == 0) {
			p[NPAGES(2)] = 'c';
			_exit(p[NPAGES(1)] == 'b' ? 0 : 1);
		}
		ended("grandchild", grandchild);
		_exit(p[NPAGES(2)] == 'c' ? 0 : 1);
	}
	ended("child", pid);
	p[NPAGES(3)] = 'd';
	fact("seen", p[NPAGES(1)] == 'b' && p[NPAGES(2)] == 'c');
	called("msync", msync(p, LEN, MS_SYNC));
	raw("child.dat");
	munmap(p, LEN);
	close(fd);
}

static void by_itself(void)
{
	int fd = make("self.dat", LEN);
	unsigned char *p = map(fd, LEN);
	pid_t pid;

	p[0] = 'a';
	called("msync", msync(p, LEN, MS_SYNC));
	lock_in();
	for (int i = 1; i < 5; i++) {
		p[NPAGES(i)] = (unsigned char)i;
		called("msync", msync(p, LEN, MS_SYNC));
	}
	raw("self.dat");
	pid = fork();
	if (pid == 0) {
		p[NPAGES(5)] = 'e';
		called("msync", msync(p, LEN, MS_SYNC));
		_exit(0);
	}
	ended("child", pid);
	raw("self.dat");
	p[NPAGES(6)] = 'f';
	munmap(p, LEN);
	close(fd);
	raw("self.dat");
}

static void facts(void)
{
	by_child();
	by_itself();
}
