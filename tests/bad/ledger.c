/* SPDX-License-Identifier: MIT */
/*
 * A program that keeps several files in step: page after page of each gets the same number, then msync. Every few
 * rounds one of them grows, or shrinks again. It knows nothing of txmap, under which it is killed.
 *
 *	ledger run FROM FILE...	stores FROM, FROM + 1 ...; each number, once it is synced, is a line of stdout
 *	ledger check FILE...	prints the number that all pages of all of them have; else says where one differs
 *
 * The size tells of the number, too: FILE number k has pages(number, k) pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_FILES = 8, MAX_PAGES = 32, WORDS = PAGE / 8 };

static uint64_t pages(uint64_t number, int k)
{
	return 4 + (number / 5 + (uint64_t)k) % (MAX_PAGES - 4);
}

static void die(const char *what, const char *path)
{
	fprintf(stderr, "ledger: %s: %s: %s\n", path, what, strerror(errno));
	exit(1);
}

static uint64_t *open_and_map(const char *path, int flags, int prot, int *ret_fd)
{
	uint64_t *map;

	*ret_fd = open(path, flags, 0644);
	if (*ret_fd < 0)
		die("open", path);
	map = mmap(NULL, MAX_PAGES * PAGE, prot, MAP_SHARED, *ret_fd, 0);
	if (map == MAP_FAILED)
		die("mmap", path);
	return map;
}

static void run(uint64_t number, char **path, int n)
{
	uint64_t *map[MAX_FILES];
	int fd[MAX_FILES];

	for (int k = 0; k < n; k++)
		map[k] = open_and_map(path[k], O_RDWR | O_CREAT, PROT_READ | PROT_WRITE, &fd[k]);
	for (;; number++) {
		for (int k = 0; k < n; k++) {
			if (ftruncate(fd[k], (off_t)(pages(number, k) * PAGE)))
				die("ftruncate", path[k]);
			for (uint64_t i = 0; i < pages(number, k) * WORDS; i += WORDS / 2)
				map[k][i] = number;
		}
		/* any of them, and a part of it: a commit covers all */
		if (msync(map[number % (uint64_t)n], PAGE, MS_SYNC))
			die("msync", path[number % (uint64_t)n]);
		printf("%llu\n", (unsigned long long)number);
		fflush(stdout);
	}
}

static int differs(const char *path, uint64_t page, uint64_t is, uint64_t number)
{
	printf("%s: page %llu is of %llu, others are of %llu\n", path, (unsigned long long)page,
	       (unsigned long long)is, (unsigned long long)number);
	return 1;
}

static int check(char **path, int n)
{
	uint64_t number = 0;

	for (int k = 0; k < n; k++) {
		struct stat st;
		uint64_t *map;
		int fd;

		map = open_and_map(path[k], O_RDONLY, PROT_READ, &fd);
		if (fstat(fd, &st))
			die("fstat", path[k]);
		if (!k)
			number = st.st_size ? map[0] : 0;
		if ((uint64_t)st.st_size != (number ? pages(number, k) * PAGE : 0))
			return differs(path[k], (uint64_t)st.st_size / PAGE, 0, number);
		for (uint64_t i = 0; i < (uint64_t)st.st_size / 8; i += WORDS / 2)
			if (map[i] != number)
				return differs(path[k], i / WORDS, map[i], number);
	}
	printf("%llu\n", (unsigned long long)number);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && argc <= 3 + MAX_FILES && !strcmp(argv[1], "run"))
		run(strtoull(argv[2], NULL, 10), argv + 3, argc - 3);
	if (argc > 2 && argc <= 2 + MAX_FILES && !strcmp(argv[1], "check"))
		return check(argv + 2, argc - 2);
	fprintf(stderr, "ledger run FROM FILE... | check FILE...\n");
	return 2;
}
