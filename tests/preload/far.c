/* SPDX-License-Identifier: MIT */
/* Offsets and lengths where numbers end. Each error is the file system's own, each success leaves what it
 * says. */
#include "fact.h"
#include <limits.h>
#include <linux/falloc.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define MAX INT64_MAX

static int fd;

static void size(const char *what)
{
	struct stat st;

	fstat(fd, &st);
	fact(what, st.st_size);
}

static void result(const char *what, off_t n)
{
	if (n < 0)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: %lld\n", what, (long long)n);
	fflush(stdout);
}

static void at(off_t off)
{
	char buf[4] = "abc", what[64];
	struct iovec iov[2] = {{buf, 2}, {buf + 2, 1}};
	off_t o;
	int p[2];

	snprintf(what, sizeof(what), "-- %llx", (long long)off);
	puts(what);
	result("pread", pread(fd, buf, 3, off));
	result("preadv", preadv(fd, iov, 2, off));
	result("preadv2", preadv2(fd, iov, 2, off, 0));
	result("pread of nothing", pread(fd, buf, 0, off));
	result("pwrite", pwrite(fd, buf, 3, off));
	result("pwritev", pwritev(fd, iov, 2, off));
	result("pwritev2", pwritev2(fd, iov, 2, off, 0));
	result("pwrite of nothing", pwrite(fd, buf, 0, off));
	result("lseek", lseek(fd, off, SEEK_SET));
	result("read", read(fd, buf, 3));
	result("write", write(fd, buf, 3));
	result("readv", readv(fd, iov, 2));
	result("writev", writev(fd, iov, 2));
	result("on from there", lseek(fd, 1, SEEK_CUR));
	result("far on", lseek(fd, off, SEEK_CUR));
	result("from the end", lseek(fd, off, SEEK_END));
	result("position", lseek(fd, 0, SEEK_CUR));
	result("data", lseek(fd, off, SEEK_DATA));
	result("hole", lseek(fd, off, SEEK_HOLE));
	lseek(fd, 0, SEEK_SET);
	if (pipe(p))
		die("pipe");
	o = off;
	result("sendfile", sendfile(p[1], fd, &o, 3));
	result("offset", o);
	o = off;
	result("copy_file_range from", copy_file_range(fd, &o, fd, &(off_t){8}, 3, 0));
	o = off;
	result("copy_file_range to", copy_file_range(fd, &(off_t){8}, fd, &o, 3, 0));
	close(p[0]);
	close(p[1]);
	result("ftruncate", ftruncate(fd, off));
	result("truncate", truncate("far.dat", off));
	size("size");
	ftruncate(fd, (off_t)NPAGES(2));
	result("fallocate", fallocate(fd, 0, off, 4096));
	result("fallocate, keep size", fallocate(fd, FALLOC_FL_KEEP_SIZE, off, 4096));
	result("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, 4096));
	result("zero", fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, off, 4096));
	result("posix_fallocate", posix_fallocate(fd, off, 4096));
	size("size");
	ftruncate(fd, (off_t)NPAGES(2));
}

static void lengths(void)
{
	static const off_t len[] = {0, -1, MAX, MAX - 4095, 1ll << 62, LONG_MIN};
	static char buf[8]; /* on the stack, its distance to the end of what a program may address is a draw
			       of lots */
	char *p;
	volatile size_t huge = 0x7ffff000, huger = SIZE_MAX; /* what the compiler would warn of */
	struct iovec *volatile few = &(struct iovec){buf, 1}, *volatile nowhere = (struct iovec *)8;

	for (size_t i = 0; i < sizeof(len) / sizeof(*len); i++) {
		printf("-- length %llx\n", (long long)len[i]);
		result("fallocate", fallocate(fd, 0, 4096, len[i]));
		result("keep size", fallocate(fd, FALLOC_FL_KEEP_SIZE, 4096, len[i]));
		result("posix_fallocate", posix_fallocate(fd, 4096, len[i]));
		if (len[i] <= 0 || len[i] == MAX) {
			result("punch",
			       fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, len[i]));
			result("zero",
			       fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 4096, len[i]));
		}
		size("size");
	}
	puts("-- modes");
	result("no such mode", fallocate(fd, 0x4000, 0, 4096));
	result("punch without keeping", fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096));
	result("punch and zero",
	       fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	result("huge read", pread(fd, buf, huge, 1 << 20));
	result("huger read", pread(fd, buf, huger, 1 << 20));
	result("huger write", pwrite(fd, buf, huger, 0));
	result("preadv2 flags", preadv2(fd, &(struct iovec){buf, 1}, 1, 0, 0x40000000));
	result("pwritev2 flags", pwritev2(fd, &(struct iovec){buf, 1}, 1, 0, 0x40000000));
	result("preadv2 of -1 is read", preadv2(fd, &(struct iovec){buf, 1}, 1, -1, 0));
	result("and moves", lseek(fd, 0, SEEK_CUR));
	result("preadv2 of -2", preadv2(fd, &(struct iovec){buf, 1}, 1, -2, 0));
	result("vectors of too much", readv(fd, (struct iovec[]){{buf, 1}, {buf, SIZE_MAX}}, 2));
	result("too many vectors", readv(fd, few, 1025));
	result("bad vectors", readv(fd, nowhere, 1));
	result("bad vectors to write", pwritev(fd, nowhere, 1, 0));
	result("sync_file_range", sync_file_range(fd, -1, 1, 0));
	result("fadvise", posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL));
	result("readahead", readahead(fd, 0, 4096));
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, (off_t)0x7ffffffffffff000);
	result("mmap of the last page there is", p == MAP_FAILED ? -1 : 0);
	p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, (off_t)0x7ffffffffffff000);
	result("mmap past it", p == MAP_FAILED ? -1 : 0);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, (off_t)0xfffffffffffff000);
	result("mmap of a negative offset", p == MAP_FAILED ? -1 : 0);
	p = mmap(NULL, 1ull << 47, PROT_READ, MAP_SHARED, fd, 0);
	result("mmap of all there is", p == MAP_FAILED ? -1 : 0);
	p = mmap(NULL, SIZE_MAX, PROT_READ, MAP_SHARED, fd, 0);
	result("mmap of more", p == MAP_FAILED ? -1 : 0);
	p = mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0);
	result("mmap of nothing", p == MAP_FAILED ? -1 : 0);
}

static void facts(void)
{
	static const off_t off[] = {MAX, MAX - 1, MAX - 2,  MAX - 4095, MAX - 4096,
				    -1,	 -2,	  LONG_MIN, 1ll << 62,	1ll << 50};
	unsigned char *p;

	fd = make("far.dat", NPAGES(2));
	p = map(fd, NPAGES(2));
	p[0] = 'f';
	for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++)
		at(off[i]);
	lengths();
	result("size", lseek(fd, 0, SEEK_END));
	p[1] = 'g';
	called("msync", msync(p, PAGE, MS_SYNC));
	ftruncate(fd, (off_t)NPAGES(2));
	called("fsync", fsync(fd));
	raw("far.dat");
}
