/* SPDX-License-Identifier: MIT */
/*
 * Descriptors end, are copied, are overwritten.
 *
 * Those of our own do not exist for the program: EBADF, never closed, and moved out of the way of a dup2. A
 * vfork child has a descriptor table of its own over its parent's memory, so nothing is recorded for it.
 */
#include "real.h"
#include "enter.h"
#include "own.h"
#include "buf.h"
#include "fd.h"
#include "locks.h"
#include <linux/close_range.h>
#include <stdarg.h>
#include <sys/syscall.h>

#define SHIM_TAKE_CLOSE(x) x

/* Before libc's close of a managed fd: 0 or the -errno of the release commit. */
static int closing(int fd)
{
	struct shim_scope s;
	int err;

	shim_enter(&s);
	err = shim_fd_closing(fd);
	shim_leave(&s);
	return err;
}

/* The program's own descriptor newfd is a duplicate of oldfd now. */
static int copied(int oldfd, int newfd)
{
	struct shim_scope s;

	if (newfd < 0 || (!shim_fd_forget(newfd) && !shim_fd_is_managed(oldfd)))
		return newfd;
	shim_enter(&s);
	shim_fd_duped(oldfd, newfd);
	shim_leave(&s);
	return newfd;
}

/* The descriptor is closed in any case, as close(2) does with an error of its own. */
SHIM_EXPORT int close(int fd)
{
	int err, ret;

	if (shim_is_idle())
		return shim_real.close(fd);
	if (shim_fd_is_hidden(fd))
		return (int)shim_return(-EBADF);
	if (!shim_fd_forget(fd) || shim_is_stranger())
		return shim_real.close(fd);
	pthread_testcancel();
	err = closing(fd);
	ret = shim_real.close(fd);
	return ret == 0 ? (int)shim_return(err) : ret;
}

SHIM_EXPORT int fclose(FILE *stream)
{
	int err = 0, ret, fd, saved;

	if (shim_is_idle() || shim_is_on_our_calls(stream))
		return shim_real.fclose(stream);
	saved = errno;
	fd = fileno(stream);
	errno = saved;
	if (shim_fd_forget(fd) && !shim_is_stranger())
		err = closing(fd);
	ret = shim_real.fclose(stream);
	return ret == 0 ? (int)shim_return(err) : ret;
}

/* Descriptors of [first, last] that are open, by /proc: forgets the program's, and puts up to nmax of our own
 * in ret_ours, ascending. Without /proc: the numbers that an ordinary process has. */
static unsigned sweep(unsigned first, unsigned last, unsigned *ret_ours, unsigned nmax)
{
	unsigned nours = 0, fd;
	struct dirent64 *d;
	char buf[2048] __attribute__((aligned(8)));
	long n, pos;
	int dirfd;

	dirfd = (int)shim_real.syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0) {
		for (fd = first; fd <= last && fd < 65536 && nours < nmax; fd++)
			if (pol_fd_is_ours((int)fd))
				ret_ours[nours++] = fd;
			else
				(void)shim_fd_closing((int)fd);
		return nours;
	}
	while (nours < nmax && (n = shim_real.syscall(SYS_getdents64, dirfd, buf, sizeof(buf))) > 0) {
		for (pos = 0; pos < n && nours < nmax; pos += d->d_reclen) {
			d = (struct dirent64 *)(buf + pos);
			fd = (unsigned)strtoul(d->d_name, NULL, 10);
			if (d->d_name[0] == '.' || fd < first || fd > last || fd == (unsigned)dirfd)
				continue;
			if (pol_fd_is_ours((int)fd))
				ret_ours[nours++] = fd;
			else
				(void)shim_fd_closing((int)fd);
		}
	}
	(void)shim_real.close(dirfd);
	return nours;
}

/* Everything in [first, last] but ours. */
static int close_around(unsigned first, unsigned last, unsigned flags)
{
	unsigned ours[256], n, i;
	struct shim_scope s;
	int ret = 0, saved = errno;

	do {
		shim_enter(&s);
		n = sweep(first, last, ours, 256);
		shim_leave(&s);
		errno = saved;
		for (i = 0; i < n && ret == 0; i++) {
			if (ours[i] > first)
				ret = shim_real.close_range(first, ours[i] - 1, (int)flags);
			first = ours[i] + 1;
		}
	} while (n == 256 && ret == 0);
	return ret == 0 && first <= last ? shim_real.close_range(first, last, (int)flags) : ret;
}

SHIM_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (shim_is_idle() || shim_is_stranger() || first > last || (flags & ~CLOSE_RANGE_UNSHARE))
		return shim_real.close_range(first, last, flags);
	return close_around(first, last, (unsigned)flags);
}

SHIM_EXPORT void closefrom(int lowfd)
{
	if (shim_is_idle() || shim_is_stranger() ||
	    close_around(lowfd < 0 ? 0 : (unsigned)lowfd, ~0u, 0) != 0)
		shim_real.closefrom(lowfd);
}

SHIM_EXPORT int dup(int fd)
{
	if (shim_is_idle() || shim_is_stranger())
		return shim_real.dup(fd);
	if (shim_fd_is_hidden(fd))
		return (int)shim_return(-EBADF);
	return copied(fd, shim_real.dup(fd));
}

/* newfd is about to be overwritten by oldfd. 0, or -errno when it must not be. */
static int before_dup(int oldfd, int newfd)
{
	struct shim_scope s;
	int err = 0, saved = errno;

	if (shim_fd_is_hidden(oldfd))
		return -EBADF;
	if (!shim_fd_is_hidden(newfd) && !shim_fd_forget(newfd))
		return 0;
	if (shim_real.fcntl(oldfd, F_GETFD) < 0) {
		errno = saved;
		return -EBADF; /* and newfd stays open */
	}
	shim_enter(&s);
	if (pol_fd_is_ours(newfd))
		err = pol_fd_make_room(newfd);
	else
		(void)shim_fd_closing(newfd); /* dup2 has no way to tell; policy logged it */
	shim_leave(&s);
	return err;
}

SHIM_EXPORT int dup2(int oldfd, int newfd)
{
	int err;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.dup2(oldfd, newfd);
	if (oldfd == newfd)
		return shim_fd_is_hidden(oldfd) ? (int)shim_return(-EBADF) : shim_real.dup2(oldfd, newfd);
	err = before_dup(oldfd, newfd);
	return err ? (int)shim_return(err) : copied(oldfd, shim_real.dup2(oldfd, newfd));
}

SHIM_EXPORT int dup3(int oldfd, int newfd, int flags)
{
	int err;

	if (shim_is_idle() || shim_is_stranger() || oldfd == newfd || (flags & ~O_CLOEXEC))
		return shim_real.dup3(oldfd, newfd, flags);
	err = before_dup(oldfd, newfd);
	return err ? (int)shim_return(err) : copied(oldfd, shim_real.dup3(oldfd, newfd, flags));
}

SHIM_EXPORT int fcntl(int fd, int cmd, ...)
{
	enum shim_lock how = SHIM_LOCK_NONE;
	void *arg;
	va_list ap;
	int ret;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (shim_is_idle())
		return shim_real.fcntl(fd, cmd, arg);
	if (shim_fd_is_hidden(fd))
		return (int)shim_return(-EBADF);
	if ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && !shim_is_stranger())
		return copied(fd, shim_real.fcntl(fd, cmd, arg));
	if (!shim_is_quiet()) {
		how = shim_lock_of_fcntl(cmd, arg);
		shim_buf_ready_around(arg);
	}
	shim_lock_before(fd, how);
	ret = shim_real.fcntl(fd, cmd, arg);
	shim_lock_after(fd, how, ret);
	return ret;
}

#include "alias.h"
