/* SPDX-License-Identifier: MIT */
/* rename: the journal of a managed file goes by the file's name. */
#include "real.h"
#include "enter.h"

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

static int rename_with(int olddirfd, const char *old, int newdirfd, const char *new, unsigned flags)
{
	struct pol_file *m, *other = NULL;
	struct shim_scope s;
	int ret = -1, err;

	if (shim_is_quiet() || shim_is_stranger())
		return real_rename(olddirfd, old, newdirfd, new, flags);
	shim_enter(&s);
	err = pol_rename_begin(olddirfd, old, &m);
	if (!err && (flags & RENAME_EXCHANGE)) {
		err = pol_rename_begin(newdirfd, new, &other);
		if (err && m)
			pol_rename_end(m, false);
	}
	if (!err) {
		ret = real_rename(olddirfd, old, newdirfd, new, flags);
		err = ret ? -errno : 0;
		if (m)
			pol_rename_end(m, !ret);
		if (other)
			pol_rename_end(other, !ret);
	}
	shim_leave(&s);
	return (int)shim_return(err);
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

#include "alias.h"
