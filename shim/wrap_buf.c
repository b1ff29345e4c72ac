/* SPDX-License-Identifier: MIT */
/* Buffers that are too large, or not described well enough, to be lent: the kernel finds them ready where
 * they are. */
#include "real.h"
#include "buf.h"
#include "lend.h"
#include "own.h"
#include <limits.h>
#include <stdarg.h>

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

static void ready_to_send(const void *buf, size_t len, const void *to, size_t tolen)
{
	shim_buf_prepare(buf, len, false);
	shim_buf_prepare(to, tolen, false);
}

SHIM_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to,
			   socklen_t tolen)
{
	if (is_plain(buf, len) && is_plain(to, tolen))
		return shim_real.sendto(fd, buf, len, flags, to, tolen);
	return SHIM_READY(ready_to_send(buf, len, to, tolen),
			  shim_real.sendto(fd, buf, len, flags, to, tolen));
}

/* ---- lists of buffers ---- */

static bool can_look_at(const struct iovec *iov, unsigned long n)
{
	return n <= IOV_MAX && shim_touch(iov, n * sizeof(*iov), false);
}

static bool needs_help(const struct iovec *iov, unsigned long n)
{
	return !shim_is_quiet() && can_look_at(iov, n) &&
	       (shim_range_is_managed(iov, n * sizeof(*iov)) || shim_iov_is_managed(iov, (int)n));
}

static void ready_lists(const struct iovec *iov, unsigned long n, bool fill, const struct iovec *riov,
			unsigned long rn)
{
	if (can_look_at(iov, n))
		shim_iov_prepare(iov, (int)n, fill);
	(void)can_look_at(riov, rn); /* what it points to is another process's */
}

SHIM_EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *iov, unsigned long n,
				     const struct iovec *riov, unsigned long rn, unsigned long flags)
{
	if (!needs_help(iov, n) && !needs_help(riov, rn))
		return shim_real.process_vm_readv(pid, iov, n, riov, rn, flags);
	return SHIM_READY(ready_lists(iov, n, true, riov, rn),
			  shim_real.process_vm_readv(pid, iov, n, riov, rn, flags));
}

SHIM_EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *iov, unsigned long n,
				      const struct iovec *riov, unsigned long rn, unsigned long flags)
{
	if (!needs_help(iov, n) && !needs_help(riov, rn))
		return shim_real.process_vm_writev(pid, iov, n, riov, rn, flags);
	return SHIM_READY(ready_lists(iov, n, false, riov, rn),
			  shim_real.process_vm_writev(pid, iov, n, riov, rn, flags));
}

SHIM_EXPORT ssize_t vmsplice(int fd, const struct iovec *iov, size_t n, unsigned flags)
{
	if (!needs_help(iov, n))
		return shim_real.vmsplice(fd, iov, n, flags);
	return SHIM_READY(ready_lists(iov, n, false, NULL, 0), shim_real.vmsplice(fd, iov, n, flags));
}

/* ---- a pointer, or not, to something as long as only the driver knows ---- */

#define WITHIN 4096 /* at least so much of it is made ready, as far as it is mapped */

static void ready_around(void *arg, size_t len, bool fill)
{
	if (!shim_range_is_managed(arg, 1))
		return;
	if (len < WITHIN)
		len = WITHIN;
	(void)shim_touch(arg, len, false);
	if (fill)
		(void)shim_touch(arg, len, true);
}

void shim_buf_ready_around(void *arg)
{
	ready_around(arg, WITHIN, true);
}

SHIM_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	bool fill = _IOC_DIR(request) != _IOC_WRITE;
	void *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (is_plain(arg, 1))
		return shim_real.ioctl(fd, request, arg);
	return SHIM_READY(ready_around(arg, _IOC_SIZE(request), fill), shim_real.ioctl(fd, request, arg));
}

SHIM_EXPORT int prctl(int option, ...)
{
	unsigned long arg[4];
	va_list ap;
	int i;

	va_start(ap, option);
	for (i = 0; i < 4; i++)
		arg[i] = va_arg(ap, unsigned long);
	va_end(ap);
	for (i = 0; i < 4 && !shim_is_quiet(); i++)
		shim_buf_ready_around((void *)arg[i]);
	return shim_real.prctl(option, arg[0], arg[1], arg[2], arg[3]);
}

SHIM_EXPORT int semctl(int id, int num, int cmd, ...)
{
	void *arg;
	va_list ap;

	va_start(ap, cmd);
	arg = va_arg(ap, void *); /* the union has the size of a pointer */
	va_end(ap);
	if (is_plain(arg, 1))
		return shim_real.semctl(id, num, cmd, arg);
	return SHIM_READY(shim_buf_ready_around(arg), shim_real.semctl(id, num, cmd, arg));
}

/* ---- a result, or a parameter, that lend.def cannot say ---- */

SHIM_EXPORT char *getcwd(char *buf, size_t len)
{
	struct shim_loan loan;
	char *prog = buf, *ret;

	if (is_plain(buf, len))
		return shim_real.getcwd(buf, len);
	loan.n = 0;
	FILLS(buf, len)
	ret = shim_real.getcwd(buf, len);
	shim_loan_end(&loan, 0);
	return ret ? prog : NULL;
}

SHIM_EXPORT char *__getcwd_chk(char *buf, size_t len, size_t buflen)
{
	return len > buflen ? shim_real.__getcwd_chk(buf, len, buflen) : shim_own_getcwd(buf, len);
}

SHIM_EXPORT mqd_t mq_open(const char *name, int flags, ...)
{
	struct shim_loan loan;
	struct mq_attr *attr;
	mode_t mode;
	va_list ap;
	mqd_t q;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	attr = flags & O_CREAT ? va_arg(ap, struct mq_attr *) : NULL;
	va_end(ap);
	if (shim_is_quiet())
		return shim_real.mq_open(name, flags, mode, attr);
	loan.n = 0;
	STRING(name)
	READS(attr, sizeof(*attr))
	q = shim_real.mq_open(name, flags, mode, attr);
	shim_loan_end(&loan, 0);
	return q;
}

/* A stream's buffer is libc's to fill, by calls that nobody sees: it gets another one. */
SHIM_EXPORT int setvbuf(FILE *f, char *buf, int mode, size_t len)
{
	return shim_real.setvbuf(f, is_plain(buf, len) ? buf : NULL, mode, len);
}

SHIM_EXPORT void setbuffer(FILE *f, char *buf, size_t len)
{
	if (is_plain(buf, len))
		shim_real.setbuffer(f, buf, len);
	else
		(void)shim_real.setvbuf(f, NULL, _IOFBF, len);
}

SHIM_EXPORT void setbuf(FILE *f, char *buf)
{
	if (is_plain(buf, BUFSIZ))
		shim_real.setbuf(f, buf);
	else
		(void)shim_real.setvbuf(f, NULL, _IOFBF, BUFSIZ);
}

#include "alias.h"
