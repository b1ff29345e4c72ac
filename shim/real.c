/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "enter.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* Until the table is filled: what an allocator needs that runs inside dlsym. */

static long raw_syscall(long nr, ...)
{
	long arg[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	return shim_return(pol_syscall(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]));
}

static int raw_openat(int dirfd, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	return (int)raw_syscall(SYS_openat, dirfd, path, flags, mode);
}

static int raw_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	return (int)raw_syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int raw_close(int fd)
{
	return (int)raw_syscall(SYS_close, fd);
}

static ssize_t raw_read(int fd, void *buf, size_t len)
{
	return raw_syscall(SYS_read, fd, buf, len);
}

static ssize_t raw_write(int fd, const void *buf, size_t len)
{
	return raw_syscall(SYS_write, fd, buf, len);
}

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return (void *)raw_syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

static int raw_munmap(void *addr, size_t len)
{
	return (int)raw_syscall(SYS_munmap, addr, len);
}

static int raw_mprotect(void *addr, size_t len, int prot)
{
	return (int)raw_syscall(SYS_mprotect, addr, len, prot);
}

static int raw_madvise(void *addr, size_t len, int advice)
{
	return (int)raw_syscall(SYS_madvise, addr, len, advice);
}

struct shim_real shim_real = {
	.syscall = raw_syscall,
	.open = raw_open,
	.openat = raw_openat,
	.close = raw_close,
	.read = raw_read,
	.write = raw_write,
	.mmap = raw_mmap,
	.munmap = raw_munmap,
	.mprotect = raw_mprotect,
	.madvise = raw_madvise,
};

static long not_there(void)
{
	return shim_return(-ENOSYS);
}

static atomic_bool resolved;

void shim_resolve(void)
{
	int saved = errno;
	void *fn;

	if (atomic_load_explicit(&resolved, memory_order_acquire) || shim_tls.resolving)
		return;
	shim_tls.resolving = true;
	/* A libc that is older than the call: what a kernel that is says. */
#define CALL(family, name, aliases)                                                                          \
	fn = dlsym(RTLD_NEXT, #name);                                                                        \
	if (fn) {                                                                                            \
		shim_real.name = (__typeof__(name) *)fn;                                                     \
		shim_behind_note(fn);                                                                        \
	} else if (!shim_real.name) {                                                                        \
		shim_real.name = (__typeof__(name) *)(void *)not_there;                                      \
	}
#include "calls.def"
#undef CALL
	shim_tls.resolving = false;
	atomic_store_explicit(&resolved, true, memory_order_release);
	errno = saved;
}
