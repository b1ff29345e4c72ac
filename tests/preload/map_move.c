/* SPDX-License-Identifier: MIT */
/* mremap: what is refused, in which order, and several mappings in one call. */
#include "fact.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static int fd;

static unsigned char *far(size_t at)
{
	return (unsigned char *)0x2000000000 + NPAGES(at);
}

static unsigned char *map_at(size_t at, size_t npages, int flags, off_t pgoff)
{
	unsigned char *p = mmap(far(at), NPAGES(npages), PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, (off_t)NPAGES(pgoff));

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void tried(const char *what, void *old, size_t old_len, size_t new_len, int flags, void *to)
{
	unsigned char *p = mremap(old, old_len, new_len, flags, to);

	if (p == MAP_FAILED)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: %s\n", what, p == old ? "stayed" : p == to ? "there" : "elsewhere");
	fflush(stdout);
}

static void refusals(unsigned char *p)
{
	const int move = MREMAP_MAYMOVE, fixed = move | MREMAP_FIXED, keep = move | MREMAP_DONTUNMAP;

	tried("unaligned", p + 1, PAGE, PAGE, move, NULL);
	tried("no length", p, PAGE, 0, move, NULL);
	tried("no length, unaligned", p + 1, PAGE, 0, move, NULL);
	tried("unknown flag", p, PAGE, PAGE, 8, NULL);
	tried("fixed without may move", p, PAGE, PAGE, MREMAP_FIXED, far(500));
	tried("unaligned target", p, PAGE, PAGE, fixed, far(500) + 1);
	tried("onto itself", p, NPAGES(4), NPAGES(4), fixed, p);
	tried("overlapping", p, NPAGES(4), NPAGES(4), fixed, p + NPAGES(2));
	tried("growing into itself", p + NPAGES(2), PAGE, NPAGES(4), fixed, p);
	tried("target beyond all addresses", p, PAGE, PAGE, fixed, (void *)(UINTPTR_MAX - PAGE + 1));
	tried("longer than the mapping", p, NPAGES(32), NPAGES(64), move, NULL);
	tried("around the end", p, SIZE_MAX - PAGE, NPAGES(64), move, NULL);
	tried("to SIZE_MAX", p, PAGE, SIZE_MAX, move, NULL);
	tried("to 2^47", p, PAGE, 1ul << 47, move, NULL);
	tried("to 2^46, in place", p, PAGE, 1ul << 46, 0, NULL);
	tried("a hole", far(900), PAGE, PAGE, move, NULL);
	tried("a hole, in place", far(900), PAGE, NPAGES(2), 0, NULL);
	tried("old length 0, in place", p, 0, PAGE, 0, NULL);
	tried("no room", p, NPAGES(2), NPAGES(3), 0, NULL);
	tried("keep, another length", p, PAGE, NPAGES(2), keep, NULL);
	tried("keep, in place", p, PAGE, PAGE, MREMAP_DONTUNMAP, NULL);
	tried("keep, unaligned target", p, PAGE, PAGE, keep, (void *)1);
	tried("the same", p, NPAGES(4), NPAGES(4), 0, NULL);
	tried("the same, a part of a page", p, NPAGES(3) + 1, NPAGES(4) - 1, 0, NULL);
	fact("all is there", p[0] == 'm' && p[NPAGES(15)] == 'm');
}

static void facts(void)
{
	unsigned char *p, *q, *anon;

	catch_faults();
	fd = make("move.dat", NPAGES(32));
	p = map_at(0, 16, MAP_SHARED, 0);
	memset(p, 'm', NPAGES(16));
	refusals(p);
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("move.dat");

	(void)map_at(16, 4, MAP_SHARED, 8);
	(void)map_at(20, 4, MAP_PRIVATE, 0);
	far(20)[5] = 'p';
	tried("across mappings", far(12), NPAGES(12), NPAGES(13), MREMAP_MAYMOVE, NULL);
	tried("the same across mappings", far(12), NPAGES(12), NPAGES(12), 0, NULL);
	tried("the same across mappings, may move", far(12), NPAGES(12), NPAGES(12), MREMAP_MAYMOVE, NULL);
	tried("shrunk across mappings", far(12), NPAGES(8), NPAGES(6), 0, NULL);
	q = mremap(far(12), NPAGES(12), NPAGES(12), MREMAP_MAYMOVE | MREMAP_FIXED, far(100));
	if (q == MAP_FAILED) { /* older than Linux 6.17 */
		called("nothing moved", errno == EFAULT && far(12)[0] == 'm' ? 0 : -1);
	} else {
		called("nothing moved", 0);
		fact("all moved", q == far(100) && q[0] == 'm' && q[NPAGES(4)] == 'm' && q[NPAGES(8) + 5] == 'p');
		touch("where it was", far(12), 0);
	}
	p[0] = 'n';
	called("msync", msync(p, NPAGES(8), MS_SYNC));

	anon = mmap(far(200), NPAGES(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	anon[0] = 'a';
	q = mremap(anon, NPAGES(4), NPAGES(4), MREMAP_MAYMOVE | MREMAP_FIXED, far(2));
	fact("anonymous memory over a part", q == far(2) && q[0] == 'a');
	tried("a hole over a part", far(300), NPAGES(2), NPAGES(2), MREMAP_MAYMOVE | MREMAP_FIXED, far(6));
	fact("which stays", far(6)[0]);
	q = mremap(far(2), NPAGES(4), NPAGES(4), MREMAP_MAYMOVE | MREMAP_FIXED, far(400));
	fact("and away", q == far(400) && q[0] == 'a');
	touch("a hole", far(2), 0);
	called("munmap", munmap(far(0), NPAGES(500)));
	called("close", close(fd));
	raw("move.dat");
}
