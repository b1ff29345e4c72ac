/* SPDX-License-Identifier: MIT */
/* What no rule applies to, however wide its globs: our own files, and the code that this process runs. */
#include "managed_priv.h"
#include "log.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

/* One line of /proc/self/maps: "START-STOP PERM OFFSET MAJOR:MINOR INODE NAME". Is it code out of this file? */
static bool is_code_of(const char *line, const struct stat *st)
{
	unsigned dev_major, dev_minor;
	unsigned long long ino;
	char perm[8];

	return sscanf(line, "%*s %7s %*s %x:%x %llu", perm, &dev_major, &dev_minor, &ino) == 4 && perm[2] == 'x' &&
	       ino == st->st_ino && dev_major == major(st->st_dev) && dev_minor == minor(st->st_dev);
}

static bool is_running(const struct stat *st)
{
	char buf[1024];
	size_t have = 0;
	bool found = false, skip = false; /* the rest of a long name */
	ssize_t n;
	int fd = vm_sys->openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (!found && (n = vm_sys->read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		for (; (end = strchr(line, '\n')); line = end + 1, skip = false) {
			*end = 0;
			found |= !skip && is_code_of(line, st);
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof(buf) - 1) {
			buf[have] = 0;
			found |= !skip && is_code_of(buf, st);
			skip = true;
			have = 0;
		}
	}
	(void)vm_sys->close(fd); /* was only read */
	return found;
}

const char *pol_never_managed(int fd, const struct stat *st, const char *path)
{
	char magic[4];

	if (pol_is_journal(path))
		return "a journal";
	if (pol_log_is_file(st))
		return "the log";
	if (S_ISREG(st->st_mode) && vm_sys->pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	    !memcmp(magic, "\177ELF", sizeof(magic)) && is_running(st))
		return "code that this process runs";
	return NULL;
}
