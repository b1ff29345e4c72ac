/* SPDX-License-Identifier: MIT */
/* While a call waits for something to put into a page, that page is committed: what then comes arrives, once
 * and whole. */
#include "place.h"
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static int in, out, queue; /* what the case waits for, and where it comes from */
static char *buf;	   /* in a page that was stored to */
static _Atomic pid_t waiter;
static long result;
static int result_errno;
static pid_t child;

/* Is the thread asleep, or at its end? */
static int is_waiting(pid_t tid)
{
	char path[64], text[256] = {0}, *state;
	int fd, sleeps;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 1;
	sleeps = read(fd, text, sizeof(text) - 1) <= 0 || !(state = strrchr(text, ')')) || state[2] != 'R';
	close(fd);
	return sleeps;
}

static long w_recv(void)
{
	return recv(in, buf, 1000, 0);
}

static long w_read(void)
{
	return read(in, buf, 1000);
}

static long w_recvfrom(void)
{
	socklen_t *len = (void *)(buf + 3000);

	*len = 100;
	return recvfrom(in, buf, 1000, 0, (void *)(buf + 2000), len);
}

static long w_all(void)
{
	return recv(in, buf, 3000, MSG_WAITALL);
}

static long w_poll(void)
{
	*(struct pollfd *)(void *)buf = (struct pollfd){.fd = in, .events = POLLIN};
	return poll((void *)buf, 1, -1) * 100 + ((struct pollfd *)(void *)buf)->revents;
}

/* The second one is another thread's to change meanwhile: the kernel stores to revents only. */
static long w_poll_two(void)
{
	struct pollfd *fds = (void *)buf;

	fds[0] = (struct pollfd){.fd = in, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = -1, .events = POLLIN};
	return poll(fds, 2, -1) * 1000 + fds[1].events;
}

static void come(void)
{
	static const char text[1000] = "what comes";

	if (write(out, text, sizeof(text)) != (ssize_t)sizeof(text))
		die("write");
}

static void change_and_come(void)
{
	((struct pollfd *)(void *)buf)[1].events = 77;
	come();
}

static long w_select(void)
{
	fd_set *set = (void *)buf;

	FD_ZERO(set);
	FD_SET(in, set);
	return select(in + 1, set, NULL, NULL, NULL) * 100 + !!FD_ISSET(in, set);
}

static long w_epoll(void)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = 66};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, in, &ev))
		die("epoll_ctl");
	return epoll_wait(ep, (void *)buf, 10, -1) * 100 + (int)((struct epoll_event *)(void *)buf)->data.u32;
}

static long w_readv(void)
{
	struct iovec iov[2] = {{buf, 7}, {buf + 500, 500}};

	return readv(in, iov, 2);
}

static long w_recvmsg(void)
{
	struct iovec iov[2] = {{buf, 7}, {buf + 500, 500}};
	struct msghdr *msg = (void *)(buf + 2000);

	memset(msg, 0, sizeof(*msg));
	msg->msg_iov = iov;
	msg->msg_iovlen = 2;
	return recvmsg(in, msg, 0);
}

static long w_recvmmsg(void)
{
	struct iovec iov = {buf, 500};
	struct mmsghdr *msgs = (void *)(buf + 2000);

	memset(msgs, 0, sizeof(*msgs));
	msgs->msg_hdr.msg_iov = &iov;
	msgs->msg_hdr.msg_iovlen = 1;
	return recvmmsg(in, msgs, 1, 0, NULL) * 1000 + msgs->msg_len;
}

static long w_raw(void)
{
	return syscall(SYS_recvfrom, in, buf, 1000, 0, NULL, NULL);
}

static long w_wait(void)
{
	return waitpid(child, (void *)buf, 0) == child ? *(int *)(void *)buf : -1;
}

static long w_msgrcv(void)
{
	return msgrcv(queue, buf, 100, 0, 0);
}

static long w_accept(void)
{
	int len = 100, fd;

	memcpy(buf + 2000, &len, sizeof(len));
	fd = accept(in, (void *)buf, (void *)(buf + 2000));
	close(fd);
	return fd < 0 ? -1 : ((struct sockaddr *)(void *)buf)->sa_family;
}

static void *wait_for_it(void *fn)
{
	*buf = 'x';
	waiter = gettid();
	result = ((long (*)(void))fn)();
	result_errno = errno;
	return NULL;
}

static void event(void)
{
	if (eventfd_write(out, 12))
		die("eventfd");
}

static void touched(void)
{
	close(open("watched/new", O_CREAT | O_RDWR, 0600));
}

static void end_child(void)
{
	kill(child, SIGUSR1);
}

static void message(void)
{
	struct {
		long type;
		char text[4];
	} m = {5, "abc"};

	if (msgsnd(queue, &m, 4, 0))
		die("msgsnd");
}

static void knock(void)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	if (getsockname(in, (void *)&a, &len) || connect(out, (void *)&a, len))
		die("connect");
}

/* Commit while fn waits, let `it` come, `times` of it, each with a commit before. */
static void during(const char *what, long (*fn)(void), void (*it)(void), int times)
{
	pthread_t t;

	waiter = 0;
	buf = place(DIRTY, PAGE);
	fflush(stdout);
	if (pthread_create(&t, NULL, wait_for_it, (void *)fn))
		die("pthread_create");
	while (!waiter)
		sched_yield();
	while (times--) {
		while (!is_waiting(waiter))
			sched_yield();
		settle(CLEAN);
		it();
	}
	if (pthread_join(t, NULL))
		die("pthread_join");
	printf("%s: %ld %s\n", what, result, result < 0 ? strerrorname_np(result_errno) : "");
	fact("begins with", buf[0]);
	fflush(stdout);
}

static void of_kind(const char *name, int type)
{
	int sv[2];

	if (type < 0 ? pipe(sv) : socketpair(AF_UNIX, type, 0, sv))
		die(name);
	in = sv[0];
	out = sv[1];
	printf("-- %s\n", name);
	during("read", w_read, come, 1);
	during("readv", w_readv, come, 1);
	if (type == SOCK_STREAM || type < 0)
		during("the rest", w_read, come, 1);
	if (type >= 0) {
		during("recv", w_recv, come, 1);
		during("recvfrom", w_recvfrom, come, 1);
		if (type == SOCK_DGRAM) {
			during("recvmsg", w_recvmsg, come, 1);
			during("recvmmsg", w_recvmmsg, come, 1);
		}
		during("by number", w_raw, come, 1);
	}
	if (type == SOCK_STREAM)
		during("recv all", w_all, come, 3);
	close(in), close(out);
}

static void facts(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int pi[2];

	places("wait.dat");
	of_kind("stream", SOCK_STREAM);
	of_kind("datagrams", SOCK_DGRAM);
	of_kind("pipe", -1);
	in = out = eventfd(0, 0);
	during("eventfd", w_read, event, 1);
	close(in);
	in = inotify_init1(0);
	if (mkdir("watched", 0700) || inotify_add_watch(in, "watched", IN_CREATE) < 0)
		die("watch");
	during("inotify", w_read, touched, 1);
	close(in);
	if (pipe(pi))
		die("pipe");
	in = pi[0];
	out = pi[1];
	during("poll", w_poll, come, 1);
	if (read(in, (char[1000]){0}, 1000) != 1000)
		die("read");
	during("poll, changed meanwhile", w_poll_two, change_and_come, 1);
	if (read(in, (char[1000]){0}, 1000) != 1000)
		die("read");
	during("select", w_select, come, 1);
	if (read(in, (char[1000]){0}, 1000) != 1000)
		die("read");
	during("epoll_wait", w_epoll, come, 1);
	in = socket(AF_INET, SOCK_STREAM, 0);
	out = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(in, (void *)&any, sizeof(any)) || listen(in, 1))
		die("listen");
	during("accept", w_accept, knock, 1);
	queue = msgget(IPC_PRIVATE, 0600);
	during("msgrcv", w_msgrcv, message, 1);
	msgctl(queue, IPC_RMID, NULL);
	child = fork();
	if (child == 0) {
		for (;;)
			pause();
	}
	during("waitpid", w_wait, end_child, 1);
}
