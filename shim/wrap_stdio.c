/* SPDX-License-Identifier: MIT */
/*
 * stdio. libc's streams read and write by system calls that no interposer sees, so a stream on a file that a
 * rule matches is made anew on top of our own read, write, lseek and close: then it agrees with the mappings
 * like any descriptor. Streams on other files are libc's own.
 */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "lend.h"
#include "own.h"
#include <stdio_ext.h>

#define SHIM_TAKE_STDIO(x) x

/* The cookie is the descriptor. The four calls below are the ones we export: what a descriptor of a live file
 * does is decided there, at each call. */
static ssize_t cookie_read(void *cookie, char *buf, size_t len)
{
	return shim_own_read((int)(intptr_t)cookie, buf, len);
}

static ssize_t cookie_write(void *cookie, const char *buf, size_t len)
{
	ssize_t n = shim_own_write((int)(intptr_t)cookie, buf, len);

	return n < 0 ? 0 : n; /* what fopencookie(3) takes for an error */
}

static int cookie_seek(void *cookie, off64_t *off, int whence)
{
	off_t at = shim_own_lseek((int)(intptr_t)cookie, *off, whence);

	if (at < 0)
		return -1;
	*off = at;
	return 0;
}

static int cookie_close(void *cookie)
{
	return shim_own_close((int)(intptr_t)cookie);
}

/* Bits of FILE's _flags: part of the ABI of libc's getc and putc, and unchanged since there was one. */
#define STREAM_NO_READS	 0x4
#define STREAM_NO_WRITES 0x8
#define STREAM_APPENDS	 0x1000

static _Atomic(const void *) cookie_ops; /* libc's table for cookie streams, once there is one of ours */

/* A FILE is followed by its table. Only cookie streams of ours have a number. */
static const void *ops_of(const FILE *f)
{
	return *(const void *const *)(f + 1);
}

bool shim_is_on_our_calls(FILE *f)
{
	const void *ops = atomic_load_explicit(&cookie_ops, memory_order_relaxed);

	return ops && ops_of(f) == ops && f->_fileno >= 0;
}

/* "w" would truncate, "x" and "c" mean nothing to a stream that exists: only the direction is left. */
static const char *direction(const char *mode)
{
	bool plus = false;

	for (const char *p = mode; *p && *p != ','; p++)
		plus |= *p == '+';
	switch (mode[0]) {
	case 'r':
		return plus ? "r+" : "r";
	case 'w':
		return plus ? "w+" : "w";
	default:
		return plus ? "a+" : "a";
	}
}

/* A stream of ours on fd, or NULL with errno set and fd as it was. */
static FILE *on_our_calls(int fd, const char *mode)
{
	cookie_io_functions_t io = {cookie_read, cookie_write, cookie_seek, cookie_close};
	FILE *f = fopencookie((void *)(intptr_t)fd, direction(mode), io);

	if (f) {
		/* for fileno(3); a field of the public struct that cookie streams leave unused */
		f->_fileno = fd;
		atomic_store_explicit(&cookie_ops, ops_of(f), memory_order_relaxed);
	}
	return f;
}

static bool is_managed(int fd)
{
	struct pol_file *m;
	struct shim_scope s;
	int saved = errno;

	shim_enter(&s);
	if (shim_fd_for_map(fd, &m) < 0)
		m = NULL;
	if (m)
		pol_file_put(m);
	shim_leave(&s);
	errno = saved;
	return m;
}

/* A descriptor of the same file, for the stream that takes f's place. */
static int duplicate(FILE *f)
{
	int fd = fileno(f);

	return shim_own_fcntl(fd, F_GETFD) & FD_CLOEXEC ? shim_own_fcntl(fd, F_DUPFD_CLOEXEC, 0)
							: shim_own_dup(fd);
}

/* The open(2) flags of a mode, or -1. */
static int flags_of(const char *mode)
{
	int flags = mode[0] == 'w'   ? O_WRONLY | O_CREAT | O_TRUNC
		    : mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND
		    : mode[0] == 'r' ? O_RDONLY
				     : -1;

	for (const char *p = mode; flags >= 0 && *p && *p != ','; p++)
		flags = *p == '+'   ? (flags & ~O_ACCMODE) | O_RDWR
			: *p == 'e' ? flags | O_CLOEXEC
			: *p == 'x' ? flags | O_EXCL
				    : flags;
	return flags;
}

/* Would this fopen truncate the file of a live handle? */
static bool truncates_live(const char *path, const char *mode)
{
	struct pol_file *m;
	struct shim_scope s;
	int saved = errno;

	if (mode[0] != 'w' || !pol_nlive())
		return false;
	shim_enter(&s);
	m = pol_file_of_path(AT_FDCWD, path, true);
	if (m)
		(void)pol_fd_close(m);
	shim_leave(&s);
	errno = saved;
	return m;
}

/* fopen by our own open. */
static FILE *open_stream(const char *path, const char *mode)
{
	int fd = shim_own_open(path, flags_of(mode), 0666);
	FILE *f;

	if (fd < 0)
		return NULL;
	f = on_our_calls(fd, mode);
	if (!f)
		(void)shim_own_close(fd);
	return f;
}

SHIM_EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	FILE *f, *ours;
	int fd;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.fopen(path, mode);
	if (pol_nlive())
		STRING(path)
	if (truncates_live(path, mode))
		return open_stream(path, mode);
	f = shim_real.fopen(path, mode);
	if (!f || !is_managed(fileno(f)))
		return f;
	fd = duplicate(f);
	ours = fd < 0 ? NULL : on_our_calls(fd, mode);
	if (!ours && fd >= 0)
		(void)shim_own_close(fd);
	(void)shim_own_fclose(f); /* nothing was written through it */
	return ours;
}

/* A stream of libc's stays so, on whatever file: a FILE cannot change its kind. May it be on this one? */
static int look_at_path(const char *path)
{
	struct pol_file *m;
	struct shim_scope s;
	int err;

	if (!pol_nlive())
		return 0;
	shim_enter(&s);
	m = pol_file_of_path(AT_FDCWD, path, true);
	err = m ? pol_file_has_stream(m) : 0;
	if (m)
		(void)pol_fd_close(m);
	shim_leave(&s);
	return err;
}

static int look_at_fd(int fd)
{
	struct pol_file *m;
	struct shim_scope s;
	int err;

	shim_enter(&s);
	if (shim_fd_for_map(fd, &m) < 0)
		m = NULL;
	err = m ? pol_file_has_stream(m) : 0;
	if (m)
		pol_file_put(m);
	shim_leave(&s);
	return err;
}

static FILE *reopen_libcs(const char *path, const char *mode, FILE *f)
{
	int saved = errno, fd = fileno(f), err = path ? look_at_path(path) : look_at_fd(fd);
	FILE *g;

	errno = saved;
	if (err) {
		(void)shim_own_fclose(f); /* as when it could not be opened */
		errno = -err;
		return NULL;
	}
	if (shim_fd_forget(fd) && !shim_is_stranger()) {
		struct shim_scope s;

		shim_enter(&s);
		(void)shim_fd_closing(fd); /* freopen has no way to tell; policy logged it */
		shim_leave(&s);
	}
	g = shim_real.freopen(path, mode, f);
	if (g) {
		saved = errno;
		(void)look_at_fd(fileno(g));
		errno = saved;
	}
	return g;
}

/* A stream of ours keeps its number, and so its cookie, when another file comes to it. */
SHIM_EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict f)
{
	char name[32];
	int fd, flags, saved = errno;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.freopen(path, mode, f);
	if (pol_nlive())
		STRING(path)
	if (!shim_is_on_our_calls(f))
		return reopen_libcs(path, mode, f);
	flags = flags_of(mode);
	(void)fflush(f);
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fileno(f));
	fd = flags < 0 ? -1 : shim_own_open(path ? path : name, flags, 0666);
	if (flags < 0)
		errno = EINVAL;
	if (fd < 0 || shim_own_dup3(fd, fileno(f), flags & O_CLOEXEC) < 0) {
		saved = errno;
		if (fd >= 0)
			(void)shim_own_close(fd);
		(void)shim_own_fclose(f);
		errno = saved;
		return NULL;
	}
	(void)shim_own_close(fd);
	errno = saved;
	__fpurge(f);
	clearerr(f);
	f->_offset = -1; /* not known */
	f->_flags &= ~(STREAM_NO_READS | STREAM_NO_WRITES | STREAM_APPENDS);
	if (!(flags & O_RDWR))
		f->_flags |= flags & O_WRONLY ? STREAM_NO_READS : STREAM_NO_WRITES;
	if (flags & O_APPEND)
		f->_flags |= STREAM_APPENDS;
	return f;
}

SHIM_EXPORT FILE *fdopen(int fd, const char *mode)
{
	FILE *f;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.fdopen(fd, mode);
	f = shim_real.fdopen(fd, mode);
	if (!f || !is_managed(fd))
		return f;
	/* libc found fd and mode right. Its stream cannot be given back without closing fd: it stays, unused. */
	return on_our_calls(fd, mode) ?: f;
}

#include "alias.h"
