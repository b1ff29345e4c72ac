/* SPDX-License-Identifier: MIT */
/* Reads and writes that do not stop short. */
#include "vm_sys.h"
#include <errno.h>
#include <string.h>

int vm_sys_pread_full(int fd, void *buf, size_t len, off_t off)
{
	char *p = buf;

	while (len) {
		ssize_t n = vm_sys->pread(fd, p, len, off);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0) {
			memset(p, 0, len);
			break;
		}
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

int vm_sys_pwrite_full(int fd, const void *buf, size_t len, off_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = vm_sys->pwrite(fd, p, len, off);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}
