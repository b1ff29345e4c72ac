/* SPDX-License-Identifier: MIT */
/* What random operations (tests/fsx) found, in their shortest form. The files are large enough to be loaded
 * lazily. */
#include "fact.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define SIZE NPAGES(1536)

static unsigned char *anywhere(size_t npages)
{
	return mmap(NULL, NPAGES(npages), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void buffers_in_holes(void)
{
	int fd = make("hole.dat", SIZE);
	unsigned char *p = map(fd, SIZE);

	called("remove", madvise(p + NPAGES(2), PAGE, MADV_REMOVE));
	fact("write from a page that was removed", pwrite(fd, p + NPAGES(2) + 20, 35, NPAGES(40)));
	fact("zeros", p[NPAGES(40)] | p[NPAGES(40) + 34]);
	called("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, NPAGES(3), PAGE));
	fact("write from a page that was punched", pwrite(fd, p + NPAGES(3), PAGE, (off_t)SIZE));
	fact("read into one", pread(fd, p + NPAGES(3), 10, NPAGES(4)));
	fact("right", p[NPAGES(3) + 9] == pattern(NPAGES(4) + 9));
	called("msync", msync(p, SIZE, MS_SYNC));
	raw("hole.dat");
	munmap(p, SIZE);
	close(fd);
}

static void advice(void)
{
	int fd = make("advice.dat", SIZE), ro = open("advice.dat", O_RDONLY);
	unsigned char *p = map(fd, SIZE + PAGE), *q, *r;

	q = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	r = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, ro, 0);
	called("remove, private", madvise(q, PAGE, MADV_REMOVE));
	called("remove, read-only", madvise(r, PAGE, MADV_REMOVE));
	called("populate", madvise(p + NPAGES(9), PAGE, MADV_POPULATE_READ));
	called("populate for writing", madvise(p + NPAGES(9), NPAGES(2), MADV_POPULATE_WRITE));
	called("populate beyond the end", madvise(p + SIZE, PAGE, MADV_POPULATE_READ));
	called("populate without the right", madvise(r, PAGE, MADV_POPULATE_WRITE));
	munmap(q, SIZE);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, NPAGES(5));
	p[NPAGES(5)] = 'x';
	fact("a filled private mapping has a copy", q[0] == pattern(NPAGES(5)));
	munmap(q, PAGE);
	munmap(p, SIZE + PAGE);
	munmap(r, SIZE);
	close(ro);
	close(fd);
}

static void moves(void)
{
	int fd = make("moves.dat", SIZE);
	unsigned char *p = map(fd, NPAGES(8)), *at = anywhere(16), *q;

	called("mprotect of a part", mprotect(p + NPAGES(2), PAGE, PROT_READ));
	called("and back", mprotect(p + NPAGES(2), PAGE, PROT_READ | PROT_WRITE));
	q = mremap(p, NPAGES(8), NPAGES(8), MREMAP_MAYMOVE | MREMAP_FIXED, at);
	fact("it is one mapping again", q == at);
	if (mremap(q + NPAGES(2), NPAGES(6), NPAGES(6), MREMAP_MAYMOVE | MREMAP_FIXED, q) == MAP_FAILED)
		fact("onto itself", errno == EINVAL);
	fact("nothing is gone", q[0] == pattern(0) && q[NPAGES(2)] == pattern(NPAGES(2)));

	/* two that become neighbours with successive pages: the kernel makes them one */
	p = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPAGES(8));
	called("nobody may touch the one", mprotect(at, NPAGES(8), PROT_NONE));
	q = mremap(p, NPAGES(2), NPAGES(2), MREMAP_MAYMOVE | MREMAP_FIXED, at + NPAGES(8));
	called("and now again", mprotect(at, NPAGES(8), PROT_READ | PROT_WRITE));
	called("msync", msync(at, NPAGES(10), MS_SYNC));
	at[NPAGES(7)] = 'y';
	q[PAGE] = 'z';
	called("msync", msync(at, NPAGES(10), MS_SYNC));
	raw("moves.dat");

	p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, NPAGES(700));
	p = mremap(p, PAGE, NPAGES(40), MREMAP_MAYMOVE);
	fact("a private mapping grows", p[NPAGES(39)] == pattern(NPAGES(739)));
	munmap(p, NPAGES(40));
	munmap(at, NPAGES(16));
	close(fd);
}

static void kinds_of_open(void)
{
	int fd = make("kinds.dat", SIZE), wo;
	unsigned char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, fd, 0);

	p[0] = 'v';
	called("msync", msync(p, PAGE, MS_SYNC));
	raw("kinds.dat");
	munmap(p, PAGE);
	close(fd);

	fd = open("kinds.dat", O_RDONLY);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	wo = open("kinds.dat", O_WRONLY | O_APPEND);
	fact("write to what is only read elsewhere", write(wo, "end", 3));
	fact("seen", pread(fd, &(char){0}, 1, (off_t)SIZE + 2));
	called("close", close(wo));
	wo = open("kinds.dat", O_WRONLY);
	fact("into a page that was not loaded", pwrite(wo, "mid", 3, NPAGES(200) + 5));
	called("fsync", fsync(wo));
	raw("kinds.dat");
	munmap(p, PAGE);
	close(wo);
	close(fd);

	fd = open("kinds.dat", O_RDONLY);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	wo = open("kinds.dat", O_WRONLY);
	called("allocate", fallocate(wo, FALLOC_FL_KEEP_SIZE, 0, PAGE));
	called("cut", ftruncate(wo, NPAGES(5)));
	munmap(p, PAGE);
	close(wo);
	close(fd); /* the release */
	raw("kinds.dat");
}

static void read_all(const volatile unsigned char *p)
{
	for (size_t i = 0; i < SIZE; i += PAGE)
		(void)p[i];
}

static void children(void)
{
	int fd = make("child.dat", SIZE);
	unsigned char *p = map(fd, SIZE);
	pid_t pid;

	p[0] = 'a';
	pid = fork();
	if (pid == 0) {
		p[1] = 'b'; /* to a page that is dirty already */
		_exit(0);
	}
	ended("child", pid);
	raw("child.dat");

	pid = fork();
	if (pid == 0) {
		p[NPAGES(130)] = 'e';
		raise(SIGKILL);
	}
	ended("a child that is killed", pid);
	fact("its store", p[NPAGES(130)]);
	called("msync", msync(p, SIZE, MS_SYNC));
	raw("child.dat");
	munmap(p, SIZE);
	close(fd);
	raw("child.dat");
}

/* A child brings the pages; the parent, that touched none, stores to one and writes to another. */
static void brought_by_a_child(void)
{
	int fd = make("brought.dat", SIZE);
	unsigned char *p = map(fd, SIZE);
	pid_t pid = fork();

	if (pid == 0) {
		read_all(p);
		_exit(0);
	}
	ended("a child that only reads", pid);
	p[NPAGES(100) + 1] = 'c';
	fact("write", pwrite(fd, "d", 1, NPAGES(120)));
	called("msync", msync(p, SIZE, MS_SYNC));
	raw("brought.dat");
	munmap(p, SIZE);
	close(fd);
}

static void facts(void)
{
	buffers_in_holes();
	advice();
	moves();
	kinds_of_open();
	children();
	brought_by_a_child();
}
