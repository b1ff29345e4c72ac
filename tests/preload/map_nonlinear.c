/* SPDX-License-Identifier: MIT */
/* remap_file_pages: a part of a mapping shows other pages of its file. */
#include "fact.h"

/* Where nobody maps anything by himself: holes stay holes. */
static unsigned char *map_far(int of, size_t len)
{
	unsigned char *p = mmap((void *)0x2000000000, len, PROT_READ | PROT_WRITE, MAP_SHARED, of, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void facts(void)
{
	int fd = make("nonlinear.dat", NPAGES(16)), rofd = open("nonlinear.dat", O_RDONLY);
	unsigned char *p = map_far(fd, NPAGES(16)), *q, *other;

	catch_faults();
	memset(p, 'a', PAGE);
	called("page 8 at 1", remap_file_pages(p + PAGE, PAGE, 0, 8, 0));
	fact("there", p[PAGE] == pattern(NPAGES(8)));
	p[PAGE] = 'b';
	fact("one memory", p[NPAGES(8)]);
	called("four pages from 10 at 2", remap_file_pages(p + NPAGES(2), NPAGES(4), 0, 10, MAP_NONBLOCK));
	fact("there", p[NPAGES(5)] == pattern(NPAGES(13)));
	called("over pieces", remap_file_pages(p, NPAGES(4), 0, 12, 0));
	p[0] = 'c';
	fact("one memory", p[NPAGES(12)]);
	called("back", remap_file_pages(p, NPAGES(8), 0, 0, 0));
	fact("stores are kept", p[0] == 'a' && p[NPAGES(8)] == 'b' && p[NPAGES(12)] == 'c');
	called("unaligned", remap_file_pages(p + 100, PAGE + 200, 0, 3, 0));
	fact("rounded", p[0] == pattern(NPAGES(3)) && p[PAGE] == pattern(PAGE));
	called("with a protection", remap_file_pages(p, PAGE, PROT_READ, 3, 0));
	called("no length", remap_file_pages(p, 100, 0, 3, 0));
	called("beyond the end of the file", remap_file_pages(p, PAGE, 0, 100, 0));
	touch("there", p, 0);
	called("beyond all offsets", remap_file_pages(p, PAGE, 0, SIZE_MAX, 0));
	called("beyond 2^63", remap_file_pages(p, PAGE, 0, 1ul << 51, 0));
	called("just below", remap_file_pages(p, PAGE, 0, (1ul << 51) - 2, 0));
	called("around the end", remap_file_pages(p, SIZE_MAX - PAGE, 0, 0, 0));
	called("back", remap_file_pages(p, PAGE, 0, 0, 0));

	called("read only", mprotect(p, PAGE, PROT_READ));
	called("over two protections", remap_file_pages(p, NPAGES(2), 0, 4, 0));
	called("of it alone", remap_file_pages(p, PAGE, 0, 4, 0));
	touch("load", p, 0);
	touch("store", p, 'x');
	called("a hole", munmap(p + NPAGES(2), PAGE));
	called("over a hole", remap_file_pages(p + PAGE, NPAGES(4), 0, 0, 0));
	called("from a hole", remap_file_pages(p + NPAGES(2), NPAGES(2), 0, 0, 0));
	other = mmap(p + NPAGES(2), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	called("over something else", remap_file_pages(p + PAGE, NPAGES(2), 0, 0, 0));
	called("from something else", remap_file_pages(other, NPAGES(2), 0, 0, 0));
	called("mlock", mlock(p + NPAGES(4), NPAGES(4)));
	called("of what is locked", remap_file_pages(p + NPAGES(4), NPAGES(4), 0, 8, 0));
	called("is locked still", msync(p + NPAGES(4), NPAGES(4), MS_INVALIDATE));

	q = mmap(NULL, NPAGES(2), PROT_READ, MAP_SHARED, rofd, 0);
	called("of a read-only descriptor", remap_file_pages(q, PAGE, 0, 4, 0));
	called("munmap", munmap(q, NPAGES(2)));
	q = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	called("of a private mapping", remap_file_pages(q, PAGE, 0, 4, 0));
	called("munmap", munmap(q, NPAGES(2)));
	called("close first", close(fd) | close(rofd));
	called("then", remap_file_pages(p + NPAGES(9), PAGE, 0, 1, 0));
	p[NPAGES(9)] = 'd';
	called("msync", msync(p + NPAGES(8), NPAGES(8), MS_SYNC));
	raw("nonlinear.dat");
	called("munmap", munmap(p, NPAGES(16)));
	raw("nonlinear.dat");
}
