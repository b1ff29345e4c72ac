/* SPDX-License-Identifier: MIT */
#include "vm_procmaps.h"
#include "vm_sys.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

/* A number of that base at *p; *p: behind it and one more byte. */
static uint64_t number(const char **p, unsigned base)
{
	uint64_t n = 0;

	for (;; ++*p) {
		unsigned c = (unsigned char)**p, digit = c - '0' < 10u ? c - '0' : (c | 32u) - 'a' + 10;

		if (digit >= base)
			break;
		n = n * base + digit;
	}
	if (**p)
		++*p;
	return n;
}

/* "start-stop rwxs off major:minor ino   name" */
static void parse(const char *p, struct vm_procmap *m)
{
	unsigned major_no;

	m->start = number(&p, 16);
	m->stop = number(&p, 16);
	m->prot = (p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0) | (p[2] == 'x' ? PROT_EXEC : 0);
	m->shared = p[3] == 's';
	p += 5;
	m->off = number(&p, 16);
	major_no = (unsigned)number(&p, 16);
	m->dev = makedev(major_no, (unsigned)number(&p, 16));
	m->ino = number(&p, 10);
}

int vm_procmaps_for_each(void (*fn)(const struct vm_procmap *m, void *arg), void *arg)
{
	int fd = vm_sys->openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	char line[128], buf[4096];
	size_t len = 0; /* of line; names are cut */
	ssize_t n;

	if (fd < 0)
		return fd;
	while ((n = vm_sys->read(fd, buf, sizeof(buf))) > 0 || n == -EINTR)
		for (ssize_t i = 0; i < n; i++) {
			struct vm_procmap m;

			if (buf[i] != '\n') {
				if (len < sizeof(line) - 1)
					line[len++] = buf[i];
				continue;
			}
			line[len] = 0;
			len = 0;
			parse(line, &m);
			fn(&m, arg);
		}
	(void)vm_sys->close(fd); /* nothing was written */
	return n < 0 ? (int)n : 0;
}
