/* SPDX-License-Identifier: MIT */
/* A file and its mapping grow and shrink, and who else has them: other mappings, processes, pointers. */
#include "fact.h"

static int fd;

/* ---- as CPython's mmap.resize does it ---- */

static unsigned char *resize(unsigned char *m, size_t was, size_t len, off_t off)
{
	unsigned char *q;

	if (called("ftruncate", ftruncate(fd, off + (off_t)len)) < 0)
		return m;
	q = mremap(m, was, len, MREMAP_MAYMOVE);
	called("mremap", q == MAP_FAILED ? -1 : 0);
	return q == MAP_FAILED ? m : q;
}

static void size(const char *what)
{
	struct stat st;

	if (fstat(fd, &st))
		die("fstat");
	fact(what, (long)st.st_size);
}

static void resize_at_an_offset(void)
{
	unsigned char *m;

	fd = make("offset.dat", NPAGES(17));
	m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)NPAGES(16));
	if (m == MAP_FAILED)
		die("mmap");
	m[1] = 'o';
	m = resize(m, PAGE, NPAGES(2), (off_t)NPAGES(16));
	size("size");
	m[PAGE] = 'n';
	fact("kept", m[1] == 'o' && m[2] == pattern(NPAGES(16) + 2));
	m = resize(m, NPAGES(2), 100, (off_t)NPAGES(16));
	size("size");
	fact("behind the end", m[100]);
	m = resize(m, 100, 5000, (off_t)NPAGES(16));
	fact("what was cut off", m[PAGE]);
	called("mremap to nothing", mremap(m, 5000, 0, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
	called("mremap beyond all", mremap(m, 5000, (size_t)1 << 47, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
	called("mremap to a negative length",
	       mremap(m, 5000, (size_t)-5, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
	fact("still there", m[1]);
	called("ftruncate to a negative length", ftruncate(fd, -1));
	called("munmap", munmap(m, 5000));
	called("close", close(fd));
	raw("offset.dat");
}

static void resize_what_is_read_only_or_private(void)
{
	unsigned char *m, *q;

	close(make("ro.dat", NPAGES(4)));
	fd = open("ro.dat", O_RDONLY);
	m = mmap(NULL, NPAGES(2), PROT_READ, MAP_SHARED, fd, 0);
	called("ftruncate of a read-only descriptor", ftruncate(fd, 1));
	q = mremap(m, NPAGES(2), NPAGES(4), MREMAP_MAYMOVE);
	fact("a read-only mapping grows", q != MAP_FAILED && q[NPAGES(3)] == pattern(NPAGES(3)));
	called("munmap", munmap(q, NPAGES(4)));
	m = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	m[0] = 'p';
	q = mremap(m, NPAGES(2), NPAGES(4), MREMAP_MAYMOVE);
	fact("a private mapping grows", q != MAP_FAILED && q[0] == 'p' && q[NPAGES(3)] == pattern(NPAGES(3)));
	called("munmap", munmap(q, NPAGES(4)));
	called("close", close(fd));
	raw("ro.dat");
}

/* numpy.memmap: made, closed, opened again with more rows. */
static void reopen_longer(void)
{
	unsigned char *m;
	size_t i, n = 0;

	fd = open("rows.dat", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (pwrite(fd, "", 1, (off_t)NPAGES(3) - 1) != 1)
		die("pwrite");
	m = map(fd, NPAGES(3));
	for (i = 0; i < NPAGES(3); i++)
		m[i] = pattern(i);
	munmap(m, NPAGES(3));
	close(fd);
	fd = open("rows.dat", O_RDWR);
	if (lseek(fd, (off_t)NPAGES(9) - 1, SEEK_SET) < 0 || write(fd, "", 1) != 1)
		die("write");
	m = map(fd, NPAGES(9));
	for (i = 0; i < NPAGES(9); i++)
		n += m[i] != (i < NPAGES(3) ? pattern(i) : 0);
	fact("rows that are wrong", (long)n);
	munmap(m, NPAGES(9));
	close(fd);
	raw("rows.dat");
}

/* ---- others who have the file ---- */

static void a_second_mapping_stays(void)
{
	unsigned char *reader, *m;

	fd = make("second.dat", NPAGES(8));
	reader = map(fd, NPAGES(8));
	m = map(fd, NPAGES(8));
	reader[PAGE] = 's';
	m = resize(m, NPAGES(8), NPAGES(32), 0);
	m[NPAGES(31)] = 't';
	fact("the second, untouched", reader[PAGE] == 's' && reader[NPAGES(7)] == pattern(NPAGES(7)));
	m = resize(m, NPAGES(32), NPAGES(2), 0);
	fact("within", reader[PAGE]);
	touch("the second, beyond the end", reader + NPAGES(4), 0);
	m = resize(m, NPAGES(2), NPAGES(8), 0);
	touch("after a growth", reader + NPAGES(4), 0);
	fact("reads as", reader[NPAGES(4)]);
	reader[NPAGES(4)] = 'u';
	fact("one file", m[NPAGES(4)]);
	munmap(reader, NPAGES(8));
	munmap(m, NPAGES(8));
	close(fd);
	raw("second.dat");
}

static void another_process_makes_it_longer(void)
{
	unsigned char *m, *q;
	pid_t pid;

	fd = make("peer.dat", NPAGES(4));
	m = map(fd, NPAGES(64)); /* farther than the file */
	m[0] = 'p';
	touch("beyond the end", m + NPAGES(9), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(ftruncate(fd, (off_t)NPAGES(16)) ? 1 : 0);
	ended("the other", pid);
	size("size");
	fact("the old mapping", m[0]);
	touch("what was beyond the end", m + NPAGES(9), 'q');
	q = mremap(m, NPAGES(64), NPAGES(64), MREMAP_MAYMOVE);
	fact("to the same size, in place", q == m);
	m = resize(m, NPAGES(64), NPAGES(80), 0);
	m[NPAGES(79)] = 'r';
	fact("kept", m[0] == 'p' && m[NPAGES(9)] == 'q');
	munmap(m, NPAGES(80));
	close(fd);
	raw("peer.dat");
}

/* An index was computed, and then somebody shrinks: the store faults, and never reaches what took the place. */
static void a_pointer_into_what_is_cut_off(void)
{
	unsigned char *m, *at, *hole;

	fd = make("index.dat", NPAGES(32));
	m = map(fd, NPAGES(32));
	at = m + 90000;
	*at = 'i';
	m = resize(m, NPAGES(32), 8, 0);
	touch("a store into what is gone", at, 'x');
	hole = mmap((void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (hole == MAP_FAILED)
		die("mmap");
	touch("a store into what took the place", at, 'x');
	fact("it holds", *at);
	munmap(hole, PAGE);
	called("ftruncate to the same size", ftruncate(fd, 8));
	size("size");
	munmap(m, 8);
	close(fd);
	raw("index.dat");
}

/* Not ours: the kernel grows the mapping, and not what is behind it. */
static void shared_memory_without_a_file(void)
{
	unsigned char *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *q;

	m[0] = 'a';
	q = mremap(m, PAGE, NPAGES(2), MREMAP_MAYMOVE);
	fact("grown", q != MAP_FAILED);
	fact("kept", q[0]);
	touch("the new page", q + PAGE, 'b');
	munmap(q, NPAGES(2));
	fd = memfd_create("m", 0);
	if (fd < 0 || ftruncate(fd, PAGE))
		die("memfd");
	m = map(fd, PAGE);
	m[0] = 'c';
	m = resize(m, PAGE, NPAGES(3), 0);
	touch("a memfd's new page", m + NPAGES(2), 'd');
	fact("kept", m[0]);
	munmap(m, NPAGES(3));
	close(fd);
}

static void facts(void)
{
	catch_faults();
	resize_at_an_offset();
	resize_what_is_read_only_or_private();
	reopen_longer();
	a_second_mapping_stays();
	another_process_makes_it_longer();
	a_pointer_into_what_is_cut_off();
	shared_memory_without_a_file();
}
