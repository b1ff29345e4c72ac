/* SPDX-License-Identifier: MIT */
/* fork in its several forms: one memory, and what was not loaded before is not zero after. */
#include "fact.h"
#include <spawn.h>

static int fd;
static unsigned char *p;

static void in_child(int i)
{
	size_t k, at = NPAGES(8 + 4 * i);

	for (k = 0; k < NPAGES(4); k += 512) /* first touched here */
		if (p[at + k] != pattern(at + k))
			_exit(50);
	if (p[0] != 'a')
		_exit(51);
	p[at] = (unsigned char)('0' + i);
	p[1 + i] = (unsigned char)('0' + i);
	if (pwrite(fd, "w", 1, (off_t)at + 1) != 1)
		_exit(52);
}

static long nwrong(size_t start, size_t stop)
{
	long n = 0;

	for (; start < stop; start++)
		n += p[start] != pattern(start);
	return n;
}

static void facts(void)
{
	char *argv[] = {(char *)"true", NULL}, *envp[] = {NULL};
	pid_t pid, grandchild;

	fd = make("fork.dat", NPAGES(64));
	p = map(fd, NPAGES(64));
	p[0] = 'a';

	pid = fork();
	if (pid == 0) {
		in_child(0);
		_exit(7);
	}
	ended("fork", pid);
	fact("parent sees the child's store", p[1]);
	fact("and on a page it never touched", p[NPAGES(8)] * 256 + p[NPAGES(8) + 1]);

	pid = _Fork();
	if (pid == 0) {
		in_child(1);
		_exit(8);
	}
	ended("_Fork", pid);
	fact("seen", p[2] * 256 + p[NPAGES(12)]);

	pid = vfork();
	if (pid == 0) {
		if (dup2(fd, 40) != 40 || close(fd) || pwrite(40, "v", 1, 5) != 1)
			_exit(53);
		_exit(9);
	}
	ended("vfork", pid);
	fact("its stores", p[5]);
	fact("descriptor is still the parent's", pread(fd, &(char){0}, 1, 0));
	called("and its duplicate is not", fcntl(40, F_GETFD));

	pid = fork();
	if (pid == 0) {
		grandchild = fork();
		if (grandchild == 0) {
			in_child(2);
			_exit(0);
		}
		ended("grandchild", grandchild);
		if (p[3] != '2')
			_exit(54);
		in_child(3);
		exit(10);
	}
	ended("double fork", pid);
	fact("seen", p[3] * 256 + p[4]);

	pid = fork();
	if (pid == 0) {
		p[NPAGES(40)] = 'k';
		raise(SIGKILL);
	}
	ended("killed", pid);
	fact("a store outlives its process", p[NPAGES(40)]);

	fact("posix_spawn", posix_spawnp(&pid, "true", NULL, NULL, argv, envp));
	ended("spawned", pid);
	fact("system", system("exit 3") >> 8);

	fact("untouched bytes that are wrong", nwrong(NPAGES(24), NPAGES(40)));

	pid = fork();
	if (pid == 0) {
		p[6] = 'c';
		if (msync(p, PAGE, MS_SYNC))
			_exit(55);
		if (munmap(p, NPAGES(64)))
			_exit(56);
		_exit(0);
	}
	ended("child commits and unmaps", pid);
	fact("seen", p[6]);
	p[7] = 'd';
	called("parent's msync", msync(p, NPAGES(64), MS_SYNC));
	raw("fork.dat");
	pid = fork();
	if (pid == 0) {
		ftruncate(fd, NPAGES(80));
		pwrite(fd, "t", 1, NPAGES(80) - 1);
		_exit(0);
	}
	ended("child grows", pid);
	fact("parent sees the size", lseek(fd, 0, SEEK_END));
	called("fsync", fsync(fd));
	raw("fork.dat");
}
