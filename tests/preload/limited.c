/* SPDX-License-Identifier: MIT */
/* RLIMIT_FSIZE: how far a file may grow, and the signal that goes with it. */
#include "fact.h"
#include <sys/resource.h>
#include <sys/uio.h>

#define LIMIT ((off_t)1 << 22)

static volatile int nsignals;
static int fd;

static void on_xfsz(int signo)
{
	(void)signo;
	nsignals++;
}

static void result(const char *what, off_t n)
{
	int err = errno;
	struct stat st;

	fstat(fd, &st);
	printf("%s: %lld %s, %d signals, size %lld, position %lld\n", what, (long long)n, n < 0 ? strerrorname_np(err) : "",
	       nsignals, (long long)st.st_size, (long long)lseek(fd, 0, SEEK_CUR));
	fflush(stdout);
	nsignals = 0;
	ftruncate(fd, (off_t)NPAGES(4));
	lseek(fd, 0, SEEK_SET);
}

static void dies(const char *what, int how)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		signal(SIGXFSZ, how ? SIG_IGN : SIG_DFL);
		_exit(pwrite(fd, "x", 1, LIMIT) == -1 && errno == EFBIG ? 1 : 2);
	}
	ended(what, pid);
}

static void facts(void)
{
	struct rlimit rl = {LIMIT, LIMIT};
	struct iovec iov[3];
	unsigned char *p;
	char buf[64];
	int ap;

	memset(buf, 'b', sizeof(buf));
	iov[0] = (struct iovec){buf, 10};
	iov[1] = (struct iovec){buf, 10};
	iov[2] = (struct iovec){buf, 10};
	fd = make("limited.dat", NPAGES(4));
	p = map(fd, NPAGES(4));
	p[0] = 'l';
	signal(SIGXFSZ, on_xfsz);
	if (setrlimit(RLIMIT_FSIZE, &rl))
		die("setrlimit");
	result("ftruncate to the limit", ftruncate(fd, LIMIT));
	result("ftruncate beyond", ftruncate(fd, LIMIT + 1));
	result("truncate beyond", truncate("limited.dat", LIMIT + 1));
	result("pwrite up to it", pwrite(fd, buf, 64, LIMIT - 64));
	result("pwrite over it", pwrite(fd, buf, 64, LIMIT - 20));
	result("pwrite at it", pwrite(fd, buf, 64, LIMIT));
	result("pwrite of nothing at it", pwrite(fd, buf, 0, LIMIT));
	result("pwrite far beyond", pwrite(fd, buf, 1, LIMIT * 100));
	result("pwritev over it", pwritev(fd, iov, 3, LIMIT - 15));
	result("pwritev over it, between", pwritev(fd, iov, 3, LIMIT - 20));
	lseek(fd, LIMIT - 5, SEEK_SET);
	result("write over it", write(fd, buf, 64));
	lseek(fd, LIMIT - 5, SEEK_SET);
	result("writev over it", writev(fd, iov, 3));
	ftruncate(fd, LIMIT - 3);
	ap = open("limited.dat", O_WRONLY | O_APPEND);
	result("append over it", write(ap, buf, 64));
	ftruncate(fd, LIMIT);
	result("append at it", write(ap, buf, 64));
	result("fallocate beyond", fallocate(fd, 0, LIMIT, 1));
	result("fallocate beyond, keep size", fallocate(fd, FALLOC_FL_KEEP_SIZE, LIMIT, 1));
	result("posix_fallocate beyond", posix_fallocate(fd, LIMIT, 1));
	result("fallocate up to it", fallocate(fd, 0, 0, LIMIT));
	dies("by default", 0);
	dies("ignored", 1);
	p[1] = 'm';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("limited.dat");
}
