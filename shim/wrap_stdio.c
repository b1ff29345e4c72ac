/* SPDX-License-Identifier: MIT */
/*
 * stdio. libc's streams read and write by system calls that no interposer sees, so a stream on a file that a
 * rule matches is made anew on top of our own read, write, lseek and close: then it agrees with the mappings
 * like any descriptor. Streams on other files are libc's own.
 */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "own.h"

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

	if (f)
		f->_fileno =
			fd; /* for fileno(3); a field of the public struct that cookie streams leave unused */
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

SHIM_EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	FILE *f, *ours;
	int fd;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.fopen(path, mode);
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

SHIM_EXPORT FILE *fdopen(int fd, const char *mode)
{
	FILE *f;

	if (shim_is_idle() || shim_is_stranger())
		return shim_real.fdopen(fd, mode);
	f = shim_real.fdopen(fd, mode);
	if (!f || !is_managed(fd))
		return f;
	/* libc found fd and mode right. Its stream cannot be given back without closing fd: it stays, unused.
	 */
	return on_our_calls(fd, mode) ?: f;
}

#include "alias.h"
