/* SPDX-License-Identifier: MIT */
/* Private mappings, made before and after shared ones: they follow what is stored there until their own
 * store. */
#include "fact.h"
#include <pthread.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static unsigned char *map_private(int fd, size_t npages, int prot, off_t pgoff)
{
	unsigned char *p = mmap(NULL, NPAGES(npages), prot, MAP_PRIVATE, fd, (off_t)NPAGES(pgoff));

	if (p == MAP_FAILED)
		die("mmap private");
	return p;
}

static void before_a_shared_one(void)
{
	int fd = make("before.dat", NPAGES(16) + 100), rofd = open("before.dat", O_RDONLY);
	unsigned char *v = map_private(fd, 20, PROT_READ | PROT_WRITE, 0), *r = map_private(rofd, 8, PROT_READ, 4), *p, *n;

	n = map_private(fd, 4, PROT_NONE, 2);
	v[NPAGES(1)] = 'v';
	v[NPAGES(9)] = 'w';
	called("a part is read only", mprotect(v + NPAGES(8), NPAGES(2), PROT_READ));
	called("a part is gone", munmap(v + NPAGES(12), NPAGES(2)));
	fact("read", r[0] == pattern(NPAGES(4)));
	p = map(fd, NPAGES(18));
	p[0] = 'a';
	p[PAGE + 1] = 'b';
	p[NPAGES(4)] = 'c';
	p[NPAGES(8)] = 'd';
	p[NPAGES(9) + 1] = 'e';
	p[NPAGES(16) + 99] = 'f';
	fact("a shared store is seen", v[0]);
	fact("not where it has stored itself", v[PAGE] == 'v' && v[PAGE + 1] == pattern(PAGE + 1));
	fact("nor in the part that is read only", v[NPAGES(9)] == 'w' && v[NPAGES(9) + 1] == pattern(NPAGES(9) + 1));
	fact("but beside it", v[NPAGES(8)]);
	fact("by the read-only one, too", r[0]);
	fact("at the end", v[NPAGES(16) + 99]);
	fact("behind it", v[NPAGES(16) + 100]);
	touch("beyond", v + NPAGES(17), 0);
	touch("the hole", v + NPAGES(12), 0);
	touch("no access", n, 0);
	touch("store into the read-only part", v + NPAGES(8), 'x');
	touch("store into the read-only one", r, 'x');
	called("access", mprotect(n, NPAGES(4), PROT_READ | PROT_WRITE));
	fact("the same", n[NPAGES(2)]);
	n[NPAGES(2)] = 'n';
	v[NPAGES(2)] = 'x';
	fact("stores of its own are its own", p[NPAGES(4)] == 'c' && p[NPAGES(2)] == pattern(NPAGES(2)));
	called("pwrite", (int)pwrite(fd, "W", 1, NPAGES(3)) - 1);
	fact("seen", v[NPAGES(3)]);
	called("msync", msync(p, NPAGES(18), MS_SYNC));
	raw("before.dat");
	p[NPAGES(5)] = 'g';
	fact("after a commit", v[NPAGES(5)]);
	called("shrink", ftruncate(fd, NPAGES(6)));
	touch("cut off", v + NPAGES(9), 0);
	called("grow", ftruncate(fd, NPAGES(12)));
	fact("its own store is gone, too", v[NPAGES(9)]);
	called("munmap shared", munmap(p, NPAGES(18)));
	called("close", close(fd));
	fact("still there", v[NPAGES(5)]);
	called("munmap", munmap(v, NPAGES(20)) | munmap(r, NPAGES(8)) | munmap(n, NPAGES(4)));
	called("close", close(rofd));
	raw("before.dat");
}

/* A reader that may not write, of a file that nobody may write. */
static void only_private(void)
{
	int fd = make("only.dat", NPAGES(8)), rofd;
	unsigned char *v, *w;
	struct stat st;

	called("close", close(fd));
	called("chmod", chmod("only.dat", 0444));
	rofd = open("only.dat", O_RDONLY);
	v = map_private(rofd, 8, PROT_READ | PROT_WRITE, 0);
	w = mmap(NULL, NPAGES(8), PROT_READ, MAP_PRIVATE | MAP_POPULATE, rofd, 0);
	fact("sum", sum(v, NPAGES(8)) == sum(w, NPAGES(8)));
	v[0] = 'v';
	fact("its own", w[0] == pattern(0));
	w = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rofd, 0);
	fact("a shared one to read", w != MAP_FAILED && w[0] == pattern(0));
	fact("its own still", v[0]);
	called("msync", msync(v, NPAGES(8), MS_SYNC));
	fstat(rofd, &st);
	fact("size", st.st_size);
	called("close", close(rofd));
	raw("only.dat");
}

static void moved(void)
{
	int fd = make("moved.dat", NPAGES(8));
	unsigned char *p = map(fd, NPAGES(8)), *v = map_private(fd, 8, PROT_READ | PROT_WRITE, 0), *w, *hole;

	v[0] = 'v';
	w = mremap(v, NPAGES(4), NPAGES(4), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	fact("DONTUNMAP", w != MAP_FAILED);
	fact("its own moved", w[0]);
	fact("and is not there any more", v[0] == pattern(0));
	p[PAGE] = 's';
	fact("both follow", v[PAGE] == 's' && w[PAGE] == 's');
	v[1] = 'x';
	fact("apart", w[1] == pattern(1) && p[1] == pattern(1));
	hole = mmap(NULL, NPAGES(4), PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w = mremap(v, NPAGES(4), NPAGES(4), MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, hole);
	fact("DONTUNMAP to a place", w == hole);
	fact("its own moved", w[1]);
	w = mremap(v, NPAGES(4), NPAGES(5), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	fact("DONTUNMAP with another length", w == MAP_FAILED ? errno : 0);
	w = mremap(v, NPAGES(4), NPAGES(4), MREMAP_DONTUNMAP, NULL);
	fact("DONTUNMAP without MAYMOVE", w == MAP_FAILED ? errno : 0);
	w = mremap(v, 0, NPAGES(4), MREMAP_MAYMOVE, NULL);
	fact("old length 0", w == MAP_FAILED ? errno : 0);
	v[2] = 'y';
	w = mremap(v, NPAGES(8), NPAGES(12), MREMAP_MAYMOVE);
	fact("grown", w != MAP_FAILED && w[2] == 'y');
	touch("beyond the end", w + NPAGES(9), 'z');
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	raw("moved.dat");
	called("close", close(fd));
}

static void with_children(void)
{
	int fd = make("child.dat", NPAGES(4)), st;
	unsigned char *v = map_private(fd, 4, PROT_READ | PROT_WRITE, 0), *p;
	pid_t pid;

	v[0] = 'v';
	p = map(fd, NPAGES(4));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		v[1] = 'c';
		p[PAGE] = 'C';
		_exit(v[0] == 'v' && v[PAGE] == 'C' ? 0 : 1);
	}
	if (waitpid(pid, &st, 0) != pid)
		die("waitpid");
	fact("child", st);
	fact("its private store", v[1] == pattern(1));
	fact("its shared store", v[PAGE]);
	called("close", munmap(p, NPAGES(4)) | munmap(v, NPAGES(4)) | close(fd));
	raw("child.dat");
}

/* Threads store into private memory while the file is mapped shared for the first time. */
static unsigned char *busy;
static int stop;

static void *store(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	unsigned long n = 0, lost = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned long *at = (unsigned long *)(busy + NPAGES(n % 16 * 4 + me));

		lost += n >= 16 && *at != n - 16;
		*at = n++;
	}
	return (void *)(uintptr_t)lost;
}

static void while_others_store(void)
{
	unsigned long lost = 0;

	for (int round = 0; round < 20; round++) {
		int fd = make("busy.dat", NPAGES(64));
		pthread_t t[4];
		unsigned char *p;

		busy = map_private(fd, 64, PROT_READ | PROT_WRITE, 0);
		__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
		for (size_t i = 0; i < 4; i++)
			if (pthread_create(&t[i], NULL, store, (void *)(uintptr_t)i))
				die("pthread_create");
		p = map(fd, NPAGES(64));
		p[0] = (unsigned char)round;
		if (munmap(p, NPAGES(64)))
			die("munmap");
		__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
		for (size_t i = 0; i < 4; i++) {
			void *n;

			pthread_join(t[i], &n);
			lost += (unsigned long)(uintptr_t)n;
		}
		if (munmap(busy, NPAGES(64)) || close(fd))
			die("munmap");
	}
	fact("stores that threads lost", (long)lost);
	raw("busy.dat");
}

static void facts(void)
{
	catch_faults();
	before_a_shared_one();
	only_private();
	moved();
	with_children();
	while_others_store();
}
