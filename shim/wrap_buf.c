/* SPDX-License-Identifier: MIT */
/* Calls that only carry the program's buffers to the kernel. */
#include "real.h"
#include "buf.h"

#define SHIM_TAKE_BUF(x) x

bool shim_iov_is_managed(const struct iovec *iov, int niov)
{
	int i;

	for (i = 0; i < niov; i++)
		if (shim_buf_is_managed(iov[i].iov_base, iov[i].iov_len))
			return true;
	return false;
}

void shim_buf_prepare(const void *buf, size_t len, bool fill)
{
	struct shim_scope s;
	int saved = errno;

	if (!shim_buf_is_managed(buf, len))
		return;
	shim_enter(&s);
	(void)pol_prepare(buf, len,
			  fill); /* a page that cannot be had is EFAULT in the kernel, as natively */
	shim_leave(&s);
	errno = saved;
}

void shim_iov_prepare(const struct iovec *iov, int niov, bool fill)
{
	int i;

	for (i = 0; i < niov; i++)
		shim_buf_prepare(iov[i].iov_base, iov[i].iov_len, fill);
}

static bool is_plain(const void *buf, size_t len)
{
	return shim_is_quiet() || !shim_buf_is_managed(buf, len);
}

SHIM_EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	if (is_plain(buf, len))
		return shim_real.send(fd, buf, len, flags);
	return SHIM_READY(shim_buf_prepare(buf, len, false), shim_real.send(fd, buf, len, flags));
}

SHIM_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to,
			   socklen_t tolen)
{
	if (is_plain(buf, len))
		return shim_real.sendto(fd, buf, len, flags, to, tolen);
	return SHIM_READY(shim_buf_prepare(buf, len, false),
			  shim_real.sendto(fd, buf, len, flags, to, tolen));
}

static bool is_plain_msg(const struct msghdr *msg)
{
	return shim_is_quiet() || !msg || !shim_iov_is_managed(msg->msg_iov, (int)msg->msg_iovlen);
}

SHIM_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (is_plain_msg(msg))
		return shim_real.recvmsg(fd, msg, flags);
	return SHIM_READY(shim_iov_prepare(msg->msg_iov, (int)msg->msg_iovlen, true),
			  shim_real.recvmsg(fd, msg, flags));
}

SHIM_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (is_plain_msg(msg))
		return shim_real.sendmsg(fd, msg, flags);
	return SHIM_READY(shim_iov_prepare(msg->msg_iov, (int)msg->msg_iovlen, false),
			  shim_real.sendmsg(fd, msg, flags));
}

#include "alias.h"
