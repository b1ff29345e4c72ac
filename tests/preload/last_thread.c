/* SPDX-License-Identifier: MIT */
/* The main thread ends before others: the process goes on, and ends with the last of them, in the ordinary
 * way. */
#include "fact.h"
#include <pthread.h>
#include <threads.h>

static unsigned char *p;

static void at_exit(void)
{
	p[2] = 'c';
	printf("exit handler\n");
}

static char main_state(void)
{
	char name[64], text[256] = "", *at;
	int fd;

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", getpid());
	fd = open(name, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		die(name);
	close(fd);
	at = strrchr(text, ')');
	return at ? at[2] : '?';
}

static void *worker(void *arg)
{
	while (main_state() != 'Z')
		sched_yield();
	p[1] = 'b';
	printf("worker\n");
	return arg;
}

static void *waiter(void *arg)
{
	pthread_join(*(pthread_t *)arg, NULL);
	p[3] = 'd';
	printf("waiter\n");
	return NULL;
}

static void child(int how)
{
	static pthread_t th, th2;

	atexit(at_exit);
	p = map(open("last.dat", O_RDWR), PAGE);
	p[0] = (unsigned char)('0' + how);
	if (how < 2) {
		pthread_create(&th, NULL, worker, NULL);
		pthread_create(&th2, NULL, waiter, &th);
	}
	if (how % 2)
		thrd_exit(7);
	pthread_exit((void *)7);
}

static void facts(void)
{
	pid_t pid;

	close(make("last.dat", PAGE));
	for (int how = 0; how < 4; how++) {
		fflush(stdout);
		pid = fork();
		if (pid == 0)
			child(how);
		ended("process", pid);
		raw("last.dat");
	}
}
