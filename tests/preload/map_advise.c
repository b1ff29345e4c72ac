/* SPDX-License-Identifier: MIT */
/* madvise: what is advice, what is an order, and what neither is. */
#include "fact.h"
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MADV_COLD
#define MADV_COLD    20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static const struct {
	const char *name;
	int advice;
} all[] = {
	{"NORMAL", MADV_NORMAL},	   {"RANDOM", MADV_RANDOM},
	{"SEQUENTIAL", MADV_SEQUENTIAL},   {"WILLNEED", MADV_WILLNEED},
	{"DONTNEED", MADV_DONTNEED},	   {"FREE", MADV_FREE},
	{"DONTFORK", MADV_DONTFORK},	   {"DOFORK", MADV_DOFORK},
	{"WIPEONFORK", MADV_WIPEONFORK},   {"KEEPONFORK", MADV_KEEPONFORK},
	{"MERGEABLE", MADV_MERGEABLE},	   {"UNMERGEABLE", MADV_UNMERGEABLE},
	{"HUGEPAGE", MADV_HUGEPAGE},	   {"NOHUGEPAGE", MADV_NOHUGEPAGE},
	{"DONTDUMP", MADV_DONTDUMP},	   {"DODUMP", MADV_DODUMP},
	{"COLD", MADV_COLD},		   {"PAGEOUT", MADV_PAGEOUT},
	{"POPULATE_READ", MADV_POPULATE_READ},
	{"POPULATE_WRITE", MADV_POPULATE_WRITE},
	{"DONTNEED_LOCKED", MADV_DONTNEED_LOCKED},
	{"7", 7},			   {"1000", 1000},
	{"-1", -1},			   {"DONTNEED or REMOVE", MADV_DONTNEED | MADV_REMOVE | 64},
};
#define N (sizeof(all) / sizeof(all[0]))

static int fd;

static void each(const char *on, unsigned char *p, size_t len)
{
	printf("--- %s\n", on);
	for (size_t i = 0; i < N; i++)
		called(all[i].name, madvise(p, len, all[i].advice));
}

/* Where nobody maps anything by himself: holes stay holes. */
static unsigned char *map_far(size_t len)
{
	unsigned char *p = mmap((void *)0x2000000000, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void every_advice(void)
{
	unsigned char *p = map(fd, NPAGES(16)), *v, *r;
	int rofd = open("advise.dat", O_RDONLY);

	memset(p, 'a', NPAGES(2));
	each("a shared mapping", p, NPAGES(8));
	fact("its stores", p[0] == 'a' && p[NPAGES(2) - 1] == 'a');
	fact("the rest", p[NPAGES(3)] == pattern(NPAGES(3)));
	p[NPAGES(4)] = 'b';
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("advise.dat");
	r = mmap(NULL, NPAGES(4), PROT_READ, MAP_SHARED, rofd, 0);
	each("a shared mapping that cannot be written", r, NPAGES(4));
	called("REMOVE", madvise(r, PAGE, MADV_REMOVE));
	fact("the same memory", r[0]);
	v = mmap(NULL, NPAGES(4), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	v[0] = 'v';
	each("a private mapping", v, NPAGES(4));
	called("REMOVE", madvise(v, PAGE, MADV_REMOVE));
	fact("lost by DONTNEED", v[0]);
	called("unaligned", madvise(p + 1, PAGE, MADV_DONTNEED));
	called("unaligned, unknown", madvise(p + 1, PAGE, 1000));
	called("nothing", madvise(p, 0, MADV_DONTNEED));
	called("nothing, unknown", madvise(p, 0, 1000));
	called("nothing, unaligned", madvise(p + 1, 0, MADV_DONTNEED));
	called("around the end", madvise(p, SIZE_MAX, MADV_DONTNEED));
	called("around the end, less a page", madvise(p, SIZE_MAX - PAGE, MADV_DONTNEED));
	called("a part of a page", madvise(p, 100, MADV_DONTNEED));
	called("munmap", munmap(p, NPAGES(16)) | munmap(v, NPAGES(4)) | munmap(r, NPAGES(4)));
	called("close", close(rofd));
}

static void holes(void)
{
	unsigned char *p = map_far(NPAGES(16)), *v;

	called("a hole", munmap(p + NPAGES(4), NPAGES(2)));
	v = mmap(p + NPAGES(8), NPAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, NPAGES(8));
	v[0] = 'v';
	p[NPAGES(11)] = 'c';
	each("over a hole and a private mapping", p, NPAGES(12));
	fact("lost by DONTNEED", v[0] == pattern(NPAGES(8)));
	fact("not lost", p[NPAGES(11)]);
	called("REMOVE over a hole", madvise(p + NPAGES(3), NPAGES(4), MADV_REMOVE));
	fact("before it", p[NPAGES(3)]);
	fact("behind it", p[NPAGES(6)]);
	called("REMOVE over a private mapping", madvise(p + NPAGES(7), NPAGES(4), MADV_REMOVE));
	fact("before it", p[NPAGES(7)]);
	fact("behind it", p[NPAGES(10)]);
	called("DONTNEED of nothing but a hole", madvise(p + NPAGES(4), PAGE, MADV_DONTNEED));
	called("msync over the hole", msync(p, NPAGES(16), MS_SYNC));
	called("munmap", munmap(p, NPAGES(16)));
	raw("advise.dat");
}

static void locked(void)
{
	unsigned char *p = map(fd, NPAGES(8));

	called("mlock", mlock(p + NPAGES(2), NPAGES(2)));
	p[0] = p[NPAGES(2)] = 'l';
	each("a locked part", p, NPAGES(8));
	called("REMOVE", madvise(p + NPAGES(2), PAGE, MADV_REMOVE));
	called("REMOVE before it, too", madvise(p + PAGE, NPAGES(2), MADV_REMOVE));
	fact("before", p[PAGE]);
	fact("not lost", p[0] == 'l' && p[NPAGES(2)] == 'l');
	called("munmap", munmap(p, NPAGES(8)));
}

static void children(void)
{
	unsigned char *p = map_far(NPAGES(8));
	pid_t pid;

	p[NPAGES(2)] = 'f';
	called("DONTFORK", madvise(p, NPAGES(2), MADV_DONTFORK));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		p[NPAGES(2) + 1] = 'c';
		_exit(p[NPAGES(2)] == 'f' ? 0 : 1);
	}
	ended("a child that touches the rest", pid);
	fact("its store", p[NPAGES(2) + 1]);
	pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(p[0]);
	}
	ended("a child that touches it", pid);
	pid = fork();
	if (pid == 0) {
		unsigned char *q = mmap(p, NPAGES(8), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		_exit(q == p ? q[0] | q[NPAGES(3)] : 9);
	}
	ended("a child that maps over it", pid);
	pid = fork();
	if (pid == 0)
		_exit(msync(p, NPAGES(8), MS_ASYNC) ? errno : 0);
	ended("a child that asks what is mapped", pid);
	called("DOFORK", madvise(p, NPAGES(2), MADV_DOFORK));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		p[1] = 'd';
		_exit(p[0] == pattern(0) ? 0 : 1);
	}
	ended("a child that touches it now", pid);
	fact("its store", p[1]);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	called("munmap", munmap(p, NPAGES(8)));
	raw("advise.dat");
}

static void populate(void)
{
	unsigned char *p = map_far(NPAGES(20));

	called("POPULATE_READ", madvise(p, NPAGES(16), MADV_POPULATE_READ));
	called("POPULATE_WRITE", madvise(p, NPAGES(16), MADV_POPULATE_WRITE));
	fact("unchanged", p[NPAGES(15)] == pattern(NPAGES(15)));
	called("POPULATE_READ beyond the end", madvise(p, NPAGES(20), MADV_POPULATE_READ));
	called("read only", mprotect(p, PAGE, PROT_READ));
	called("POPULATE_WRITE of that", madvise(p, NPAGES(2), MADV_POPULATE_WRITE));
	called("no access", mprotect(p, PAGE, PROT_NONE));
	called("POPULATE_READ of that", madvise(p, NPAGES(2), MADV_POPULATE_READ));
	called("munmap", munmap(p + NPAGES(2), PAGE));
	called("POPULATE_READ over a hole", madvise(p + PAGE, NPAGES(4), MADV_POPULATE_READ));
	called("munmap", munmap(p, NPAGES(20)));
}

/* A guard page is none of the file's: a touch is SIGSEGV until it is removed. */
static void guards(void)
{
	unsigned char *p = map(fd, NPAGES(8));

	p[PAGE] = 'g';
	if (madvise(p + PAGE, PAGE, 102)) { /* MADV_GUARD_INSTALL, Linux 6.13 */
		called("munmap", munmap(p, NPAGES(8)));
		return;
	}
	touch("a guard page", p + PAGE, 0);
	touch("its neighbour", p, 0);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	called("GUARD_REMOVE", madvise(p + PAGE, PAGE, 103));
	touch("the page", p + PAGE, 0);
	fact("its store", p[PAGE]);
	p[PAGE + 1] = 'h';
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	called("munmap", munmap(p, NPAGES(8)));
	raw("advise.dat");
}

static void of_a_process(void)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	unsigned char *p = map(fd, NPAGES(8));
	struct iovec iov[2] = {{p, NPAGES(2)}, {p + NPAGES(4), NPAGES(2)}};

	p[0] = 'p';
	fact("COLD", process_madvise(self, iov, 2, MADV_COLD, 0));
	fact("PAGEOUT", process_madvise(self, iov, 2, MADV_PAGEOUT, 0));
	fact("WILLNEED", process_madvise(self, iov, 2, MADV_WILLNEED, 0));
	fact("flags", process_madvise(self, iov, 2, MADV_COLD, 1));
	fact("a store", p[0]);
	p[1] = 'q';
	called("msync", msync(p, PAGE, MS_SYNC));
	called("munmap", munmap(p, NPAGES(8)));
	called("close", close(self));
	raw("advise.dat");
}

static void facts(void)
{
	catch_faults();
	fd = make("advise.dat", NPAGES(16));
	every_advice();
	holes();
	locked();
	children();
	populate();
	guards();
	of_a_process();
	called("close", close(fd));
	raw("advise.dat");
}
