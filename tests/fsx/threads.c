/* SPDX-License-Identifier: MIT */
/*
 * Several threads, each with a range of the file and a model of its own, while one more commits: whatever
 * instant a commit takes, nobody's stores get lost or mixed up. Ends with a comparison of what the program
 * sees and of what the storage holds.
 */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Ranges meet within pages: neighbours share them. */
#define RANGE (40 * (size_t)PAGE + 1000)

struct part {
	pthread_t thread;
	unsigned number;
	uint64_t state; /* of its random numbers */
	uint64_t nops;
	uint8_t *at;    /* mapped */
	uint8_t *model;
	uint8_t *buf;
};

static struct file *file;
static uint8_t *map;
static int fd;
static bool is_over; /* (atomic) */

static uint64_t random_of(struct part *p, uint64_t n)
{
	p->state = p->state * 6364136223846793005u + 1442695040888963407u;
	return (p->state >> 33) % n;
}

static void change(struct part *p)
{
	size_t off = random_of(p, RANGE), len = 1 + random_of(p, random_of(p, 8) ? 64 : 3 * PAGE);

	len = len < RANGE - off ? len : RANGE - off;
	memset(p->model + off, (int)(1 + random_of(p, 255)), len);
	if (random_of(p, 3))
		memcpy(p->at + off, p->model + off, len);
	else
		expect("pwrite", pwrite(fd, p->model + off, len, (off_t)(p->number * RANGE + off)), (long)len);
}

static void look(struct part *p)
{
	size_t off = random_of(p, RANGE), len = 1 + random_of(p, 2 * PAGE);

	len = len < RANGE - off ? len : RANGE - off;
	if (random_of(p, 2))
		memcpy(p->buf, p->at + off, len);
	else
		expect("pread", pread(fd, p->buf, len, (off_t)(p->number * RANGE + off)), (long)len);
	compare_bytes("a thread's range", p->number * RANGE + off, p->buf, p->model + off, len);
}

static void *work(void *arg)
{
	struct part *p = arg;

	for (uint64_t i = 0; i < p->nops; i++) {
		switch (random_of(p, 64)) {
		case 0: /* a mapping of its own for a moment; munmap must not forget what was stored through it */
			p->at = mmap(NULL, (set.threads + 1) * RANGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (p->at == MAP_FAILED)
				mismatch("mmap: %s", strerror(errno));
			p->at += p->number * RANGE;
			change(p);
			expect("munmap", munmap(p->at - p->number * RANGE, (set.threads + 1) * RANGE), 0);
			p->at = map + p->number * RANGE;
			break;
		case 1:
			expect("madvise", madvise(map, PAGE, MADV_DONTNEED), 0);
			break;
		case 2 ... 20:
			look(p);
			break;
		default:
			change(p);
		}
		__atomic_add_fetch(&sh->next, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *commit(void *arg)
{
	(void)arg;
	for (unsigned i = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i++)
		if (i % 2 || !set.control)
			expect("msync", msync(map, PAGE, MS_SYNC), 0);
		else if (*control("commit"))
			mismatch("commit failed");
	return NULL;
}

static void run(struct part *parts)
{
	pthread_t committer;

	for (unsigned i = 0; i < set.threads; i++) {
		struct part *p = &parts[i];

		*p = (struct part){.number = i, .state = set.seed * 1000 + i, .nops = set.nops / set.threads,
				   .at = map + i * RANGE, .model = calloc(1, RANGE), .buf = malloc(RANGE)};
		if (!p->model || !p->buf || pthread_create(&p->thread, NULL, work, p))
			mismatch("no memory");
	}
	if (pthread_create(&committer, NULL, commit, NULL))
		mismatch("no thread");
	for (unsigned i = 0; i < set.threads; i++)
		pthread_join(parts[i].thread, NULL);
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	pthread_join(committer, NULL);
}

int threads_main(void)
{
	struct part *parts = calloc(set.threads, sizeof(*parts));
	uint8_t *want = calloc(set.threads + 1, RANGE), *got = malloc((set.threads + 1) * RANGE);
	size_t len = (set.threads + 1) * RANGE;
	FILE *raw;

	file = &sh->f[0];
	fd = open(file->name, O_RDWR | O_CREAT, 0600);
	if (!parts || !want || !got || fd < 0 || ftruncate(fd, (off_t)len))
		mismatch("%s: %s", file->name, strerror(errno));
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		mismatch("mmap: %s", strerror(errno));
	catch_faults();
	run(parts);
	for (unsigned i = 0; i < set.threads; i++)
		memcpy(want + i * RANGE, parts[i].model, RANGE);
	compare_bytes("the mapping", 0, map, want, len);
	expect("fsync", fsync(fd), 0);
	(void)munmap(map, len);
	(void)close(fd); /* the release: from here on the file is any file */
	raw = fopen(file->name, "r");
	if (!raw || fread(got, 1, len, raw) != len)
		mismatch("%s: %s", file->name, strerror(errno));
	compare_bytes("the storage", 0, got, want, len);
	(void)fclose(raw);
	if (!set.quiet)
		printf("seed %lu: %lu operations in %u threads ok\n", (unsigned long)set.seed, (unsigned long)sh->next,
		       set.threads);
	return 0;
}
