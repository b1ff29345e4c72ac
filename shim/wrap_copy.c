/* SPDX-License-Identifier: MIT */
/* Copies inside the kernel know only the file, not the handle: with a live file at either end they go through
 * a buffer. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "lend.h"

#define SHIM_TAKE_COPY(x) x

#define BOUNCE 16384

static bool is_live(int fd)
{
	struct shim_scope s;

	if (!shim_begin(fd, &s))
		return false;
	(void)shim_end(&s, 0);
	return true;
}

/* By our own wrappers' rules: the handle where there is one, libc elsewhere. -errno. */
static ssize_t read_at(int fd, void *buf, size_t len, off_t off)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct shim_scope s;
	ssize_t n;

	if (shim_begin(fd, &s)) {
		n = pol_read(s.m, fd, &iov, 1, off, 0);
		(void)shim_end(&s, 0);
		return n;
	}
	n = shim_real.pread(fd, buf, len, off);
	return n < 0 ? -errno : n;
}

/* off < 0: at the position, which moves. */
static ssize_t write_at(int fd, void *buf, size_t len, off_t off)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct shim_scope s;
	ssize_t n;

	if (shim_begin(fd, &s)) {
		n = pol_write(s.m, fd, &iov, 1, off, 0);
		(void)shim_end(&s, 0);
		return n;
	}
	n = off < 0 ? shim_real.write(fd, buf, len) : shim_real.pwrite(fd, buf, len, off);
	return n < 0 ? -errno : n;
}

static bool is_wrapping(off_t off, size_t len)
{
	return (uint64_t)off + len < len;
}

/* Copy up to len bytes. NULL: the descriptor's position. What was not written counts as not read. */
static ssize_t copy(int in, off_t *off_in, int out, off_t *off_out, size_t len)
{
	char buf[BOUNCE];
	off_t from = off_in ? *off_in : shim_real.lseek(in, 0, SEEK_CUR);
	off_t to = off_out ? *off_out : -1;
	ssize_t n = 0, w = 0;
	size_t done = 0;

	if (from < 0 && !off_in)
		return -errno;
	if (is_wrapping(from, len) || (off_out && is_wrapping(to, len)))
		return -EOVERFLOW;
	if (from < 0 || (off_out && to < 0))
		return -EINVAL;
	if (len > (size_t)(INT64_MAX - from))
		len = (size_t)(INT64_MAX - from);
	while (done < len) {
		n = read_at(in, buf, len - done < BOUNCE ? len - done : BOUNCE, from);
		if (n <= 0)
			break;
		if (to > INT64_MAX - n) {
			w = -EFBIG;
			break;
		}
		w = write_at(out, buf, (size_t)n, to);
		if (w <= 0)
			break;
		done += (size_t)w;
		from += w;
		if (to >= 0)
			to += w;
		if (w < n)
			break;
	}
	if (done == 0)
		return n < 0 ? n : w;
	if (off_in)
		*off_in = from;
	else
		(void)shim_real.lseek(in, from, SEEK_SET);
	if (off_out)
		*off_out = to;
	return (ssize_t)done;
}

static ssize_t copy_checked(int in, off_t *off_in, int out, off_t *off_out, size_t len)
{
	int fin = shim_real.fcntl(in, F_GETFL), fout = shim_real.fcntl(out, F_GETFL);

	if (fin < 0 || fout < 0 || (fin & O_ACCMODE) == O_WRONLY || (fout & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	return copy(in, off_in, out, off_out, len);
}

static bool is_libcs(int in, int out)
{
	return !is_live(in) && !is_live(out);
}

/* The program's offset is worked with as a copy of ours. One that cannot be read is the kernel's to refuse. */
static bool get(const off_t *off, off_t *ret)
{
	return !off || shim_copy(ret, off, sizeof(*ret));
}

static ssize_t put(off_t *off, const off_t *val, ssize_t ret)
{
	return !off || shim_copy(off, val, sizeof(*val)) ? ret : shim_return(-EFAULT);
}

static ssize_t send_file(int out, int in, off_t *off, size_t len)
{
	int saved = errno;
	ssize_t n;

	if (is_libcs(in, out))
		return shim_real.sendfile(out, in, off, len);
	if (off && (*off < 0 || len > (size_t)(INT64_MAX - *off)))
		return shim_return(-EINVAL);
	n = copy_checked(in, off, out, NULL, len);
	errno = saved;
	if (n == 0 && off) /* the end of the file, or a place where no file can be */
		return shim_real.sendfile(out, in, off, 0);
	return shim_return(n);
}

SHIM_EXPORT ssize_t sendfile(int out, int in, off_t *off, size_t len)
{
	off_t pos;

	if (shim_is_quiet() || !get(off, &pos))
		return shim_real.sendfile(out, in, off, len);
	return put(off, &pos, send_file(out, in, off ? &pos : NULL, len));
}

static ssize_t copy_range(int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags)
{
	int saved = errno;
	ssize_t n;

	if (flags || is_libcs(in, out))
		return shim_real.copy_file_range(in, off_in, out, off_out, len, flags);
	n = copy_checked(in, off_in, out, off_out, len);
	errno = saved;
	return shim_return(n);
}

SHIM_EXPORT ssize_t copy_file_range(int in, off_t *off_in, int out, off_t *off_out, size_t len,
				    unsigned flags)
{
	off_t from, to;
	ssize_t n;

	if (shim_is_quiet() || !get(off_in, &from) || !get(off_out, &to))
		return shim_real.copy_file_range(in, off_in, out, off_out, len, flags);
	pthread_testcancel();
	n = copy_range(in, off_in ? &from : NULL, out, off_out ? &to : NULL, len, flags);
	return put(off_out, &to, put(off_in, &from, n));
}

/* "The target file system doesn't support splicing": every caller has another way then. */
SHIM_EXPORT ssize_t splice(int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags)
{
	off_t from, to;
	ssize_t n;

	if (shim_is_quiet() || !get(off_in, &from) || !get(off_out, &to))
		return shim_real.splice(in, off_in, out, off_out, len, flags);
	if (!is_libcs(in, out))
		return shim_return(-EINVAL);
	n = shim_real.splice(in, off_in ? &from : NULL, out, off_out ? &to : NULL, len, flags);
	return put(off_out, &to, put(off_in, &from, n));
}

#include "alias.h"
