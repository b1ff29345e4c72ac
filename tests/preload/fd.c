/* SPDX-License-Identifier: MIT */
/* Descriptors of a mapped file: closed, reused, copied, overwritten; and no other descriptors are seen. */
#include "fact.h"
#include <dirent.h>
#include <sys/socket.h>

/* Descriptors that this process has, as the program can tell: all that are not EBADF. */
static void open_fds(const char *what)
{
	int fd;

	printf("%s: open:", what);
	for (fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf(" %d", fd);
	printf("\n");
	fflush(stdout);
}

static int passed(int fd)
{
	struct iovec iov = {(char[1]){'x'}, 1};
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int sv[2];

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) || sendmsg(sv[0], &msg, 0) != 1 || close(fd) ||
	    recvmsg(sv[1], &msg, 0) != 1)
		die("pass");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	close(sv[0]);
	close(sv[1]);
	return fd;
}

static void facts(void)
{
	int fd, fd2, other, n, i;
	unsigned char *p, *q, buf[8];
	char name[64];
	pid_t pid;

	for (i = 3; i < 1024; i++) /* what our caller left open */
		close(i);
	fd = make("fd.dat", NPAGES(4));
	fact("lowest descriptor", fd);
	p = map(fd, NPAGES(4));
	fd2 = open("/dev/null", O_RDWR);
	fact("next lowest", fd2);
	open_fds("two");
	called("close file", close(fd));
	p[0] = 'a';
	other = open("/dev/zero", O_RDWR);
	fact("number used again", other);
	fact("and is the other file", read(other, buf, 8) * 256 + buf[0]);
	called("msync without a descriptor", msync(p, PAGE, MS_SYNC));
	raw("fd.dat");

	fd = open("fd.dat", O_RDWR);
	n = dup(fd);
	fact("dup", n);
	called("close original", close(fd));
	fact("dup writes", pwrite(n, "b", 1, 1));
	fact("seen", p[1]);
	fact("dup2 over /dev/zero", dup2(n, other));
	fact("reads the file", pread(other, buf, 2, 0) * 256 + buf[1]);
	fact("dup2 of a bad one", dup2(1000, other));
	fact("still the file", pread(other, buf, 2, 0) * 256 + buf[1]);
	fact("dup2 onto itself", dup2(n, n));
	fact("dup3", dup3(n, 20, O_CLOEXEC));
	called("dup3 onto itself", dup3(n, n, 0));
	fact("F_DUPFD", fcntl(n, F_DUPFD, 30));
	fact("F_DUPFD_CLOEXEC", fcntl(n, F_DUPFD_CLOEXEC, 30));
	fact("written through one, read by another", pwrite(31, "c", 1, 2) * 256 + p[2]);
	lseek(20, 3, SEEK_SET);
	fact("positions are shared", lseek(30, 0, SEEK_CUR));
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 31, 0);
	q[3] = 'd';
	fact("mapped through a duplicate", p[3]);
	open_fds("many");
	called("close_range", close_range(20, ~0u, 0));
	open_fds("range closed");
	called("close twice", close(30));
	called("close never opened", close(4000));
	called("close negative", close(-1));
	called("bad range", close_range(9, 3, 0));

	snprintf(name, sizeof(name), "/proc/self/fd/%d", n);
	fd = open(name, O_RDWR);
	fact("opened through /proc", pwrite(fd, "e", 1, 4) * 256 + p[4]);
	fd = passed(fd);
	fact("received over a socket", pwrite(fd, "f", 1, 5) * 256 + p[5]);
	munmap(q, PAGE);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	q[6] = 'g';
	fact("and mapped", p[6]);

	fflush(stdout);
	pid = fork();
	if (pid == 0) { /* what an exec'd child inherits */
		execlp("sh", "sh", "-c", "echo inherited: $(ls /proc/self/fd | wc -w)", NULL);
		_exit(98);
	}
	ended("child", pid);

	for (i = 3; i < 1024; i++)
		close(i);
	open_fds("closed all by number");
	p[7] = 'h';
	called("msync after that", msync(p, PAGE, MS_SYNC));
	raw("fd.dat");
	fact("lowest again", open("fd.dat", O_RDWR));
	for (i = 4; i < 1024; i++)
		if (dup2(3, i) != i)
			die("dup2 over everything");
	p[8] = 'i';
	called("msync with every number taken", msync(p, PAGE, MS_SYNC));
	raw("fd.dat");
	closefrom(3);
	open_fds("closefrom");
	q[9] = 'j';
	called("msync after closefrom", msync(p, PAGE, MS_SYNC));
	raw("fd.dat");
	called("munmap", munmap(p, NPAGES(4)) | munmap(q, PAGE));
	fd = open("fd.dat", O_RDWR | O_PATH);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	fact("O_PATH", p == MAP_FAILED ? errno : 0);
	called("read O_PATH", (int)read(fd, buf, 1));
	close(fd);
	{
		FILE *f = fopen("fd.dat", "r+");

		p = map(fileno(f), PAGE);
		p[10] = 'k';
		called("fclose", fclose(f));
		fact("number free again", open("/dev/null", O_RDONLY));
		called("munmap", munmap(p, PAGE));
		raw("fd.dat");
	}
}
