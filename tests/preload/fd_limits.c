/* SPDX-License-Identifier: MIT */
/* Few descriptors: a limit that is lowered before, or after, the file is mapped leaves the program as many as
 * natively, by the same numbers; every number closed and taken again; what children find open. */
#include "fact.h"
#include <dirent.h>
#include <spawn.h>
#include <sys/resource.h>

static unsigned char *p;

static void limit(rlim_t soft)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		die("getrlimit");
	rl.rlim_cur = soft;
	called("limit", setrlimit(RLIMIT_NOFILE, &rl));
	getrlimit(RLIMIT_NOFILE, &rl);
	fact("is", (long)rl.rlim_cur);
}

/* How many can be opened, and the sum of their numbers; closed again. */
static void how_many(const char *what)
{
	int fds[2048], n = 0;
	long total = 0;

	while (n < 2048 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0)
		total += fds[n++];
	printf("%s: %d descriptors, sum %ld, then %s\n", what, n, total,
	       n < 2048 ? strerrorname_np(errno) : "more");
	fflush(stdout);
	while (n)
		close(fds[--n]);
}

static void lowered_after(void)
{
	int fd = open("few.dat", O_RDWR);

	p = map(fd, NPAGES(4));
	p[0] = 'a';
	limit(16);
	how_many("after the mapping");
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	for (int i = 3; i < 16; i++)
		close(i);
	how_many("all closed");
	p[1] = 'b';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	for (int i = 3; i < 16; i++)
		if (dup2(0, i) != i)
			die("dup2");
	called("one more", dup(0));
	called("beyond the limit", dup2(0, 16));
	called("F_DUPFD beyond the limit", fcntl(0, F_DUPFD, 16));
	p[2] = 'c';
	called("msync with none left", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	closefrom(3);
	called("munmap", munmap(p, NPAGES(4)));
	raw("few.dat");
	_exit(0);
}

static void lowered_before(void)
{
	int fd;

	limit(12);
	how_many("before");
	fd = open("few.dat", O_RDWR);
	fact("number", fd);
	p = map(fd, NPAGES(4));
	how_many("mapped");
	p[5] = 'd';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	called("munmap", munmap(p, NPAGES(4)));
	close(fd);
	how_many("let go");
	_exit(0);
}

/* With every number taken when the file is mapped. */
static void none_left(void)
{
	int fd = open("few.dat", O_RDWR);

	limit(32);
	while (dup(0) >= 0)
		;
	p = map(fd, NPAGES(4));
	p[6] = 'e';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	close(fd);
	called("munmap", munmap(p, NPAGES(4)));
	raw("few.dat");
	_exit(0);
}

/* As daemons do it. */
static void all_closed(void)
{
	long max = sysconf(_SC_OPEN_MAX);
	DIR *d;
	int n = 0;

	p = map(open("few.dat", O_RDWR), NPAGES(4));
	p[7] = 'f';
	for (int i = 3; i < (max < 65536 ? max : 65536); i++)
		close(i);
	fact("lowest number", open("/dev/null", O_RDONLY));
	d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	fact("its list can be read", n > 2);
	closedir(d);
	p[8] = 'g';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	_exit(0);
}

/* What a child finds: by fork and exec, by system, popen and posix_spawn with actions on every number. */
static void children(void)
{
	static const char list[] = "ls /proc/self/fd | tr '\\n' ' '; echo";
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)list, NULL};
	posix_spawn_file_actions_t act;
	char line[256] = "";
	pid_t pid;
	FILE *f;
	int i;

	p = map(open("few.dat", O_RDWR | O_CLOEXEC), NPAGES(4));
	p[9] = 'h';
	fact("system", system(list));
	f = popen(list, "r");
	while (fgets(line, sizeof(line), f))
		printf("popen: %s", line);
	pclose(f);
	fflush(stdout);
	posix_spawn_file_actions_init(&act);
	for (i = 3; i < 1024; i++) {
		if (i % 2)
			posix_spawn_file_actions_addclose(&act, i);
		else
			posix_spawn_file_actions_adddup2(&act, 1, i);
	}
	for (i = 4; i < 1024; i += 2)
		posix_spawn_file_actions_addclose(&act, i);
	fact("posix_spawn with actions on every number",
	     posix_spawn(&pid, "/bin/sh", &act, NULL, argv, environ));
	ended("it", pid);
	posix_spawn_file_actions_destroy(&act);
	posix_spawn_file_actions_init(&act);
	posix_spawn_file_actions_addclosefrom_np(&act, 3);
	fact("posix_spawn with closefrom", posix_spawn(&pid, "/bin/sh", &act, NULL, argv, environ));
	ended("it", pid);
	pid = vfork();
	if (pid == 0) {
		for (i = 3; i < 1024; i++)
			close(i);
		execv("/bin/sh", argv);
		_exit(97);
	}
	ended("vfork, close, exec", pid);
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("few.dat");
	_exit(0);
}

static void in_child(const char *what, void (*fn)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		fn();
	ended(what, pid);
}

static void facts(void)
{
	for (int i = 3; i < 1024; i++) /* what our caller left open */
		close(i);
	close(make("few.dat", NPAGES(4)));
	limit(1024);
	in_child("lowered after", lowered_after);
	in_child("lowered before", lowered_before);
	in_child("none left", none_left);
	in_child("all closed", all_closed);
	in_child("children", children);
}
