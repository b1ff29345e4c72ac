/* SPDX-License-Identifier: MIT */
/* The end of the file seen through a mapping. */
#include "fact.h"

static void facts(void)
{
	int fd = make("eof.dat", NPAGES(2) + 10), fd2;
	unsigned char *p = map(fd, NPAGES(8)), buf[16];
	struct stat st;

	catch_faults();
	touch("last page, past the end", p + NPAGES(3) - 1, 0);
	touch("first page beyond", p + NPAGES(3), 0);
	touch("store beyond", p + NPAGES(4), 'x');
	p[NPAGES(2) + 11] = 'j';
	called("grow", ftruncate(fd, NPAGES(5)));
	fact("bytes stored past the end are not the file's", pread(fd, buf, 4, NPAGES(2) + 10));
	fact("grown part is zero", p[NPAGES(4)] | p[NPAGES(3)]);
	touch("store in the grown part", p + NPAGES(4), 'k');
	fact("read sees it", pread(fd, buf, 1, NPAGES(4)) * 256 + buf[0]);
	touch("still beyond", p + NPAGES(5), 0);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	called("shrink", ftruncate(fd, PAGE + 100));
	touch("cut off", p + NPAGES(2), 0);
	touch("tail of the new last page", p + PAGE + 200, 0);
	fact("is zero", p[PAGE + 200]);
	called("grow again", ftruncate(fd, NPAGES(3)));
	fact("what was cut off is gone", p[PAGE + 100] | p[NPAGES(2)] | p[NPAGES(2) + 9]);
	fact("what was not is there", p[PAGE + 99] == pattern(PAGE + 99));
	fstat(fd, &st);
	fact("size", st.st_size);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	raw("eof.dat");

	p[0] = 'm';
	fd2 = open("eof.dat", O_RDWR | O_TRUNC);
	fact("opened with O_TRUNC while mapped", fd2 >= 0);
	touch("all is beyond the end", p, 0);
	stat("eof.dat", &st);
	fact("size", st.st_size);
	fact("write", pwrite(fd2, "hello", 5, 0));
	fact("mapping has what was written", p[4]);
	fact("and zeros behind", p[5] | p[PAGE - 1]);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	raw("eof.dat");
	called("truncate by path", truncate("eof.dat", 2));
	fact("seen", lseek(fd, 0, SEEK_END));
	called("negative", ftruncate(fd, -1));
	called("close", close(fd) | close(fd2));
	called("munmap", munmap(p, NPAGES(8)));
	raw("eof.dat");
}
