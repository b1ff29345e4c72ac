/* SPDX-License-Identifier: MIT */
/* A process with a file mapped begins its program anew, maps the file again, and again: what others ask of it
 * is asked of what it is now, and what it stored before is there. */
#include "fact.h"

#define NTIMES 4
#define TO     50
#define FROM   51

static unsigned char *map_again(void)
{
	int fd = open("again.dat", O_RDWR);

	if (fd < 0)
		die("again.dat");
	return map(fd, NPAGES(8));
}

static void be(int n)
{
	char number[16], c;
	unsigned char *p = map_again();

	p[NPAGES(n) + 1] = (unsigned char)('0' + n);
	if (n < NTIMES) {
		snprintf(number, sizeof(number), "%d", n + 1);
		setenv("AGAIN", number, 1);
		execl("/proc/self/exe", "again", (char *)NULL);
		_exit(98);
	}
	if (write(TO, "r", 1) != 1)
		_exit(97);
	while (read(FROM, &c, 1) > 0)
		;
	_exit(0);
}

static void facts(void)
{
	int ready[2], done[2];
	const char *again = getenv("AGAIN");
	unsigned char *p;
	char c;
	pid_t pid;

	if (again)
		be(atoi(again));
	close(make("again.dat", NPAGES(8)));
	p = map_again();
	if (pipe(ready) || pipe(done))
		die("pipe");
	pid = fork();
	if (pid == 0) {
		if (dup2(ready[1], TO) < 0 || dup2(done[0], FROM) < 0 || close(ready[1]) || close(done[0]) ||
		    close(done[1]))
			_exit(96);
		be(1);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		die("read");
	for (int n = 1; n <= NTIMES; n++)
		fact("stored by the image", p[NPAGES(n) + 1]);
	p[0] = 'p';
	called("a commit", msync(p, NPAGES(8), MS_SYNC));
	raw("again.dat");
	close(done[1]);
	ended("the other one", pid);
	called("another", msync(p, NPAGES(8), MS_SYNC));
}
