/* SPDX-License-Identifier: MIT */
/* Eight threads store, read, write and commit at once; two more map, unmap, open and close the same file. */
#include "fact.h"
#include <pthread.h>

#define NTHREADS 8
#define ROUNDS	 300

static unsigned char *p;
static int fd, nbad;

static void bad(void)
{
	__atomic_add_fetch(&nbad, 1, __ATOMIC_RELAXED);
}

static void *storer(void *arg)
{
	size_t me = (size_t)arg, at, i;
	uint64_t v = 0, got;

	for (i = 0; i < ROUNDS; i++) {
		at = (i % 16) * PAGE + me * 64;
		v = me * 1000000 + i;
		if (i % 3 == 0) {
			if (pwrite(fd, &v, 8, (off_t)at) != 8)
				bad();
		} else {
			memcpy(p + at, &v, 8);
		}
		if (pread(fd, &got, 8, (off_t)at) != 8 || got != v)
			bad();
		memcpy(&got, p + at, 8);
		if (got != v)
			bad();
		if (i % 50 == 0 && msync(p, NPAGES(16), MS_SYNC))
			bad();
		__atomic_add_fetch((uint64_t *)(p + NPAGES(16)), 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *mapper(void *arg)
{
	int i, f;
	unsigned char *q;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		f = open("threads.dat", O_RDWR);
		q = mmap(NULL, NPAGES(17), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
		if (f < 0 || q == MAP_FAILED || close(f) || memcmp(q + 8 * 64, p + 8 * 64, 8) ||
		    munmap(q, NPAGES(17)))
			bad();
	}
	return NULL;
}

static void facts(void)
{
	pthread_t th[NTHREADS + 2];
	uint64_t n;
	size_t i;

	fd = make("threads.dat", NPAGES(17));
	p = map(fd, NPAGES(17));
	memset(p + NPAGES(16), 0, 8);
	for (i = 0; i < NTHREADS; i++)
		pthread_create(&th[i], NULL, storer, (void *)i);
	for (; i < NTHREADS + 2; i++)
		pthread_create(&th[i], NULL, mapper, NULL);
	for (i = 0; i < NTHREADS + 2; i++)
		pthread_join(th[i], NULL);
	memcpy(&n, p + NPAGES(16), 8);
	fact("counted", (long)n);
	fact("wrong", nbad);
	called("msync", msync(p, NPAGES(17), MS_SYNC));
	raw("threads.dat");
}
