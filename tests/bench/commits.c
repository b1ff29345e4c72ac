/* SPDX-License-Identifier: MIT */
/*
 * What a commit costs, seen from other sides than bench.c: scripts/bench compares two ways of the same, both
 * under txmap. Prints "commit MILLISECONDS".
 *
 *	commits group one|eight ROUNDS FILE...	store to 16 pages of the first file, or to 2 of each of eight, msync
 *	commits tail median|p99 ROUNDS FILE	store to 16 pages, msync, while another thread stores all the time
 */
#include "clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096, MAX_ROUNDS = 2000, MAX_FILES = 8, NPAGES = 16 };

struct file {
	char *map;
	size_t len;
};

static struct file map_file(const char *path)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	struct file f;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	f.len = (size_t)st.st_size;
	f.map = mmap(NULL, f.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f.map == MAP_FAILED)
		die("mmap");
	return f;
}

/* To n pages of f that are not those of the round before. */
static void store(struct file *f, size_t round, size_t n)
{
	size_t npages = f->len / PAGE;

	for (size_t i = round * n; i < (round + 1) * n; i++) {
		uint64_t *word = (uint64_t *)(void *)(f->map + i * 1000003 % npages * PAGE + 64);

		*word = ~*word + i;
	}
}

static double sync_usec(struct file *f)
{
	double start = now_usec();

	if (msync(f->map, f->len, MS_SYNC))
		die("msync");
	return now_usec() - start;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double commits(struct file *f, size_t nfiles, size_t rounds, double quantile)
{
	double usec[MAX_ROUNDS];

	for (size_t r = 0; r < rounds; r++) {
		for (size_t k = 0; k < nfiles; k++)
			store(&f[k], r, NPAGES / nfiles);
		usec[r] = sync_usec(f);
	}
	qsort(usec, rounds, sizeof(*usec), by_value);
	return usec[(size_t)((double)rounds * quantile)];
}

static atomic_bool over;

static void *store_all_the_time(void *arg)
{
	struct file *f = arg;

	for (size_t round = 0; !over; round++)
		f->map[round * 769 % 64 * PAGE + 8] = (char)round;
	return NULL;
}

int main(int argc, char **argv)
{
	size_t rounds = argc > 4 ? strtoul(argv[3], NULL, 10) : 0, nfiles = 1;
	bool is_tail = argc > 1 && !strcmp(argv[1], "tail");
	struct file f[MAX_FILES];
	pthread_t thread;
	double usec;

	if (!rounds || rounds > MAX_ROUNDS || argc - 4 > MAX_FILES)
		exit(2);
	if (!strcmp(argv[2], "eight"))
		nfiles = MAX_FILES;
	for (size_t k = 0; k < nfiles; k++)
		f[k] = map_file(argv[4 + k]);
	if (is_tail && pthread_create(&thread, NULL, store_all_the_time, f))
		die("pthread_create");
	usec = commits(f, nfiles, rounds, strcmp(argv[2], "p99") ? 0.5 : 0.99);
	over = true;
	if (is_tail)
		(void)pthread_join(thread, NULL);
	printf("commit %.6f\n", usec / 1e3);
	return 0;
}
