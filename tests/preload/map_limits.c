/* SPDX-License-Identifier: MIT */
/* Lengths, offsets and numbers at their limits: what fails fails as the kernel has it fail, and nothing is
 * lost. */
#include "fact.h"
#include <sys/resource.h>

#define TIB (1ul << 40)

static int fd, rofd, wofd;

static unsigned char *tried(const char *what, size_t len, int prot, int flags, int of, off_t off)
{
	unsigned char *p = mmap(NULL, len, prot, flags, of, off);

	if (p == MAP_FAILED)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: mapped\n", what);
	fflush(stdout);
	if (p != MAP_FAILED && munmap(p, len))
		die("munmap");
	return p;
}

static void lengths_and_offsets(int flags)
{
	const int rw = PROT_READ | PROT_WRITE;

	fact("type", flags);
	tried("length 0", 0, rw, flags, fd, 0);
	tried("length 1", 1, rw, flags, fd, 0);
	tried("2^46", 1ul << 46, PROT_READ, flags, fd, 0);
	tried("2^47", 1ul << 47, rw, flags, fd, 0);
	tried("2^47 less a page", (1ul << 47) - PAGE, rw, flags, fd, 0);
	tried("2^63", 1ul << 63, rw, flags, fd, 0);
	tried("SIZE_MAX", SIZE_MAX, rw, flags, fd, 0);
	tried("SIZE_MAX less a page", SIZE_MAX - PAGE, rw, flags, fd, 0);
	tried("offset 1", PAGE, rw, flags, fd, 1);
	tried("offset -1", PAGE, rw, flags, fd, -1);
	tried("offset - a page", PAGE, rw, flags, fd, -(off_t)PAGE);
	tried("offset - two pages, two pages", NPAGES(2), rw, flags, fd, -(off_t)NPAGES(2));
	tried("offset 2^63 - a page", PAGE, rw, flags, fd, (off_t)(INT64_MAX - PAGE + 1));
	tried("offset 2^63 - 2 pages", PAGE, rw, flags, fd, (off_t)(INT64_MAX - 2 * PAGE + 1));
	tried("two pages there", NPAGES(2), rw, flags, fd, (off_t)(INT64_MAX - 2 * PAGE + 1));
	tried("offset 2^54", PAGE, rw, flags, fd, 1l << 54);
	tried("offset 2^54 - a page, 4 pages", NPAGES(4), rw, flags, fd, (1l << 54) - (off_t)PAGE);
	tried("offset 2^44", PAGE, rw, flags, fd, 1l << 44);
	/* more than one thing is wrong: which is told? */
	tried("length 0, odd offset", 0, rw, flags, fd, 1);
	tried("length 0, no descriptor", 0, rw, flags, 77, 0);
	tried("odd offset, no descriptor", PAGE, rw, flags, 77, 1);
	tried("length 0, no right", 0, rw, flags, rofd, 0);
	tried("length 0, write-only", 0, rw, flags, wofd, 0);
	tried("huge, write-only", SIZE_MAX, rw, flags, wofd, 0);
	tried("huge, negative offset", SIZE_MAX, rw, flags, fd, -(off_t)PAGE);
	tried("2^47, negative offset", 1ul << 47, rw, flags, fd, -(off_t)PAGE);
	tried("2^47, write-only", 1ul << 47, rw, flags, wofd, 0);
	tried("negative offset, write-only", PAGE, rw, flags, wofd, -(off_t)PAGE);
	tried("no right", PAGE, rw, flags, rofd, 0);
	tried("write-only", PAGE, PROT_WRITE, flags, wofd, 0);
	tried("write-only, nothing asked", PAGE, PROT_NONE, flags, wofd, 0);
	tried("no type, write-only", PAGE, PROT_READ, flags & ~MAP_TYPE, wofd, 0);
	tried("no type, length 0", 0, PROT_READ, flags & ~MAP_TYPE, fd, 0);
	tried("no type, 2^47", 1ul << 47, PROT_READ, flags & ~MAP_TYPE, fd, 0);
	tried("validated unknown flag, write-only", PAGE, PROT_READ, MAP_SHARED_VALIDATE | 1 << 30, wofd, 0);
	tried("validated unknown flag, length 0", 0, PROT_READ, MAP_SHARED_VALIDATE | 1 << 30, fd, 0);
}

static void far_beyond_the_end(void)
{
	unsigned char *p = mmap(NULL, TIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct rusage ru, ru2;
	struct stat st;

	fact("a terabyte is mapped", p != MAP_FAILED);
	touch("its end", p + TIB - 1, 0);
	touch("store behind the file", p + NPAGES(16), 's');
	getrusage(RUSAGE_SELF, &ru);
	called("grow", ftruncate(fd, (off_t)TIB / 2));
	touch("store now", p + TIB / 2 - 1, 's');
	touch("store", p + TIB / 4, 't');
	touch("still beyond", p + TIB / 2, 's');
	called("msync", msync(p, TIB, MS_SYNC));
	called("mprotect", mprotect(p, TIB, PROT_READ));
	touch("store", p + TIB / 4, 't');
	called("mprotect", mprotect(p, TIB, PROT_READ | PROT_WRITE));
	called("dontneed", madvise(p, TIB, MADV_DONTNEED));
	fact("kept", p[TIB / 4]);
	fact("a store of long ago", p[TIB / 2 - 1]);
	called("munmap of most of it", munmap(p + TIB / 8, TIB - TIB / 8));
	getrusage(RUSAGE_SELF, &ru2);
	fact("touching a few pages took little memory", ru2.ru_maxrss - ru.ru_maxrss < 64 * 1024);
	called("shrink", ftruncate(fd, NPAGES(16)));
	called("munmap", munmap(p, TIB / 8));
	fstat(fd, &st);
	fact("size", st.st_size);
	called("fsync", fsync(fd));
	raw("limits.dat");
}

static void facts(void)
{
	unsigned char *p;

	catch_faults();
	fd = make("limits.dat", NPAGES(16));
	rofd = open("limits.dat", O_RDONLY);
	wofd = open("limits.dat", O_WRONLY);
	lengths_and_offsets(MAP_SHARED);
	p = map(fd, PAGE); /* from now on private mappings are of what is stored here */
	p[0] = 'l';
	lengths_and_offsets(MAP_SHARED);
	lengths_and_offsets(MAP_PRIVATE);
	lengths_and_offsets(MAP_SHARED_VALIDATE);
	called("munmap", munmap(p, PAGE));
	far_beyond_the_end();
	called("close", close(fd) | close(rofd) | close(wofd));
	raw("limits.dat");
}
