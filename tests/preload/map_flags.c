/* SPDX-License-Identifier: MIT */
/* Flags and protections of mmap: what each of them makes of a mapping. */
#include "fact.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static int fd;

/* "what: where it went, or why not"; the mapping, or NULL. */
static unsigned char *mapped(const char *what, void *at, size_t len, int prot, int flags, int of, off_t off)
{
	unsigned char *p = mmap(at, len, prot, flags, of, off);

	if (p == MAP_FAILED)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: mapped%s\n", what, !at ? "" : p == at ? " there" : " elsewhere");
	fflush(stdout);
	return p == MAP_FAILED ? NULL : p;
}

static void stores_and_goes(const char *what, int flags, off_t off)
{
	unsigned char *p = mapped(what, NULL, NPAGES(2), PROT_READ | PROT_WRITE, flags, fd, off);

	if (!p)
		return;
	p[3]++;
	p[PAGE] = 'F';
	called("munmap", munmap(p, NPAGES(2)));
}

static void flags_that_change_nothing(void)
{
	stores_and_goes("MAP_NORESERVE", MAP_SHARED | MAP_NORESERVE, 0);
	stores_and_goes("MAP_POPULATE", MAP_SHARED | MAP_POPULATE, NPAGES(2));
	stores_and_goes("MAP_POPULATE and NONBLOCK", MAP_SHARED | MAP_POPULATE | MAP_NONBLOCK, NPAGES(4));
	stores_and_goes("MAP_STACK", MAP_SHARED | MAP_STACK, NPAGES(6));
	stores_and_goes("MAP_DENYWRITE and EXECUTABLE", MAP_SHARED | MAP_DENYWRITE | MAP_EXECUTABLE, NPAGES(8));
	stores_and_goes("MAP_LOCKED", MAP_SHARED | MAP_LOCKED, NPAGES(10));
	stores_and_goes("MAP_SHARED_VALIDATE", MAP_SHARED_VALIDATE, NPAGES(12));
	stores_and_goes("unknown flag", MAP_SHARED | 1 << 30, NPAGES(14));
	called("fsync", fsync(fd));
	raw("flags.dat");
}

static void flags_that_are_refused(void)
{
	stores_and_goes("validated, unknown flag", MAP_SHARED_VALIDATE | 1 << 30, 0);
	stores_and_goes("validated, MAP_SYNC", MAP_SHARED_VALIDATE | 0x80000, 0);
	stores_and_goes("validated, MAP_FIXED_NOREPLACE", MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, 0);
	stores_and_goes("not validated, MAP_SYNC", MAP_SHARED | 0x80000, 0);
	stores_and_goes("MAP_GROWSDOWN", MAP_SHARED | MAP_GROWSDOWN, 0);
	stores_and_goes("private MAP_GROWSDOWN", MAP_PRIVATE | MAP_GROWSDOWN, 0);
	stores_and_goes("MAP_HUGETLB", MAP_SHARED | MAP_HUGETLB, 0);
	stores_and_goes("MAP_HUGETLB, 2 MiB", MAP_SHARED | MAP_HUGETLB | 21 << 26, 0);
	stores_and_goes("no type", 0, 0);
	stores_and_goes("type 4", 4, 0);
	stores_and_goes("type 15", 15, 0);
	(void)mapped("unknown protection bits", NULL, PAGE, PROT_READ | 0x40, MAP_SHARED, fd, 0);
	(void)mapped("PROT_GROWSDOWN", NULL, PAGE, PROT_READ | PROT_GROWSDOWN, MAP_SHARED, fd, 0);
	called("fsync", fsync(fd));
	raw("flags.dat");
}

#if defined(__x86_64__)
static const unsigned char code[] = {0xb8, 0x2a, 0, 0, 0, 0xc3}; /* return 42 */
#elif defined(__aarch64__)
static const unsigned char code[] = {0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6};
#endif

static void protections(void)
{
	unsigned char *p = mapped("PROT_WRITE only", NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0);
	int (*fn)(void);

	touch("store", p, 'w');
	called("made readable", mprotect(p, PAGE, PROT_READ));
	fact("stored", p[0]);
	touch("store when read only", p, 'x');
	called("munmap", munmap(p, PAGE));

	p = mapped("PROT_NONE", NULL, NPAGES(2), PROT_NONE, MAP_SHARED, fd, 0);
	touch("load", p, 0);
	called("made writable", mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	touch("store", p + 1, 'n');
	touch("load beside it", p + PAGE, 0);
	called("munmap", munmap(p, NPAGES(2)));

	p = mapped("all", NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, fd, NPAGES(15));
	memcpy(p, code, sizeof(code));
	__builtin___clear_cache((char *)p, (char *)p + sizeof(code));
	memcpy(&fn, &p, sizeof(fn));
	fact("stored code runs", fn());
	called("msync", msync(p, PAGE, MS_SYNC));
	fact("after a commit, too", fn());
	p[1] = 43;
	__builtin___clear_cache((char *)p, (char *)p + sizeof(code));
	fact("stored into again", fn());
	called("executable only", mprotect(p, PAGE, PROT_EXEC));
	fact("runs", fn());
	called("not executable", mprotect(p, PAGE, PROT_READ));
	called("munmap", munmap(p, PAGE));
	p = mapped("readable and executable", NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, NPAGES(15));
	memcpy(&fn, &p, sizeof(fn));
	fact("mapped code runs", fn());
	called("munmap", munmap(p, PAGE));
	called("fsync", fsync(fd));
	raw("flags.dat");
}

static void places(void)
{
	unsigned char *p = map(fd, NPAGES(8)), *q, *anon, *hole;
	int fd2 = make("flags2.dat", NPAGES(8));

	memset(p, 'p', NPAGES(8));
	q = mapped("hint inside a mapping", p + NPAGES(2), NPAGES(2), PROT_READ, MAP_SHARED, fd, 0);
	fact("what was there is there", p[NPAGES(2)] == 'p' && p[NPAGES(4) - 1] == 'p');
	called("munmap", munmap(q, NPAGES(2)));
	q = mapped("hint inside, another file", p + NPAGES(2), NPAGES(2), PROT_READ, MAP_SHARED, fd2, 0);
	called("munmap", munmap(q, NPAGES(2)));
	q = mapped("hint inside, anonymous", p + NPAGES(2), NPAGES(2), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	called("munmap", munmap(q, NPAGES(2)));
	q = mapped("odd hint", p + 1, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	called("munmap", munmap(q, PAGE));
	fact("what was there is there", p[NPAGES(2)] == 'p' && p[NPAGES(4) - 1] == 'p');

	(void)mapped("noreplace on it", p + NPAGES(2), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	(void)mapped("noreplace on it, another file", p + NPAGES(7), NPAGES(2), PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE,
		     fd2, 0);
	(void)mapped("noreplace on it, anonymous", p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		     0);
	(void)mapped("odd noreplace", p + 1, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	anon = mmap(NULL, NPAGES(4), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)mapped("noreplace on anonymous memory", anon, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	fact("what was there is there", p[NPAGES(2)] == 'p' && anon[0] == 0);
	hole = anon + PAGE;
	called("munmap", munmap(hole, PAGE));
	q = mapped("noreplace in a hole", hole, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	fact("the file", q[0]);
	q = mapped("fixed over two files", hole, NPAGES(2), PROT_READ, MAP_SHARED | MAP_FIXED, fd2, 0);
	fact("the other file", q[5] == pattern(5) && q[PAGE] == pattern(PAGE));
	q = mapped("fixed over both", anon, NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	fact("the first", q[NPAGES(3)]);
	q = mapped("anonymous over a part", anon + NPAGES(3), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	fact("is zero", q[0]);
	called("munmap", munmap(anon, NPAGES(4)));

	q = mapped("fixed, unaligned", p + 1, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	q = mapped("fixed, refused: descriptor", p, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, 77, 0);
	fact("what was there is there", p[0]);
	q = mapped("fixed, beyond all addresses", (void *)(UINTPTR_MAX - PAGE + 1), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED,
		   fd, 0);
#ifdef MAP_32BIT
	q = mapped("MAP_32BIT", NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_32BIT, fd, 0);
	fact("low", (uintptr_t)q < 1ul << 32);
	q[0] = 'q';
	fact("one memory", p[0]);
	called("munmap", munmap(q, NPAGES(2)));
#endif
	called("munmap", munmap(p, NPAGES(8)));
	called("fsync", fsync(fd));
	called("close", close(fd2));
	raw("flags.dat");
	raw("flags2.dat");
}

static void facts(void)
{
	catch_faults();
	fd = make("flags.dat", NPAGES(16));
	flags_that_change_nothing();
	flags_that_are_refused();
	protections();
	places();
	called("fsync", fsync(fd));
	called("close", close(fd));
	raw("flags.dat");
}
