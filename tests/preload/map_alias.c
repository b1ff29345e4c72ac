/* SPDX-License-Identifier: MIT */
/* Several mappings of one file are one memory; a private one beside them sees it until it is stored to. */
#include "fact.h"

static void facts(void)
{
	int fd = make("alias.dat", NPAGES(8)), fd2, rofd;
	unsigned char *p = map(fd, NPAGES(8)), *q, *r, *v;

	fd2 = open("./alias.dat", O_RDWR);
	q = mmap(NULL, NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED, fd2, NPAGES(2));
	rofd = open("alias.dat", O_RDONLY);
	r = mmap(NULL, NPAGES(8), PROT_READ, MAP_SHARED, rofd, 0);
	v = mmap(NULL, NPAGES(8), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	p[NPAGES(2)] = 'a';
	fact("second mapping sees a store", q[0]);
	q[1] = 'b';
	fact("first mapping sees a store", p[NPAGES(2) + 1]);
	fact("read-only mapping sees both", r[NPAGES(2)] * 256 + r[NPAGES(2) + 1]);
	fact("untouched private mapping sees them", v[NPAGES(2)] * 256 + v[NPAGES(2) + 1]);
	v[NPAGES(5)] = 'v';
	fact("a private store stays private",
	     p[NPAGES(5)] == pattern(NPAGES(5)) && r[NPAGES(5)] == pattern(NPAGES(5)));
	p[NPAGES(6)] = 'c';
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	raw("alias.dat");
	fact("private after commit", v[NPAGES(5)] * 256 + v[NPAGES(6)]);
	__atomic_fetch_add((int *)(q + 64), 5, __ATOMIC_SEQ_CST);
	__atomic_fetch_add((int *)(p + NPAGES(2) + 64), 7, __ATOMIC_SEQ_CST);
	fact("atomics agree", memcmp(q + 64, p + NPAGES(2) + 64, 4));
	called("munmap first", munmap(p, NPAGES(8)));
	called("close first", close(fd));
	q[2] = 'd';
	called("msync second", msync(q, NPAGES(4), MS_SYNC));
	raw("alias.dat");
	fact("reader still mapped", r[NPAGES(2) + 2]);
	called("msync private", msync(v, NPAGES(8), MS_SYNC));
	called("munmap private", munmap(v, NPAGES(8)));
	called("munmap second", munmap(q, NPAGES(4)));
	called("close", close(fd2) | close(rofd) | munmap(r, NPAGES(8)));
	raw("alias.dat");
}
