/* SPDX-License-Identifier: MIT */
/* Stores, and then the process ends in each ordinary way: the next reader has them, and the status is right. */
#include "fact.h"

static void at_exit(void)
{
}

static void child(int how)
{
	int fd = open("exits.dat", O_RDWR);
	unsigned char *p = map(fd, NPAGES(4));

	p[how] = (unsigned char)('0' + how);
	p[NPAGES(3) + (size_t)how] = 'x';
	switch (how) {
	case 0:
		exit(3);
	case 1:
		_exit(4);
	case 2:
		_Exit(5);
	case 3:
		at_quick_exit(at_exit);
		quick_exit(6);
	case 4:
		raise(SIGTERM);
		break;
	case 5:
		kill(getpid(), SIGINT);
		break;
	case 6:
		raise(SIGHUP);
		break;
	case 7:
		munmap(p, NPAGES(4));
		close(fd);
		raise(SIGKILL); /* after the last use of the file */
		break;
	case 8:
		close(fd);
		munmap(p, NPAGES(4));
		abort();
	case 9: /* a handler of the program's own is not the default action */
		signal(SIGTERM, exit);
		raise(SIGTERM);
		break;
	case 10:
		signal(SIGTERM, SIG_IGN);
		raise(SIGTERM);
		exit(11);
	case 11:
		signal(SIGTERM, SIG_IGN);
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
		break;
	default:
		break;
	}
	_exit(77);
}

static void facts(void)
{
	char what[32];
	pid_t pid;
	int how;

	close(make("exits.dat", NPAGES(4)));
	for (how = 0; how < 12; how++) {
		fflush(stdout);
		pid = fork();
		if (pid == 0)
			child(how);
		snprintf(what, sizeof(what), "way %d", how);
		ended(what, pid);
		raw("exits.dat");
	}
}
