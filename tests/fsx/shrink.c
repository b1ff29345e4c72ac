/* SPDX-License-Identifier: MIT */
/* Make a failing sequence short: leave out operations while it still fails (ddmin), for a bounded time. */
#include "fsx.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **args;
static char *list; /* the text of --keep */
static time_t deadline;

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static void print_list(const uint8_t *keep, uint64_t nops)
{
	char *p = list;

	*p = 0;
	for (uint64_t a = 0, b; a < nops; a = b) {
		b = a + 1;
		if (!keep[a])
			continue;
		while (b < nops && keep[b])
			b++;
		p += sprintf(p, b - a > 1 ? "%s%lu-%lu" : "%s%lu", p == list ? "" : ",", (unsigned long)a,
			     (unsigned long)b - 1);
	}
}

/* Run again with these operations; does it fail? */
static bool fails(const uint8_t *keep, uint64_t nops, bool verbose)
{
	int status;
	pid_t pid;

	print_list(keep, nops);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		char **a = args;

		while (*a)
			a++;
		*a++ = (char *)"--keep";
		*a++ = list;
		*a++ = (char *)(verbose ? "--verbose" : "--quiet");
		*a = NULL;
		if (!verbose && !freopen("/dev/null", "w", stderr))
			_exit(0);
		execv("/proc/self/exe", args);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && (!WIFEXITED(status) || WEXITSTATUS(status) == 1);
}

static uint64_t count(const uint8_t *keep, uint64_t nops)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < nops; i++)
		n += keep[i];
	return n;
}

/* keep without its operations [from, to), counted among those kept. */
static void without(uint8_t *ret, const uint8_t *keep, uint64_t nops, uint64_t from, uint64_t to)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < nops; i++) {
		ret[i] = keep[i] && !(n >= from && n < to);
		n += keep[i];
	}
}

static void shrink(uint8_t *keep, uint8_t *try, uint64_t nops)
{
	uint64_t n = count(keep, nops), step = n / 2;

	while (step && now() < deadline) {
		bool any = false;

		for (uint64_t to = n; to > 0 && now() < deadline; to = to > step ? to - step : 0) {
			without(try, keep, nops, to > step ? to - step : 0, to);
			if (!fails(try, nops, false))
				continue;
			memcpy(keep, try, nops);
			n = count(keep, nops);
			any = true;
		}
		if (!any || step > n)
			step /= 2;
	}
}

int shrink_main(int argc, char **argv, uint64_t nops)
{
	uint8_t *keep = calloc(nops, 1), *try = calloc(nops, 1);
	int n = 0;

	args = calloc((size_t)argc + 4, sizeof(*args));
	list = malloc(nops * 22 + 1);
	if (!keep || !try || !args || !list)
		return 1;
	for (int i = 0; i < argc; i++) /* a shrinker below would do the same again */
		if (!strcmp(argv[i], "--shrink"))
			i++;
		else if (strcmp(argv[i], "--verbose"))
			args[n++] = argv[i];
	if (set.keep)
		parse_keep(set.keep, keep, nops);
	else
		memset(keep, 1, nops);
	deadline = now() + set.shrink;
	printf("shrinking for up to %u s ...\n", set.shrink);
	if (!fails(keep, nops, false)) {
		printf("not the same again: it does not fail every time\n");
		return 1;
	}
	shrink(keep, try, nops);
	print_list(keep, nops);
	printf("%lu operations are left: --seed %lu --ops %lu --keep %s\n", (unsigned long)count(keep, nops),
	       (unsigned long)set.seed, (unsigned long)set.nops, list);
	if (!fails(keep, nops, true))
		printf("it does not fail every time\n");
	return 1;
}
