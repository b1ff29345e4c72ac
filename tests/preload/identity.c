/* SPDX-License-Identifier: MIT */
/* A file is what its inode is, whatever way leads to it. */
#include "fact.h"
#include <sched.h>
#include <sys/mount.h>

static unsigned char *p;
static int stamp;

/* fd is another way to the file that is mapped at p. */
static void way(const char *what, int fd)
{
	unsigned char *q, c = 0;

	if (fd < 0) {
		printf("%s: no descriptor, %s\n", what, strerrorname_np(errno));
		return;
	}
	p[10] = (unsigned char)++stamp;
	if (pread(fd, &c, 1, 10) != 1 || c != stamp)
		printf("%s: does not read the store\n", what);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (q == MAP_FAILED) {
		printf("%s: mmap: %s\n", what, strerrorname_np(errno));
		close(fd);
		return;
	}
	q[11] = (unsigned char)++stamp;
	printf("%s: %s\n", what, p[11] == stamp && q[10] == p[10] ? "the same" : "something else");
	fflush(stdout);
	munmap(q, PAGE);
	close(fd);
}

/* By path, with every call that takes one. */
static void path(const char *what, const char *name)
{
	struct stat st = {0};
	int fd;

	way(what, open(name, O_RDWR));
	if (stat(name, &st) || (size_t)st.st_size != NPAGES(4))
		printf("%s: stat says %ld\n", what, (long)st.st_size);
	fd = open(name, O_RDONLY | O_TRUNC); /* by an alias, too, it is the handle that is emptied */
	if (fd < 0 || fstat(fd, &st) || st.st_size)
		printf("%s: O_TRUNC: %s, size %ld\n", what, strerrorname_np(errno), (long)st.st_size);
	close(fd);
	if (truncate(name, (off_t)NPAGES(4)) || p[11])
		printf("%s: truncate: %s, byte %d\n", what, strerrorname_np(errno), p[11]);
}

static void reopened(int fd)
{
	char name[64];
	int opath = open("real/a.dat", O_PATH), n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", opath);
	path("O_PATH by /proc", name);
	snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	path("/dev/fd", name);
	snprintf(name, sizeof(name), "/proc/%d/fd/%d", getpid(), fd);
	path("/proc/PID/fd", name);
	n = openat(opath, "", O_RDWR);
	printf("openat O_PATH, empty: %s\n", n < 0 ? strerrorname_np(errno) : "ok");
	close(opath);
	way("dup", dup(fd));
	way("F_DUPFD", fcntl(fd, F_DUPFD, 100));
	opath = open("real", O_PATH | O_DIRECTORY);
	way("openat of an O_PATH directory", openat(opath, "a.dat", O_RDWR));
	way("and up and down", openat(opath, "../real/../real/a.dat", O_RDWR));
	close(opath);
}

/* In a mount name space of its own: root only; for others the same refusal. */
static void bound(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mkdir("bound", 0700) || mount("real", "bound", NULL, MS_BIND, NULL)) {
			printf("bind mount: %s\n", strerrorname_np(errno));
		} else {
			path("bind mount", "bound/a.dat");
			umount("bound");
		}
		rmdir("bound");
		exit(0);
	}
	ended("name space", pid);
}

static void rooted(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (chroot("."))
			printf("chroot: %s\n", strerrorname_np(errno));
		else
			path("chroot", "/real/a.dat");
		exit(0);
	}
	ended("chroot", pid);
}

static void facts(void)
{
	int fd;

	mkdir("real", 0700);
	fd = make("real/a.dat", NPAGES(4));
	p = map(fd, NPAGES(4));
	if (symlink("real/a.dat", "file.dat") || symlink("real", "directory") || symlink("directory/../file.dat", "chain") ||
	    link("real/a.dat", "hard.dat"))
		die("link");
	path("itself", "real/a.dat");
	path("symbolic link", "file.dat");
	path("directory that is one", "directory/a.dat");
	path("chain of links", "chain");
	path("hard link", "hard.dat");
	path("dots", "real/../././real//../real/a.dat");
	called("O_NOFOLLOW", open("file.dat", O_RDWR | O_NOFOLLOW));
	called("O_NOFOLLOW with O_TRUNC", open("file.dat", O_RDWR | O_TRUNC | O_NOFOLLOW));
	fact("nothing happened to it", p[1] == 0 && lseek(fd, 0, SEEK_END) == (off_t)NPAGES(4));
	reopened(fd);
	bound();
	rooted();
	p[10] = 'x';
	fact("children stored", p[11]);
	called("msync", msync(p, PAGE, MS_SYNC));
	raw("real/a.dat");
	raw("hard.dat");
	called("unlink of one name", unlink("real/a.dat"));
	path("by the other name", "hard.dat");
	p[12] = 'y';
	called("msync", msync(p, PAGE, MS_SYNC));
	raw("hard.dat");
}
