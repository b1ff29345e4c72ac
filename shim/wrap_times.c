/* SPDX-License-Identifier: MIT */
/* The times of a managed file: set by the program, they are no sign of a change by somebody else. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "lend.h"

#define SHIM_TAKE_TIMES(x) x

/* Entered, with the live file in s->m; false, and not entered, when it is none. */
static bool begin_fd(int fd, struct shim_scope *s)
{
	if (!shim_begin(fd, s))
		return false;
	pol_times_begin(s->m);
	return true;
}

static int end_fd(struct shim_scope *s, int ret)
{
	int err = ret ? -errno : 0;

	pol_times_end(s->m);
	return (int)shim_end(s, err);
}

static bool begin_path(int dirfd, const char *path, bool follow, struct shim_scope *s)
{
	int saved = errno;

	if (shim_is_stranger())
		return false;
	shim_enter(s);
	s->m = pol_file_of_path(dirfd, path, follow);
	errno = saved;
	if (s->m)
		pol_times_begin(s->m);
	else
		shim_leave(s);
	return s->m;
}

static int end_path(struct shim_scope *s, int ret)
{
	int err = ret ? -errno : 0;

	pol_times_end(s->m);
	(void)pol_fd_close(s->m); /* logged, when it was the last */
	shim_leave(s);
	return (int)shim_return(err);
}

#define OF_FD(fd, call)			   (begin_fd(fd, &s) ? end_fd(&s, call) : (call))
#define OF_PATH(dirfd, path, follow, call) (begin_path(dirfd, path, follow, &s) ? end_path(&s, call) : (call))

/* times: the second parameter, len bytes of it. */
#define OF_A_PATH(name, times, len, follow)                                                                  \
	SHIM_EXPORT int name(const char *path, times)                                                        \
	{                                                                                                    \
		struct shim_loan loan;                                                                       \
		struct shim_scope s;                                                                         \
                                                                                                             \
		if (shim_is_quiet())                                                                         \
			return shim_real.name(path, t);                                                      \
		loan.n = 0;                                                                                  \
		STRING(path);                                                                                \
		READS(t, len);                                                                               \
		return OF_PATH(AT_FDCWD, path, follow, shim_real.name(path, t));                             \
	}
OF_A_PATH(utime, const struct utimbuf *t, sizeof(struct utimbuf), true)
OF_A_PATH(utimes, const struct timeval t[2], sizeof(struct timeval[2]), true)
OF_A_PATH(lutimes, const struct timeval t[2], sizeof(struct timeval[2]), false)

#define OF_A_DESCRIPTOR(name, times, len)                                                                    \
	SHIM_EXPORT int name(int fd, times)                                                                  \
	{                                                                                                    \
		struct shim_loan loan;                                                                       \
		struct shim_scope s;                                                                         \
                                                                                                             \
		if (shim_is_quiet())                                                                         \
			return shim_real.name(fd, t);                                                        \
		loan.n = 0;                                                                                  \
		READS(t, len);                                                                               \
		return OF_FD(fd, shim_real.name(fd, t));                                                     \
	}
OF_A_DESCRIPTOR(futimes, const struct timeval t[2], sizeof(struct timeval[2]))
OF_A_DESCRIPTOR(futimens, const struct timespec t[2], sizeof(struct timespec[2]))

/* Without a path it is the descriptor's file. */
SHIM_EXPORT int futimesat(int dirfd, const char *path, const struct timeval t[2])
{
	struct shim_loan loan;
	struct shim_scope s;

	if (shim_is_quiet())
		return shim_real.futimesat(dirfd, path, t);
	loan.n = 0;
	STRING(path);
	READS(t, sizeof(struct timeval[2]));
	if (!path)
		return OF_FD(dirfd, shim_real.futimesat(dirfd, path, t));
	return OF_PATH(dirfd, path, true, shim_real.futimesat(dirfd, path, t));
}

SHIM_EXPORT int utimensat(int dirfd, const char *path, const struct timespec t[2], int flags)
{
	struct shim_loan loan;
	struct shim_scope s;

	if (shim_is_quiet())
		return shim_real.utimensat(dirfd, path, t, flags);
	loan.n = 0;
	STRING(path);
	READS(t, sizeof(struct timespec[2]));
	/* The path is not ours to look into. If it is not empty, dirfd was held up for nothing. */
	if ((flags & AT_EMPTY_PATH) && begin_fd(dirfd, &s))
		return end_fd(&s, shim_real.utimensat(dirfd, path, t, flags));
	return OF_PATH(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW),
		       shim_real.utimensat(dirfd, path, t, flags));
}

#include "alias.h"
