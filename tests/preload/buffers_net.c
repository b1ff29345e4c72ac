/* SPDX-License-Identifier: MIT */
/* Sockets: addresses, options, messages and their parts, in memory of every kind. */
#include "place.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct sockaddr_in any(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return a;
}

/* A value in that place; in a bad one nothing. */
static void *with(enum place k, const void *val, size_t len)
{
	void *p = place(k, len);

	if (k < GOOD)
		memcpy(p, val, len);
	return p;
}

static void addresses(enum place k)
{
	struct sockaddr_in a = any(), peer, *to;
	int fd = socket(AF_INET, SOCK_STREAM, 0), c, s, *val;
	socklen_t len = sizeof(a), *lenp;

	to = with(k, &a, sizeof(a));
	if (k < GOOD)
		settle(k);
	told("bind", k, bind(fd, (void *)to, sizeof(a)), 1);
	if (k >= GOOD && bind(fd, (void *)&a, sizeof(a)))
		die("bind");
	if (listen(fd, 5))
		die("listen");
	to = place(k, sizeof(*to));
	lenp = with(k < GOOD ? k : DIRTY, &len, sizeof(len));
	*lenp = sizeof(a);
	told("getsockname", k, getsockname(fd, (void *)to, lenp), to->sin_family == AF_INET);
	fact("length", (long)*lenp);
	if (getsockname(fd, (void *)&a, &len))
		die("getsockname");
	lenp = place(k, sizeof(*lenp));
	if (k < GOOD)
		*lenp = 4, settle(k);
	told("getsockname, short", k, getsockname(fd, (void *)&peer, lenp), *lenp == sizeof(a));

	c = socket(AF_INET, SOCK_STREAM, 0);
	to = with(k, &a, sizeof(a));
	if (k < GOOD)
		settle(k);
	told("connect", k, connect(c, (void *)to, sizeof(a)), 1);
	if (k >= GOOD && connect(c, (void *)&a, sizeof(a)))
		die("connect");
	to = place(k, sizeof(*to));
	len = sizeof(*to);
	told("accept", k, (s = accept(fd, (void *)to, &len)) < 0 ? -1 : 0, to->sin_family == AF_INET);
	to = place(k, sizeof(*to));
	len = sizeof(*to);
	told("getpeername", k, getpeername(c, (void *)to, &len), to->sin_port == a.sin_port);

	val = place(k, sizeof(*val));
	len = sizeof(*val);
	told("getsockopt", k, getsockopt(c, SOL_SOCKET, SO_TYPE, val, &len), *val == SOCK_STREAM);
	val = with(k, &(int){1}, sizeof(*val));
	if (k < GOOD)
		settle(k);
	told("setsockopt", k, setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, val, sizeof(*val)), 1);
	val = place(k, 2 * sizeof(*val));
	told("socketpair", k, socketpair(AF_UNIX, SOCK_STREAM, 0, val), val[0] > 2 && val[1] > val[0]);
	if (k < GOOD)
		close(val[0]), close(val[1]);
	close(fd), close(c), close(s);
}

static void datagrams(enum place k)
{
	static const char text[1000] = "a datagram";
	struct sockaddr_in a = any(), *from;
	int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(a), *lenp;
	struct sockaddr_in *to;
	char *buf;

	if (bind(in, (void *)&a, sizeof(a)) || getsockname(in, (void *)&a, &len))
		die("bind");
	to = with(k, &a, sizeof(a));
	buf = with(k < GOOD ? k : FRESH, text, sizeof(text));
	if (k < GOOD)
		settle(k);
	told("sendto", k, sendto(out, buf, sizeof(text), 0, (void *)to, sizeof(a)), 1);
	if (k >= GOOD)
		sendto(out, text, sizeof(text), 0, (void *)&a, sizeof(a));
	buf = place(k < GOOD ? k : CLEAN, sizeof(text));
	from = place(k, sizeof(*from));
	lenp = with(k < GOOD ? k : CLEAN, &(socklen_t){sizeof(*from)}, sizeof(len));
	settle(k);
	told("recvfrom", k, recvfrom(in, buf, sizeof(text), 0, (void *)from, lenp),
	     from->sin_family == AF_INET && !memcmp(buf, text, sizeof(text)));

	buf = place(k, sizeof(text));
	told("send", k, connect(out, (void *)&a, sizeof(a)) ? -2 : send(out, buf, sizeof(text), 0), 1);
	if (k >= GOOD)
		send(out, text, sizeof(text), 0);
	buf = place(k, sizeof(text));
	told("recv", k, recv(in, buf, sizeof(text), MSG_DONTWAIT), 1);
	close(in), close(out);
}

/* All parts of a message in places of that kind; in a bad one only the buffers. */
static void messages(enum place k)
{
	static const char text[2000];
	char control[CMSG_SPACE(sizeof(int))] = {0}, *buf;
	struct msghdr *msg, m = {0};
	struct cmsghdr *cm;
	struct iovec *iov;
	int sv[2], got;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		die("socketpair");
	cm = (void *)control;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(cm), &(int){1}, sizeof(int));

	msg = k < GOOD ? place(k, sizeof(*msg)) : &m;
	memset(msg, 0, sizeof(*msg));
	iov = k < GOOD ? place(k, 2 * sizeof(*iov)) : (struct iovec[2]){{0}};
	buf = place(k, 2000);
	iov[0] = (struct iovec){buf, 1200};
	iov[1] = (struct iovec){buf + 1200, 800};
	msg->msg_iov = iov;
	msg->msg_iovlen = 2;
	msg->msg_control = with(k < GOOD ? k : CLEAN, control, sizeof(control));
	msg->msg_controllen = sizeof(control);
	if (k < GOOD)
		settle(k);
	told("sendmsg", k, sendmsg(sv[0], msg, 0), 1);
	if (k >= GOOD && send(sv[0], text, 2000, 0) != 2000)
		die("send");

	msg = k < GOOD ? place(k, sizeof(*msg)) : &m;
	memset(msg, 0, sizeof(*msg));
	iov = k < GOOD ? place(k, 2 * sizeof(*iov)) : (struct iovec[2]){{0}};
	buf = place(k, 2000);
	iov[0] = (struct iovec){buf, 1200};
	iov[1] = (struct iovec){buf + 1200, 800};
	msg->msg_iov = iov;
	msg->msg_iovlen = 2;
	msg->msg_control = place(k < GOOD ? k : CLEAN, sizeof(control));
	msg->msg_controllen = sizeof(control);
	if (k < GOOD)
		settle(k);
	told("recvmsg", k, recvmsg(sv[1], msg, MSG_DONTWAIT), 1);
	if (k < GOOD) {
		fact("control", (long)msg->msg_controllen);
		cm = CMSG_FIRSTHDR(msg);
		memcpy(&got, CMSG_DATA(cm), sizeof(got));
		fact("descriptor works", fcntl(got, F_GETFD) >= 0);
		close(got);
	}
	close(sv[0]), close(sv[1]);
}

static void several(enum place k)
{
	struct mmsghdr *msgs = place(k, 3 * sizeof(*msgs));
	struct iovec *iov = place(k < GOOD ? k : CLEAN, 3 * sizeof(*iov));
	char *buf = place(k < GOOD ? k : CLEAN, 300);
	struct timespec late = {.tv_sec = 1000};
	int sv[2], i;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		die("socketpair");
	memset(buf, 'x', 300);
	if (k < GOOD) {
		memset(msgs, 0, 3 * sizeof(*msgs));
		for (i = 0; i < 3; i++) {
			iov[i] = (struct iovec){buf + 100 * i, 100u - (unsigned)i};
			msgs[i].msg_hdr.msg_iov = &iov[i];
			msgs[i].msg_hdr.msg_iovlen = 1;
		}
		settle(k);
	}
	told("sendmmsg", k, sendmmsg(sv[0], msgs, 3, 0), msgs[2].msg_len == 98);
	if (k < GOOD)
		settle(k);
	told("recvmmsg", k, recvmmsg(sv[1], msgs, 3, MSG_DONTWAIT, &late), msgs[2].msg_len == 98);
	told("recvmmsg of nothing", k, recvmmsg(sv[1], msgs, 3, MSG_DONTWAIT, NULL), 1);
	close(sv[0]), close(sv[1]);
}

static void facts(void)
{
	places("net.dat");
	for (enum place k = 0; k < NPLACES; k++) {
		addresses(k);
		datagrams(k);
		messages(k);
		several(k);
	}
}
