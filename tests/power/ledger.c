/* SPDX-License-Identifier: MIT */
/*
 * A plain program whose files always say how far it is: version N stands at the begin of every page of all of them,
 * and they have as many pages as N asks for.
 *
 *	ledger write FILE...	goes on from the version that is there; prints each that an msync has returned for
 *	ledger read FILE...	prints the version; status 1: there is none, as in a file that was torn
 *
 * The files change one after the other, page after page. What makes versions whole is none of its business.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE	4096u
#define MAX_LEN (16u * PAGE)
#define NFILES	8

static int nfiles;
static int fd[NFILES];
static uint8_t *map[NFILES];

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

/* Of version n: it grows and shrinks, and its end is anywhere in a page. */
static size_t len_of(uint64_t n, int file)
{
	return PAGE * (4 + (n / 3 + (uint64_t)file) % 9) + 100 * (n % 7);
}

static void write_version(uint64_t n)
{
	for (int i = 0; i < nfiles; i++)
		must(!ftruncate(fd[i], (off_t)len_of(n, i)), "ftruncate");
	for (int i = 0; i < nfiles; i++)
		for (size_t off = 0; off + sizeof(n) <= len_of(n, i); off += PAGE)
			memcpy(map[i] + off, &n, sizeof(n));
}

/* The version, or -1. */
static int64_t read_version(void)
{
	uint64_t n = 0;

	for (int i = 0; i < nfiles; i++) {
		struct stat st;

		must(!fstat(fd[i], &st), "fstat");
		if (!i && st.st_size)
			memcpy(&n, map[0], sizeof(n));
		if (!i && !st.st_size)
			n = 0;
		if ((size_t)st.st_size != (n ? len_of(n, i) : 0))
			return -1;
		for (off_t off = 0; off + (off_t)sizeof(n) <= st.st_size; off += PAGE)
			if (memcmp(map[i] + off, &n, sizeof(n)))
				return -1;
	}
	return (int64_t)n;
}

int main(int argc, char **argv)
{
	int64_t n;

	nfiles = argc - 2;
	must(nfiles > 0 && nfiles <= NFILES, "usage: ledger write|read FILE...");
	for (int i = 0; i < nfiles; i++) {
		fd[i] = open(argv[2 + i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		must(fd[i] >= 0, argv[2 + i]);
		map[i] = mmap(NULL, MAX_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
		must(map[i] != MAP_FAILED, "mmap");
	}
	n = read_version();
	if (!strcmp(argv[1], "read")) {
		(void)printf("%lld\n", (long long)n);
		return n < 0;
	}
	must(n >= 0, "no version");
	for (;;) {
		write_version((uint64_t)++n);
		must(!msync(map[0], MAX_LEN, MS_SYNC) && printf("%lld\n", (long long)n) > 0 &&
			     !fflush(stdout),
		     "msync");
	}
}
