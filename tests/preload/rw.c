/* SPDX-License-Identifier: MIT */
/* Descriptor calls and mappings of one file agree, in both directions. */
#include "fact.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

static void facts(void)
{
	int fd = make("rw.dat", NPAGES(8)), ro, ap, wo, other, pipefd[2];
	unsigned char *p = map(fd, NPAGES(16)), buf[NPAGES(2)];
	struct iovec iov[3];
	off_t off;
	void *volatile nowhere = (void *)8;
	volatile int minus = -1;

	p[10] = 'a';
	fact("pread sees a store", pread(fd, buf, 4, 10) * 256 + buf[0]);
	fact("pwrite", pwrite(fd, "bcd", 3, NPAGES(3) - 1));
	fact("mapping sees it, across pages",
	     p[NPAGES(3) - 1] == 'b' && p[NPAGES(3)] == 'c' && p[NPAGES(3) + 1] == 'd');
	fact("position did not move", lseek(fd, 0, SEEK_CUR));
	fact("read", read(fd, buf, 20) * 256 + buf[10]);
	fact("position moved", lseek(fd, 0, SEEK_CUR));
	fact("write", write(fd, "efg", 3));
	fact("mapping sees it", p[20] == 'e' && p[22] == 'g');
	fact("position moved", lseek(fd, 0, SEEK_CUR));
	fact("seek from the end", lseek(fd, -5, SEEK_END));
	fact("read stops at the end", read(fd, buf, 100));
	fact("and gives 0 there", read(fd, buf, 100));
	fact("write there extends", write(fd, "0123456789", 10));
	fact("mapping sees it", p[NPAGES(8) + 9]);
	fact("size", lseek(fd, 0, SEEK_END));

	iov[0] = (struct iovec){buf, 3};
	iov[1] = (struct iovec){buf + 100, 0};
	iov[2] = (struct iovec){buf + 200, 5};
	fact("preadv", preadv(fd, iov, 3, NPAGES(8)) * 65536 + buf[2] * 256 + buf[204]);
	lseek(fd, NPAGES(1), SEEK_SET);
	fact("readv", readv(fd, iov, 3) * 256 + (buf[200] == pattern(PAGE + 3)));
	memset(buf, 'h', sizeof(buf));
	fact("writev", writev(fd, iov, 3));
	fact("mapping sees it",
	     p[PAGE + 8] == 'h' && p[PAGE + 15] == 'h' && p[PAGE + 16] == pattern(PAGE + 16));
	fact("pwritev", pwritev(fd, iov, 3, NPAGES(6) - 4));
	fact("mapping sees it", p[NPAGES(6) + 3] == 'h' && p[NPAGES(6) + 4] == pattern(NPAGES(6) + 4));
	fact("pwritev2", pwritev2(fd, iov, 1, 0, RWF_DSYNC));
	fact("preadv2", preadv2(fd, iov, 1, 0, 0));

	ap = open("rw.dat", O_RDWR | O_APPEND);
	fact("append", write(ap, "end", 3));
	fact("appended at", lseek(ap, 0, SEEK_CUR));
	fact("mapping sees it", p[NPAGES(8) + 12]);
	fact("pwrite appends too", pwrite(ap, "END", 3, 0));
	fact("first byte untouched", p[0]);
	fact("mapping sees it", p[NPAGES(8) + 15]);

	ro = open("rw.dat", O_RDONLY);
	wo = open("rw.dat", O_WRONLY);
	called("write, read-only", (int)write(ro, "x", 1));
	called("pwrite, read-only", (int)pwrite(ro, "x", 1, 0));
	called("ftruncate, read-only", ftruncate(ro, 0));
	called("read, write-only", (int)read(wo, buf, 1));
	called("negative offset", (int)pread(fd, buf, 1, -1));
	called("negative seek", (int)lseek(fd, -1, SEEK_SET));
	called("bad whence", (int)lseek(fd, 0, 99));
	fact("no bytes", write(fd, buf, 0) + read(fd, buf, 0));
	called("no vectors", (int)readv(fd, iov, 0));
	called("negative vectors", (int)readv(fd, iov, minus));
	called("bad buffer", (int)pread(fd, nowhere, 10, 0));
	called("bad buffer to write", (int)pwrite(fd, nowhere, 10, 0));
	fact("read-only sees all", pread(ro, buf, sizeof(buf), NPAGES(7)));
	fact("the same", memcmp(buf, p + NPAGES(7), PAGE + 16));

	fact("write far beyond", pwrite(wo, "far", 3, NPAGES(12)));
	fact("hole is zero", p[NPAGES(11)] | p[NPAGES(8) + 16]);
	fact("mapping sees it", p[NPAGES(12) + 2]);
	fact("from the mapping to the same file", pwrite(fd, p + NPAGES(12), 3, 100));
	fact("seen", p[102]);
	fact("from the file to its mapping", pread(fd, p + NPAGES(4), 3, 100));
	fact("seen", p[NPAGES(4) + 2]);

	other = open("rw.out", O_RDWR | O_CREAT | O_TRUNC, 0600);
	off = 98;
	fact("sendfile", sendfile(other, ro, &off, NPAGES(3)));
	fact("offset", off);
	fact("right bytes", pread(other, buf, 5, 0) * 256 + buf[2]);
	fact("copy_file_range", copy_file_range(fd, &(off_t){NPAGES(4)}, other, &(off_t){0}, 3, 0));
	fact("right bytes", pread(other, buf, 5, 0) * 256 + buf[2]);
	if (pipe(pipefd))
		die("pipe");
	lseek(ro, 20, SEEK_SET);
	fact("sendfile to a pipe", sendfile(pipefd[1], ro, NULL, 3));
	fact("position", lseek(ro, 0, SEEK_CUR));
	fact("read from the pipe", read(pipefd[0], buf, 10) * 256 + buf[2]);

	called("fsync", fsync(fd));
	raw("rw.dat");
	fact("pwrite after commit", pwrite(fd, "again", 5, 0));
	fact("SEEK_DATA", lseek(fd, 0, SEEK_DATA));
	fact("SEEK_DATA at the end", lseek(fd, NPAGES(40), SEEK_DATA));
	called("close", close(fd) | close(ro) | close(wo) | close(ap) | close(other));
	called("munmap", munmap(p, NPAGES(16)));
	raw("rw.dat");
}
