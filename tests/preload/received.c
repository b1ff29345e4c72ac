/* SPDX-License-Identifier: MIT */
/* Descriptors that no open of this process made: received, made inside the C library, under numbers that
 * meant something else a moment before. */
#include "fact.h"
#include <dirent.h>
#include <sys/socket.h>

static unsigned char *p;

static void give(int sock, const int *fd, int n)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct iovec iov = {(char[1]){'x'}, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			     .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(c), fd, (size_t)n * sizeof(int));
	if (sendmsg(sock, &msg, 0) != 1)
		die("sendmsg");
}

static void take(int sock, int *fd, int n, int many)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = {0}, c1;
	struct iovec iov = {&c1, 1};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
					.msg_controllen = sizeof(control)}};

	if (many ? recvmmsg(sock, &m, 1, 0, NULL) != 1 : recvmsg(sock, &m.msg_hdr, MSG_CMSG_CLOEXEC) != 1)
		die("recvmsg");
	memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m.msg_hdr)), (size_t)n * sizeof(int));
}

/* fd is of the file that is mapped at p. */
static void same(const char *what, int fd)
{
	static int stamp;
	unsigned char *q, c = 0;
	struct stat st;

	p[5] = (unsigned char)++stamp;
	fact(what, pread(fd, &c, 1, 5) * 256 + (c == stamp));
	if (pwrite(fd, &c, 1, 6) != 1 || p[6] != stamp || fstat(fd, &st) || st.st_size != (off_t)NPAGES(4) + 1)
		printf("%s: not written, or another size\n", what);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (q == MAP_FAILED)
		die("mmap");
	close(fd);
	q[7] = (unsigned char)stamp;
	fact("mapped, closed at once, stored", p[7] == stamp);
	munmap(q, PAGE);
}

/* Numbers that were known to be of something else, and were closed inside the C library. */
static int dir_number(void)
{
	DIR *d = opendir("/");
	int fd = dirfd(d);
	struct stat st;

	fstat(fd, &st);
	(void)lseek(fd, 0, SEEK_CUR);
	closedir(d);
	return fd;
}

static int pipe_number(void)
{
	FILE *f = popen("true", "r");
	int fd = fileno(f);
	char c;

	(void)!read(fd, &c, 1);
	pclose(f);
	return fd;
}

static void facts(void)
{
	int fd = make("received.dat", NPAGES(4) + 1), sv[2], got[4], n, m;
	char name[32];
	pid_t pid;

	p = map(fd, NPAGES(4));
	p[0] = 'r';
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("socketpair");
	give(sv[0], &fd, 1);
	n = dir_number();
	take(sv[1], got, 1, 0);
	fact("a directory's number", got[0] == n);
	same("received", got[0]);
	give(sv[0], (int[]){fd, fd}, 2);
	m = pipe_number();
	take(sv[1], got, 2, 1);
	fact("a pipe's number", got[0] == m || got[1] == m);
	same("received, first of two", got[0]);
	same("received, second", got[1]);

	fflush(stdout);
	pid = fork(); /* from a process that opened it itself */
	if (pid == 0) {
		int own = open("received.dat", O_RDWR);

		give(sv[0], &own, 1);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	n = dir_number();
	take(sv[1], got, 1, 0);
	same("received from a child", got[0]);
	strcpy(name, "made.dat.XXXXXX");
	n = dir_number();
	got[0] = mkstemp(name);
	fact("mkstemp has the number", got[0] == n);
	if (ftruncate(got[0], PAGE))
		die("ftruncate");
	{
		unsigned char *q = map(got[0], PAGE), c;

		q[0] = 'm';
		fact("and is a file like others", pread(got[0], &c, 1, 0) * 256 + c);
		unlink(name);
		munmap(q, PAGE);
		close(got[0]);
	}
	for (int i = 0; i < 300; i++) { /* closed right after mmap, and the number used again at once */
		int f = open("received.dat", O_RDWR), o;
		unsigned char *q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0), c = 'x';

		close(f);
		o = open("/dev/zero", O_RDWR);
		if (o != f || read(o, &c, 1) != 1 || c || write(o, "y", 1) != 1 || lseek(o, 0, SEEK_END) != 0)
			printf("round %d: not the other file\n", i);
		q[8] = (unsigned char)i;
		if (p[8] != (unsigned char)i)
			printf("round %d: not this file\n", i);
		close(o);
		munmap(q, PAGE);
	}
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("received.dat");
}
