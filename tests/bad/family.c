/* SPDX-License-Identifier: MIT */
/*
 * A process and its child store in turns into a file that both have mapped; the parent commits after each.
 * Then the child stores once more, is killed, and the parent commits what it left: "ABCDEF" at 0.
 *
 *	family FILE			where they are
 *	family FILE chroot DIR		the parent, or with `child` the child, goes there first
 *	family FILE newpid		the child gets a PID namespace of its own
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN 65536u

static char *p;
static int to[2], from[2];

static void store_when_told(void)
{
	char c;

	while (read(to[0], &c, 1) == 1) {
		p[(int)c] = (char)('A' + c);
		if (write(from[1], &c, 1) != 1)
			break;
	}
	_exit(0);
}

static int have_it_store(char c)
{
	return write(to[1], &c, 1) == 1 && read(from[0], &c, 1) == 1 ? 0 : -1;
}

static int failed(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "";
	int fd = open(argv[1], O_RDWR), status;
	pid_t child;

	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || pipe(to) || pipe(from))
		return failed("start");
	if (!strcmp(how, "newpid") && unshare(CLONE_NEWPID))
		return 77;
	child = fork();
	if (child == 0) {
		close(to[1]);
		if (!strcmp(how, "child") && (chroot(argv[3]) || chdir("/")))
			_exit(77);
		store_when_told();
	}
	close(to[0]);
	close(from[1]);
	if (!strcmp(how, "chroot") && (chroot(argv[3]) || chdir("/")))
		return 77;
	for (char c = 0; c < 5; c++) {
		if (have_it_store(c)) {
			(void)waitpid(child, &status, 0);
			printf("child: signal %d\n", WTERMSIG(status));
			return 1;
		}
		p[4096 + c] = (char)('a' + c);
		if (msync(p, LEN, MS_SYNC))
			return failed("msync");
	}
	if (have_it_store(5))
		return failed("child");
	kill(child, SIGKILL);
	(void)waitpid(child, &status, 0);
	if (msync(p, LEN, MS_SYNC))
		return failed("msync");
	puts("fine");
	return 0;
}
