/* SPDX-License-Identifier: MIT */
/* Descriptors that libc makes inside: what was known about their numbers is about files that are closed. */
#include "real.h"
#include "fd.h"

#define SHIM_TAKE_MADE(x) x

/* fd, which libc has just made: look at it anew. */
static int look_anew(int fd)
{
	struct shim_scope s;
	int saved = errno;

	if (fd < 0 || shim_is_stranger())
		return fd;
	shim_enter(&s);
	shim_fd_opened(fd, shim_real.fcntl(fd, F_GETFL));
	shim_leave(&s);
	errno = saved;
	return fd;
}

SHIM_EXPORT int mkstemp(char *template)
{
	return shim_is_idle() ? shim_real.mkstemp(template) : look_anew(shim_real.mkstemp(template));
}

SHIM_EXPORT int mkostemp(char *template, int flags)
{
	return shim_is_idle() ? shim_real.mkostemp(template, flags)
			      : look_anew(shim_real.mkostemp(template, flags));
}

SHIM_EXPORT int mkstemps(char *template, int suffix)
{
	return shim_is_idle() ? shim_real.mkstemps(template, suffix)
			      : look_anew(shim_real.mkstemps(template, suffix));
}

SHIM_EXPORT int mkostemps(char *template, int suffix, int flags)
{
	return shim_is_idle() ? shim_real.mkostemps(template, suffix, flags)
			      : look_anew(shim_real.mkostemps(template, suffix, flags));
}

SHIM_EXPORT int shm_open(const char *name, int flags, mode_t mode)
{
	return shim_is_idle() ? shim_real.shm_open(name, flags, mode)
			      : look_anew(shim_real.shm_open(name, flags, mode));
}

SHIM_EXPORT int open_by_handle_at(int mountfd, struct file_handle *handle, int flags)
{
	return shim_is_idle() ? shim_real.open_by_handle_at(mountfd, handle, flags)
			      : look_anew(shim_real.open_by_handle_at(mountfd, handle, flags));
}

SHIM_EXPORT int pidfd_getfd(int pidfd, int fd, unsigned flags)
{
	return shim_is_idle() ? shim_real.pidfd_getfd(pidfd, fd, flags) : look_anew(shim_real.pidfd_getfd(pidfd, fd, flags));
}

#include "alias.h"
