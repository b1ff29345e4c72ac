/* SPDX-License-Identifier: MIT */
/* Success never touches errno. */
#include "fact.h"

static int changed;

static void check(const char *what, int ok)
{
	if (!ok || errno != 4711) {
		printf("%s: %s, errno %d\n", what, ok ? "ok" : "failed", errno);
		changed++;
	}
	errno = 4711;
}

static void facts(void)
{
	int fd = make("errno.dat", NPAGES(4)), fd2;
	unsigned char *p, buf[64];
	struct sigaction sa;
	sigset_t set;
	struct stat st;

	errno = 4711;
	fd2 = open("errno.dat", O_RDWR);
	check("open", fd2 >= 0);
	p = mmap(NULL, NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check("mmap", p != MAP_FAILED);
	p[0] = 'a';
	check("store", 1);
	(void)*(volatile unsigned char *)(p + NPAGES(2));
	check("load", 1);
	check("msync", msync(p, NPAGES(4), MS_SYNC) == 0);
	check("pwrite", pwrite(fd, "x", 1, 0) == 1);
	check("pread", pread(fd, buf, 64, 0) == 64);
	check("read into the mapping", pread(fd2, p + PAGE, 64, 0) == 64);
	check("write", write(fd, "y", 1) == 1);
	check("read", read(fd, buf, 64) == 64);
	check("lseek", lseek(fd, 0, SEEK_SET) == 0);
	check("fstat", fstat(fd, &st) == 0);
	check("stat", stat("errno.dat", &st) == 0);
	check("ftruncate", ftruncate(fd, NPAGES(3)) == 0);
	check("truncate", truncate("errno.dat", NPAGES(4)) == 0);
	check("fsync", fsync(fd) == 0);
	check("fdatasync", fdatasync(fd) == 0);
	check("mprotect", mprotect(p, PAGE, PROT_READ) == 0);
	check("mprotect back", mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0);
	check("madvise", madvise(p, PAGE, MADV_WILLNEED) == 0);
	check("dup2", dup2(fd, 50) == 50);
	check("fcntl", fcntl(fd, F_GETFL) >= 0);
	check("close", close(50) == 0);
	check("close", close(fd2) == 0);
	check("sigaction", sigaction(SIGSEGV, NULL, &sa) == 0);
	check("sigprocmask", sigprocmask(SIG_SETMASK, NULL, &set) == 0);
	fd2 = open("errno.dat", O_RDWR | O_TRUNC);
	check("open with O_TRUNC", fd2 >= 0);
	check("munmap", munmap(p, NPAGES(4)) == 0);
	check("close", close(fd2) == 0);
	check("close", close(fd) == 0);
	fact("changed errno", changed);
}
