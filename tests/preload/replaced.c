/* SPDX-License-Identifier: MIT */
/* A name gets another file while the one it had is mapped: who has the old one keeps it, who opens gets the
 * new. */
#include "fact.h"

static void fill(int fd, char c, size_t len)
{
	char buf[PAGE];

	memset(buf, c, sizeof(buf));
	for (size_t done = 0; done < len; done += PAGE)
		if (pwrite(fd, buf, PAGE, (off_t)done) != (ssize_t)PAGE)
			die("fill");
}

/* A file of c's, mapped; the descriptor stays open when ret_fd is not NULL. */
static unsigned char *made(const char *name, char c, size_t npages, int *ret_fd)
{
	int fd = make(name, 0);
	unsigned char *p;

	fill(fd, c, NPAGES(npages));
	p = map(fd, NPAGES(npages));
	if (ret_fd)
		*ret_fd = fd;
	else
		close(fd);
	return p;
}

static unsigned char *opened(const char *what, const char *name, size_t npages)
{
	int fd = open(name, O_RDWR);
	unsigned char *p;

	if (fd < 0)
		die(name);
	p = mmap(NULL, NPAGES(npages), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("%s: %s\n", what, p == MAP_FAILED ? strerrorname_np(errno) : "mapped");
	fflush(stdout);
	close(fd);
	if (p == MAP_FAILED)
		exit(1);
	return p;
}

static void renamed_over(void)
{
	unsigned char *old = made("a.dat", 'o', 4, NULL), *new;
	int fd = open("a.dat", O_RDWR), tmp = make("tmp.dat", 0);

	old[1] = '1';
	fill(tmp, 'n', NPAGES(4));
	called("rename over a mapped file", rename("tmp.dat", "a.dat"));
	new = opened("the new one", "a.dat", 4);
	fact("the new one's bytes", new[0] * 256 + new[1]);
	fact("the old one's bytes", old[0] * 256 + old[1]);
	old[2] = '2';
	new[2] = '3';
	fact("apart", old[2] * 256 + new[2]);
	fact("by descriptor", pread(fd, old + 3, 1, 2) * 256 + old[3]);
	called("msync of the new one", msync(new, NPAGES(4), MS_SYNC));
	called("msync of the old one", msync(old, NPAGES(4), MS_SYNC));
	raw("a.dat");
	new[PAGE] = '4';
	old[PAGE] = '5';
	called("msync of the old one", msync(old, NPAGES(4), MS_SYNC));
	called("msync of the new one", msync(new, NPAGES(4), MS_SYNC));
	raw("a.dat");
	called("close", close(fd) | close(tmp));
	called("munmap of the old one", munmap(old, NPAGES(4)));
	new[PAGE + 1] = '6';
	called("munmap of the new one", munmap(new, NPAGES(4)));
	raw("a.dat");
}

/* As a program saves: a temporary file, mapped, filled, and renamed onto the name of one that is mapped. */
static void both_mapped(void)
{
	unsigned char *old = made("b.dat", 'o', 4, NULL), *new;

	for (int i = 0; i < 5; i++) {
		new = made("b.tmp.dat", (char)('a' + i), 4, NULL);
		new[1] = (unsigned char)i;
		old[1] = (unsigned char)i;
		if (i % 2)
			called("msync before", msync(new, NPAGES(4), MS_SYNC));
		called("rename", rename("b.tmp.dat", "b.dat"));
		called("msync", msync(new, NPAGES(4), MS_SYNC));
		raw("b.dat");
		new[PAGE] = 'x';
		old[PAGE] = 'y';
		called("msync of the old one", msync(old, NPAGES(4), MS_SYNC));
		called("msync of the new one", msync(new, NPAGES(4), MS_SYNC));
		raw("b.dat");
		munmap(old, NPAGES(4));
		old = new;
	}
	old[2] = 'z';
	munmap(old, NPAGES(4));
	raw("b.dat");
}

static void unlinked_and_made_again(void)
{
	unsigned char *p[4];
	struct stat st;

	for (size_t i = 0; i < 4; i++) {
		int fd;

		p[i] = made("c.dat", (char)('A' + i), 2, &fd);
		p[i][1] = (unsigned char)i;
		if (i % 2)
			called("msync", msync(p[i], PAGE, MS_SYNC));
		fstat(fd, &st);
		fact("links", (long)st.st_nlink);
		close(fd);
	}
	for (size_t i = 0; i < 4; i++) {
		p[i][2] = (unsigned char)('0' + i);
		printf("%zu: %c %d %c\n", i, p[i][0], p[i][1], p[i][2]);
		called("msync", msync(p[i], PAGE, MS_SYNC));
	}
	raw("c.dat");
	for (size_t i = 0; i < 4; i++)
		called("munmap", munmap(p[i], NPAGES(2)));
	raw("c.dat");
}

/* The number of a file that is gone is used again for the next one. */
static void inode_again(void)
{
	for (int i = 0; i < 20; i++) {
		unsigned char *p = made("d.dat", (char)('a' + i), 3, NULL);
		unsigned char c;
		int fd;

		p[PAGE] = '!';
		munmap(p, NPAGES(3));
		fd = open("d.dat", O_RDWR);
		p = map(fd, NPAGES(3));
		if (p[0] != 'a' + i || p[PAGE] != '!' || pread(fd, &c, 1, PAGE) != 1 || c != '!')
			printf("round %d: %c %c\n", i, p[0], p[PAGE]);
		close(fd);
		munmap(p, NPAGES(3));
		if (unlink("d.dat"))
			die("unlink");
	}
	printf("used again\n");
}

/* Same length, same second: only the inode tells them apart. */
static void same_length(void)
{
	unsigned char *p;
	int fd;

	for (int i = 0; i < 20; i++) {
		fd = make("e.tmp.dat", 0);
		fill(fd, (char)('a' + i), NPAGES(2));
		close(fd);
		if (rename("e.tmp.dat", "e.dat"))
			die("rename");
		fd = open("e.dat", O_RDONLY);
		p = mmap(NULL, NPAGES(2), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (p == MAP_FAILED || p[0] != 'a' + i || p[NPAGES(2) - 1] != 'a' + i)
			printf("round %d: stale\n", i);
		if (i % 2 == 0)
			munmap(p, NPAGES(2));
	}
	printf("same length\n");
}

/* Names are exchanged, and moved between directories, while both are mapped. */
static void exchanged(void)
{
	unsigned char *f = made("f.dat", 'f', 2, NULL), *g = made("g.dat", 'g', 2, NULL);

	f[1] = '1';
	g[1] = '2';
	called("exchange", renameat2(AT_FDCWD, "f.dat", AT_FDCWD, "g.dat", RENAME_EXCHANGE));
	called("msync", msync(f, PAGE, MS_SYNC) | msync(g, PAGE, MS_SYNC));
	raw("f.dat");
	raw("g.dat");
	called("no replace", renameat2(AT_FDCWD, "f.dat", AT_FDCWD, "g.dat", RENAME_NOREPLACE));
	mkdir("sub", 0700);
	called("into a directory", rename("f.dat", "sub/f.dat"));
	called("its directory", rename("sub", "dir"));
	g[2] = '3';
	f[2] = '4';
	called("msync", msync(f, PAGE, MS_SYNC) | msync(g, PAGE, MS_SYNC));
	raw("dir/f.dat");
	called("over itself", rename("dir/f.dat", "dir/f.dat"));
	called("another name", link("dir/f.dat", "f.hard.dat"));
	called("exchange of two names of one file", renameat2(AT_FDCWD, "dir/f.dat", AT_FDCWD, "f.hard.dat", RENAME_EXCHANGE));
	called("one over the other", rename("dir/f.dat", "f.hard.dat"));
	f[4] = '6';
	called("unlinkat", unlinkat(AT_FDCWD, "f.hard.dat", 0));
	called("msync", msync(f, PAGE, MS_SYNC));
	called("unlink of nothing", unlink("f.hard.dat"));
	called("unlink of a directory", unlink("dir"));
	called("remove of a directory with something in it", remove("dir"));
	called("of nothing", rename("none.dat", "g.dat"));
	called("onto a directory", rename("g.dat", "dir"));
	g[3] = '5';
	called("munmap", munmap(g, NPAGES(2)) | munmap(f, NPAGES(2)));
	raw("dir/f.dat");
	raw("g.dat");
	called("remove", remove("g.dat"));
	called("unlink", unlink("dir/f.dat"));
	called("nothing is left", unlinkat(AT_FDCWD, "dir", AT_REMOVEDIR));
}

/* Without a name until it is whole. */
static void nameless(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600), dir = open(".", O_RDONLY | O_DIRECTORY);
	unsigned char *p;
	char name[64];

	if (fd < 0)
		die("O_TMPFILE");
	fill(fd, 't', NPAGES(2));
	p = map(fd, NPAGES(2));
	p[0] = 'T';
	fact("read", pread(fd, p + 1, 1, 0) * 256 + p[1]);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	called("a name", linkat(AT_FDCWD, name, dir, "t.dat", AT_SYMLINK_FOLLOW));
	munmap(p, NPAGES(2));
	p = map(fd, NPAGES(2));
	p[2] = 'U';
	fact("by descriptor", pread(fd, p + 3, 1, 2) * 256 + p[3]);
	munmap(p, NPAGES(2));
	p = opened("by name", "t.dat", 2);
	fact("all there", p[0] * 65536 + p[1] * 256 + p[2]);
	p[4] = 'V';
	called("msync", msync(p, PAGE, MS_SYNC));
	raw("t.dat");
	called("a directory is no temporary file", openat(dir, ".", O_RDONLY | O_DIRECTORY));
	called("which needs to be written", open(".", O_TMPFILE | O_RDONLY, 0600));
}

static void facts(void)
{
	renamed_over();
	both_mapped();
	unlinked_and_made_again();
	inode_again();
	same_length();
	exchanged();
	nameless();
}
