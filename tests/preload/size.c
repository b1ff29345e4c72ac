/* SPDX-License-Identifier: MIT */
/* The size of a mapped file, by every call that tells or changes it. */
#include "fact.h"

static void sizes(const char *what, int fd)
{
	struct stat st;
	struct statx stx;

	printf("%s:", what);
	fstat(fd, &st);
	printf(" fstat %ld", (long)st.st_size);
	stat("size.dat", &st);
	printf(" stat %ld", (long)st.st_size);
	lstat("size.dat", &st);
	printf(" lstat %ld", (long)st.st_size);
	fstatat(AT_FDCWD, "size.dat", &st, 0);
	printf(" fstatat %ld", (long)st.st_size);
	fstatat(fd, "", &st, AT_EMPTY_PATH);
	printf(" fstatat-fd %ld", (long)st.st_size);
	if (statx(AT_FDCWD, "size.dat", 0, STATX_SIZE, &stx))
		die("statx");
	printf(" statx %ld", (long)stx.stx_size);
	if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &stx))
		die("statx");
	printf(" statx-fd %ld lseek %ld\n", (long)stx.stx_size, (long)lseek(fd, 0, SEEK_END));
	fflush(stdout);
}

static void facts(void)
{
	int fd = make("size.dat", PAGE);
	unsigned char *p = map(fd, NPAGES(64));
	struct stat st;

	symlink("size.dat", "size.link");
	sizes("start", fd);
	called("ftruncate", ftruncate(fd, NPAGES(10) + 1));
	sizes("grown", fd);
	lstat("size.link", &st);
	fact("a link is not its file", S_ISLNK(st.st_mode) && st.st_size == 8);
	stat("size.link", &st);
	fact("through the link", st.st_size);
	fact("write", pwrite(fd, "x", 1, NPAGES(20)));
	sizes("written beyond", fd);
	called("truncate", truncate("size.link", 5000));
	sizes("by path", fd);
	fact("posix_fallocate", posix_fallocate(fd, 0, NPAGES(12)));
	sizes("allocated", fd);
	fact("posix_fallocate within", posix_fallocate(fd, 0, PAGE));
	fact("posix_fallocate bad", posix_fallocate(fd, -1, PAGE));
	fact("posix_fallocate none", posix_fallocate(fd, 0, 0));
	called("fallocate, keep size", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, NPAGES(30)));
	sizes("kept", fd);
	p[NPAGES(3)] = 'a';
	p[NPAGES(4) + 5] = 'b';
	called("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, NPAGES(3), PAGE + 5));
	fact("hole is zero", p[NPAGES(3)] | p[NPAGES(4) + 4]);
	fact("beside it not", p[NPAGES(4) + 5]);
	sizes("punched", fd);
	called("fsync", fsync(fd));
	raw("size.dat");
	called("to nothing", ftruncate(fd, 0));
	sizes("empty", fd);
	called("fsync", fsync(fd));
	raw("size.dat");
	called("and back", ftruncate(fd, NPAGES(2)));
	p[PAGE] = 'c';
	called("msync", msync(p, NPAGES(2), MS_SYNC));
	raw("size.dat");
	called("unlink of the link", unlink("size.link"));
	called("unlink while mapped", unlink("size.dat"));
	p[0] = 'd';
	fact("unlinked but there", pread(fd, &(char){0}, 1, 0));
	called("fsync", fsync(fd));
	fstat(fd, &st);
	fact("links", (long)st.st_nlink);
	called("close", close(fd));
}
