/* SPDX-License-Identifier: MIT */
/* A process that maps FILE, forks, and ends before its child has run at all; the child stores, and commits. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN 65536u

static int failed(const char *what)
{
	perror(what);
	return 1;
}

/* Nothing else runs on its processor until it waits; but its child is an ordinary one. */
static int go_first(void)
{
	const struct sched_param p = {.sched_priority = 1};
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	return sched_setaffinity(0, sizeof(one), &one) ||
	       sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p);
}

static int parent(const char *path)
{
	int fd = open(path, O_RDWR);
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return failed("mmap");
	if (go_first()) /* and has nothing to commit, which it would wait for */
		return 77;
	if (fork())
		exit(0);
	strcpy(p + 4096, "child");
	return msync(p, LEN, MS_SYNC) ? failed("msync") : 0;
}

int main(int argc, char **argv)
{
	int end[2], status;
	char c;

	if (argc != 2 || pipe(end))
		return 2;
	if (!fork()) {
		close(end[0]);
		exit(parent(argv[1]));
	}
	close(end[1]);
	(void)wait(&status);
	(void)!read(end[0], &c, 1); /* until the child has ended, too */
	return WEXITSTATUS(status);
}
