/* SPDX-License-Identifier: MIT */
/*
 * One case of the benchmark, in a process of its own: scripts/bench runs each natively and under txmap.
 * Prints lines of "metric value", the value in the unit that scripts/bench says.
 *
 *	bench fill FILE MIB		write the file, no block of it a hole
 *	bench store seq|random FILE	read all pages, then store to each for the first time, then again
 *	bench load seq|random FILE	map and read each page for the first time
 *	bench commit K ROUNDS fresh|populated FILE	store 8 bytes to each of K scattered pages, msync(MS_SYNC)
 *	bench cycle FILE		mmap, one store, munmap, of the first MiB
 *	bench calls none|FILE 1|2	calls that are none of txmap's business; FILE: while that one is mapped; 2: a
 *					second thread exists
 *	bench start PROGRAM		start a program and wait for its end; and how many threads this one has
 */
#include "clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static uint64_t random_below(uint64_t n)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % n;
}

struct file {
	int fd;
	size_t npages;
	uint32_t *order; /* the pages, in the order in which they are touched */
};

static struct file file_open(const char *path, int scattered)
{
	struct file f = {.fd = open(path, O_RDWR)};
	struct stat st;

	if (f.fd < 0 || fstat(f.fd, &st))
		die(path);
	f.npages = (size_t)st.st_size / PAGE;
	f.order = malloc(f.npages * sizeof(*f.order));
	if (!f.order)
		die("malloc");
	for (size_t i = 0; i < f.npages; i++) {
		size_t j = scattered ? random_below(i + 1) : i;

		f.order[i] = f.order[j];
		f.order[j] = (uint32_t)i;
	}
	return f;
}

static char *file_map(const struct file *f)
{
	char *p = mmap(NULL, f->npages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void load_all(const struct file *f, const char *p)
{
	for (size_t i = 0; i < f->npages; i++)
		(void)*(const volatile uint64_t *)(p + (size_t)f->order[i] * PAGE);
}

static void store_all(const struct file *f, char *p, uint64_t value)
{
	for (size_t i = 0; i < f->npages; i++)
		*(volatile uint64_t *)(p + (size_t)f->order[i] * PAGE + 8) = value;
}

static int case_fill(const char *path, size_t mib)
{
	static char buf[1 << 20];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		die(path);
	for (size_t i = 0; i < mib; i++) {
		for (size_t j = 0; j < sizeof(buf); j += 8)
			memcpy(buf + j, &(uint64_t){i << 32 | j | 1}, 8);
		if (write(fd, buf, sizeof(buf)) != (ssize_t)sizeof(buf))
			die("write");
	}
	return fsync(fd) || close(fd);
}

static int case_store(const struct file *f)
{
	char *p = file_map(f);
	double start, again = 1e30;

	load_all(f, p);
	start = now_usec();
	store_all(f, p, 1);
	printf("first %f\n", (now_usec() - start) / (double)f->npages);
	for (uint64_t i = 2; i < 12; i++) {
		double usec;

		start = now_usec();
		store_all(f, p, i);
		usec = now_usec() - start;
		again = usec < again ? usec : again;
	}
	printf("again %f\n", again * 1e3 / (double)f->npages);
	return 0;
}

static int case_load(const struct file *f)
{
	double start = now_usec();

	load_all(f, file_map(f));
	printf("load %f\n", (now_usec() - start) / (double)f->npages);
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int case_commit(const struct file *f, size_t npages, size_t rounds, int populated)
{
	size_t next = 0;
	char *p = file_map(f);
	double usec[64];

	if (rounds > 64 || (rounds + 1) * npages + 1 > f->npages)
		return 2;
	if (populated)
		load_all(f, p);
	/* The first one makes what is needed only once, on either side. */
	p[(size_t)f->order[next++] * PAGE]++;
	if (msync(p, f->npages * PAGE, MS_SYNC))
		die("msync");
	for (size_t r = 0; r < rounds; r++) {
		double start;

		for (size_t i = 0; i < npages; i++) {
			uint64_t *word = (uint64_t *)(void *)(p + (size_t)f->order[next++] * PAGE + 64);

			*word = ~*word + r;
		}
		start = now_usec();
		if (msync(p, f->npages * PAGE, MS_SYNC))
			die("msync");
		usec[r] = now_usec() - start;
	}
	qsort(usec, rounds, sizeof(*usec), compare);
	printf("commit %f\n", usec[rounds / 2] / 1e3);
	return 0;
}

static int case_cycle(const struct file *f)
{
	enum { BATCHES = 20, N = 30 };
	double best = 1e30;

	for (int i = 0; i < BATCHES * N; i += N) {
		double start = now_usec(), usec;

		for (int k = 0; k < N; k++) {
			char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);

			if (p == MAP_FAILED)
				die("mmap");
			p[(i + k) * PAGE % (1 << 20)]++;
			if (munmap(p, 1 << 20))
				die("munmap");
		}
		usec = now_usec() - start;
		best = usec < best ? usec : best;
	}
	printf("cycle %f\n", best / N);
	return 0;
}

/* One call that is none of txmap's business, on fd. False: it failed. */
static bool call_read(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1;
}

static bool call_write(int fd)
{
	return write(fd, "", 1) == 1;
}

static bool call_mmap(int fd)
{
	void *p = mmap(NULL, PAGE, PROT_READ, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	return p != MAP_FAILED && munmap(p, PAGE) == 0;
}

/* What the kernel refuses at once shows what is added to the call, whatever else the process has mapped. */
static bool call_mmap_refused(int fd)
{
	return mmap(NULL, 0, PROT_READ, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0) ==
	       MAP_FAILED;
}

static bool call_munmap_refused(int fd)
{
	(void)fd;
	return munmap((void *)1, PAGE) != 0;
}

static bool call_open(int fd)
{
	(void)fd;
	fd = open("/dev/null", O_RDONLY);
	return fd >= 0 && close(fd) == 0;
}

/* The best of many batches: other programs only ever make it longer. */
static void time_calls(const char *metric, bool (*call)(int fd), int fd)
{
	enum { BATCHES = 100, N = 1000 };
	double best = 1e30;

	for (int i = 0; i < BATCHES; i++) {
		double start = now_usec(), usec;

		for (int k = 0; k < N; k++)
			if (!call(fd))
				die(metric);
		usec = now_usec() - start;
		best = usec < best ? usec : best;
	}
	printf("%s %f\n", metric, best * 1e3 / N);
}

static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int case_calls(bool two_threads)
{
	pthread_t thread;
	struct stat tasks;

	if (two_threads && pthread_create(&thread, NULL, idle, NULL))
		die("thread");
	time_calls("read", call_read, open("/dev/zero", O_RDONLY));
	time_calls("write", call_write, open("/dev/null", O_WRONLY));
	time_calls("mmap", call_mmap, -1);
	time_calls("mmap_file", call_mmap, open("/proc/self/exe", O_RDONLY));
	time_calls("mmap_refused", call_mmap_refused, -1);
	time_calls("mmap_file_refused", call_mmap_refused, open("/proc/self/exe", O_RDONLY));
	time_calls("munmap_refused", call_munmap_refused, -1);
	time_calls("open", call_open, -1);
	/* a directory has a link for each subdirectory, and two */
	if (stat("/proc/self/task", &tasks))
		die("/proc/self/task");
	printf("threads %lu\n", (unsigned long)tasks.st_nlink - 2);
	return 0;
}

static int case_start(char *program, char **settings)
{
	enum { N = 200 };
	static double usec[N];

	for (int i = 0; i < N; i++) {
		double start = now_usec();
		pid_t pid;
		int status;

		if (posix_spawn(&pid, program, NULL, NULL, (char *[]){program, NULL}, settings) ||
		    waitpid(pid, &status, 0) != pid || status)
			return 1;
		usec[i] = now_usec() - start;
	}
	qsort(usec, N, sizeof(*usec), compare);
	printf("start %f\n", usec[N / 2]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? argv[1] : "";
	struct file f;

	if (!strcmp(name, "fill") && argc == 4)
		return case_fill(argv[2], strtoul(argv[3], NULL, 10));
	if (!strcmp(name, "start"))
		return case_start(argv[2], argv + 3);
	if (!strcmp(name, "calls")) {
		if (strcmp(argv[2], "none")) {
			f = file_open(argv[2], 0);
			file_map(&f)[0]++;
		}
		return case_calls(argc > 3 && *argv[3] == '2');
	}
	if ((!strcmp(name, "store") || !strcmp(name, "load")) && argc == 4) {
		f = file_open(argv[3], !strcmp(argv[2], "random"));
		return *name == 's' ? case_store(&f) : case_load(&f);
	}
	if (!strcmp(name, "commit") && argc == 6) {
		f = file_open(argv[5], 1);
		return case_commit(&f, strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
				   !strcmp(argv[4], "populated"));
	}
	if (!strcmp(name, "cycle")) {
		f = file_open(argv[2], 0);
		return case_cycle(&f);
	}
	fprintf(stderr, "bench: no such case: %s\n", name);
	return 2;
}
