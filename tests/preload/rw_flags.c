/* SPDX-License-Identifier: MIT */
/* The flags of preadv2 and pwritev2. */
#include "fact.h"
#include <sys/uio.h>

/* newer than some headers */
#define APPEND	 0x10
#define NOAPPEND 0x20
#define UNKNOWN	 0x40000000

static unsigned char *p;

static void put(const char *what, int fd, off_t off, int flags)
{
	struct iovec iov = {(void *)"new", 3};
	struct stat st;

	called(what, (int)pwritev2(fd, &iov, 1, off, flags));
	if (fstat(fd, &st))
		die("fstat");
	printf("  size %ld, position %ld, sum %lx\n", (long)st.st_size, (long)lseek(fd, 0, SEEK_CUR), sum(p, PAGE));
	if (lseek(fd, 10, SEEK_SET) != 10)
		die("lseek");
}

static void get(const char *what, int fd, off_t off, int flags)
{
	char buf[4] = "";
	struct iovec iov = {buf, 3};

	called(what, (int)preadv2(fd, &iov, 1, off, flags));
	printf("  %d %d %d, position %ld\n", buf[0], buf[1], buf[2], (long)lseek(fd, 0, SEEK_CUR));
	if (lseek(fd, 10, SEEK_SET) != 10)
		die("lseek");
}

static void facts(void)
{
	int fd = make("rw_flags.dat", 100), at_end = open("rw_flags.dat", O_RDWR | O_APPEND);

	p = map(fd, PAGE);
	p[0]++;
	if (lseek(fd, 10, SEEK_SET) != 10 || lseek(at_end, 10, SEEK_SET) != 10)
		die("lseek");

	put("APPEND, an offset", fd, 5, APPEND);
	put("APPEND, the position", fd, -1, APPEND);
	put("NOAPPEND, an offset", fd, 5, NOAPPEND);
	put("O_APPEND, an offset", at_end, 5, 0);
	put("O_APPEND and NOAPPEND, an offset", at_end, 6, NOAPPEND);
	put("O_APPEND and NOAPPEND, the position", at_end, -1, NOAPPEND);
	put("both", fd, 5, APPEND | NOAPPEND);
	put("DSYNC", fd, 20, RWF_DSYNC);
	put("SYNC, the position", fd, -1, RWF_SYNC);
	put("SYNC and APPEND", fd, 20, RWF_SYNC | APPEND);
	put("HIPRI", fd, 30, RWF_HIPRI);
	put("unknown", fd, 30, UNKNOWN);
	put("an offset below", fd, -2, 0);

	get("read APPEND", fd, 5, APPEND);
	get("read NOAPPEND", fd, 5, NOAPPEND);
	get("read SYNC, the position", fd, -1, RWF_SYNC);
	get("read HIPRI", fd, 5, RWF_HIPRI);
	get("read unknown", fd, 5, UNKNOWN);
	if (fsync(fd))
		die("fsync");
	raw("rw_flags.dat");
}
