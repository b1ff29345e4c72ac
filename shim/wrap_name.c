/* SPDX-License-Identifier: MIT */
/* rename and unlink: the journal of a managed file goes by the file's name. */
#include "real.h"
#include "fd.h"
#include "lend.h"

#define SHIM_TAKE_NAME(x) x

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static int real_rename(int olddirfd, const char *old, int newdirfd, const char *new, unsigned flags)
{
	if (!flags) /* what every kernel has, and other preloads know */
		return shim_real.renameat(olddirfd, old, newdirfd, new);
	return shim_real.renameat2(olddirfd, old, newdirfd, new, flags);
}

/* A name was given, or not: the result of the call that tried. Not entered. */
static int named(int ret)
{
	if (ret == 0 && !shim_is_idle())
		shim_fd_named();
	return ret;
}

static int rename_with(int olddirfd, const char *old, int newdirfd, const char *new, unsigned flags)
{
	struct pol_rename held;
	struct shim_scope s;
	int err;

	if (shim_is_quiet() || shim_is_stranger())
		return named(real_rename(olddirfd, old, newdirfd, new, flags));
	STRING(old)
	STRING(new)
	shim_enter(&s);
	err = pol_rename_begin(olddirfd, old, newdirfd, new, &held);
	if (!err) {
		err = real_rename(olddirfd, old, newdirfd, new, flags) ? -errno : 0;
		pol_rename_end(&held, !err);
	}
	shim_leave(&s);
	return named((int)shim_return(err));
}

SHIM_EXPORT int rename(const char *old, const char *new)
{
	return rename_with(AT_FDCWD, old, AT_FDCWD, new, 0);
}

SHIM_EXPORT int renameat(int olddirfd, const char *old, int newdirfd, const char *new)
{
	return rename_with(olddirfd, old, newdirfd, new, 0);
}

SHIM_EXPORT int renameat2(int olddirfd, const char *old, int newdirfd, const char *new, unsigned flags)
{
	return rename_with(olddirfd, old, newdirfd, new, flags);
}

SHIM_BORROWED(int, linkat, (int olddirfd, const char *old, int newdirfd, const char *new, int flags),
	      (olddirfd, old, newdirfd, new, flags))
static __attribute__((noinline)) int link_with(int olddirfd, const char *old, int newdirfd, const char *new, int flags)
{
	struct shim_loan loan;

	loan.n = 0;
	STRING(old)
	STRING(new)
	SHIM_LENDING_CALL(linkat, (olddirfd, old, newdirfd, new, flags));
}

SHIM_EXPORT int link(const char *old, const char *new)
{
	return named(shim_is_quiet() ? shim_real.link(old, new) : link_with(AT_FDCWD, old, AT_FDCWD, new, 0));
}

SHIM_EXPORT int linkat(int olddirfd, const char *old, int newdirfd, const char *new, int flags)
{
	return named(shim_is_quiet() ? shim_real.linkat(olddirfd, old, newdirfd, new, flags)
				     : link_with(olddirfd, old, newdirfd, new, flags));
}

static int unlink_with(int dirfd, const char *path, int flags, int (*real)(int dirfd, const char *path, int flags))
{
	struct pol_rename held;
	struct shim_scope s;
	int err;

	if (shim_is_quiet() || shim_is_stranger())
		return real(dirfd, path, flags);
	STRING(path)
	if (flags)
		return real(dirfd, path, flags);
	shim_enter(&s);
	err = pol_rename_begin(dirfd, path, AT_FDCWD, NULL, &held);
	if (!err) {
		err = real(dirfd, path, flags) ? -errno : 0;
		pol_rename_end(&held, !err);
	}
	shim_leave(&s);
	return (int)shim_return(err);
}

static int real_unlinkat(int dirfd, const char *path, int flags)
{
	return shim_real.unlinkat(dirfd, path, flags);
}

static int real_remove(int dirfd, const char *path, int flags)
{
	(void)dirfd, (void)flags;
	return shim_real.remove(path);
}

SHIM_EXPORT int unlink(const char *path)
{
	return unlink_with(AT_FDCWD, path, 0, real_unlinkat);
}

SHIM_EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
	return unlink_with(dirfd, path, flags, real_unlinkat);
}

SHIM_EXPORT int remove(const char *path)
{
	return unlink_with(AT_FDCWD, path, 0, real_remove);
}

#include "alias.h"
