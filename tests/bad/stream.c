/* SPDX-License-Identifier: MIT */
/* stream HOW FILE: a stream of the C library's own, and FILE mapped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map(const char *file)
{
	int fd = open(file, O_RDWR);
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		exit(99);
	return p;
}

int main(int argc, char **argv)
{
	const char *how = argv[1], *file = argv[2];
	FILE *f = fopen("/dev/null", "r+");
	char *p;

	if (argc != 3 || !f)
		return 98;
	if (!strcmp(how, "mapped")) { /* and then the stream comes to it */
		p = map(file);
		p[0] = 'n';
		errno = 0;
		f = freopen(file, "w", f);
		fprintf(stderr, "freopen: %s\n", f ? "ok" : strerrorname_np(errno));
		fprintf(stderr, "mapping: %.4s\n", p);
	} else if (!strcmp(how, "stream")) { /* and then the file is mapped */
		f = freopen(file, "r+", f);
		fprintf(stderr, "freopen: %s\n", f ? "ok" : strerrorname_np(errno));
		p = map(file);
		p[0] = 'n';
	} else {
		p = map(file);
		p[0] = 'n';
	}
	return msync(p, 4096, MS_SYNC) ? 97 : 0;
}
