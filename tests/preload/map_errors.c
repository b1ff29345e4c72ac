/* SPDX-License-Identifier: MIT */
/* What the kernel refuses, and what madvise does to a shared mapping. */
#include "fact.h"

static void refused(const char *what, void *p)
{
	printf("%s: %s\n", what, p == MAP_FAILED ? strerrorname_np(errno) : "mapped");
}

static void facts(void)
{
	int fd = make("errors.dat", NPAGES(8)), wofd;
	unsigned char *p = map(fd, NPAGES(8));

	p[0] = 'a';
	refused("no length", mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
	refused("odd offset", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100));
	refused("odd fixed address", mmap(p + 1, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
	refused("no type", mmap(NULL, PAGE, PROT_READ, 0, fd, 0));
	refused("closed descriptor", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, 77, 0));
	refused("huge length", mmap(NULL, SIZE_MAX - PAGE, PROT_READ, MAP_SHARED, fd, 0));
	wofd = open("errors.dat", O_WRONLY);
	refused("write-only descriptor", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, wofd, 0));
	refused("beyond the end", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, NPAGES(64)));
	refused("validated, unknown flag",
		mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | (1 << 28), fd, 0));
	refused("validated", mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE, fd, 0));
	called("munmap odd", munmap(p + 1, PAGE));
	called("munmap nothing", munmap(p, 0));
	called("mprotect odd", mprotect(p + 1, PAGE, PROT_READ));
	called("mprotect bad bits", mprotect(p, PAGE, 0x40));
	called("madvise bad", madvise(p, PAGE, 999));
	called("mremap bad flags", mremap(p, PAGE, PAGE, 64) == MAP_FAILED ? -1 : 0);
	fact("still there", p[0]);

	p[1] = 'b';
	called("dontneed", madvise(p, NPAGES(8), MADV_DONTNEED));
	fact("dontneed keeps stores", p[1]);
	fact("posix dontneed", posix_madvise(p, NPAGES(8), POSIX_MADV_DONTNEED));
	fact("kept", p[1]);
	fact("posix willneed", posix_madvise(p, NPAGES(8), POSIX_MADV_WILLNEED));
	fact("posix bad", posix_madvise(p, NPAGES(8), 999));
	called("sequential", madvise(p, NPAGES(8), MADV_SEQUENTIAL));
	called("wipeonfork", madvise(p, NPAGES(8), MADV_WIPEONFORK));
	called("free", madvise(p, NPAGES(8), MADV_FREE));
	called("remove", madvise(p + NPAGES(2), PAGE, MADV_REMOVE));
	fact("removed reads as zero", p[NPAGES(2)] | p[NPAGES(3) - 1]);
	fact("beside it not", p[NPAGES(3)] == pattern(NPAGES(3)));
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	raw("errors.dat");
}
