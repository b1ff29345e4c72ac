/* SPDX-License-Identifier: MIT */
/* Mutexes in a mapping, as tdb and LMDB have them: held across commits, which protect the page they lie in;
 * left locked by a process that dies. */
#include "fact.h"

#include <pthread.h>
#include <stdbool.h>

#define LEN    NPAGES(4)
#define ROUNDS 200

struct shared {
	pthread_mutex_t mutex[3];
	pthread_cond_t cond;
	unsigned long count, turn;
};

static struct shared *setup(unsigned char *p)
{
	struct shared *s = (struct shared *)p;
	pthread_mutexattr_t attr;
	pthread_condattr_t cattr;

	if (pthread_mutexattr_init(&attr) || pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) ||
	    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) || pthread_condattr_init(&cattr) ||
	    pthread_condattr_setpshared(&cattr, PTHREAD_PROCESS_SHARED))
		die("attributes");
	for (int i = 0; i < 3; i++)
		fact("init", pthread_mutex_init(&s->mutex[i], &attr));
	fact("init", pthread_cond_init(&s->cond, &cattr));
	s->count = s->turn = 0;
	return s;
}

static void held_across_commits(struct shared *s, unsigned char *p)
{
	int failed = 0;

	for (int i = 0; i < ROUNDS; i++) {
		failed += pthread_mutex_lock(&s->mutex[0]) != 0;
		failed += msync(p, LEN, MS_SYNC) != 0;
		p[NPAGES(3)] = (unsigned char)i;
		failed += pthread_mutex_lock(&s->mutex[1]) != 0;
		failed += msync(p, LEN, MS_SYNC) != 0;
		failed += pthread_mutex_unlock(&s->mutex[0]) != 0;
		failed += msync(p, LEN, MS_SYNC) != 0;
		failed += pthread_mutex_unlock(&s->mutex[1]) != 0;
	}
	fact("failed", failed);
}

static void *count(void *arg)
{
	struct shared *s = arg;

	for (int i = 0; i < ROUNDS; i++) {
		if (pthread_mutex_lock(&s->mutex[2]))
			return arg;
		s->count++;
		if (i % 10 == 0 && msync(s, LEN, MS_SYNC))
			return arg;
		if (pthread_mutex_unlock(&s->mutex[2]))
			return arg;
	}
	return NULL;
}

static void by_threads_and_a_child(struct shared *s)
{
	pthread_t t[3];
	void *ret;
	pid_t pid = fork();
	int failed = 0;

	if (pid == 0)
		_exit(count(s) != NULL);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t[i], NULL, count, s))
			die("pthread_create");
	for (int i = 0; i < 3; i++)
		failed += pthread_join(t[i], &ret) != 0 || ret;
	ended("child", pid);
	fact("failed", failed);
	fact("count", (long)s->count);
}

/* They take turns: each waits for the other through the mapping. */
static void waited_for(struct shared *s)
{
	pid_t pid = fork();

	for (unsigned long i = 0; i < ROUNDS; i++) {
		unsigned long mine = 2 * i + (pid == 0);

		if (pthread_mutex_lock(&s->mutex[0]))
			die("lock");
		while (s->turn != mine)
			if (pthread_cond_wait(&s->cond, &s->mutex[0]))
				die("wait");
		s->turn++;
		if (pthread_cond_broadcast(&s->cond) || pthread_mutex_unlock(&s->mutex[0]))
			die("broadcast");
		if (i % 50 == 0 && msync(s, LEN, MS_SYNC))
			die("msync");
	}
	if (pid == 0)
		_exit(0);
	ended("child", pid);
	fact("turns", (long)s->turn);
}

/* commits: it dies after it has committed, its page stored into by nobody since */
static void left_locked(struct shared *s, unsigned char *p, bool commits)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (pthread_mutex_lock(&s->mutex[0]) || pthread_mutex_lock(&s->mutex[1]))
			_exit(1);
		if (commits && msync(p, LEN, MS_SYNC))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ended("child", pid);
	for (int i = 0; i < 3; i++)
		fact("owner dead", pthread_mutex_lock(&s->mutex[i]) == EOWNERDEAD);
	for (int i = 0; i < 2; i++)
		fact("consistent", pthread_mutex_consistent(&s->mutex[i]));
	called("msync", msync(p, LEN, MS_SYNC));
	for (int i = 0; i < 3; i++)
		fact("unlock", pthread_mutex_unlock(&s->mutex[i]));
}

static void facts(void)
{
	int fd = make("mutexes.dat", LEN);
	unsigned char *p = map(fd, LEN);
	struct shared *s = setup(p);

	held_across_commits(s, p);
	by_threads_and_a_child(s);
	waited_for(s);
	left_locked(s, p, false);
	left_locked(s, p, true);
	munmap(p, LEN);
	close(fd);
}
