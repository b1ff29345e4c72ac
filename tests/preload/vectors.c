/* SPDX-License-Identifier: MIT */
/* A fault in the middle of anything leaves everything as it was: registers, errno, the state of the floating
 * point unit. The pages are met for the first time inside the C library's copying, with vector registers in
 * use. */
#include "fact.h"

#define N 64u

static unsigned char *p;

/* A page that nobody touched since it was mapped, or protected. */
static unsigned char *fresh(int fd)
{
	static size_t next;

	if (!p || next == N) {
		if (p) {
			msync(p, NPAGES(N), MS_SYNC);
			munmap(p, NPAGES(N));
		}
		p = map(fd, NPAGES(N));
		next = 0;
	}
	return p + NPAGES(next++);
}

#ifdef __x86_64__
typedef float wide __attribute__((vector_size(32)));

__attribute__((target("avx"))) static int vectors_are_kept(volatile unsigned char *at, int store)
{
	wide v[8];
	int same = 1;

	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 8; k++)
			v[i][k] = (float)(i * 10 + k);
	if (store) /* all of it between the loads of the registers and the look at them */
		__asm__ volatile("vmovups %1, %%ymm8\n vmovups %2, %%ymm9\n vmovups %3, %%ymm15\n"
				 "movb $1, (%0)\n"
				 "vmovups %%ymm8, %3\n vmovups %%ymm9, %1\n vmovups %%ymm15, %2\n"
				 : "+r"(at), "+m"(v[0]), "+m"(v[1]), "+m"(v[2])
				 :
				 : "xmm8", "xmm9", "xmm15", "memory");
	else
		__asm__ volatile("vmovups %1, %%ymm8\n vmovups %2, %%ymm9\n vmovups %3, %%ymm15\n"
				 "movzbl (%0), %%eax\n"
				 "vmovups %%ymm8, %3\n vmovups %%ymm9, %1\n vmovups %%ymm15, %2\n"
				 : "+r"(at), "+m"(v[0]), "+m"(v[1]), "+m"(v[2])
				 :
				 : "xmm8", "xmm9", "xmm15", "rax", "memory");
	for (int k = 0; k < 8; k++)
		same &= v[2][k] == (float)k && v[0][k] == (float)(10 + k) && v[1][k] == (float)(20 + k);
	return same;
}
#endif

static void registers(int fd)
{
	int same = 1;

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		for (int i = 0; i < 40; i++)
			same &= vectors_are_kept(fresh(fd) + i, i % 2);
#endif
	fact("vector registers", same);
	same = 1;
	for (int i = 0; i < 20; i++) {
#ifdef __x86_64__
		unsigned control = i % 2 ? 0x3f80 : 0x5f80, now = control; /* rounding up, down */

		__asm__ volatile("ldmxcsr %0" : : "m"(control));
#endif
		errno = 4711;
		*(volatile unsigned char *)fresh(fd) = 1;
		same &= errno == 4711;
#ifdef __x86_64__
		__asm__ volatile("stmxcsr %0" : "=m"(now));
		control = 0x1f80;
		__asm__ volatile("ldmxcsr %0" : : "m"(control));
		same &= now == (i % 2 ? 0x3f80 : 0x5f80);
#endif
	}
	fact("floating point control, errno", same);
}

static void copies(int fd)
{
	static unsigned char other[NPAGES(N)];
	unsigned long h = 0;

	for (size_t len = 1; len < NPAGES(8); len = len * 3 + 1) {
		unsigned char *q;

		munmap(p, NPAGES(N));
		p = NULL;
		q = fresh(fd);
		memcpy(other, q + 13, len);
		h = h * 31 + sum(other, len);
		memset(other, (int)len, len);
		memcpy(q + NPAGES(10) + 5, other, len); /* stores into fresh pages */
		memmove(q + NPAGES(10) + 100, q + NPAGES(10), len);
		h = h * 31 + sum(q + NPAGES(10), len + 100);
		h = h * 31 + (unsigned long)(memcmp(q, q + NPAGES(20), len) > 0) + (memchr(q, 0, len) != NULL);
		memset(q + NPAGES(40) + 3, 7, len);
		h = h * 31 + sum(q + NPAGES(40), len + 3);
	}
	/* large enough for stores past the caches */
	munmap(p, NPAGES(N));
	p = NULL;
	(void)fresh(fd);
	memcpy(other, p, sizeof(other));
	msync(p, sizeof(other), MS_SYNC);
	memcpy(p, other, sizeof(other));
	printf("copies: %lx %lx\n", h, sum(p, sizeof(other)));
}

static void facts(void)
{
	int fd = make("vectors.dat", NPAGES(N));

	registers(fd);
	copies(fd);
	called("msync", msync(p, NPAGES(N), MS_SYNC));
	raw("vectors.dat");
}
