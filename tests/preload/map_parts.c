/* SPDX-License-Identifier: MIT */
/* Parts of a mapping: unmapped, replaced, protected; the rest stays what it was. */
#include "fact.h"

static void facts(void)
{
	int fd = make("parts.dat", NPAGES(16)), rofd;
	unsigned char *p = map(fd, NPAGES(16)), *q;

	catch_faults();
	memset(p, 'x', NPAGES(16));
	called("munmap of the middle", munmap(p + NPAGES(4), NPAGES(2)));
	touch("load in the hole", p + NPAGES(4), 0);
	touch("store beside the hole", p + NPAGES(6), 'y');
	called("msync over the hole", msync(p, NPAGES(16), MS_SYNC));
	called("mprotect over the hole", mprotect(p, NPAGES(16), PROT_READ | PROT_WRITE));

	q = mmap(p + NPAGES(8), NPAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0);
	fact("fixed where asked", q == p + NPAGES(8));
	fact("anonymous memory is zero", q[0] | q[NPAGES(2) - 1]);
	memset(q, 'z', NPAGES(2));
	called("msync of the rest", msync(p + NPAGES(6), NPAGES(10), MS_SYNC));
	raw("parts.dat");

	called("read only", mprotect(p + NPAGES(12), NPAGES(2), PROT_READ));
	touch("load read only", p + NPAGES(12), 0);
	touch("store read only", p + NPAGES(12), 'w');
	touch("store before it", p + NPAGES(12) - 1, 'w');
	called("msync", msync(p + NPAGES(6), NPAGES(10), MS_SYNC));
	touch("store read only, after a commit", p + NPAGES(13), 'w');
	called("nothing", mprotect(p + NPAGES(12), PAGE, PROT_NONE));
	touch("load nothing", p + NPAGES(12), 0);
	called("writable", mprotect(p + NPAGES(12), NPAGES(2), PROT_READ | PROT_WRITE));
	touch("store writable", p + NPAGES(12) + 1, 'v');
	fact("what was there is there", p[NPAGES(12)]);

	q = mmap(p + NPAGES(8), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, NPAGES(13));
	fact("file again, at another offset", q[0]);
	q = mmap(p, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	fact("noreplace on a mapping", q == MAP_FAILED && errno == EEXIST);
	called("unmap all, holes too", munmap(p, NPAGES(16)));
	q = mmap(p, NPAGES(16), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		 0);
	fact("the addresses are free", q == p && q[NPAGES(12)] == 0);
	memset(q, 'n', NPAGES(16));
	called("close", close(fd));
	raw("parts.dat");

	rofd = open("parts.dat", O_RDONLY);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rofd, 0);
	fact("writable on a read-only descriptor", q == MAP_FAILED ? errno : 0);
	q = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rofd, 0);
	fact("readable on a read-only descriptor", q[0]);
	called("made writable", mprotect(q, PAGE, PROT_READ | PROT_WRITE));
	called("munmap", munmap(q, PAGE));
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, rofd, 0);
	fact("private on a read-only descriptor", q != MAP_FAILED);
	q[0] = 'p';
	called("close", close(rofd));
	raw("parts.dat");
}
