/* SPDX-License-Identifier: MIT */
/*
 * The witness of the kill tests: preloaded, without txmap, into a deterministic program, it writes down what
 * the file RECORD_FILE holds at each of the program's own msync, fsync and fdatasync calls: "commit HASH" on
 * standard output, in the order in which the program writes its own lines there. The kernel's mapping and
 * read(2) are coherent, so this is what a commit at that call has to put into the file; nothing of txmap has
 * a say in it.
 */
#include "file_hash.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static void record(long result)
{
	/* Never closed: closing any descriptor of a file drops the program's fcntl locks on it. */
	static int fd = -1;
	const char *path = getenv("RECORD_FILE");
	char text[80], line[100];
	int len;

	if (result || !path)
		return;
	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	file_hash(fd, text, sizeof(text));
	len = snprintf(line, sizeof(line), "commit %s\n", text);
	if (write(STDOUT_FILENO, line, (size_t)len) != len)
		abort();
}

int msync(void *addr, size_t len, int flags)
{
	long ret = syscall(SYS_msync, addr, len, flags);

	record(ret);
	return (int)ret;
}

int fsync(int fd)
{
	long ret = syscall(SYS_fsync, fd);

	record(ret);
	return (int)ret;
}

int fdatasync(int fd)
{
	long ret = syscall(SYS_fdatasync, fd);

	record(ret);
	return (int)ret;
}
