/* SPDX-License-Identifier: MIT */
/* exec: the mappings end without a word, so what this process stored is made known before. */
#include "real.h"
#include "lend.h"
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

static void ready_string(const char *s)
{
	if (shim_range_is_managed(s, 1))
		(void)shim_string_size(s);
}

/* The kernel reads the list and its strings where they are. */
static void ready_strings(char *const list[])
{
	char *s;

	for (; list && shim_copy(&s, list, sizeof(s)) && s; list++)
		ready_string(s);
}

/* Also in a vfork child, which has its parent's memory. */
static void ready(const char *path, char *const argv[], char *const envp[])
{
	if (shim_is_quiet())
		return;
	ready_string(path);
	ready_strings(argv);
	ready_strings(envp);
}

SHIM_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	before_exec();
	ready(path, argv, envp);
	return shim_real.execve(path, argv, envp);
}

SHIM_EXPORT int execv(const char *path, char *const argv[])
{
	before_exec();
	ready(path, argv, environ);
	return shim_real.execv(path, argv);
}

SHIM_EXPORT int execvp(const char *file, char *const argv[])
{
	before_exec();
	ready(file, argv, environ);
	return shim_real.execvp(file, argv);
}

SHIM_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	before_exec();
	ready(file, argv, envp);
	return shim_real.execvpe(file, argv, envp);
}

SHIM_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	before_exec();
	ready(NULL, argv, envp);
	return shim_real.fexecve(fd, argv, envp);
}

SHIM_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	before_exec();
	ready(path, argv, envp);
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
	ready(path, argv, environ);
	return shim_real.execv(path, argv);
}

SHIM_EXPORT int execlp(const char *file, const char *arg, ...)
{
	AS_ARRAY(arg)
	va_end(ap);
	before_exec();
	ready(file, argv, environ);
	return shim_real.execvp(file, argv);
}

SHIM_EXPORT int execle(const char *path, const char *arg, ...)
{
	AS_ARRAY(arg)
	char *const *envp = va_arg(ap, char *const *);

	va_end(ap);
	before_exec();
	ready(path, argv, envp);
	return shim_real.execve(path, argv, envp);
}

SHIM_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			    const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	ready(path, argv, envp);
	return shim_real.posix_spawn(pid, path, actions, attr, argv, envp);
}

SHIM_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			     const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	ready(file, argv, envp);
	return shim_real.posix_spawnp(pid, file, actions, attr, argv, envp);
}

SHIM_EXPORT int system(const char *command)
{
	ready(command, NULL, environ);
	return shim_real.system(command);
}

SHIM_EXPORT FILE *popen(const char *command, const char *mode)
{
	ready(command, NULL, environ);
	return shim_real.popen(command, mode);
}

#include "alias.h"
