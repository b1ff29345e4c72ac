/* SPDX-License-Identifier: MIT */
/*
 * A program that ends while a thread of it stores into several files. It knows nothing of txmap.
 *
 *	stream_files exit|term FILE...
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 8, PAGE = 4096 };

static volatile uint64_t *map[MAX_FILES];
static size_t nwords[MAX_FILES];
static int nfiles;
static atomic_uint rounds;

static void *store(void *arg)
{
	(void)arg;
	for (uint64_t n = 1;; n++, rounds++)
		for (int k = 0; k < nfiles; k++)
			for (size_t i = 0; i < nwords[k]; i += PAGE / sizeof(uint64_t))
				map[k][i] = n;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	for (int i = 2; i < argc && nfiles < MAX_FILES; i++, nfiles++) {
		int fd = open(argv[i], O_RDWR);
		struct stat st;

		if (fd < 0 || fstat(fd, &st)) {
			perror(argv[i]);
			return 1;
		}
		map[nfiles] = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map[nfiles] == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		nwords[nfiles] = (size_t)st.st_size / sizeof(uint64_t);
	}
	if (!nfiles || pthread_create(&thread, NULL, store, NULL))
		return 2;
	while (rounds < 100)
		sched_yield();
	if (!strcmp(argv[1], "term"))
		raise(SIGTERM);
	return 0;
}
