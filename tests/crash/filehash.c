/* SPDX-License-Identifier: MIT */
/* Print the hash of a file. */
#include "file_hash.h"

#include <fcntl.h>

int main(int argc, char **argv)
{
	char text[80];
	int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;

	if (fd < 0) {
		puts("absent");
		return 1;
	}
	file_hash(fd, text, sizeof(text));
	puts(text);
	return 0;
}
