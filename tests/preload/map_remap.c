/* SPDX-License-Identifier: MIT */
/* mremap: shrink, grow, move, duplicate. */
#include "fact.h"

static void facts(void)
{
	int fd = make("remap.dat", NPAGES(16));
	unsigned char *p, *q, *hole;

	catch_faults();
	p = map(fd, NPAGES(4));
	p[0] = 'a';
	p[NPAGES(3)] = 'b';
	q = mremap(p, NPAGES(4), NPAGES(16), MREMAP_MAYMOVE);
	fact("grown", q != MAP_FAILED);
	p = q;
	fact("kept", p[0] == 'a' && p[NPAGES(3)] == 'b');
	fact("new pages are the file's", p[NPAGES(15) + 5] == pattern(NPAGES(15) + 5));
	p[NPAGES(15)] = 'c';
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("remap.dat");

	q = mremap(p, NPAGES(16), NPAGES(8), 0);
	fact("shrunk in place", q == p);
	touch("what was cut off", p + NPAGES(8), 0);
	p[NPAGES(7)] = 'd';

	hole = mmap(NULL, NPAGES(8), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	q = mremap(p, NPAGES(8), NPAGES(8), MREMAP_MAYMOVE | MREMAP_FIXED, hole);
	fact("moved where asked", q == hole);
	touch("the old place", p, 0);
	p = q;
	fact("stores came along", p[NPAGES(7)]);
	p[NPAGES(6)] = 'e';

	q = mremap(p, 0, NPAGES(8), MREMAP_MAYMOVE);
	fact("old length 0 duplicates", q != MAP_FAILED && q != p);
	q[1] = 'f';
	fact("one memory, two places", p[1]);
	p[2] = 'g';
	fact("both ways", q[2]);
	called("munmap of the first", munmap(p, NPAGES(8)));
	q[3] = 'h';
	called("msync of the second", msync(q, NPAGES(8), MS_SYNC));
	raw("remap.dat");
	p = mremap(q, NPAGES(8), NPAGES(32), MREMAP_MAYMOVE);
	fact("grown beyond the file", p != MAP_FAILED);
	touch("beyond the end", p + NPAGES(20), 0);
	called("ftruncate", ftruncate(fd, NPAGES(24)));
	touch("store after growth", p + NPAGES(20), 'i');
	called("munmap", munmap(p, NPAGES(32)));
	called("close", close(fd));
	raw("remap.dat");
}
