/* SPDX-License-Identifier: MIT */
/* Pointers that only the kernel would have looked at: a bad one is EFAULT, also while a file is mapped. */
#include "place.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void *volatile nowhere = (void *)16; /* the compiler need not know */
#define NOWHERE nowhere

static volatile int minus_one = -1;

static void *guarded(void)
{
	char *p = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + PAGE, PAGE, PROT_NONE))
		die("mmap");
	return p + PAGE;
}

static void lists(const char *what, int fd)
{
	char buf[16];
	struct iovec *end = (struct iovec *)guarded() - 1, iov[2] = {{buf, 4}, {NOWHERE, 4}};

	*end = (struct iovec){buf, 4};
	printf("-- %s\n", what);
	called("readv", (int)readv(fd, NOWHERE, 2));
	called("writev", (int)writev(fd, NOWHERE, 2));
	called("preadv", (int)preadv(fd, NOWHERE, 1, 0));
	called("pwritev", (int)pwritev(fd, NOWHERE, 1, 0));
	called("preadv2", (int)preadv2(fd, NOWHERE, 1, 0, 0));
	called("pwritev2", (int)pwritev2(fd, NOWHERE, 1, 0, 0));
	called("half a list, reading", (int)preadv(fd, end, 2, 0));
	called("half a list, writing", (int)pwritev(fd, end, 2, 0));
	called("a list of none", (int)preadv(fd, NOWHERE, 0, 0));
	called("a negative list", (int)preadv(fd, NOWHERE, minus_one, 0));
	called("a list that is too long", (int)preadv(fd, NOWHERE, 1025, 0));
	fact("second buffer is bad, reading", preadv(fd, iov, 2, 0));
	fact("second buffer is bad, writing", pwritev(fd, iov, 2, 0));
	iov[0].iov_base = NOWHERE;
	called("first buffer is bad", (int)preadv(fd, iov, 1, 0));
	called("bad buffer", (int)pread(fd, NOWHERE, 4, 0));
	called("bad buffer", (int)pwrite(fd, NOWHERE, 4, 0));
	called("no bytes for a bad buffer", (int)pread(fd, NOWHERE, 0, 0));
}

static void messages(void)
{
	struct mmsghdr *last = (struct mmsghdr *)guarded() - 1;
	char buf[16] = {0};
	struct iovec iov = {buf, 4};
	struct msghdr msg = {.msg_iov = NOWHERE, .msg_iovlen = 1};
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		die("socketpair");
	called("sendmsg", (int)sendmsg(sv[0], NOWHERE, 0));
	called("recvmsg", (int)recvmsg(sv[1], NOWHERE, MSG_DONTWAIT));
	called("sendmmsg", sendmmsg(sv[0], NOWHERE, 1, 0));
	called("recvmmsg", recvmmsg(sv[1], NOWHERE, 1, MSG_DONTWAIT, NULL));
	called("sendmsg, bad list", (int)sendmsg(sv[0], &msg, 0));
	called("recvmsg, bad list", (int)recvmsg(sv[1], &msg, MSG_DONTWAIT));
	msg.msg_iov = &iov;
	msg.msg_control = NOWHERE;
	msg.msg_controllen = 100;
	called("sendmsg, bad control", (int)sendmsg(sv[0], &msg, 0));
	msg.msg_control = NULL;
	msg.msg_controllen = 0;
	msg.msg_name = NOWHERE;
	msg.msg_namelen = 10;
	called("sendmsg, bad name", (int)sendmsg(sv[0], &msg, 0));
	msg.msg_namelen = 0;
	msg.msg_iovlen = 5000;
	called("sendmsg, long list", (int)sendmsg(sv[0], &msg, 0));
	msg.msg_iovlen = 1;
	memset(last, 0, sizeof(*last));
	last->msg_hdr = msg;
	called("sendmmsg, the second is bad", sendmmsg(sv[0], last, 2, 0));
	called("recvmmsg, the second is bad", recvmmsg(sv[1], last, 2, MSG_DONTWAIT, NULL));
	called("send", (int)send(sv[0], NOWHERE, 4, 0));
	called("sendto", (int)sendto(sv[0], buf, 4, 0, NOWHERE, 10));
	called("recvfrom, bad length",
	       send(sv[0], buf, 4, 0) == 4 ? (int)recvfrom(sv[1], buf, 4, 0, (void *)buf, NOWHERE) : -9);
	called("getsockname, bad length", getsockname(sv[0], (void *)buf, NOWHERE));
	called("getsockopt, bad length", getsockopt(sv[0], SOL_SOCKET, SO_TYPE, buf, NOWHERE));
}

static void others(void)
{
	struct stat st;

	called("open", open(NOWHERE, O_RDONLY));
	called("stat", stat(NOWHERE, &st));
	called("stat, bad buffer", stat(".", NOWHERE));
	called("fstat, bad buffer", fstat(1, NOWHERE));
	called("rename", rename(NOWHERE, "x"));
	called("unlink", unlink(NOWHERE));
	called("truncate", truncate(NOWHERE, 0));
	called("poll", poll(NOWHERE, 1, 0));
	called("ppoll, bad mask", ppoll(NULL, 0, &(struct timespec){0, 1}, NOWHERE));
	called("epoll_ctl", epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, 0, NOWHERE));
	called("pipe", pipe(NOWHERE));
	called("waitid", waitid(P_ALL, 0, NOWHERE, WEXITED | WNOHANG));
	called("execve", execve(NOWHERE, NOWHERE, NOWHERE));
	called("execve, bad list", execve("/bin/true", NOWHERE, NULL));
	called("sigtimedwait", sigtimedwait(NOWHERE, NULL, NULL));
	called("sigprocmask, bad result", sigprocmask(SIG_BLOCK, NULL, NOWHERE));
	called("not canonical", access((void *)0x5555000000000000, 0));
}

static void facts(void)
{
	int fd = make("bad.dat", NPAGES(4)), other = make("bad.src", NPAGES(4));
	unsigned char *p = map(fd, NPAGES(4));

	p[0] = 1;
	lists("a mapped file", fd);
	lists("another file", other);
	messages();
	others();
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("bad.dat");
	raw("bad.src");
	catch_faults();
	touch("the program's own fault", NOWHERE, 0);
}
