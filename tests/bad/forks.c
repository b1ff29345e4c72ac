/* SPDX-License-Identifier: MIT */
/*
 *	forks FILE N [RUNTIME_DIR]
 *
 * Threads store and commit all the time while another one forks N times: with a lock of the file held, in the
 * middle of commits, by fork twice into a session of its own. Each child sees what was stored before its
 * fork, adds to the file, some commit. With RUNTIME_DIR those that go on alone ask the control socket of
 * their new number for a commit. At the end the file's number of adds is printed, and how long a fork took.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	 4096u
#define NPAGES	 32u
#define NTHREADS 4u
#define AT_ADDS	 8u
#define AT_MUTEX 9u

static uint8_t *map;
static const char *file, *runtime;
static bool is_over; /* (atomic) */

static void die(const char *what)
{
	fprintf(stderr, "forks: process %d: %s: %s\n", getpid(), what, strerror(errno));
	_exit(1);
}

static uint64_t *word(unsigned page)
{
	return (uint64_t *)(map + page * PAGE);
}

static void *store(void *arg)
{
	uint64_t *mine = word((unsigned)(uintptr_t)arg);

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		/* the second is never higher than the first, not in another page either */
		__atomic_store_n(mine, *mine + 1, __ATOMIC_RELEASE);
		__atomic_store_n(mine + 16 * PAGE / 8, *mine, __ATOMIC_RELEASE);
		if (*mine % 256 == 0 && msync(map, NPAGES * PAGE, MS_SYNC))
			die("msync");
	}
	return NULL;
}

static void commit_by_socket(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char line[512];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), len;
	ssize_t n;

	(void)snprintf(to.sun_path, sizeof(to.sun_path), "%s/%d.sock", runtime, getpid());
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die(to.sun_path);
	len = snprintf(line, sizeof(line), "commit %s\n", file);
	if (write(fd, line, (size_t)len) != len)
		die("write");
	n = read(fd, line, sizeof(line) - 1);
	line[n > 0 ? n : 0] = 0;
	if (!strstr(line, "\"ok\":true"))
		die(line);
	(void)close(fd);
}

static void child(unsigned i, const uint64_t *before)
{
	for (unsigned t = 0; t < NTHREADS; t++) {
		uint64_t second = __atomic_load_n(word(16 + t), __ATOMIC_ACQUIRE);

		if (second < before[t] || __atomic_load_n(word(t), __ATOMIC_ACQUIRE) < second)
			die("what a thread stored is not there, or not in its order");
	}
	if (i % 8 == 6 && pthread_mutex_trylock((pthread_mutex_t *)word(AT_MUTEX)) != EBUSY)
		die("the lock that the parent holds is free");
	__atomic_fetch_add(word(AT_ADDS), 1, __ATOMIC_SEQ_CST);
	if (i % 8 == 7 && msync(map, NPAGES * PAGE, MS_SYNC))
		die("msync in a child");
}

/* As daemon(3) does it; result: a byte to the pipe. */
static void alone(unsigned i, const uint64_t *before, int to)
{
	if (setsid() < 0)
		die("setsid");
	if (fork())
		_exit(0);
	child(i, before);
	if (msync(map, NPAGES * PAGE, MS_SYNC))
		die("msync of a daemon");
	if (runtime)
		commit_by_socket();
	if (write(to, "", 1) != 1)
		die("pipe");
	_exit(0);
}

static void fork_one(unsigned i)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)word(AT_MUTEX);
	bool is_locked = i % 8 == 6, is_alone = i % 250 == 100;
	uint64_t before[NTHREADS];
	int st, pipefd[2];
	char c;
	pid_t pid;

	if (is_locked && pthread_mutex_lock(mutex))
		die("lock");
	if (is_alone && pipe(pipefd))
		die("pipe");
	for (unsigned t = 0; t < NTHREADS; t++)
		before[t] = __atomic_load_n(word(16 + t), __ATOMIC_ACQUIRE);
	pid = fork();
	if (pid == 0) {
		if (is_alone)
			alone(i, before, pipefd[1]);
		child(i, before);
		if (i % 2)
			_exit(0);
		exit(0);
	}
	if (is_alone) {
		(void)close(pipefd[1]);
		if (read(pipefd[0], &c, 1) != 1)
			die("the daemon did not do its work");
		(void)close(pipefd[0]);
	}
	if (pid < 0 || waitpid(pid, &st, 0) != pid || st)
		die("a child");
	if (is_locked && pthread_mutex_unlock(mutex))
		die("unlock");
}

int main(int argc, char **argv)
{
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	pthread_t thread[NTHREADS];
	pthread_mutexattr_t attr;
	struct timespec a, b;
	int fd;

	file = argv[1];
	runtime = argc > 3 ? argv[3] : NULL;
	fd = open(file, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, NPAGES * PAGE))
		die(file);
	map = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("mmap");
	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutex_init((pthread_mutex_t *)word(AT_MUTEX), &attr);
	for (unsigned t = 0; t < NTHREADS; t++)
		(void)pthread_create(&thread[t], NULL, store, (void *)(uintptr_t)t);
	(void)clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < n; i++)
		fork_one(i);
	(void)clock_gettime(CLOCK_MONOTONIC, &b);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (unsigned t = 0; t < NTHREADS; t++)
		(void)pthread_join(thread[t], NULL);
	if (msync(map, NPAGES * PAGE, MS_SYNC))
		die("the last msync");
	printf("%lu adds, %.2f ms a child\n", (unsigned long)*word(AT_ADDS),
	       ((double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6) / (n ? n : 1));
	return 0;
}
