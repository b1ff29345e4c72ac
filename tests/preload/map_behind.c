/* SPDX-License-Identifier: MIT */
/* Mappings that go by calls which no library sees, holes that stay holes, and shared memory segments in their
 * place. */
#include "fact.h"
#include <pthread.h>
#include <sys/shm.h>
#include <sys/syscall.h>

/* munmap by the instruction itself, as the runtimes of some languages do it. */
static long bare_munmap(void *p, size_t len)
{
	long ret;

#if defined(__x86_64__)
	__asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_munmap), "D"(p), "S"(len) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_munmap;
	register long x0 __asm__("x0") = (long)p;
	register long x1 __asm__("x1") = (long)len;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory", "cc");
	ret = x0;
#endif
	return ret;
}

static unsigned char *map_far(int fd, size_t at, size_t npages)
{
	unsigned char *p = mmap((char *)0x2000000000 + NPAGES(at), NPAGES(npages), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void behind_our_back(void)
{
	int fd = make("behind.dat", NPAGES(16));
	unsigned char *p = map(fd, NPAGES(16)), *q;

	memset(p, 'a', NPAGES(2));
	fact("bare munmap", bare_munmap(p, NPAGES(16)));
	q = mmap(p, NPAGES(16), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fact("something else is there", q == p && q[0] == 0);
	memset(q, 'z', NPAGES(16));
	called("fsync", fsync(fd));
	raw("behind.dat");
	called("dontneed", madvise(q, NPAGES(16), MADV_DONTNEED));
	fact("gone", q[0]);
	called("protect", mprotect(q, PAGE, PROT_NONE));
	called("munmap", munmap(q, NPAGES(16)));

	p = map_far(fd, 0, 16);
	p[0] = 'b';
	p[NPAGES(12)] = 'c';
	fact("bare munmap of a part", bare_munmap(p + NPAGES(4), NPAGES(4)));
	p[NPAGES(13)] = 'd';
	called("fsync", fsync(fd));
	p[1] = 'e';
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("behind.dat");
	q = mmap(p + NPAGES(4), NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	fact("the file in the hole", q == p + NPAGES(4) && q[0] == 'b');
	fact("bare munmap of all", bare_munmap(p, NPAGES(16)));
	q = map_far(fd, 0, 16);
	fact("again", q == p && q[NPAGES(12)] == 'c');
	q[2] = 'f';
	fact("bare munmap", bare_munmap(q, NPAGES(16)));
	called("munmap of what is not there", munmap(q, NPAGES(16)));
	called("fsync", fsync(fd));
	raw("behind.dat");
	q = map_far(fd, 0, 16);
	q[3] = 'g';
	fact("bare munmap", bare_munmap(q, NPAGES(16)));
	called("close", close(fd));
}

static void *on_a_stack(void *arg)
{
	volatile char deep[64 * 1024];

	memset((char *)deep, 1, sizeof(deep));
	return arg;
}

static void holes(void)
{
	int fd = make("holes.dat", NPAGES(4096)), other = make("holes2.dat", NPAGES(64));
	unsigned char *p = map(fd, NPAGES(4096)), *q;
	pthread_t t;

	catch_faults();
	p[0] = 'a';
	for (size_t i = 1; i < 64; i++)
		if (munmap(p + NPAGES(i * 2), NPAGES(i % 2 + 1) - (i % 2 ? NPAGES(1) : 0)))
			die("munmap");
	/* work that takes memory */
	q = map_far(other, 0, 64);
	memset(q, 'q', NPAGES(64));
	called("msync", msync(q, NPAGES(64), MS_SYNC));
	for (size_t i = 0; i < 64; i += 2)
		called("mprotect", mprotect(q + NPAGES(i), PAGE, PROT_READ));
	p[PAGE] = 'b';
	called("fsync", fsync(fd));
	for (size_t i = 1, n = 0; i < 64; i++) {
		n += msync(p + NPAGES(i * 2), PAGE, MS_ASYNC) == 0;
		if (i == 63)
			fact("holes that are none any more", (long)n);
	}
	called("munmap of all", munmap(p, NPAGES(4096)));
	if (pthread_create(&t, NULL, on_a_stack, NULL) || pthread_join(t, NULL))
		die("thread");
	q[NPAGES(1)] = 'r';
	called("msync", msync(q, NPAGES(64), MS_SYNC));
	called("close", close(fd) | close(other));
	raw("holes.dat");
	raw("holes2.dat");
}

static void segments(void)
{
	int fd = make("segment.dat", NPAGES(16)), id = shmget(IPC_PRIVATE, NPAGES(4), IPC_CREAT | 0600);
	unsigned char *p = map_far(fd, 100, 16), *q;

	if (id < 0)
		die("shmget");
	memset(p, 's', NPAGES(16));
	q = shmat(id, p + NPAGES(4), 0);
	fact("a segment over a mapping", q == (void *)-1 ? errno : 0);
	q = shmat(id, p + NPAGES(4) + 1, SHM_REMAP);
	fact("unaligned", q == (void *)-1 ? errno : 0);
	q = shmat(77777777, p + NPAGES(4), SHM_REMAP);
	fact("no segment", q == (void *)-1 ? errno : 0);
	fact("what is there stays", p[NPAGES(4)]);
	q = shmat(id, p + NPAGES(4), SHM_REMAP);
	fact("in its place", q == p + NPAGES(4));
	fact("its bytes", q[0] | q[NPAGES(4) - 1]);
	memset(q, 'x', NPAGES(4));
	called("msync of the rest", msync(p + NPAGES(8), NPAGES(8), MS_SYNC));
	raw("segment.dat");
	called("shmdt", shmdt(q));
	called("shmctl", shmctl(id, IPC_RMID, NULL));
	p[NPAGES(8)] = 't';
	called("munmap", munmap(p, NPAGES(16)));
	called("close", close(fd));
	raw("segment.dat");
}

static void facts(void)
{
	behind_our_back();
	holes();
	segments();
}
