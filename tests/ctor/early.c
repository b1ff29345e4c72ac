/* SPDX-License-Identifier: MIT */
/* A library that maps, stores and reads in its constructor, which may run before any other. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned char *early_mapping;
long early_result = -1;

/* Arguments as those of main, as glibc does it. Not in the program that only looks at the file (fact.h). */
__attribute__((constructor(101))) static void early(int argc)
{
	int fd = argc > 2 ? -1 : open("ctor.dat", O_RDWR | O_CREAT | O_TRUNC, 0600);
	char c = 0;

	if (fd < 0 || ftruncate(fd, 8192))
		return;
	early_mapping = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (early_mapping == MAP_FAILED)
		return;
	early_mapping[4096] = 'e';
	early_result = pread(fd, &c, 1, 4096) * 256 + c;
	close(fd);
}
