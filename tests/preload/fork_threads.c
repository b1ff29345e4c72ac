/* SPDX-License-Identifier: MIT */
/* Threads store and commit while another forks: each child finds nothing locked and nothing zero. */
#include "fact.h"
#include <pthread.h>

#define NTHREADS 4
#define NFORKS	 150

static unsigned char *p;
static int fd, stop, natfork;

static void *worker(void *arg)
{
	size_t me = (size_t)arg, i;
	char c;

	for (i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		p[NPAGES(me) + i % PAGE]++;
		if (i % 64 == 0 && msync(p, PAGE, MS_SYNC))
			die("msync");
		if (pread(fd, &c, 1, (off_t)NPAGES(me)) != 1 ||
		    pwrite(fd, &c, 1, (off_t)(NPAGES(8) + me)) != 1)
			die("pread");
	}
	return NULL;
}

/* The program's own handler uses the mapping: it runs before ours. */
static void prepare(void)
{
	natfork += p[NPAGES(9)] == pattern(NPAGES(9)) && msync(p, PAGE, MS_ASYNC) == 0;
}

static void in_child(int i)
{
	size_t at = NPAGES(16) + (size_t)i * 64; /* mostly first touched here */
	char c;

	if (p[at] != pattern(at) || pread(fd, &c, 1, (off_t)at) != 1 || (unsigned char)c != pattern(at))
		_exit(1);
	p[NPAGES(10) + (size_t)i] = 'k';
	if (i % 10 == 0 && msync(p, PAGE, MS_SYNC))
		_exit(2);
	_exit(0);
}

static void facts(void)
{
	pthread_t th[NTHREADS];
	int i, st, nbad = 0, nseen = 0;
	pid_t pid;

	fd = make("forks.dat", NPAGES(64));
	p = map(fd, NPAGES(64));
	pthread_atfork(prepare, NULL, NULL);
	for (i = 0; i < NTHREADS; i++)
		pthread_create(&th[i], NULL, worker, (void *)(size_t)i);
	for (i = 0; i < NFORKS; i++) {
		pid = i % 3 ? fork() : _Fork();
		if (pid == 0)
			in_child(i);
		if (pid < 0 || waitpid(pid, &st, 0) != pid || st != 0)
			nbad++;
		nseen += p[NPAGES(10) + (size_t)i] == 'k';
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < NTHREADS; i++)
		pthread_join(th[i], NULL);
	fact("bad children", nbad);
	fact("stores of children seen", nseen);
	fact("atfork handlers", natfork);
	memset(p, 'z', NPAGES(10));
	called("msync", msync(p, NPAGES(64), MS_SYNC));
	raw("forks.dat");
}
