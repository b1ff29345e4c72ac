/* SPDX-License-Identifier: MIT */
/* Mappings: those of managed files are policy's, and so is every change of a range that touches one. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "buf.h"
#include <stdarg.h>

#define SHIM_TAKE_MAP(x) x

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static bool touches(const void *addr, size_t len)
{
	return !shim_is_quiet() && shim_range_is_managed(addr, len);
}

/* Not ours: libc's, and ours below it ends when the address is fixed. */
static void *map_foreign(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	struct shim_scope s;
	int err;

	if ((flags & MAP_FIXED) && touches(addr, len)) {
		shim_enter(&s);
		err = pol_unmap_for_fixed(addr, len);
		shim_leave(&s);
		if (err < 0)
			return (void *)shim_return(err);
	}
	return shim_real.mmap(addr, len, prot, flags, fd, off);
}

/* -ENOTSUP: libc's. */
static int map_file(void *addr, size_t len, int prot, int flags, int fd, off_t off, void **ret_addr)
{
	struct pol_file *m;
	struct shim_scope s;
	int err;

	shim_enter(&s);
	err = shim_fd_for_map(fd, &m);
	if (m) {
		if ((flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (flags & MAP_SYNC))
			err = -EOPNOTSUPP; /* promises that a store is on the medium: ours are in memory */
		else
			err = pol_mmap(m, fd, addr, len, prot, flags, off, ret_addr);
		if (!err)
			shim_range_add(*ret_addr, len);
		pol_file_put(m);
	} else if (!err) {
		err = -ENOTSUP;
	}
	shim_leave(&s);
	return err;
}

SHIM_EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *ret;
	int err;

	if (fd < 0 || (flags & MAP_ANONYMOUS)) {
		if (shim_is_idle())
			return shim_real.mmap(addr, len, prot, flags, fd, off);
		return map_foreign(addr, len, prot, flags, fd, off);
	}
	if (__builtin_expect(atomic_load_explicit(&shim_state, memory_order_acquire) == SHIM_NEW, 0))
		shim_start(); /* a constructor that runs before ours */
	if (shim_is_idle() || (shim_fd_is_foreign(fd) && !(flags & MAP_FIXED)) || shim_is_stranger())
		return shim_real.mmap(addr, len, prot, flags, fd, off);
	err = map_file(addr, len, prot, flags, fd, off, &ret);
	if (err == -ENOTSUP)
		return map_foreign(addr, len, prot, flags, fd, off);
	return err < 0 ? (void *)shim_return(err) : ret;
}

SHIM_EXPORT int munmap(void *addr, size_t len)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.munmap(addr, len);
	shim_enter(&s);
	return (int)shim_end(&s, pol_munmap(addr, len));
}

SHIM_EXPORT int mprotect(void *addr, size_t len, int prot)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.mprotect(addr, len, prot);
	shim_enter(&s);
	return (int)shim_end(&s, pol_mprotect(addr, len, prot));
}

SHIM_EXPORT int madvise(void *addr, size_t len, int advice)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.madvise(addr, len, advice);
	shim_enter(&s);
	return (int)shim_end(&s, pol_madvise(addr, len, advice));
}

/* Returns the error number. The values of its advice are madvise's, but DONTNEED must not lose data and libc
 * ignores it. */
SHIM_EXPORT int posix_madvise(void *addr, size_t len, int advice)
{
	struct shim_scope s;
	int err;

	if (!touches(addr, len) || advice == POSIX_MADV_DONTNEED)
		return shim_real.posix_madvise(addr, len, advice);
	shim_enter(&s);
	err = pol_madvise(addr, len, advice);
	shim_leave(&s);
	return -err;
}

SHIM_EXPORT void *mremap(void *old, size_t old_len, size_t new_len, int flags, ...)
{
	void *new_addr = NULL, *ret;
	struct shim_scope s;
	bool is_ours;
	va_list ap;
	int err = 0;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_start(ap, flags);
		new_addr = va_arg(ap, void *);
		va_end(ap);
	}
	is_ours = touches(old, old_len ? old_len : 1); /* old_len 0 duplicates a shared mapping */
	if (!is_ours && !((flags & MREMAP_FIXED) && touches(new_addr, new_len)))
		return shim_real.mremap(old, old_len, new_len, flags, new_addr);
	shim_enter(&s);
	if (is_ours) {
		err = pol_mremap(old, old_len, new_len, flags, new_addr, &ret);
		if (!err)
			shim_range_add(ret, new_len);
	} else {
		err = pol_unmap_for_fixed(new_addr, new_len);
	}
	shim_leave(&s);
	if (err < 0)
		return (void *)shim_return(err);
	return is_ours ? ret : shim_real.mremap(old, old_len, new_len, flags, new_addr);
}

/* Long obsolete: emulated by the kernel, unknown to the handle. */
SHIM_EXPORT int remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags)
{
	if (touches(addr, len))
		return (int)shim_return(-EINVAL);
	return shim_real.remap_file_pages(addr, len, prot, pgoff, flags);
}

/* Locking populates, and stops at a page it cannot read. */
SHIM_EXPORT int mlock(const void *addr, size_t len)
{
	if (touches(addr, len))
		shim_buf_prepare(addr, len, false);
	return shim_real.mlock(addr, len);
}

SHIM_EXPORT int mlock2(const void *addr, size_t len, unsigned flags)
{
	if (touches(addr, len))
		shim_buf_prepare(addr, len, false);
	return shim_real.mlock2(addr, len, flags);
}

#include "alias.h"
