/* SPDX-License-Identifier: MIT */
/* Descriptors that libc makes inside take numbers that belonged to other files before. */
#include "fact.h"
#include <dirent.h>

#define ELSEWHERE "/var/tmp/madeXXXXXX" /* where no rule matches */

/* A number that was some other file's, and is free now because libc closed it inside. */
static int stale(void)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(fd);

	if (!d || closedir(d))
		die("directory");
	return fd;
}

/* Is the file at fd one with its mapping? */
static void coherent(const char *what, int number, int fd)
{
	unsigned char *p;

	printf("%s: the number %s\n", what, fd == number ? "again" : "another");
	if (fd < 0 || ftruncate(fd, PAGE))
		die(what);
	p = map(fd, PAGE);
	p[1] = 'm';
	if (pwrite(fd, "w", 1, 2) != 1)
		die("pwrite");
	printf("%s: %c\n", what, p[2]);
	if (munmap(p, PAGE) || close(fd))
		die("close");
}

/* A descriptor by a name that no rule matched is one of a managed file as soon as another name is used. */
static void two_names(void)
{
	char name[] = ELSEWHERE, command[64];
	int before = mkstemp(name), after;
	unsigned char *p;

	if (before < 0 || ftruncate(before, PAGE) || pwrite(before, "1", 1, 0) != 1)
		die(name);
	(void)snprintf(command, sizeof(command), "mv %s linked.dat", name);
	if (system(command))
		die(command);
	after = open("linked.dat", O_RDWR);
	p = map(after, PAGE);
	p[0] = '2';
	if (pwrite(before, "3", 1, 1) != 1 || pwrite(after, "4", 1, 2) != 1)
		die("pwrite");
	printf("two names: %.3s\n", (char *)p);
	if (munmap(p, PAGE) || close(before) || close(after))
		die("close");
	raw("linked.dat");
}

static void facts(void)
{
	char a[] = ELSEWHERE, b[] = "bXXXXXX.dat", c[] = "cXXXXXX.dat";
	int number, fd, at;

	number = stale();
	fd = mkstemp(a);
	if (rename(a, "made.dat"))
		die("rename");
	coherent("mkstemp, renamed", number, fd);
	raw("made.dat");
	two_names();

	number = stale();
	coherent("mkstemps", number, mkstemps(b, 4));
	rename(b, "made_b.dat");
	raw("made_b.dat");
	number = stale();
	coherent("mkostemps", number, mkostemps(c, 4, O_CLOEXEC));
	rename(c, "made_c.dat");
	raw("made_c.dat");
	at = open("made_b.dat", O_RDWR);
	fact("the lowest number is free again", at == number);
}
