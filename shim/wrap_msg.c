/* SPDX-License-Identifier: MIT */
/* Messages: a header that points to a name, to control data and to a list of buffers, and any of it can lie
 * in managed memory. What is received goes to memory of ours first (lend.h): a datagram is taken only once.
 */
#include "real.h"
#include "buf.h"
#include "lend.h"
#include "own.h"
#include "fd.h"
#include <limits.h>
#include <string.h>

#define SHIM_TAKE_MSG(x) x

static size_t iov_bytes(const struct msghdr *m)
{
	return m->msg_iovlen * sizeof(*m->msg_iov);
}

/* A copy of the header when it, and the list it points to, can be read and have a sane length. */
static bool get(const struct msghdr *msg, struct msghdr *ret)
{
	return shim_copy(ret, msg, sizeof(*ret)) && ret->msg_iovlen <= IOV_MAX &&
	       shim_touch(ret->msg_iov, iov_bytes(ret), false);
}

/* m: the copy of *msg. */
static bool is_managed(const struct msghdr *msg, const struct msghdr *m)
{
	return shim_range_is_managed(msg, sizeof(*msg)) ||
	       shim_range_is_managed(m->msg_name, m->msg_namelen) ||
	       shim_range_is_managed(m->msg_control, m->msg_controllen) ||
	       shim_range_is_managed(m->msg_iov, iov_bytes(m)) ||
	       shim_iov_is_managed(m->msg_iov, (int)m->msg_iovlen);
}

static bool needs_help(const struct msghdr *msg, struct msghdr *ret)
{
	return !shim_is_quiet() && get(msg, ret) && is_managed(msg, ret);
}

static void ready_to_send(const struct msghdr *msg, const struct msghdr *m)
{
	(void)shim_touch(msg, sizeof(*msg), false);
	(void)shim_touch(m->msg_name, m->msg_namelen, false);
	(void)shim_touch(m->msg_control, m->msg_controllen, false);
	if (shim_touch(m->msg_iov, iov_bytes(m), false))
		shim_iov_prepare(m->msg_iov, (int)m->msg_iovlen, false);
}

SHIM_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr m;

	if (!needs_help(msg, &m))
		return shim_real.sendmsg(fd, msg, flags);
	return SHIM_READY(ready_to_send(msg, &m), shim_real.sendmsg(fd, msg, flags));
}

/* Descriptors came with it: what is known of their numbers is of files that are closed. */
static void look_at_received(const struct msghdr *m)
{
	struct msghdr copy = *m;
	struct shim_scope s;
	size_t i, n;
	int fd;

	if (!m->msg_controllen || shim_is_idle() || shim_is_stranger())
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
		n = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len > CMSG_LEN(0)
			    ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(fd)
			    : 0;
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (!shim_fd_forget(fd))
				continue;
			shim_enter(&s);
			(void)shim_fd_closing(fd); /* it was closed already: nobody is there to be told */
			shim_leave(&s);
		}
	}
}

static ssize_t receive(int fd, struct msghdr *m, int flags, struct shim_loan *loan)
{
	struct iovec one = shim_lend_list(loan, m->msg_iov, m->msg_iovlen);
	struct msghdr ours = *m;
	ssize_t n;

	if (one.iov_len) {
		ours.msg_iov = &one;
		ours.msg_iovlen = 1;
	}
	pthread_cleanup_push(shim_loan_drop, loan);
	n = shim_real.recvmsg(fd, &ours, flags);
	pthread_cleanup_pop(0);
	if (n >= 0)
		look_at_received(&ours);
	shim_lend_scatter(&one, n, m->msg_iov);
	shim_loan_end(loan, n);
	m->msg_namelen = ours.msg_namelen;
	m->msg_controllen = ours.msg_controllen;
	m->msg_flags = ours.msg_flags;
	return n;
}

SHIM_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct shim_loan loan;
	struct msghdr m;
	ssize_t n;

	if (!needs_help(msg, &m)) {
		n = shim_real.recvmsg(fd, msg, flags);
		if (n >= 0)
			look_at_received(msg);
		return n;
	}
	loan.n = 0;
	FILLS(m.msg_name, m.msg_namelen)
	FILLS(m.msg_control, m.msg_controllen)
	n = receive(fd, &m, flags, &loan);
	if (n < 0)
		return n;
	if (shim_copy(&msg->msg_namelen, &m.msg_namelen, sizeof(m.msg_namelen)) &&
	    shim_copy(&msg->msg_controllen, &m.msg_controllen, sizeof(m.msg_controllen)) &&
	    shim_copy(&msg->msg_flags, &m.msg_flags, sizeof(m.msg_flags)))
		return n;
	return shim_return(-EFAULT);
}

/* ---- several: one after the other, when one of them needs help ---- */

static bool several_need_help(const struct mmsghdr *msgs, unsigned n)
{
	struct msghdr m;
	unsigned i;

	if (shim_is_quiet())
		return false;
	for (i = 0; i < n && i < IOV_MAX; i++)
		if (needs_help(&msgs[i].msg_hdr, &m))
			return true;
	return shim_range_is_managed(msgs, n * sizeof(*msgs));
}

/* Message i moved n bytes. */
static bool is_told(struct mmsghdr *msgs, unsigned i, ssize_t n)
{
	unsigned len = (unsigned)n;

	return shim_copy(&msgs[i].msg_len, &len, sizeof(len));
}

SHIM_EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	int saved = errno;
	unsigned i;
	ssize_t len;

	if (!several_need_help(msgs, n))
		return shim_real.sendmmsg(fd, msgs, n, flags);
	for (i = 0; i < n && i < IOV_MAX; i++) {
		len = shim_own_sendmsg(fd, &msgs[i].msg_hdr, flags);
		if (len < 0 && i == 0)
			return -1;
		if (len < 0 || !is_told(msgs, i, len))
			break;
	}
	errno = saved;
	return (int)i;
}

#define SECOND 1000000000l

static struct timespec after(struct timespec t, struct timespec span, int sign)
{
	t.tv_sec += sign * span.tv_sec;
	t.tv_nsec += sign * span.tv_nsec;
	if (t.tv_nsec < 0 || t.tv_nsec >= SECOND) {
		t.tv_sec += sign;
		t.tv_nsec -= sign * SECOND;
	}
	return t;
}

/* What is left of it, and tell the program. False: nothing is. */
static bool is_time_left(struct timespec until, struct timespec *timeout)
{
	struct timespec now, left;

	(void)shim_real.clock_gettime(CLOCK_MONOTONIC, &now);
	left = after(until, now, -1);
	if (left.tv_sec < 0)
		left = (struct timespec){0};
	(void)shim_copy(timeout, &left, sizeof(left));
	return left.tv_sec || left.tv_nsec;
}

/* The time, as the kernel has it, is looked at after each message. */
SHIM_EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	struct timespec until, span = {0};
	int saved = errno;
	unsigned i;
	ssize_t len;

	if (!several_need_help(msgs, n) || (timeout && !shim_copy(&span, timeout, sizeof(span)))) {
		int got = shim_real.recvmmsg(fd, msgs, n, flags, timeout);

		for (int k = 0; k < got; k++)
			look_at_received(&msgs[k].msg_hdr);
		return got;
	}
	if (span.tv_sec < 0 || span.tv_nsec < 0 || span.tv_nsec >= SECOND)
		return (int)shim_return(-EINVAL);
	(void)shim_real.clock_gettime(CLOCK_MONOTONIC, &until);
	until = after(until, span, 1);
	for (i = 0; i < n; i++) {
		len = shim_own_recvmsg(fd, &msgs[i].msg_hdr, flags & ~MSG_WAITFORONE);
		if (len < 0 && i == 0)
			return -1;
		if (len < 0 || !is_told(msgs, i, len))
			break;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (timeout && !is_time_left(until, timeout)) {
			i++;
			break;
		}
	}
	errno = saved;
	return (int)i;
}

#include "alias.h"
