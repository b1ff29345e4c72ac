/* SPDX-License-Identifier: MIT */
/* Linked with libraries that were there first: a constructor (early.c), and an indirect function
 * (early_ifunc.c). */
#include "../preload/fact.h"

extern unsigned char *early_mapping;
extern long early_result;
long early_ifunc_result(unsigned char **ret_mapping);

static void facts(void)
{
	int fd = open("ctor.dat", O_RDWR), fd2 = open("ifunc.dat", O_RDWR);
	unsigned char *p;

	fact("before main", early_result);
	fact("still there", early_mapping[4096]);
	fact("seen through a descriptor", pwrite(fd, "m", 1, 0) * 256 + early_mapping[0]);
	early_mapping[1] = 'n';
	called("msync", msync(early_mapping, 8192, MS_SYNC));
	raw("ctor.dat");
	fact("while a name was bound", early_ifunc_result(&p));
	fact("still there", p[4096]);
	p[4097] = 'j';
	fact("seen through a descriptor", pwrite(fd2, "m", 1, 0) * 256 + p[0]);
	called("msync", msync(p, 8192, MS_SYNC));
	raw("ifunc.dat");
}
