/* SPDX-License-Identifier: MIT */
/*
 * The benchmark's cases of several processes, as bench.c has those of one.
 *
 *	peers attach ROUNDS small|resident FILE		a process opens, maps and reads a file that another one has
 *							mapped; resident: all of it in that one's memory
 *	peers fork ROUNDS FILE				fork of a process that has stored to every page of the file
 *	peers shared K ROUNDS alone|idle|busy FILE	store to K scattered pages, msync(MS_SYNC), while another
 *							process has the file mapped; idle: it stores nothing, busy:
 *							half of the pages are its
 */
#include "clock.h"

#include <fcntl.h>
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

enum { PAGE = 4096, MAX_ROUNDS = 2048 };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_median(const char *metric, double *usec, size_t n, double unit)
{
	qsort(usec, n, sizeof(*usec), compare);
	printf("%s %f\n", metric, usec[n / 2] / unit);
}

static char *map_file(const char *path, size_t *ret_len)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	char *p;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	*ret_len = (size_t)st.st_size;
	p = mmap(NULL, *ret_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* ---- another process, which does a thing each time it is told ---- */

struct other {
	pid_t pid;
	int tell, told;
};

static void tell(int fd)
{
	if (write(fd, "", 1) != 1)
		die("write");
}

static bool is_told(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1;
}

static struct other start_other(void (*fn)(int told, int tell, void *arg), void *arg)
{
	int down[2], up[2];
	struct other o;

	if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC))
		die("pipe");
	o = (struct other){.pid = fork(), .tell = down[1], .told = up[0]};
	if (o.pid < 0)
		die("fork");
	if (!o.pid) {
		(void)close(down[1]);
		(void)close(up[0]);
		fn(down[0], up[1], arg);
		_exit(0);
	}
	(void)close(down[0]);
	(void)close(up[1]);
	return o;
}

static void step_other(const struct other *o)
{
	tell(o->tell);
	if (!is_told(o->told))
		exit(1);
}

static void end_other(const struct other *o)
{
	int status;

	(void)close(o->tell);
	(void)close(o->told);
	if (waitpid(o->pid, &status, 0) != o->pid || status)
		exit(1);
}

/* ---- cases ---- */

struct attach {
	const char *path;
	double *usec; /* in shared memory */
};

static void attach_once(int told, int tell_fd, void *arg)
{
	const struct attach *a = arg;
	double start;
	size_t len;

	if (!is_told(told))
		_exit(1);
	start = now_usec();
	(void)*(volatile char *)map_file(a->path, &len);
	*a->usec = now_usec() - start;
	tell(tell_fd);
}

static double *shared_words(size_t n)
{
	void *p = mmap(NULL, n * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* The others are made while this process has nothing mapped: they are no relatives as far as the file is
 * concerned. */
static int case_attach(size_t rounds, bool resident, const char *path)
{
	struct attach a = {.path = path, .usec = shared_words(1)};
	double usec[MAX_ROUNDS];
	struct other *o = calloc(rounds, sizeof(*o));
	size_t len;
	char *p;

	if (!o)
		die("calloc");
	for (size_t r = 0; r < rounds; r++)
		o[r] = start_other(attach_once, &a);
	p = map_file(path, &len);
	for (size_t i = 0; i < (resident ? len : 1); i += PAGE)
		(void)*(volatile char *)(p + i);
	for (size_t r = 0; r < rounds; r++) {
		step_other(&o[r]);
		usec[r] = *a.usec;
		end_other(&o[r]);
	}
	print_median("attach", usec, rounds, 1);
	return 0;
}

static int case_fork(size_t rounds, const char *path)
{
	double usec[MAX_ROUNDS], child[MAX_ROUNDS], *runs = shared_words(1), start;
	size_t len;
	char *p = map_file(path, &len);
	int status;

	for (size_t i = 0; i < len; i += PAGE)
		*(volatile char *)(p + i) += 1;
	for (size_t r = 0; r < rounds; r++) {
		pid_t pid;

		start = now_usec();
		pid = fork();
		if (!pid) {
			*runs = now_usec();
			_exit(0);
		}
		usec[r] = now_usec() - start;
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			die("fork");
		child[r] = *runs - start;
	}
	print_median("parent", usec, rounds, 1);
	print_median("child", child, rounds, 1);
	return 0;
}

struct share {
	const char *path;
	size_t npages; /* that it stores to, each time */
};

/* Page i of a file of n pages, scattered. */
static size_t scattered(size_t i, size_t n)
{
	return i * 1000003 % n;
}

static void store_to(char *p, size_t len, size_t first, size_t npages)
{
	for (size_t i = first; i < first + npages; i++) {
		uint64_t *word = (uint64_t *)(void *)(p + scattered(i, len / PAGE) * PAGE + 64);

		*word = ~*word + i;
	}
}

static void share_file(int told, int tell_fd, void *arg)
{
	const struct share *s = arg;
	size_t len, next;
	char *p;

	if (!is_told(told))
		_exit(1);
	p = map_file(s->path, &len);
	next = len / PAGE / 2;
	p[0]++;
	tell(tell_fd);
	while (is_told(told)) {
		store_to(p, len, next, s->npages);
		next += s->npages;
		tell(tell_fd);
	}
}

static int case_shared(size_t npages, size_t rounds, const char *mode, const char *path)
{
	struct share s = {.path = path, .npages = strcmp(mode, "busy") ? 0 : npages / 2};
	bool alone = !strcmp(mode, "alone");
	struct other o = start_other(share_file, &s);
	double usec[MAX_ROUNDS], start;
	size_t len, next = 1;
	char *p = map_file(path, &len);

	if (!alone)
		step_other(&o);
	p[0]++;
	if (msync(p, len, MS_SYNC))
		die("msync");
	for (size_t r = 0; r < rounds; r++) {
		if (!alone)
			step_other(&o);
		store_to(p, len, next, npages - s.npages);
		next += npages - s.npages;
		start = now_usec();
		if (msync(p, len, MS_SYNC))
			die("msync");
		usec[r] = now_usec() - start;
	}
	print_median("commit", usec, rounds, 1e3);
	if (!alone)
		end_other(&o);
	else
		(void)close(o.tell); /* it never began */
	return 0;
}

static size_t rounds_of(const char *arg)
{
	size_t n = strtoul(arg, NULL, 10);

	if (!n || n > MAX_ROUNDS)
		exit(2);
	return n;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "attach") && argc == 5)
		return case_attach(rounds_of(argv[2]), !strcmp(argv[3], "resident"), argv[4]);
	if (!strcmp(name, "fork") && argc == 4)
		return case_fork(rounds_of(argv[2]), argv[3]);
	if (!strcmp(name, "shared") && argc == 6)
		return case_shared(strtoul(argv[2], NULL, 10), rounds_of(argv[3]), argv[4], argv[5]);
	fprintf(stderr, "peers: no such case: %s\n", name);
	return 2;
}
