/* SPDX-License-Identifier: MIT */
/* Commit points, and changes of size. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "lend.h"

#define SHIM_TAKE_SYNC(x) x

SHIM_EXPORT int msync(void *addr, size_t len, int flags)
{
	struct shim_scope s;

	if (shim_is_quiet() || !shim_range_is_managed(addr, len))
		return shim_real.msync(addr, len, flags);
	pthread_testcancel();
	shim_enter(&s);
	return (int)shim_end(&s, pol_msync(addr, len, flags));
}

/* As shim_begin, in a call that is a cancellation point. */
static bool begin_at_point(int fd, struct shim_scope *s)
{
	if (shim_is_quiet())
		return false;
	pthread_testcancel();
	return shim_begin(fd, s);
}

SHIM_EXPORT int fsync(int fd)
{
	struct shim_scope s;

	if (!begin_at_point(fd, &s))
		return shim_real.fsync(fd);
	return (int)shim_end(&s, pol_event(s.m, POL_EV_FSYNC));
}

SHIM_EXPORT int fdatasync(int fd)
{
	struct shim_scope s;

	if (!begin_at_point(fd, &s))
		return shim_real.fdatasync(fd);
	return (int)shim_end(&s, pol_event(s.m, POL_EV_FSYNC));
}

/* The whole file system: of ours, the file it was asked through. */
SHIM_EXPORT int syncfs(int fd)
{
	struct shim_scope s;

	if (!shim_is_quiet() && shim_begin(fd, &s) && shim_end(&s, pol_event(s.m, POL_EV_FSYNC)) < 0)
		return -1;
	return shim_real.syncfs(fd);
}

static bool is_writable(int fd)
{
	int saved = errno, fl = shim_real.fcntl(fd, F_GETFL);

	errno = saved;
	return fl >= 0 && !(fl & O_PATH) && (fl & O_ACCMODE) != O_RDONLY;
}

SHIM_EXPORT int ftruncate(int fd, off_t len)
{
	struct shim_scope s;

	if (shim_is_quiet() || len < 0 || !is_writable(fd) || !shim_begin(fd, &s))
		return shim_real.ftruncate(fd, len);
	return (int)shim_end(&s, pol_truncate(s.m, len));
}

SHIM_EXPORT int truncate(const char *path, off_t len)
{
	struct pol_file *m;
	struct shim_scope s;
	int err, saved = errno;

	if (shim_is_quiet() || len < 0 || shim_is_stranger())
		return shim_real.truncate(path, len);
	STRING(path)
	shim_enter(&s);
	m = pol_file_of_path(AT_FDCWD, path, true);
	if (m) {
		err = shim_real.faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 ? pol_truncate(m, len) : -errno;
		(void)pol_fd_close(m);
		errno = saved;
		return (int)shim_end(&s, err);
	}
	shim_leave(&s);
	errno = saved;
	return shim_real.truncate(path, len);
}

SHIM_EXPORT int fallocate(int fd, int mode, off_t off, off_t len)
{
	struct shim_scope s;

	if (shim_is_quiet() || off < 0 || len <= 0 || !is_writable(fd) || !begin_at_point(fd, &s))
		return shim_real.fallocate(fd, mode, off, len);
	return (int)shim_end(&s, pol_fallocate(s.m, mode, off, len));
}

/* Returns the error number. */
SHIM_EXPORT int posix_fallocate(int fd, off_t off, off_t len)
{
	struct shim_scope s;
	int err;

	if (shim_is_quiet() || off < 0 || len <= 0 || !is_writable(fd) || !shim_begin(fd, &s))
		return shim_real.posix_fallocate(fd, off, len);
	err = pol_fallocate(s.m, 0, off, len);
	(void)shim_end(&s, 0);
	return -err;
}

#include "alias.h"
