/* SPDX-License-Identifier: MIT */
/* open and its kin: the descriptor that comes back is looked at, and O_TRUNC of a file in use is a change of
 * size in its handle, not in the file. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "lend.h"
#include "own.h"
#include <stdarg.h>

#define SHIM_TAKE_OPEN(x) x

static bool needs_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* O_TRUNC asks for write permission even with O_RDONLY. */
static bool may_truncate(int dirfd, const char *path, int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || shim_real.faccessat(dirfd, path, W_OK, AT_EACCESS) == 0;
}

/* The file at path has a live handle m: open it whole, then empty the handle. */
static int open_truncated(struct pol_file *m, int dirfd, const char *path, int flags, mode_t mode)
{
	struct pol_file *opened;
	int fd, err = 0;

	if (!may_truncate(dirfd, path, flags))
		return -errno;
	fd = shim_real.openat(dirfd, path, flags & ~O_TRUNC, mode);
	if (fd < 0)
		return -errno;
	shim_fd_opened(fd, flags);
	opened = shim_fd_get(fd);
	if (opened == m)
		err = pol_truncate(m, 0);
	else if (shim_real.ftruncate(fd, 0) != 0) /* another file has come to this path */
		err = -errno;
	if (opened)
		pol_file_put(opened);
	if (err) {
		(void)shim_fd_closing(fd);
		(void)shim_real.close(fd);
		return err;
	}
	return fd;
}

static int open_active(int dirfd, const char *path, int flags, mode_t mode)
{
	struct pol_file *m = NULL;
	struct shim_scope s;
	int fd, saved = errno;

	if (pol_nlive())
		STRING(path)
	if ((flags & O_TRUNC) && !(flags & O_PATH) && pol_nlive()) {
		pthread_testcancel();
		shim_enter(&s);
		m = pol_file_of_path(dirfd, path, !(flags & O_NOFOLLOW));
		if (m) {
			fd = open_truncated(m, dirfd, path, flags, mode);
			(void)pol_fd_close(m);
			errno = saved;
			return (int)shim_end(&s, fd);
		}
		shim_leave(&s);
		errno = saved;
	}
	fd = shim_real.openat(dirfd, path, flags, mode);
	if (fd < 0)
		return fd;
	shim_enter(&s);
	shim_fd_opened(fd, flags);
	shim_leave(&s);
	errno = saved;
	return fd;
}

SHIM_EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (needs_mode(flags)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (shim_is_idle() || shim_is_stranger())
		return shim_real.open(path, flags, mode);
	return open_active(AT_FDCWD, path, flags, mode);
}

SHIM_EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (needs_mode(flags)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (shim_is_idle() || shim_is_stranger())
		return shim_real.openat(dirfd, path, flags, mode);
	return open_active(dirfd, path, flags, mode);
}

SHIM_EXPORT int creat(const char *path, mode_t mode)
{
	if (shim_is_idle() || shim_is_stranger())
		return shim_real.creat(path, mode);
	return open_active(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* The fortified forms abort when a mode is missing: libc's to do. */
SHIM_EXPORT int __open_2(const char *path, int flags)
{
	if (shim_is_idle() || shim_is_stranger() || needs_mode(flags))
		return shim_real.__open_2(path, flags);
	return open_active(AT_FDCWD, path, flags, 0);
}

SHIM_EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
	if (shim_is_idle() || shim_is_stranger() || needs_mode(flags))
		return shim_real.__openat_2(dirfd, path, flags);
	return open_active(dirfd, path, flags, 0);
}

#include "alias.h"
