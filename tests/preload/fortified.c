/* SPDX-License-Identifier: MIT */
/* Compiled with the fortified forms of the calls, as distributions compile: open without a mode is __open_2,
 * read into a buffer of known size __read_chk, and so on. */
#undef _FORTIFY_SOURCE
#ifdef __OPTIMIZE__
#define _FORTIFY_SOURCE 2
#endif
#include "fact.h"
#include <poll.h>
#include <sys/socket.h>

static volatile int rdwr = O_RDWR, cwd = AT_FDCWD;
static volatile size_t some = 16;

/* All ways to open, by flags that the compiler does not know. */
static void opens(unsigned char *p)
{
	int fd[6];

	fd[0] = open("fortified.dat", rdwr);
	fd[1] = open64("fortified.dat", rdwr);
	fd[2] = openat(cwd, "fortified.dat", rdwr);
	fd[3] = openat64(cwd, "fortified.dat", rdwr);
	fd[4] = open("fortified.dat", rdwr | O_TRUNC);
	fact("emptied", lseek(fd[4], 0, SEEK_END));
	if (ftruncate(fd[4], (off_t)NPAGES(4)))
		die("ftruncate");
	fd[5] = openat(cwd, "fortified.dat", rdwr | O_TRUNC);
	fact("emptied", lseek(fd[5], 0, SEEK_END));
	if (ftruncate(fd[5], (off_t)NPAGES(4)))
		die("ftruncate");
	for (int i = 0; i < 6; i++) {
		p[i] = (unsigned char)('a' + i);
		if (pwrite(fd[i], "w", 1, 100 + i) != 1 || p[100 + i] != 'w')
			printf("open %d: not the file that is mapped\n", i);
		close(fd[i]);
	}
}

static void facts(void)
{
	char buf[64], small[8], *p;
	int fd = make("fortified.dat", NPAGES(4)), sv[2];
	struct pollfd pf[2] = {{0}};
	struct stat st;
	FILE *f;

	p = (char *)map(fd, NPAGES(4));
	opens((unsigned char *)p);
	memcpy(p + PAGE, "known to the mapping", some);
	fact("pread", pread(fd, buf, some, PAGE) * 256 + buf[0]);
	fact("pread64", pread64(fd, buf, some, PAGE + 1) * 256 + buf[0]);
	lseek(fd, PAGE + 2, SEEK_SET);
	fact("read", read(fd, buf, some) * 256 + buf[0]);
	fact("position", lseek(fd, 0, SEEK_CUR));
	f = fopen("fortified.dat", "r+");
	fseek(f, PAGE, SEEK_SET);
	fact("fread", (long)fread(buf, 1, some, f) * 256 + buf[0]);
	fseek(f, PAGE, SEEK_SET);
	fact("fgets", fgets(small, (int)some / 2, f) ? small[0] + (long)strlen(small) * 256 : -1);
	fact("fread_unlocked", (long)fread_unlocked(buf, 1, some, f));
	fseek(f, 0, SEEK_SET);
	fprintf(f, "%d-%s", (int)some, "printed");
	fflush(f);
	fact("fprintf", p[3]);
	fclose(f);
	fact("symlink", symlink("fortified.dat", "link.dat"));
	fact("readlink", readlink("link.dat", buf, some) * 256 + buf[0]);
	fact("readlink into the mapping", readlink("link.dat", p + PAGE, some) * 256 + p[PAGE]);
	fact("readlinkat", readlinkat(cwd, "link.dat", buf, some) * 256 + buf[0]);
	fact("realpath into the mapping", realpath("/dev/null", p + NPAGES(3)) ? p[NPAGES(3) + 1] : -1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("socketpair");
	pf[0].fd = sv[0];
	pf[0].events = POLLIN;
	fact("poll", poll(pf, (nfds_t)some / 16, 0));
	fact("send from the mapping", send(sv[1], p + PAGE, 5, 0));
	fact("ppoll", ppoll(pf, (nfds_t)some / 16, NULL, NULL) * 256 + pf[0].revents);
	fact("recv", recv(sv[0], buf, some, 0) * 256 + buf[0]);
	fact("send", send(sv[1], "12345", 5, 0));
	fact("recvfrom", recvfrom(sv[0], buf, some, 0, NULL, NULL) * 256 + buf[4]);
	fact("snprintf into the mapping", snprintf(p, some, "%s", "text") * 256 + p[0]);
	memset(p + 8, 'm', some);
	memmove(p + 9, p + 8, some);
	fact("strcpy from the mapping", (long)strlen(strcpy(buf, p)));
	fact("fstat", fstat(fd, &st) * 256 + st.st_size);
	fact("msync", msync(p, NPAGES(4), MS_SYNC));
	called("fsync", fsync(fd));
	raw("fortified.dat");
}
