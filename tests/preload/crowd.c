/* SPDX-License-Identifier: MIT */
/* Two hundred threads meet pages for the first time while others map, move, protect and unmap; and no thread
 * that is not the program's can be disturbed by a signal to each thread there is. */
#include "fact.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define NTHREADS 200u
#define NEACH	 12u
#define LEN	 NPAGES(NTHREADS *NEACH)

static unsigned char *p;
static int fd, ngo;
static volatile int done;

static void *toucher(void *arg)
{
	size_t me = (size_t)arg;
	long wrong = 0;

	while (!__atomic_load_n(&ngo, __ATOMIC_SEQ_CST))
		sched_yield();
	for (size_t i = 0; i < NEACH; i++) { /* pages that no other thread meets, spread over all of it */
		size_t at = NPAGES(i * NTHREADS + me) + me * 20;

		wrong += p[at] != pattern(at);
		p[at] = (unsigned char)me;
	}
	return (void *)wrong;
}

static void *mover(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;

	while (!done) {
		size_t len = NPAGES(1 + rand_r(&seed) % 64);
		unsigned char *q = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *r;

		if (q == MAP_FAILED)
			return (void *)1;
		(void)*(volatile unsigned char *)q;
		r = mremap(q, len, len + NPAGES(16), MREMAP_MAYMOVE);
		if (r == MAP_FAILED)
			return (void *)2;
		(void)*(volatile unsigned char *)(r + len);
		if (mprotect(r, PAGE, PROT_READ) || madvise(r, len, MADV_DONTNEED) || munmap(r, len + NPAGES(16)))
			return (void *)3;
	}
	return NULL;
}

static volatile int nprof;

static void on_prof(int signo)
{
	(void)signo;
	nprof++;
}

static int signal_each_thread(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			n += syscall(SYS_tgkill, getpid(), atoi(e->d_name), SIGPROF) == 0;
	closedir(d);
	return n;
}

static void facts(void)
{
	pthread_t th[NTHREADS], mv[2];
	pthread_attr_t attr;
	long wrong = 0;
	void *res;

	fd = make("crowd.dat", LEN); /* large enough to be loaded on touch */
	signal(SIGPROF, on_prof);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	p = map(fd, LEN);
	for (size_t i = 0; i < NTHREADS; i++)
		if (pthread_create(&th[i], &attr, toucher, (void *)i))
			die("pthread_create");
	for (size_t i = 0; i < 2; i++)
		pthread_create(&mv[i], NULL, mover, (void *)i);
	__atomic_store_n(&ngo, 1, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < 20; i++)
		if (signal_each_thread() < 1)
			die("tgkill");
	for (size_t i = 0; i < NTHREADS; i++) {
		pthread_join(th[i], &res);
		wrong += (long)res;
	}
	done = 1;
	for (size_t i = 0; i < 2; i++) {
		pthread_join(mv[i], &res);
		wrong += (long)res;
	}
	fact("wrong", wrong);
	fact("signals arrived", nprof > 0);
	called("msync", msync(p, LEN, MS_SYNC));
	printf("%lx\n", sum(p, LEN));
	munmap(p, LEN);
	p = map(fd, LEN);
	printf("%lx\n", sum(p, LEN));
}
