/* SPDX-License-Identifier: MIT */
/* The kernel reads from and writes to pages of the mapping that nobody touched before. */
#include "fact.h"
#include <dirent.h>
#include <sys/socket.h>
#include <sys/uio.h>

static unsigned char *p;
static size_t at; /* next untouched page */

static unsigned char *fresh(size_t npages)
{
	unsigned char *q = p + at;

	at += NPAGES(npages);
	return q;
}

static void facts(void)
{
	int fd = make("buffers.dat", NPAGES(128)), src, sv[2], dg[2], pi[2], i;
	unsigned char *q, *r, out[NPAGES(4)];
	struct iovec iov[2];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	struct stat *st;

	p = map(fd, NPAGES(128));
	src = make("buffers.src", NPAGES(16));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) || socketpair(AF_UNIX, SOCK_DGRAM, 0, dg) || pipe(pi))
		die("socketpair");

	q = fresh(4);
	fact("read", read(src, q, NPAGES(4)));
	fact("right", q[0] == pattern(0) && q[NPAGES(4) - 1] == pattern(NPAGES(4) - 1));
	q = fresh(4);
	fact("pread", pread(src, q + 100, NPAGES(3), 50));
	fact("right", q[100] == pattern(50) && q[99 + NPAGES(3)] == pattern(49 + NPAGES(3)));
	fact("before it", q[99] == pattern((size_t)(q + 99 - p)));
	q = fresh(4);
	q[0] = 'x'; /* the first page ready, the others not */
	fact("read over mixed pages", pread(src, q, NPAGES(4), 0));
	q = fresh(4);
	iov[0] = (struct iovec){q, PAGE};
	iov[1] = (struct iovec){q + NPAGES(2), NPAGES(2)};
	fact("readv", preadv(src, iov, 2, PAGE));
	fact("right", q[0] == pattern(PAGE) && q[NPAGES(4) - 1] == pattern(NPAGES(4) - 1));

	q = fresh(4);
	fact("write", pwrite(src, q, NPAGES(4), NPAGES(8)));
	fact("read back", pread(src, out, NPAGES(4), NPAGES(8)));
	fact("right", memcmp(out, q, NPAGES(4)));
	q = fresh(4);
	iov[0] = (struct iovec){q + NPAGES(3), PAGE};
	iov[1] = (struct iovec){q, PAGE};
	fact("writev", pwritev(src, iov, 2, 0));
	fact("right", pread(src, out, NPAGES(2), 0) && !memcmp(out, q + NPAGES(3), PAGE) &&
			      !memcmp(out + PAGE, q, PAGE));

	q = fresh(2);
	r = fresh(2);
	fact("send", send(sv[0], q, NPAGES(2), 0));
	fact("recv", recv(sv[1], r, NPAGES(2), MSG_WAITALL));
	fact("right", memcmp(q, r, NPAGES(2)));
	q = fresh(2);
	r = fresh(2);
	fact("sendto, datagram", sendto(dg[0], q, NPAGES(2), 0, NULL, 0));
	fact("recvfrom", recvfrom(dg[1], r, NPAGES(2), 0, NULL, NULL));
	fact("right", memcmp(q, r, NPAGES(2)));
	q = fresh(2);
	r = fresh(2);
	iov[0] = (struct iovec){q, PAGE};
	iov[1] = (struct iovec){q + PAGE, PAGE};
	fact("sendmsg", sendmsg(dg[0], &msg, 0));
	iov[0] = (struct iovec){r, PAGE};
	iov[1] = (struct iovec){r + PAGE, PAGE};
	fact("recvmsg", recvmsg(dg[1], &msg, 0));
	fact("right", memcmp(q, r, NPAGES(2)));
	q = fresh(1);
	fact("write to a pipe", write(pi[1], q, 1000));
	r = fresh(1);
	fact("read from it", read(pi[0], r, 1000));
	fact("right", memcmp(q, r, 1000));

	st = (void *)fresh(1);
	fact("stat", stat("buffers.src", st));
	fact("size", st->st_size);
	st = (void *)fresh(1);
	fact("fstat", fstat(src, st));
	fact("size", st->st_size);
	i = open(".", O_RDONLY | O_DIRECTORY);
	q = fresh(1);
	fact("getdents64", getdents64(i, q, PAGE) > 0);
	fact("an entry", ((struct dirent64 *)(void *)q)->d_reclen > 0);

	q = fresh(2);
	r = fresh(2);
	fact("from its own file", pread(fd, r, NPAGES(2), q - p));
	fact("right", memcmp(q, r, NPAGES(2)));
	q = fresh(2);
	r = fresh(2);
	fact("to its own file", pwrite(fd, q, NPAGES(2), r - p));
	fact("right", memcmp(q, r, NPAGES(2)));
	fact("mlock", mlock(fresh(1), 100));

	memset(p, 0, 8192); /* no facts of the machine in the file */
	memset(st, 0, sizeof(*st));
	memset((unsigned char *)st - PAGE, 0, sizeof(*st));
	memset((unsigned char *)st + PAGE, 0, PAGE);
	called("msync", msync(p, NPAGES(128), MS_SYNC));
	raw("buffers.dat");

	/* after the commit pages are clean again: the kernel's stores count like any */
	fact("read into a clean page", pread(src, p + NPAGES(100), 10, 0));
	called("msync", msync(p, NPAGES(128), MS_SYNC));
	raw("buffers.dat");
	fact("write from protected memory",
	     pwrite(src, mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 0) < 0);
	mprotect(p + NPAGES(101), PAGE, PROT_NONE);
	called("read into what the program protected", (int)pread(src, p + NPAGES(101), 10, 0));
	mprotect(p + NPAGES(102), PAGE, PROT_READ);
	called("read into what it made read-only", (int)pread(src, p + NPAGES(102), 10, 0));
	called("write from it", (int)pwrite(src, p + NPAGES(102), 10, 0));
}
