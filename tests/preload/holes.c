/* SPDX-License-Identifier: MIT */
/* SEEK_DATA and SEEK_HOLE of a sparse file, with what is stored and not committed. */
#include "fact.h"

#define BIG (64u * PAGE)

static int fd;

/* All runs of data. */
static void runs(const char *what)
{
	off_t data, hole = 0;

	printf("%s:", what);
	while ((data = lseek(fd, hole, SEEK_DATA)) >= 0 && (hole = lseek(fd, data, SEEK_HOLE)) > data)
		printf(" %ld-%ld", (long)data, (long)hole);
	printf(" %s\n", data < 0 ? strerrorname_np(errno) : "no end");
	fflush(stdout);
}

static void facts(void)
{
	unsigned char *p;

	fd = make("holes.dat", 0);
	if (ftruncate(fd, BIG) || pwrite(fd, "x", 1, 3 * PAGE) != 1 || pwrite(fd, "x", 1, 9 * PAGE) != 1)
		die("write");
	runs("before it is mapped");
	p = map(fd, BIG);
	runs("mapped");
	(void)*(volatile unsigned char *)(p + NPAGES(5));
	runs("a hole was read");
	p[NPAGES(4)] = 1;
	p[NPAGES(20)] = 1;
	runs("stored");
	if (pwrite(fd, "y", 1, 30 * PAGE + 5) != 1)
		die("pwrite");
	runs("written");
	if (msync(p, BIG, MS_SYNC))
		die("msync");
	runs("committed");
	if (ftruncate(fd, BIG + 3 * PAGE + 7))
		die("ftruncate");
	runs("longer");
	if (ftruncate(fd, 20 * PAGE) || ftruncate(fd, BIG))
		die("ftruncate");
	runs("shorter and longer");
	p[NPAGES(63)] = 1;
	runs("a store at the end");
	called("SEEK_DATA at the end", (int)lseek(fd, BIG, SEEK_DATA));
	called("SEEK_HOLE at the end", (int)lseek(fd, BIG, SEEK_HOLE));
	called("SEEK_HOLE before the beginning", (int)lseek(fd, -1, SEEK_HOLE));
	fact("in the middle of data", lseek(fd, 3 * PAGE + 9, SEEK_DATA));
	fact("in the middle of a hole", lseek(fd, 7 * PAGE + 9, SEEK_HOLE));
	if (msync(p, BIG, MS_SYNC))
		die("msync");
	raw("holes.dat");
}
