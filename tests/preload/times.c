/* SPDX-License-Identifier: MIT */
/* The program sets the times of a file that it has mapped, in every way there is: they are what it set, and
 * its syncs go on, since that is no change by somebody else. */
#include "fact.h"

#include <sys/time.h>
#include <utime.h>

#define FILE_NAME "times.dat"
#define ROUNDS	  100 /* of a sync each, so that it is looked for changes in between */

static int by_utime(int fd UNUSED, const char *path)
{
	const struct utimbuf t = {.actime = 1000, .modtime = 1000000000};

	return utime(path, &t);
}

static const struct timeval usec[2] = {{1000, 0}, {1000000000, 0}};
static const struct timespec nsec[2] = {{1000, 0}, {1000000000, 0}};

static int by_utimes(int fd UNUSED, const char *path)
{
	return utimes(path, usec);
}

static int by_lutimes(int fd UNUSED, const char *path)
{
	return lutimes(path, usec);
}

static int by_futimes(int fd, const char *path UNUSED)
{
	return futimes(fd, usec);
}

static int by_futimesat(int fd UNUSED, const char *path)
{
	return futimesat(AT_FDCWD, path, usec);
}

static int by_futimens(int fd, const char *path UNUSED)
{
	return futimens(fd, nsec);
}

static int by_utimensat(int fd UNUSED, const char *path)
{
	return utimensat(AT_FDCWD, path, nsec, AT_SYMLINK_NOFOLLOW);
}

static int by_empty_path(int fd, const char *path)
{
	return utimensat(fd, (uintptr_t)path > PAGE ? "" : path, nsec, AT_EMPTY_PATH);
}

static int now(int fd UNUSED, const char *path)
{
	return utime(path, NULL);
}

static void times(const char *what, int (*set)(int fd, const char *path))
{
	int fd = make(FILE_NAME, NPAGES(4)), wrong = 0, failed = 0;
	unsigned char *p = map(fd, NPAGES(4));
	struct stat st;

	printf("%s\n", what);
	for (int i = 0; i < ROUNDS; i++) {
		p[NPAGES(i % 4)] = (unsigned char)i;
		failed += msync(p, NPAGES(4), MS_SYNC) != 0;
		failed += set(fd, FILE_NAME) != 0;
		wrong += fstat(fd, &st) != 0 || (set != now && st.st_mtime != 1000000000);
	}
	fact("failed", failed);
	fact("wrong times", wrong);
	raw(FILE_NAME);
	called("a descriptor and a name of nothing", set(-1, "nothing.dat"));
	called("a name nowhere", set(-1, (const char *)16));
	munmap(p, NPAGES(4));
	close(fd);
}

static void facts(void)
{
	times("utime", by_utime);
	times("utimes", by_utimes);
	times("lutimes", by_lutimes);
	times("futimes", by_futimes);
	times("futimesat", by_futimesat);
	times("futimens", by_futimens);
	times("utimensat", by_utimensat);
	times("utimensat with an empty path", by_empty_path);
	times("to now", now);
}
