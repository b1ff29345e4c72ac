/* SPDX-License-Identifier: MIT */
/* Stores through a mapping, and what msync and munmap make of them. */
#include "fact.h"

static void facts(void)
{
	int fd = make("store.dat", NPAGES(8) + 100);
	unsigned char *p = map(fd, NPAGES(9));
	unsigned long s;

	fact("loads what the file has", memcmp(p, (unsigned char[]){pattern(0), pattern(1)}, 2));
	fact("sum as mapped", (long)(sum(p, NPAGES(8) + 100) >> 8));
	fact("tail of the last page", p[NPAGES(8) + 100] | p[NPAGES(9) - 1]);

	p[0] = 'a';
	p[NPAGES(3) + 17] = 'b';
	memset(p + NPAGES(5) - 10, 'c', 20);
	called("msync", msync(p, NPAGES(9), MS_SYNC));
	raw("store.dat");

	p[1] = 'd';
	called("msync of one page commits", msync(p, PAGE, MS_SYNC));
	raw("store.dat");
	called("msync with nothing new", msync(p, NPAGES(9), MS_SYNC));
	called("msync unaligned", msync(p + 1, PAGE, MS_SYNC));
	called("msync sync and async", msync(p, PAGE, MS_SYNC | MS_ASYNC));
	called("msync bad flags", msync(p, PAGE, 64));
	called("msync async", msync(p, PAGE, MS_ASYNC));

	p[NPAGES(7)] = 'e';
	s = sum(p, NPAGES(9));
	called("munmap", munmap(p, NPAGES(9)));
	p = map(fd, NPAGES(9));
	fact("same after mapping again", sum(p, NPAGES(9)) == s);
	called("fsync", fsync(fd));
	raw("store.dat");
	p[2] = 'f';
	called("fdatasync", fdatasync(fd));
	raw("store.dat");
	called("munmap", munmap(p, NPAGES(9)));
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPAGES(4));
	fact("mapped at an offset", p[PAGE - 1]);
	p[PAGE - 1] = 'g';
	called("munmap", munmap(p, PAGE));
	called("close", close(fd));
	raw("store.dat");
}
