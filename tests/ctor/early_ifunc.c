/* SPDX-License-Identifier: MIT */
/* A library that maps and stores in the resolver of an indirect function, which the loader calls while it
 * binds a name; that is during a constructor. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

long early_ifunc_result(unsigned char **ret_mapping);
int early_ifunc(void);

static unsigned char *mapping;
static long result = -1;

static int one(void)
{
	return 1;
}

__attribute__((used)) static int (*choose(void))(void) /* clang takes it for unused */
{
	int fd = open("ifunc.dat", O_RDWR | O_CREAT | O_TRUNC, 0600);
	char c = 0;

	if (fd < 0 || ftruncate(fd, 8192))
		return one;
	mapping = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapping == MAP_FAILED)
		return one;
	mapping[4096] = 'i';
	result = pread(fd, &c, 1, 4096) * 256 + c;
	close(fd);
	return one;
}

int early_ifunc(void) __attribute__((ifunc("choose")));

static int chosen;

/* Arguments as those of main, as glibc does it. Not in the program that only looks at the file (fact.h). */
__attribute__((constructor(101))) static void early(int argc)
{
	if (argc < 3)
		chosen = early_ifunc();
}

long early_ifunc_result(unsigned char **ret_mapping)
{
	*ret_mapping = mapping;
	return result * chosen;
}
