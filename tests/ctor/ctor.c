/* SPDX-License-Identifier: MIT */
/* Linked with a library whose constructor was there first (early.c). */
#include "../preload/fact.h"

extern unsigned char *early_mapping;
extern long early_result;

static void facts(void)
{
	int fd = open("ctor.dat", O_RDWR);

	fact("before main", early_result);
	fact("still there", early_mapping[4096]);
	fact("seen through a descriptor", pwrite(fd, "m", 1, 0) * 256 + early_mapping[0]);
	early_mapping[1] = 'n';
	called("msync", msync(early_mapping, 8192, MS_SYNC));
	raw("ctor.dat");
}
