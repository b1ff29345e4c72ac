/* SPDX-License-Identifier: MIT */
/* Processes that leave their parent, or whose parent leaves them: daemon(3), the double fork, a parent that
 * ends at once; forks in a signal handler, and between atfork handlers that do all they may. */
#include "fact.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>

static unsigned char *p;
static int fd;
static int ends[2]; /* who has gone away tells by it, and closes it with his end */

static void map_file(void)
{
	fd = open("daemons.dat", O_RDWR);
	p = map(fd, NPAGES(64));
}

/* What came through the pipe until nobody has it any more. */
static void told(const char *what)
{
	char buf[256];
	ssize_t n, len = 0;

	close(ends[1]);
	while ((n = read(ends[0], buf + len, sizeof(buf) - 1 - (size_t)len)) > 0)
		len += n;
	buf[len] = 0;
	close(ends[0]);
	printf("%s: %s\n", what, buf);
	fflush(stdout);
	raw("daemons.dat");
}

static void tell(const char *what)
{
	if (write(ends[1], what, strlen(what)) < 0)
		_exit(90);
}

static void daemonized(void)
{
	pid_t pid, before = getpid();

	if (pipe(ends))
		die("pipe");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		map_file();
		p[NPAGES(1)] = 'a';
		if (daemon(1, 0))
			_exit(91);
		tell(getpid() != before ? "another pid" : "the same pid");
		tell(p[NPAGES(1)] == 'a' && p[NPAGES(2)] == pattern(NPAGES(2)) ? ", stored" : ", wrong");
		p[NPAGES(2)] = 'b';
		tell(msync(p, NPAGES(64), MS_SYNC) == 0 ? ", committed" : ", not committed");
		p[NPAGES(3)] = 'c';
		exit(0);
	}
	ended("parent of the daemon", pid);
	told("daemon");
}

static void forked_twice(void)
{
	pid_t pid;

	if (pipe(ends))
		die("pipe");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		map_file();
		p[NPAGES(5)] = 'a';
		if (fork())
			_exit(0);
		setsid();
		if (fork())
			_exit(0);
		for (int i = 3; i < 256; i++) /* as daemons do */
			if (i != ends[1])
				close(i);
		p[NPAGES(6)] = 'b';
		tell(p[NPAGES(5)] == 'a' ? "stored" : "wrong");
		tell(msync(p, NPAGES(64), MS_SYNC) == 0 ? ", committed" : ", not committed");
		_exit(0);
	}
	ended("first", pid);
	told("third");
}

/* Nobody waits for anybody: the child goes on when its parent has ended, or not yet. */
static void left_alone(void)
{
	pid_t pid;
	int i;

	if (pipe(ends))
		die("pipe");
	for (i = 0; i < 16; i++) {
		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			map_file();
			p[NPAGES(10) + (size_t)i] = 'a';
			if (fork())
				_exit(0);
			p[NPAGES(11) + (size_t)i] = 'b';
			if (p[NPAGES(10) + (size_t)i] != 'a' || (i % 2 && msync(p, NPAGES(64), MS_SYNC)))
				tell("!");
			tell(".");
			_exit(0);
		}
		if (waitpid(pid, NULL, 0) != pid)
			die("waitpid");
	}
	told("left alone");
}

static volatile int nforked, nwrong;

static void forker(int signo)
{
	int saved = errno, status;
	pid_t pid = fork();

	(void)signo;
	if (pid == 0) {
		p[NPAGES(20) + (unsigned)nforked]++;
		if (nforked % 8 == 0 && msync(p, NPAGES(64), MS_SYNC))
			_exit(1);
		_exit(p[NPAGES(21)] != pattern(NPAGES(21)));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		nwrong++;
	nforked++;
	errno = saved;
}

static void in_a_handler(void)
{
	struct itimerval it = {{0, 10000}, {0, 10000}};
	struct sigaction sa = {.sa_handler = forker, .sa_flags = SA_RESTART};
	unsigned char *q;
	int i;

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	for (i = 0; nforked < 24; i++) {
		p[NPAGES(22) + (size_t)i % PAGE]++;
		if (i % 3 == 0 && msync(p, NPAGES(64), MS_SYNC))
			nwrong++;
		if (pwrite(fd, "w", 1, NPAGES(23)) != 1)
			nwrong++;
		q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPAGES(24));
		if (q == MAP_FAILED || munmap(q, PAGE))
			nwrong++;
	}
	memset(&it, 0, sizeof(it));
	setitimer(ITIMER_REAL, &it, NULL);
	signal(SIGALRM, SIG_DFL);
	fact("forks in a handler that went wrong", nwrong);
	memset(p + NPAGES(20), 'z', NPAGES(5));
}

static void *library;
static int nprepared, nparent;

static void *user(void *arg)
{
	p[NPAGES(30) + *(unsigned char *)arg]++;
	return msync(p, PAGE, MS_SYNC) || pread(fd, &(char){0}, 1, 0) != 1 ? NULL : arg;
}

/* A thread that uses the mapping is begun and waited for. */
static void prepare(void)
{
	unsigned char n = (unsigned char)nprepared++;
	pthread_t th;
	void *good = NULL;

	pthread_create(&th, NULL, user, &n);
	pthread_join(th, &good);
	nwrong += !good;
}

static void parent(void)
{
	p[NPAGES(31)]++;
	nparent++;
}

static void child(void)
{
	p[NPAGES(32)]++;
	if (msync(p, PAGE, MS_SYNC) || (library && dlclose(library)))
		_exit(92);
	library = NULL;
}

static void between_handlers(void)
{
	pid_t pid;
	int i;

	nwrong = 0;
	library = dlopen("libutil.so.1", RTLD_NOW);
	pthread_atfork(prepare, parent, child);
	for (i = 0; i < 10; i++) {
		fflush(stdout);
		pid = fork();
		if (pid == 0)
			_exit(p[NPAGES(30)] == 'z' ? 93 : 0);
		if (i == 0 || i == 9)
			ended("between handlers", pid);
		else
			waitpid(pid, NULL, 0);
	}
	fact("wrong", nwrong);
	fact("prepared", nprepared);
	fact("parents", nparent);
	called("msync", msync(p, NPAGES(64), MS_SYNC));
	raw("daemons.dat");
}

static void facts(void)
{
	close(make("daemons.dat", NPAGES(64)));
	daemonized();
	forked_twice();
	left_alone();
	map_file();
	in_a_handler();
	between_handlers();
}
