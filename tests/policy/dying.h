/* SPDX-License-Identifier: MIT */
/* A process that is killed at the nth of its host calls that change something others see; a write may come half way. */
#ifndef DYING_H
#define DYING_H

#include "vm_sys.h"

#include <fcntl.h>
#include <unistd.h>

static struct vm_sys dying, quick;
static unsigned calls_left;

/* What a kill leaves does not depend on the disk. */
static inline int no_sync(int fd)
{
	(void)fd;
	return 0;
}

static inline void be_quick(void)
{
	quick = vm_sys_linux;
	quick.fdatasync = quick.fsync = no_sync;
	vm_sys = &quick;
}

static inline void dying_count(void)
{
	if (!--calls_left)
		_exit(9);
}

static inline ssize_t dying_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t n;

	dying_count();
	n = vm_sys_linux.pwrite(fd, buf, len > 1 ? len / 2 : len, off);
	dying_count();
	return n == (ssize_t)(len / 2) && len > 1
		       ? n + vm_sys_linux.pwrite(fd, (const char *)buf + n, len - (size_t)n, off + n)
		       : n;
}

static inline int dying_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd;

	if (!(flags & O_CREAT))
		return vm_sys_linux.openat(dirfd, path, flags, mode);
	dying_count();
	fd = vm_sys_linux.openat(dirfd, path, flags, mode);
	dying_count();
	return fd;
}

static inline int dying_fdatasync(int fd)
{
	dying_count();
	return no_sync(fd);
}

static inline int dying_ftruncate(int fd, off_t len)
{
	dying_count();
	return vm_sys_linux.ftruncate(fd, len);
}

static inline int dying_fcntl(int fd, int cmd, long arg)
{
	dying_count();
	return vm_sys_linux.fcntl(fd, cmd, arg);
}

static inline int dying_flock(int fd, int op)
{
	dying_count();
	return vm_sys_linux.flock(fd, op);
}

static inline int dying_unlinkat(int dirfd, const char *path, int flags)
{
	dying_count();
	return vm_sys_linux.unlinkat(dirfd, path, flags);
}

/* From here on. */
static inline void die_at(unsigned nth)
{
	dying = vm_sys_linux;
	dying.pwrite = dying_pwrite;
	dying.openat = dying_openat;
	dying.fdatasync = dying_fdatasync;
	dying.fsync = dying_fdatasync;
	dying.ftruncate = dying_ftruncate;
	dying.fcntl = dying_fcntl;
	dying.flock = dying_flock;
	dying.unlinkat = dying_unlinkat;
	calls_left = nth;
	vm_sys = &dying;
}

#endif
