/* SPDX-License-Identifier: MIT */
/*
 * read and write families. On a descriptor of a live file they go through its handle, so that they agree with
 * the mappings; what the handle has no opinion on (no bytes, a bad count) gets libc's answer. On any other
 * descriptor only the buffers can be ours.
 */
#include "real.h"
#include "own.h"
#include "buf.h"
#include "fd.h"
#include "lend.h"
#include <limits.h>

#define SHIM_TAKE_RW(x) x

#define POSITION (-1) /* offset: where the descriptor stands */

struct rw {
	int fd;
	const struct iovec *iov;
	int niov;
	off_t off; /* or POSITION */
	int flags; /* RWF_* */
	bool fill; /* the kernel stores into the buffers: a read */
};

/* Does it move bytes, as far as the arguments go? */
static bool is_transfer(const struct rw *rw)
{
	size_t len = 0;
	int i;

	if (rw->niov <= 0 || rw->niov > IOV_MAX || rw->off < POSITION)
		return false;
	for (i = 0; i < rw->niov; i++) {
		if (rw->iov[i].iov_len > (size_t)SSIZE_MAX - len)
			return false;
		len += rw->iov[i].iov_len;
	}
	return len > 0;
}

/* O_DIRECT pins pages and fills them after the page tables said who writes: say it again after the call. */
static void after_fill(const struct rw *rw, ssize_t ret)
{
	int saved = errno;

	if (rw->fill && ret > 0 && (shim_real.fcntl(rw->fd, F_GETFL) & O_DIRECT))
		shim_iov_prepare(rw->iov, rw->niov, true);
	errno = saved;
}

/* On the handle. False: libc's turn. */
static bool on_handle(const struct rw *rw, ssize_t *ret)
{
	struct shim_scope s;
	ssize_t n;

	if (!is_transfer(rw) || !shim_begin(rw->fd, &s))
		return false;
	n = rw->fill ? pol_read(s.m, rw->fd, rw->iov, rw->niov, rw->off, rw->flags)
		     : pol_write(s.m, rw->fd, rw->iov, rw->niov, rw->off, rw->flags);
	*ret = shim_end(&s, n);
	return true;
}

static bool is_file(int fd)
{
	struct stat st;
	int saved = errno;
	bool is_regular = shim_real.fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

	errno = saved;
	return is_regular;
}

/* A file gives all it has: a count that stopped at a page which was protected meanwhile is taken up again, as
 * natively there is no such stop. Only for one buffer, and only for regular files. */
static bool is_stopped_short(const struct rw *rw, ssize_t done)
{
	return rw->niov == 1 && done > 0 && (size_t)done < rw->iov->iov_len && is_file(rw->fd);
}

/* The bare transfer, as the rw says, from byte `done` of a single buffer on. */
static ssize_t transfer(const struct rw *rw, size_t done)
{
	struct iovec one;
	const struct iovec *iov = rw->iov;

	if (done) {
		one.iov_base = (char *)iov->iov_base + done;
		one.iov_len = iov->iov_len - done;
		iov = &one;
	}
	if (rw->flags)
		return (rw->fill ? shim_real.preadv2 : shim_real.pwritev2)(
			rw->fd, iov, rw->niov, rw->off == POSITION ? POSITION : rw->off + (off_t)done, rw->flags);
	if (rw->off == POSITION)
		return rw->fill ? shim_real.readv(rw->fd, iov, rw->niov)
				: shim_real.writev(rw->fd, iov, rw->niov);
	return rw->fill ? shim_real.preadv(rw->fd, iov, rw->niov, rw->off + (off_t)done)
			: shim_real.pwritev(rw->fd, iov, rw->niov, rw->off + (off_t)done);
}

/* What comes from a descriptor that is no file can be taken only once. */
static ssize_t taken_once(const struct rw *rw)
{
	struct shim_loan loan;
	struct iovec one;
	ssize_t n;

	loan.n = 0;
	one = shim_lend_list(&loan, rw->iov, (size_t)rw->niov);
	if (!one.iov_len)
		return transfer(rw, 0);
	pthread_cleanup_push(shim_loan_drop, &loan);
	n = shim_real.read(rw->fd, one.iov_base, one.iov_len);
	pthread_cleanup_pop(0);
	shim_lend_scatter(&one, n, rw->iov);
	shim_loan_end(&loan, n);
	return n;
}

/* Buffers of ours on a descriptor that is not. */
static ssize_t with_buffers(const struct rw *rw)
{
	ssize_t n, done;
	int saved = errno;

	if (rw->fill && rw->off == POSITION && !rw->flags && !is_file(rw->fd))
		return taken_once(rw);
	done = SHIM_READY(shim_iov_prepare(rw->iov, rw->niov, rw->fill), transfer(rw, 0));
	while (is_stopped_short(rw, done)) {
		n = SHIM_READY(shim_iov_prepare(rw->iov, rw->niov, rw->fill), transfer(rw, (size_t)done));
		if (n <= 0) {
			errno = saved;
			break;
		}
		done += n;
	}
	after_fill(rw, done);
	return done;
}

/* Did we do it? For calls that are plain libc when nothing is live. */
static bool is_done(const struct rw *rw, ssize_t *ret)
{
	pthread_testcancel();
	if (on_handle(rw, ret))
		return true;
	if (rw->niov <= 0 || rw->niov > IOV_MAX || rw->off < POSITION ||
	    !shim_iov_is_managed(rw->iov, rw->niov))
		return false;
	*ret = with_buffers(rw);
	return true;
}

/* None of it is ours. What most calls are: so no more than a look. The buffer as a number: it is not read
 * here. */
static inline bool is_plain(int fd, uintptr_t buf, size_t len)
{
	return shim_is_idle() || (shim_fd_is_foreign(fd) && !shim_buf_is_managed((void *)buf, len)) || pol_nlive() == 0;
}

/* The same, for a list that the program made: a bad one is the kernel's to refuse. */
static bool is_done_list(const struct rw *rw, ssize_t *ret)
{
	return rw->niov > 0 && rw->niov <= IOV_MAX &&
	       shim_touch(rw->iov, (size_t)rw->niov * sizeof(*rw->iov), false) && is_done(rw, ret);
}

static __attribute__((noinline)) bool is_done_one(int fd, void *buf, size_t len, off_t off, bool fill, ssize_t *ret)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct rw rw = {.fd = fd, .iov = &iov, .niov = 1, .off = off, .fill = fill};

	/* a count that no buffer can have is another error of these calls than of those with a list */
	return len <= (size_t)SSIZE_MAX && is_done(&rw, ret);
}

SHIM_EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || !is_done_one(fd, buf, len, POSITION, true, &ret))
		return shim_real.read(fd, buf, len);
	return ret;
}

SHIM_EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || !is_done_one(fd, (void *)buf, len, POSITION, false, &ret))
		return shim_real.write(fd, buf, len);
	return ret;
}

SHIM_EXPORT ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || off < 0 || !is_done_one(fd, buf, len, off, true, &ret))
		return shim_real.pread(fd, buf, len, off);
	return ret;
}

SHIM_EXPORT ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || off < 0 || !is_done_one(fd, (void *)buf, len, off, false, &ret))
		return shim_real.pwrite(fd, buf, len, off);
	return ret;
}

SHIM_EXPORT ssize_t readv(int fd, const struct iovec *iov, int niov)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = POSITION, .fill = true};
	ssize_t ret;

	return shim_is_quiet() || !is_done_list(&rw, &ret) ? shim_real.readv(fd, iov, niov) : ret;
}

SHIM_EXPORT ssize_t writev(int fd, const struct iovec *iov, int niov)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = POSITION, .fill = false};
	ssize_t ret;

	return shim_is_quiet() || !is_done_list(&rw, &ret) ? shim_real.writev(fd, iov, niov) : ret;
}

SHIM_EXPORT ssize_t preadv(int fd, const struct iovec *iov, int niov, off_t off)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = off, .fill = true};
	ssize_t ret;

	return shim_is_quiet() || off < 0 || !is_done_list(&rw, &ret) ? shim_real.preadv(fd, iov, niov, off) : ret;
}

SHIM_EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = off, .fill = false};
	ssize_t ret;

	return shim_is_quiet() || off < 0 || !is_done_list(&rw, &ret) ? shim_real.pwritev(fd, iov, niov, off)
								 : ret;
}

SHIM_EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int niov, off_t off, int flags)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = off, .flags = flags, .fill = true};
	ssize_t ret;

	return shim_is_quiet() || !is_done_list(&rw, &ret) ? shim_real.preadv2(fd, iov, niov, off, flags) : ret;
}

SHIM_EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int niov, off_t off, int flags)
{
	struct rw rw = {.fd = fd, .iov = iov, .niov = niov, .off = off, .flags = flags, .fill = false};
	ssize_t ret;

	return shim_is_quiet() || !is_done_list(&rw, &ret) ? shim_real.pwritev2(fd, iov, niov, off, flags) : ret;
}

/* The fortified forms: a count beyond the buffer is libc's to abort on. */
SHIM_EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t buflen)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || len > buflen || !is_done_one(fd, buf, len, POSITION, true, &ret))
		return shim_real.__read_chk(fd, buf, len, buflen);
	return ret;
}

SHIM_EXPORT ssize_t __pread_chk(int fd, void *buf, size_t len, off_t off, size_t buflen)
{
	ssize_t ret;

	if (is_plain(fd, (uintptr_t)buf, len) || len > buflen || off < 0 || !is_done_one(fd, buf, len, off, true, &ret))
		return shim_real.__pread_chk(fd, buf, len, off, buflen);
	return ret;
}

#include "alias.h"
