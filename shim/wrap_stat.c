/* SPDX-License-Identifier: MIT */
/* Size and position, as the program sees them. */
#include "real.h"
#include "own.h"
#include "buf.h"
#include "fd.h"
#include "lend.h"
#include <string.h>
#include <sys/sysmacros.h>

#define SHIM_TAKE_STAT(x) x

SHIM_EXPORT off_t lseek(int fd, off_t off, int whence)
{
	struct shim_scope s;

	if (shim_is_quiet() || !shim_begin(fd, &s))
		return shim_real.lseek(fd, off, whence);
	return shim_end(&s, pol_lseek(s.m, fd, off, whence));
}

/* What libc told of a file, by whatever name it was asked for. */
static void fix(struct stat *st)
{
	struct pol_file *m;
	struct shim_scope s;
	int saved = errno;

	if (!S_ISREG(st->st_mode) || !pol_inode_may_be_known(st->st_ino))
		return;
	shim_enter(&s);
	m = pol_file_of_stat(st);
	if (m) {
		pol_fix_stat(m, st);
		(void)pol_fd_close(m);
	}
	shim_leave(&s);
	errno = saved;
}

/* libc fills a struct of ours; the program's, perhaps in managed memory, is then stored to like by any code. */
#define FILL(buf, call)                                                                                      \
	do {                                                                                                 \
		struct stat st;                                                                              \
		int ret = call;                                                                              \
                                                                                                             \
		if (ret == 0) {                                                                              \
			fix(&st);                                                                            \
			if (!shim_copy(buf, &st, sizeof(st)))                                                \
				return (int)shim_return(-EFAULT);                                            \
		}                                                                                            \
		return ret;                                                                                  \
	} while (0)

SHIM_EXPORT int stat(const char *path, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.stat(path, buf);
	STRING(path)
	FILL(buf, shim_real.stat(path, &st));
}

SHIM_EXPORT int lstat(const char *path, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.lstat(path, buf);
	STRING(path)
	FILL(buf, shim_real.lstat(path, &st));
}

SHIM_EXPORT int fstat(int fd, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.fstat(fd, buf);
	FILL(buf, shim_real.fstat(fd, &st));
}

SHIM_EXPORT int fstatat(int dirfd, const char *path, struct stat *buf, int flags)
{
	if (shim_is_quiet())
		return shim_real.fstatat(dirfd, path, buf, flags);
	STRING(path)
	FILL(buf, shim_real.fstatat(dirfd, path, &st, flags));
}

SHIM_EXPORT int __xstat(int ver, const char *path, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.__xstat(ver, path, buf);
	STRING(path)
	FILL(buf, shim_real.__xstat(ver, path, &st));
}

SHIM_EXPORT int __lxstat(int ver, const char *path, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.__lxstat(ver, path, buf);
	STRING(path)
	FILL(buf, shim_real.__lxstat(ver, path, &st));
}

SHIM_EXPORT int __fxstat(int ver, int fd, struct stat *buf)
{
	if (shim_is_quiet())
		return shim_real.__fxstat(ver, fd, buf);
	FILL(buf, shim_real.__fxstat(ver, fd, &st));
}

SHIM_EXPORT int __fxstatat(int ver, int dirfd, const char *path, struct stat *buf, int flags)
{
	if (shim_is_quiet())
		return shim_real.__fxstatat(ver, dirfd, path, buf, flags);
	STRING(path)
	FILL(buf, shim_real.__fxstatat(ver, dirfd, path, &st, flags));
}

SHIM_EXPORT int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *buf)
{
	struct statx stx;
	struct stat st;
	int ret;

	if (shim_is_quiet())
		return shim_real.statx(dirfd, path, flags, mask, buf);
	STRING(path)
	ret = shim_real.statx(dirfd, path, flags, mask, &stx);
	if (ret)
		return ret;
	if (S_ISREG(stx.stx_mode) && (stx.stx_mask & (STATX_SIZE | STATX_INO)) == (STATX_SIZE | STATX_INO)) {
		memset(&st, 0, sizeof(st));
		st.st_mode = stx.stx_mode;
		st.st_size = (off_t)stx.stx_size;
		st.st_blocks = (blkcnt_t)stx.stx_blocks;
		st.st_ino = stx.stx_ino;
		st.st_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
		fix(&st);
		stx.stx_size = (uint64_t)st.st_size;
		stx.stx_blocks = (uint64_t)st.st_blocks;
	}
	return shim_copy(buf, &stx, sizeof(stx)) ? 0 : (int)shim_return(-EFAULT);
}

#include "alias.h"
