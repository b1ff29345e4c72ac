/* SPDX-License-Identifier: MIT */
/* The names that _FORTIFY_SOURCE puts in place of others: as if a distribution had compiled this. */
#include "place.h"
#include <poll.h>
#include <sys/socket.h>

ssize_t __read_chk(int fd, void *buf, size_t len, size_t buflen);
ssize_t __pread64_chk(int fd, void *buf, size_t len, off_t off, size_t buflen);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t buflen, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t buflen, int flags, void *from,
		       socklen_t *fromlen);
ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t buflen);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t len, size_t buflen);
char *__getcwd_chk(char *buf, size_t len, size_t buflen);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *set, size_t size);
size_t __fread_chk(void *buf, size_t buflen, size_t size, size_t n, FILE *f);
int __open64_2(const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

static void in_places(enum place k, int fd)
{
	static const char text[500] = "text";
	char *s, *name;
	struct pollfd *fds;
	int sv[2];
	FILE *f;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		die("socketpair");
	s = place(k, 3000);
	told("read", k, lseek(fd, 0, SEEK_SET) ? -2 : __read_chk(fd, s, 3000, 3000),
	     (unsigned char)s[9] == pattern(9));
	s = place(k, 3000);
	told("pread", k, __pread64_chk(fd, s, 3000, 1, 3000), (unsigned char)s[9] == pattern(10));
	s = place(k, 500);
	told("recv", k, send(sv[0], text, 500, 0) < 0 ? -2 : __recv_chk(sv[1], s, 500, 500, 0),
	     !memcmp(s, text, 500));
	s = place(k, 500);
	told("recvfrom", k,
	     send(sv[0], text, 500, 0) < 0 ? -2 : __recvfrom_chk(sv[1], s, 500, 500, 0, NULL, NULL),
	     !memcmp(s, text, 500));
	name = k < GOOD ? place_string(k, "link") : (char *)"link";
	s = place(k, 100);
	settle(k);
	told("readlink", k, __readlink_chk(name, s, 100, 100), !memcmp(s, "chk.src", 7));
	s = place(k, 100);
	settle(k);
	told("readlinkat", k, __readlinkat_chk(AT_FDCWD, name, s, 100, 100), !memcmp(s, "chk.src", 7));
	s = place(k, 2000);
	told("getcwd", k, __getcwd_chk(s, 2000, 2000) ? 0 : -1, s[0] == '/');
	fds = place(k, sizeof(*fds));
	if (k < GOOD)
		*fds = (struct pollfd){.fd = sv[0], .events = POLLOUT}, settle(k);
	told("poll", k, __poll_chk(fds, 1, 0, sizeof(*fds)), fds->revents == POLLOUT);
	settle(k);
	told("ppoll", k, __ppoll_chk(fds, 1, NULL, NULL, sizeof(*fds)), fds->revents == POLLOUT);
	if (k < GOOD) {
		f = fopen("chk.src", "r");
		s = place(k, 6000);
		told("fread", k, (long)__fread_chk(s, 6000, 1, 6000, f),
		     (unsigned char)s[5000] == pattern(5000));
		fclose(f);
	}
	close(sv[0]), close(sv[1]);
}

static void facts(void)
{
	int src = make("chk.src", NPAGES(4)), fd = make("chk.dat", NPAGES(4)), other;
	unsigned char *p = map(fd, NPAGES(4)), buf[100];

	if (symlink("chk.src", "link"))
		die("symlink");
	places("place.dat");
	for (enum place k = 0; k < NPLACES; k++)
		in_places(k, src);

	/* of a mapped file */
	memset(p, 'a', 200);
	fact("read", __read_chk(fd, buf, 100, 100));
	fact("sees the store", buf[99]);
	fact("pread", __pread64_chk(fd, buf, 100, 150, 100));
	fact("sees the store", buf[49]);
	other = __open64_2("chk.dat", O_RDWR);
	fact("opened", pread(other, buf, 10, 0) == 10 && buf[0] == 'a');
	close(other);
	other = __openat64_2(AT_FDCWD, "chk.dat", O_RDWR | O_TRUNC);
	fact("truncated", lseek(fd, 0, SEEK_END));
	fact("seen by both", pwrite(other, "new", 3, 0) + pread(fd, buf, 10, 0));
	called("fsync", fsync(fd));
	raw("chk.dat");
}
