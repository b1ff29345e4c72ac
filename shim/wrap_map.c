/* SPDX-License-Identifier: MIT */
/* Mappings: those of managed files are policy's, and so is every change of a range that touches one. */
#include "real.h"
#include "enter.h"
#include "fd.h"
#include "range.h"
#include "load.h"
#include <stdarg.h>

#define SHIM_TAKE_MAP(x) x

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static bool touches(const void *addr, size_t len)
{
	return !shim_is_quiet() && shim_range_is_managed(addr, len);
}

/* Not ours: libc's. But ours below it ends when the address is fixed, or was unmapped behind our back when
 * the kernel found it free. */
static void *map_foreign(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	struct shim_scope s;
	void *ret;
	int err;

	if (!(flags & MAP_FIXED) || !touches(addr, len)) {
		ret = shim_real.mmap(addr, len, prot, flags, fd, off);
		if (ret == MAP_FAILED || !touches(ret, len))
			return ret;
		shim_enter(&s);
		pol_mapped_other(ret, len);
		shim_leave(&s);
		return ret;
	}
	shim_enter(&s);
	err = pol_mmap_other(addr, len, prot, flags, fd, off, &ret);
	shim_leave(&s);
	return err < 0 ? (void *)shim_return(err) : ret;
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
		err = pol_mmap(m, fd, addr, len, prot, flags, off, ret_addr);
		if (!err) {
			shim_range_add(*ret_addr, len);
			shim_check_front();
		}
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
	va_list ap;
	int err;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_start(ap, flags);
		new_addr = va_arg(ap, void *);
		va_end(ap);
	}
	/* old_len 0 duplicates a shared mapping */
	if (!touches(old, old_len ? old_len : 1) && !((flags & MREMAP_FIXED) && touches(new_addr, new_len)))
		return shim_real.mremap(old, old_len, new_len, flags, new_addr);
	shim_enter(&s);
	err = pol_mremap(old, old_len, new_len, flags, new_addr, &ret);
	if (!err)
		shim_range_add(ret, new_len);
	shim_leave(&s);
	return err < 0 ? (void *)shim_return(err) : ret;
}

SHIM_EXPORT int remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.remap_file_pages(addr, len, prot, pgoff, flags);
	shim_enter(&s);
	return (int)shim_end(&s, pol_remap_file_pages(addr, len, prot, pgoff, flags));
}

SHIM_EXPORT int pkey_mprotect(void *addr, size_t len, int prot, int pkey)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.pkey_mprotect(addr, len, prot, pkey);
	shim_enter(&s);
	/* a key of its own would be lost with the next protection that an engine sets */
	return (int)shim_end(&s, pkey == -1 ? pol_mprotect(addr, len, prot) : -EINVAL);
}

SHIM_EXPORT int mlock(const void *addr, size_t len)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.mlock(addr, len);
	shim_enter(&s);
	return (int)shim_end(&s, pol_mlock(addr, len, 0));
}

SHIM_EXPORT int mlock2(const void *addr, size_t len, unsigned flags)
{
	struct shim_scope s;

	if (!touches(addr, len))
		return shim_real.mlock2(addr, len, flags);
	shim_enter(&s);
	return (int)shim_end(&s, pol_mlock(addr, len, flags));
}

SHIM_EXPORT void *shmat(int id, const void *addr, int flags)
{
	struct shmid_ds ds;
	struct shim_scope s;
	int err, saved = errno;
	void *ret;

	/* what is wrong with the segment the kernel says */
	if (!(flags & SHM_REMAP) || shim_is_quiet() || shim_real.shmctl(id, IPC_STAT, &ds) || !touches(addr, ds.shm_segsz)) {
		errno = saved;
		return shim_real.shmat(id, addr, flags);
	}
	shim_enter(&s);
	err = pol_shmat(id, (void *)addr, ds.shm_segsz, flags, &ret);
	shim_leave(&s);
	return err < 0 ? (void *)shim_return(err) : ret;
}

#include "alias.h"
