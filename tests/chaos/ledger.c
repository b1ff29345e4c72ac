/* SPDX-License-Identifier: MIT */
#include "chaos.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct ledger *ledger;
const char *const doing_names[NDOING] = {"nothing", "record", "add",  "transfer", "pair", "look",  "commit",
					 "remap",   "reopen", "fork", "exec",	  "exit", "start", "thread"};

static const size_t strides[NFILES] = {1, 37, 1,
				       515}; /* dense; holes between; all below another page table */

size_t file_len(unsigned f)
{
	return ((NPAGES - 1) * strides[f] + 1) * PAGE;
}

struct view file_view(unsigned f, void *base)
{
	return (struct view){.base = base, .stride = strides[f]};
}

const char *file_name(unsigned f)
{
	static const char *const names[NFILES] = {"a.dat", "b.dat", "c.dat", "d.dat"};

	return names[f];
}

void ledger_open(const char *path, bool create)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);

	if (fd >= 0 && (!create || !ftruncate(fd, sizeof(*ledger))))
		ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || !ledger || ledger == MAP_FAILED) {
		fprintf(stderr, "chaos: %s: %s\n", path, strerror(errno));
		_exit(99);
	}
	(void)close(fd);
}

static void bounds(unsigned f, struct bounds *ret, bool high)
{
	struct file_book *b = &ledger->file[f];

	ret->transfers = get(high ? &b->transfers_begun : &b->transfers_done);
	ret->pair = get(high ? &b->pair_begun : &b->pair_done);
	for (unsigned c = 0; c < NCOUNTERS; c++)
		ret->counter[c] = get(&b->base[c]);
	for (unsigned l = 0; l < NLANES; l++) {
		ret->lane[l] = get(high ? &b->lane[l].begun : &b->lane[l].done);
		for (unsigned c = 0; c < NCOUNTERS; c++)
			ret->counter[c] += get(high ? &b->lane[l].added_begun[c] : &b->lane[l].added_done[c]);
	}
}

void bounds_low(unsigned f, struct bounds *ret)
{
	bounds(f, ret, false);
}

void bounds_high(unsigned f, struct bounds *ret)
{
	bounds(f, ret, true);
}

static void raise_to(uint64_t *p, uint64_t v)
{
	uint64_t old = get(p);

	while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

void raise_floor(unsigned f, const struct bounds *b)
{
	struct bounds *floor = &ledger->file[f].floor;

	for (unsigned l = 0; l < NLANES; l++)
		raise_to(&floor->lane[l], b->lane[l]);
	for (unsigned c = 0; c < NCOUNTERS; c++)
		raise_to(&floor->counter[c], b->counter[c]);
	raise_to(&floor->transfers, b->transfers);
	raise_to(&floor->pair, b->pair);
}

void ring(uint32_t *bell)
{
	__atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
	(void)syscall(SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void await(uint32_t *bell, uint32_t seen, unsigned msec)
{
	struct timespec ts = {.tv_sec = msec / 1000, .tv_nsec = (long)(msec % 1000) * 1000000};

	(void)syscall(SYS_futex, bell, FUTEX_WAIT, seen, &ts, NULL, 0);
}

void violation(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n = snprintf(line, sizeof(line), "VIOLATION (process %d, seed %lu): ", getpid(),
			 (unsigned long)ledger->seed),
	    len;

	va_start(ap, fmt);
	len = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n += len < (int)sizeof(line) - n - 1 ? len : (int)sizeof(line) - n - 2;
	line[n++] = '\n';
	if (get(&ledger->violations) < 20)
		(void)!write(2, line, (size_t)n);
	count(&ledger->violations);
	ring(&ledger->answer);
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (*state >> 33) % n;
}
