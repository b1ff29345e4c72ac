/* SPDX-License-Identifier: MIT */
/* Files of odd shapes: holes only, shrunk between open and mmap, cut by another thread; and one that holds
 * locks. */
#include "fact.h"
#include <pthread.h>

static void holes(void)
{
	int fd = make("holes.dat", 0);
	unsigned char *p, buf[16];
	struct stat st;

	if (ftruncate(fd, 1 << 30))
		die("ftruncate");
	p = map(fd, 1 << 30);
	fact("holes are zeros", p[0] | p[(1 << 30) - 1] | p[1 << 29]);
	p[1 << 29] = 'h';
	fact("read", pread(fd, buf, 16, (1 << 29) - 8) * 256 + buf[8]);
	called("msync", msync(p, 1 << 30, MS_SYNC));
	fstat(fd, &st);
	fact("size", st.st_size);
	called("punch it again", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 29, 4096));
	fact("gone", p[1 << 29]);
	called("msync", msync(p, 1 << 30, MS_SYNC));
	munmap(p, 1 << 30);
	fact("still", pread(fd, buf, 1, 1 << 29) * 256 + buf[0]);
	fact("no data, or an empty block", lseek(fd, 0, SEEK_DATA) < 0 || lseek(fd, 0, SEEK_DATA) <= 1 << 29);
	close(fd);
	unlink("holes.dat");
}

static void shrunk(void)
{
	int fd = make("shrunk.dat", NPAGES(8)), fd2 = open("shrunk.dat", O_RDWR);
	unsigned char *p;

	catch_faults();
	if (ftruncate(fd2, (off_t)NPAGES(2) + 5))
		die("ftruncate");
	p = map(fd, NPAGES(8));
	touch("what is left", p + NPAGES(2), 0);
	touch("what is gone", p + NPAGES(3), 0);
	touch("what is gone, stored into", p + NPAGES(7), 'x');
	fact("behind the end", p[NPAGES(2) + 5]);
	called("truncate by path", truncate("shrunk.dat", 0));
	touch("all gone", p, 0);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	called("grow", ftruncate(fd, (off_t)NPAGES(8)));
	fact("nothing comes back", p[0] | p[NPAGES(7)]);
	called("msync", msync(p, NPAGES(8), MS_SYNC));
	munmap(p, NPAGES(8));
	raw("shrunk.dat");
}

/* ---- two threads that begin the same file again and again, while it is mapped all the time, and while it is
 * not ---- */

static void *begin(void *arg)
{
	for (int i = 0; i < 100; i++) {
		int fd = open("begun.dat", O_RDWR | O_CREAT | O_TRUNC, 0600);
		unsigned char *p;

		if (fd < 0 || ftruncate(fd, 1 << 20))
			return (void *)1;
		p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			return (void *)2;
		close(fd);
		fd = open("begun.dat", O_RDWR);
		if (pwrite(fd, arg, 1, 4096 * i) != 1) /* a store could be SIGBUS: the other one truncates */
			return (void *)3;
		close(fd);
		munmap(p, 1 << 20);
	}
	return NULL;
}

static void begun(int is_mapped)
{
	unsigned char *p = is_mapped ? map(make("begun.dat", PAGE), PAGE) : NULL;
	pthread_t th[2];
	struct stat st;
	void *res;

	for (int i = 0; i < 2; i++)
		pthread_create(&th[i], NULL, begin, (char[]){'a'});
	for (int i = 0; i < 2; i++) {
		pthread_join(th[i], &res);
		fact("begun", (long)res);
	}
	stat("begun.dat", &st);
	fact("size", st.st_size);
	if (is_mapped)
		called("msync", msync(p, PAGE, MS_SYNC));
}

/* ---- locks in the file ---- */

struct locks {
	pthread_mutex_t plain, robust;
	pthread_cond_t cond;
	pthread_rwlock_t rw;
	int turn, n;
};

static void play(struct locks *l, int me)
{
	for (int i = 0; i < 500; i++) {
		pthread_mutex_lock(&l->plain);
		while (l->turn != me)
			pthread_cond_wait(&l->cond, &l->plain);
		l->turn = !me;
		l->n++;
		pthread_cond_broadcast(&l->cond);
		pthread_mutex_unlock(&l->plain);
		pthread_rwlock_rdlock(&l->rw);
		pthread_rwlock_unlock(&l->rw);
	}
}

static void locked(void)
{
	int fd = make("locks.dat", NPAGES(1));
	struct locks *l = (struct locks *)map(fd, NPAGES(1));
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	pthread_rwlockattr_t ra;
	pid_t pid;

	memset(l, 0, sizeof(*l));
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&l->plain, &ma);
	pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&l->robust, &ma);
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&l->cond, &ca);
	pthread_rwlockattr_init(&ra);
	pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&l->rw, &ra);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int fd2 = open("locks.dat", O_RDWR); /* and a mapping of its own */
		struct locks *own = (struct locks *)map(fd2, NPAGES(1));

		play(own, 1);
		pthread_mutex_lock(&own->robust);
		kill(getpid(), SIGKILL);
	}
	play(l, 0);
	ended("the other player", pid);
	fact("turns", l->n);
	fact("its owner died", pthread_mutex_lock(&l->robust));
	fact("made good", pthread_mutex_consistent(&l->robust) + pthread_mutex_unlock(&l->robust));
	called("msync", msync(l, NPAGES(1), MS_SYNC));
}

/* ---- one process publishes, another follows ---- */

static void published(void)
{
	int fd = make("data.dat", NPAGES(64));
	volatile unsigned char *p = map(fd, NPAGES(64));
	char buf[PAGE];
	pid_t pid;

	p[0] = 0;
	fflush(stdout);
	pid = fork();
	if (pid == 0) { /* meta page says which data page counts: it is there, whole */
		int wrong = 0, last = 0;

		while (last < 60) {
			int now = p[0];
			unsigned char first, end;

			if (now < 64 && now > last) {
				first = p[NPAGES((size_t)now)];
				end = p[NPAGES((size_t)now) + PAGE - 1];
				wrong += first != now || end != now;
				last = now;
			}
		}
		exit(wrong ? 1 : 0);
	}
	for (int i = 1; i < 64; i++) {
		memset(buf, i, sizeof(buf));
		if (pwrite(fd, buf, PAGE, (off_t)NPAGES((size_t)i)) != (ssize_t)PAGE || fdatasync(fd) ||
		    pwrite(fd, buf, 1, 0) != 1)
			die("pwrite");
	}
	ended("reader", pid);
	called("fsync", fsync(fd));
	raw("data.dat");
}

static void facts(void)
{
	holes();
	shrunk();
	begun(0);
	begun(1);
	locked();
	published();
}
