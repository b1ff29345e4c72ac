/* SPDX-License-Identifier: MIT */
/*
 * Processes that move money between accounts of one file, each account a page, and commit each transfer by
 * msync. Some are killed on the way. It knows nothing of txmap, but that what msync refuses with EBUSY is
 * over when the file is mapped anew.
 *
 *	bank FILE WORKERS MSEC KILL_MSEC	prints transfers, conflicts, kills
 *	bank FILE WORKERS check		is the sum right?
 *
 * What is seen, whenever a transfer is over, and in the end: the sum of one instant, no page half written,
 * and each transfer that msync said was done.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ACCOUNTS = 24, START = 1000, MAX_WORKERS = 16 };

struct page {
	uint64_t value, room[255], again, more[255];
};

/* What the workers tell. */
static struct told {
	uint64_t done[MAX_WORKERS]; /* transfers of which msync said so */
	uint64_t conflicts;
} * told;

static const char *path;
static unsigned nworkers;
static struct page *pages;
static int fd;

static void wrong(const char *what, uint64_t a, uint64_t b)
{
	fprintf(stderr, "bank[%d]: %s: %llu, not %llu\n", getpid(), what, (unsigned long long)a,
		(unsigned long long)b);
	_exit(3);
}

static void map(int prot)
{
	fd = open(path, prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	pages = fd < 0 ? MAP_FAILED : mmap(NULL, (ACCOUNTS + nworkers) * PAGE, prot, MAP_SHARED, fd, 0);
	if (pages == MAP_FAILED) {
		fprintf(stderr, "bank[%d]: %s: %s\n", getpid(), path, strerror(errno));
		_exit(4);
	}
}

static void unmap(void)
{
	munmap(pages, (ACCOUNTS + nworkers) * PAGE);
	close(fd);
}

static void check_sum(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < ACCOUNTS; i++) {
		sum += pages[i].value;
		if (pages[i].value != pages[i].again)
			wrong("half a page", pages[i].again, pages[i].value);
	}
	if (sum != ACCOUNTS * START)
		wrong("the sum", sum, ACCOUNTS * START);
}

/* One that was killed may have done one transfer more than it could tell. */
static void check_done(unsigned w)
{
	uint64_t done = pages[ACCOUNTS + w].value;

	if (done != told->done[w] && done != told->done[w] + 1)
		wrong("transfers", done, told->done[w]);
}

static void set(struct page *p, uint64_t value)
{
	p->value = value;
	p->again = value;
}

static long now_msec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void sleep_msec(long msec)
{
	struct timespec ts = {msec / 1000, msec % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

/* A child that has what its parent has, and outlives it for a moment. */
static void have_child(void)
{
	if (fork())
		return;
	while (getppid() != 1)
		sleep_msec(5);
	sleep_msec(20);
	_exit(0);
}

static void work(unsigned w)
{
	unsigned seed = (unsigned)getpid();

	for (bool first = true;; first = false) {
		map(PROT_READ | PROT_WRITE);
		if (first && w % 2)
			have_child();
		check_sum();
		check_done(w);
		told->done[w] = pages[ACCOUNTS + w].value;
		do {
			int from = rand_r(&seed) % ACCOUNTS,
			    to = (from + 1 + rand_r(&seed) % (ACCOUNTS - 1)) % ACCOUNTS;
			uint64_t sum = (uint64_t)rand_r(&seed) % (pages[from].value + 1);

			set(&pages[from], pages[from].value - sum);
			set(&pages[to], pages[to].value + sum);
			set(&pages[ACCOUNTS + w], pages[ACCOUNTS + w].value + 1);
			if (msync(pages, PAGE, MS_SYNC))
				break;
			told->done[w]++;
			check_sum();
		} while (getppid() != 1);
		if (getppid() == 1)
			_exit(0);
		if (errno != EBUSY)
			wrong("msync", (uint64_t)errno, EBUSY);
		__atomic_add_fetch(&told->conflicts, 1, __ATOMIC_RELAXED);
		unmap();
	}
}

static pid_t start(unsigned w)
{
	pid_t pid = fork();

	if (!pid)
		work(w);
	return pid;
}

static void take_away(pid_t pid, unsigned *killed)
{
	int status;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status)); /* it found something wrong, and said so */
	++*killed;
}

static void run(long msec, long kill_msec)
{
	pid_t pids[MAX_WORKERS];
	unsigned killed = 0, w;
	uint64_t done = 0;
	long end = now_msec() + msec;

	for (w = 0; w < nworkers; w++)
		pids[w] = start(w);
	while (now_msec() < end) {
		sleep_msec(kill_msec);
		w = (unsigned)rand() % nworkers;
		take_away(pids[w], &killed);
		pids[w] = start(w);
	}
	for (w = 0; w < nworkers; w++)
		take_away(pids[w], &killed);
	map(PROT_READ);
	check_sum();
	for (w = 0; w < nworkers; w++) {
		check_done(w);
		done += pages[ACCOUNTS + w].value;
	}
	printf("%llu transfers %llu conflicts %u kills\n", (unsigned long long)done,
	       (unsigned long long)told->conflicts, killed);
}

static void make(void)
{
	int new = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	struct page p = {0};

	set(&p, START);
	for (int i = 0; new >= 0 && i < ACCOUNTS; i++)
		if (write(new, &p, sizeof(p)) != sizeof(p))
			exit(4);
	set(&p, 0);
	for (unsigned w = 0; new >= 0 && w < nworkers; w++)
		if (write(new, &p, sizeof(p)) != sizeof(p))
			exit(4);
	if (new >= 0)
		close(new);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	path = argv[1];
	nworkers = (unsigned)atoi(argv[2]);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(argv[3], "check")) {
		map(PROT_READ);
		check_sum();
		return 0;
	}
	make();
	run(atol(argv[3]), argc > 4 ? atol(argv[4]) : 20);
	return 0;
}
