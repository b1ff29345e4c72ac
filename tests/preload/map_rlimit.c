/* SPDX-License-Identifier: MIT */
/* Address space and number of mappings run out: the call fails, what there was stays, and later it works. */
#include "fact.h"
#include <sys/resource.h>

#define GIB (1ul << 30)

static int fd;

static void limit(unsigned long bytes)
{
	struct rlimit rl;

	getrlimit(RLIMIT_AS, &rl);
	rl.rlim_cur = bytes;
	if (setrlimit(RLIMIT_AS, &rl))
		die("setrlimit");
}

static void address_space(void)
{
	unsigned char *p = map(fd, NPAGES(16)), *q;

	memset(p, 'a', NPAGES(4));
	limit(4 * GIB);
	q = mmap(NULL, 8 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("more than there is", q == MAP_FAILED ? errno : 0);
	q = mremap(p, NPAGES(16), 8 * GIB, MREMAP_MAYMOVE);
	fact("grown to more than there is", q == MAP_FAILED ? errno : 0);
	fact("all is there", p[0] == 'a' && p[NPAGES(4)] == pattern(NPAGES(4)));
	p[NPAGES(4)] = 'b';
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("rlimit.dat");
	q = mmap(p, 8 * GIB, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	fact("fixed, more than there is", q == MAP_FAILED ? errno : 0);
	limit(RLIM_INFINITY);
	q = mremap(p, NPAGES(16), 8 * GIB, MREMAP_MAYMOVE);
	fact("later it works", q != MAP_FAILED);
	fact("all is there", q[0] == 'a' && q[NPAGES(4)] == 'b');
	q[1] = 'c';
	called("munmap", munmap(q, 8 * GIB));
	called("fsync", fsync(fd));
	raw("rlimit.dat");

	limit(2048 * GIB);
	q = mmap(NULL, 1024 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("one of two terabytes", q != MAP_FAILED);
	q[2] = 'd';
	q = mmap(NULL, 900 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("most of the other one", q != MAP_FAILED);
	fact("one memory", q[2]);
	called("munmap", munmap(q, 900 * GIB));
	limit(RLIM_INFINITY);
}

/* Every other page is made read-only until the kernel has no room for one more mapping. */
static void number_of_mappings(void)
{
	const size_t n = 160000;
	unsigned char *p, *q;
	size_t i, done;
	int err = 0;

	called("grow", ftruncate(fd, (off_t)NPAGES(n)));
	p = map(fd, NPAGES(n));
	for (i = 0; i < n; i += 1000)
		p[NPAGES(i)] = 'm';
	for (i = 1, done = 0; i < n && !err; i += 2, done++)
		err = mprotect(p + NPAGES(i), PAGE, PROT_READ) ? errno : 0;
	fact("one mapping too many, if it was", err == ENOMEM || err == 0);
	fact("that took some", done > 10000);
	for (i = 0, err = 0; i < n; i += 1000)
		err += p[NPAGES(i)] != 'm';
	fact("lost", err);
	q = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)NPAGES(1000));
	fact("one more that may fail", q == MAP_FAILED ? errno == ENOMEM : q[0] == 'm');
	called("munmap of all", munmap(p, NPAGES(n)));
	p = map(fd, NPAGES(n));
	for (i = 0, err = 0; i < n; i += 1000)
		err += p[NPAGES(i)] != 'm';
	fact("lost", err);
	p[1] = 'n';
	called("msync", msync(p, PAGE, MS_SYNC));
	called("munmap", munmap(p, NPAGES(n)));
	called("shrink", ftruncate(fd, NPAGES(16)));
}

static void facts(void)
{
	fd = make("rlimit.dat", NPAGES(16));
	address_space();
	number_of_mappings();
	called("fsync", fsync(fd));
	called("close", close(fd));
	raw("rlimit.dat");
}
