/* SPDX-License-Identifier: MIT */
/* A thread cancelled in the middle of its calls leaves nothing locked; and one blocked in read is cancelled
 * there. */
#include "fact.h"
#include <pthread.h>

static unsigned char *p;
static int fd, pipefd[2];
static int nstarted, nwrong;

static void *worker(void *arg)
{
	size_t me = (size_t)arg;
	char c = 'x';

	__atomic_add_fetch(&nstarted, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		p[me]++;
		if (pwrite(fd, &c, 1, (off_t)(PAGE + me)) != 1 || pread(fd, &c, 1, (off_t)(PAGE + me)) != 1)
			__atomic_add_fetch(&nwrong, 1, __ATOMIC_SEQ_CST);
		if (me % 2)
			msync(p, PAGE, MS_SYNC);
	}
	return NULL;
}

static void *blocked(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&nstarted, 1, __ATOMIC_SEQ_CST);
	(void)!read(pipefd[0], p + NPAGES(2), PAGE);
	return NULL;
}

static void facts(void)
{
	pthread_t th;
	void *res;
	size_t i;
	int ncancelled = 0;

	fd = make("cancel.dat", NPAGES(4));
	p = map(fd, NPAGES(4));
	if (pipe(pipefd))
		die("pipe");
	for (i = 0; i < 40; i++) {
		nstarted = 0;
		pthread_create(&th, NULL, worker, (void *)i);
		while (!__atomic_load_n(&nstarted, __ATOMIC_SEQ_CST))
			sched_yield();
		pthread_cancel(th);
		pthread_join(th, &res);
		ncancelled += res == PTHREAD_CANCELED;
	}
	fact("cancelled", ncancelled);
	nstarted = 0;
	pthread_create(&th, NULL, blocked, NULL);
	while (!__atomic_load_n(&nstarted, __ATOMIC_SEQ_CST))
		sched_yield();
	pthread_cancel(th);
	pthread_join(th, &res);
	fact("cancelled in read", res == PTHREAD_CANCELED);
	fact("wrong", nwrong);
	memset(p, 'a', NPAGES(3));
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	called("munmap", munmap(p, NPAGES(4)));
	called("close", close(fd));
	raw("cancel.dat");
}
