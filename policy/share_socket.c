/* SPDX-License-Identifier: MIT */
/*
 * Descriptors from one process to another: RUNTIME_DIR/PID.share, a Unix socket of packets. One packet asks,
 * one answers.
 *
 * Not the control socket: that one may be switched off, and its thread may wait for a commit of just the
 * process that asks here. This thread waits for nobody. And since the socket is there exactly as long as the
 * process runs this program, whether somebody listens says who is alive, also of one that is stopped.
 */
#define _GNU_SOURCE 1
#include "control_priv.h"
#include "share.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define ANSWER_MSEC  2000 /* so long who asks waits */
#define LATE_MSEC    20	     /* between two tries to be found */
#define SHORT_MSEC   20   /* before another try, while there is no descriptor left */
#define REQUEST_MSEC 500  /* so long who is asked waits for who connected and says nothing */

#define MAGIC	0x68737874u /* "txsh" */
#define VERSION 1u

struct request {
	uint32_t magic, version;
	uint64_t dev, ino;
	uint32_t what; /* enum pol_share_what */
	uint32_t reserved;
};

struct answer {
	uint32_t magic, version;
	int32_t err;
	uint32_t nfds; /* that come with it */
};

union control {
	char room[CMSG_SPACE(POL_SHARE_NFDS * sizeof(int))];
	struct cmsghdr align;
};

/* ---- who is asked ---- */

static int listen_fd = -1;
static pid_t listen_pid; /* whose socket it is; 0: nobody's (pol_lock) */

static int send_answer(int to, int err, const int *fds, unsigned nfds)
{
	struct answer a = {.magic = MAGIC, .version = VERSION, .err = err, .nfds = nfds};
	struct iovec iov = {&a, sizeof(a)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	union control c = {0};
	ssize_t n;

	if (nfds) {
		msg.msg_control = &c;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(nfds * sizeof(int))};
		memcpy(CMSG_DATA(&c.align), fds, nfds * sizeof(int));
	}
	n = vm_sys->sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? (int)n : 0;
}

static void answer(int s)
{
	struct pollfd p = {.fd = s, .events = POLLIN};
	struct request q;
	int fds[POL_SHARE_NFDS], err;
	unsigned n = 0;

	if (!pol_socket_peer_is_allowed(s)) {
		(void)send_answer(s, -EPERM, NULL, 0); /* or not */
		return;
	}
	if (vm_sys->poll(&p, 1, REQUEST_MSEC) <= 0)
		return;
	err = vm_sys->read(s, &q, sizeof(q)) != sizeof(q) || q.magic != MAGIC || q.version != VERSION ? -EPROTO : 0;
	pol_lock(); /* what is given stays while it is sent */
	if (!err)
		err = pol_share_give((dev_t)q.dev, (ino_t)q.ino, (enum pol_share_what)q.what, fds, &n);
	(void)send_answer(s, err, fds, err ? 0 : n); /* who asked may be gone */
	pol_unlock();
}

static int open_socket(void)
{
	char name[32], why[512];
	int err;

	(void)snprintf(name, sizeof(name), "%d.share", vm_sys->getpid());
	err = pol_socket_listen_as(pol_config_get()->runtime_dir, name, SOCK_SEQPACKET, &listen_fd, why, sizeof(why));
	if (!err)
		err = vm_fd_adopt(&listen_fd);
	else
		pol_log(POL_LOG_INFO, "no socket to share by: %s", why);
	return err;
}

static void *serve(void *arg)
{
	(void)pthread_setname_np(pthread_self(), "txmap-share"); /* for people who look at threads */
	for (;;) {
		struct pollfd p = {.fd = listen_fd, .events = POLLIN};
		int s;

		if (vm_sys->poll(&p, 1, pol_share_enter_late() ? -1 : LATE_MSEC) <= 0)
			continue;
		s = vm_sys->accept4(listen_fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (s == -EBADF) { /* somebody closed it by a way that cannot be seen: a raw system call */
			vm_fd_drop(&listen_fd);
			if (open_socket())
				break;
		}
		if (s == -EMFILE || s == -ENFILE || s == -ENOMEM || s == -ENOBUFS)
			(void)vm_sys->poll(NULL, 0, SHORT_MSEC); /* it stays to be accepted: not as fast as we can */
		if (s < 0 || vm_fd_adopt(&s))
			continue;
		answer(s);
		vm_fd_drop(&s);
	}
	return arg;
}

bool pol_share_listens(void)
{
	return listen_pid == vm_sys->getpid();
}

int pol_share_bind(void)
{
	int err = 0, saved = errno;

	pol_lock();
	if (listen_fd < 0)
		err = open_socket();
	if (err && listen_fd >= 0)
		vm_fd_drop(&listen_fd);
	pol_unlock();
	errno = saved;
	return err;
}

int pol_share_listen(void)
{
	int err = 0, saved = errno;

	pol_lock();
	if (!pol_share_listens()) {
		err = listen_fd < 0 ? open_socket() : 0;
		if (!err)
			err = vm_thread_start(serve, NULL, VM_STACK_LEN);
		if (!err)
			listen_pid = vm_sys->getpid();
		else if (listen_fd >= 0)
			vm_fd_drop(&listen_fd);
	}
	pol_unlock();
	errno = saved;
	return err;
}

void pol_share_listen_fork_child(void)
{
	if (listen_fd >= 0 && vm_fd_is_ours(listen_fd))
		vm_fd_drop(&listen_fd);
	listen_fd = -1;
	listen_pid = 0; /* the socket is the parent's */
}

void pol_share_listen_end(void)
{
	char name[32];

	if (!pol_share_listens())
		return;
	(void)snprintf(name, sizeof(name), "%d.share", listen_pid);
	pol_socket_unlink_as(pol_config_get()->runtime_dir, name);
}

/* ---- who asks ---- */

/* The end of the connection, or -errno; -ENOENT: nobody is there. */
static int dial(int dirfd, int32_t pid, int *ret_s)
{
	struct ucred peer;
	unsigned len = sizeof(peer);
	struct stat st;
	char name[32];
	int err;

	*ret_s = pol_socket_new(SOCK_SEQPACKET);
	if (*ret_s < 0)
		return *ret_s;
	err = vm_fd_adopt(ret_s);
	if (err)
		return err;
	(void)snprintf(name, sizeof(name), "%d.share", pid);
	err = pol_socket_name(*ret_s, dirfd, name, true);
	if (!err)
		err = vm_sys->getsockopt(*ret_s, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	if (!err) {
		/* a child made behind our back keeps its parent's socket open */
		(void)snprintf(name, sizeof(name), "/proc/%d", pid);
		if (peer.pid != pid || peer.uid != geteuid() || vm_sys->fstatat(AT_FDCWD, name, &st, 0))
			err = -ENOENT;
	}
	if (err == -ECONNREFUSED || err == -ENOTSOCK || err == -EPROTOTYPE)
		err = -ENOENT;
	else if (err == -EAGAIN)
		err = -ETIMEDOUT; /* more wait there already than it has room for */
	if (err)
		vm_fd_drop(ret_s);
	return err;
}

static int ask(int s, const struct request *q)
{
	struct iovec iov = {(void *)q, sizeof(*q)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = vm_sys->sendmsg(s, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 ? (int)n : 0;
}

/* However many came. */
static unsigned take_fds(struct msghdr *msg, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		unsigned more = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (unsigned i = 0; i < more; i++) {
			int got;

			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
			if (n < POL_SHARE_NFDS)
				fds[n++] = got;
			else
				(void)vm_sys->close(got); /* nobody asked for so many */
		}
	}
	return n;
}

/* 1: the other side is gone without an answer. */
static int receive(int s, enum pol_share_what what, int *ret_fds)
{
	const unsigned wanted = what == POL_SHARE_HANDLE ? VM_SHARE_NFDS : 1;
	struct pollfd p = {.fd = s, .events = POLLIN};
	struct answer a;
	struct iovec iov = {&a, sizeof(a)};
	union control c;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	unsigned nfds;
	ssize_t n;

	if (vm_sys->poll(&p, 1, ANSWER_MSEC) <= 0)
		return -ETIMEDOUT;
	n = vm_sys->recvmsg(s, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return 1;
	nfds = take_fds(&msg, ret_fds); /* they come with an empty packet, too */
	if (!n && !nfds)
		return 1;
	if (n == sizeof(a) && a.magic == MAGIC && a.version == VERSION && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	    nfds == a.nfds && (a.err < 0 ? a.err >= -4095 && !nfds : !a.err && nfds == wanted))
		return a.err;
	while (nfds)
		(void)vm_sys->close(ret_fds[--nfds]); /* of nonsense */
	return -EPROTO;
}

int pol_share_ask(int dirfd, int32_t pid, dev_t dev, ino_t ino, enum pol_share_what what, int *ret_fds)
{
	const struct request q = {.magic = MAGIC, .version = VERSION, .dev = dev, .ino = ino, .what = (uint32_t)what};
	int s, err, saved = errno;

	/* who closes without an answer has just ended, or begins another program: then nobody listens the
	 * next time */
	for (int i = 0; i < 3; i++) {
		err = dial(dirfd, pid, &s);
		if (err)
			break;
		if (what != POL_SHARE_NOTHING)
			err = ask(s, &q) ? 1 : receive(s, what, ret_fds);
		vm_fd_drop(&s);
		if (err != 1)
			break;
	}
	errno = saved;
	return err == 1 ? -EPROTO : err == -ENOENT ? 0 : err ? err : 1;
}
