/* SPDX-License-Identifier: MIT */
/* Every name that libc has for a call means the same file. */
#include "fact.h"
#include <dlfcn.h>
#include <sys/uio.h>

#define NAME(ret, name, ...) ((ret(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, name))

static unsigned char *p;

static void opened(const char *name, int fd)
{
	unsigned char *q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	q[0]++;
	printf("%s: %d %s\n", name, p[0],
	       q != MAP_FAILED && pwrite(fd, "z", 1, 1) == 1 && p[1] == 'z' ? "shared" : "not");
	p[1] = 0;
	munmap(q, PAGE);
	if (NAME(int, "__close", int)(fd))
		die("close");
}

static void facts(void)
{
	int fd = make("names.dat", PAGE);
	char buf[32];
	struct stat st;
	struct iovec iov = {buf, 8};

	p = map(fd, PAGE);
	p[0] = 0;
	opened("open64", NAME(int, "open64", const char *, int, ...)("names.dat", O_RDWR));
	opened("__open", NAME(int, "__open", const char *, int, ...)("names.dat", O_RDWR));
	opened("__open64", NAME(int, "__open64", const char *, int, ...)("names.dat", O_RDWR));
	opened("__open_2", NAME(int, "__open_2", const char *, int)("names.dat", O_RDWR));
	opened("__open64_2", NAME(int, "__open64_2", const char *, int)("names.dat", O_RDWR));
	opened("openat", openat(AT_FDCWD, "names.dat", O_RDWR));
	opened("openat64", NAME(int, "openat64", int, const char *, int, ...)(AT_FDCWD, "names.dat", O_RDWR));
	opened("__openat_2", NAME(int, "__openat_2", int, const char *, int)(AT_FDCWD, "names.dat", O_RDWR));
	opened("__openat64_2",
	       NAME(int, "__openat64_2", int, const char *, int)(AT_FDCWD, "names.dat", O_RDWR));
	opened("fileno of fopen", dup(fileno(fopen("names.dat", "r+"))));
	opened("fcntl64", NAME(int, "fcntl64", int, int, ...)(fd, F_DUPFD, 0));
	opened("__fcntl", NAME(int, "__fcntl", int, int, ...)(fd, F_DUPFD, 0));
	opened("__dup2", NAME(int, "__dup2", int, int)(fd, 60));

	fact("pwrite64", NAME(ssize_t, "pwrite64", int, const void *, size_t, off_t)(fd, "abc", 3, 4) + p[4]);
	fact("__pwrite64",
	     NAME(ssize_t, "__pwrite64", int, const void *, size_t, off_t)(fd, "def", 3, 4) + p[4]);
	fact("pread64", NAME(ssize_t, "pread64", int, void *, size_t, off_t)(fd, buf, 3, 4) + buf[0]);
	fact("__pread64", NAME(ssize_t, "__pread64", int, void *, size_t, off_t)(fd, buf, 3, 4) + buf[1]);
	fact("__pread_chk",
	     NAME(ssize_t, "__pread_chk", int, void *, size_t, off_t, size_t)(fd, buf, 3, 4, 32) + buf[1]);
	fact("__pread64_chk",
	     NAME(ssize_t, "__pread64_chk", int, void *, size_t, off_t, size_t)(fd, buf, 3, 4, 32) + buf[1]);
	fact("lseek64", NAME(off_t, "lseek64", int, off_t, int)(fd, 4, SEEK_SET));
	fact("__read", NAME(ssize_t, "__read", int, void *, size_t)(fd, buf, 3) + buf[2]);
	fact("__read_chk", NAME(ssize_t, "__read_chk", int, void *, size_t, size_t)(fd, buf, 3, 32));
	fact("__write", NAME(ssize_t, "__write", int, const void *, size_t)(fd, "ghi", 3) + p[12]);
	fact("preadv64", NAME(ssize_t, "preadv64", int, const struct iovec *, int, off_t)(fd, &iov, 1, 0));
	fact("pwritev64",
	     NAME(ssize_t, "pwritev64", int, const struct iovec *, int, off_t)(fd, &iov, 1, 40) + p[44]);
	fact("ftruncate64", NAME(int, "ftruncate64", int, off_t)(fd, 2 * PAGE));
	fact("stat64", NAME(int, "stat64", const char *, struct stat *)("names.dat", &st) + st.st_size);
	fact("truncate64", NAME(int, "truncate64", const char *, off_t)("names.dat", 3 * PAGE));
	fact("fstat64", NAME(int, "fstat64", int, struct stat *)(fd, &st) + st.st_size);
	fact("fallocate64", NAME(int, "fallocate64", int, int, off_t, off_t)(fd, 0, 0, 4 * PAGE));
	fact("lstat64", NAME(int, "lstat64", const char *, struct stat *)("names.dat", &st) + st.st_size);
	fact("posix_fallocate64", NAME(int, "posix_fallocate64", int, off_t, off_t)(fd, 0, 5 * PAGE));
	fact("fstatat64",
	     NAME(int, "fstatat64", int, const char *, struct stat *, int)(AT_FDCWD, "names.dat", &st, 0) +
		     st.st_size);
#ifdef __x86_64__
	fact("__fxstat", NAME(int, "__fxstat", int, int, struct stat *)(1, fd, &st) + st.st_size);
	fact("__xstat64",
	     NAME(int, "__xstat64", int, const char *, struct stat *)(1, "names.dat", &st) + st.st_size);
#endif
	p = NAME(void *, "mmap64", void *, size_t, int, int, int, off_t)(NULL, PAGE, PROT_READ, MAP_SHARED,
									 fd, PAGE);
	fact("mmap64", p != MAP_FAILED && p[0] == 0);
	called("creat64", NAME(int, "creat64", const char *, mode_t)("names.dat", 0600) < 0);
	fact("size", lseek(fd, 0, SEEK_END));
	called("fsync", fsync(fd));
	raw("names.dat");
}
