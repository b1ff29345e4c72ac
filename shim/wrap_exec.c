/* SPDX-License-Identifier: MIT */
/* exec: the mappings end without a word, so what this process stored is made known before. */
#include "real.h"
#include "enter.h"
#include <stdarg.h>

#define SHIM_TAKE_EXEC(x) x

static void before_exec(void)
{
	struct shim_scope s;
	int saved = errno;

	if (shim_is_quiet() || shim_is_stranger())
		return;
	shim_enter(&s);
	(void)pol_event_all(POL_EV_EXEC); /* logged; the program is told by its own calls only */
	shim_leave(&s);
	errno = saved;
}

SHIM_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	before_exec();
	return shim_real.execve(path, argv, envp);
}

SHIM_EXPORT int execv(const char *path, char *const argv[])
{
	before_exec();
	return shim_real.execv(path, argv);
}

SHIM_EXPORT int execvp(const char *file, char *const argv[])
{
	before_exec();
	return shim_real.execvp(file, argv);
}

SHIM_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	before_exec();
	return shim_real.execvpe(file, argv, envp);
}

SHIM_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	before_exec();
	return shim_real.fexecve(fd, argv, envp);
}

SHIM_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	before_exec();
	return shim_real.execveat(dirfd, path, argv, envp, flags);
}

static size_t count(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

static void fill(char **argv, const char *arg, va_list ap)
{
	*argv++ = (char *)arg;
	do
		*argv = va_arg(ap, char *);
	while (*argv++);
}

/* The three with a list of arguments: as an array, on the stack, since they may be called after vfork. */
#define AS_ARRAY(arg)                                                                                        \
	va_list ap;                                                                                          \
	va_start(ap, arg);                                                                                   \
	size_t n = count(ap);                                                                                \
	va_end(ap);                                                                                          \
	char *argv[n + 1];                                                                                   \
	va_start(ap, arg);                                                                                   \
	fill(argv, arg, ap);

SHIM_EXPORT int execl(const char *path, const char *arg, ...)
{
	AS_ARRAY(arg)
	va_end(ap);
	before_exec();
	return shim_real.execv(path, argv);
}

SHIM_EXPORT int execlp(const char *file, const char *arg, ...)
{
	AS_ARRAY(arg)
	va_end(ap);
	before_exec();
	return shim_real.execvp(file, argv);
}

SHIM_EXPORT int execle(const char *path, const char *arg, ...)
{
	AS_ARRAY(arg)
	char *const *envp = va_arg(ap, char *const *);

	va_end(ap);
	before_exec();
	return shim_real.execve(path, argv, envp);
}

#include "alias.h"
