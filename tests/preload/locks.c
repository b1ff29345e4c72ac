/* SPDX-License-Identifier: MIT */
/* fcntl locks on a mapped file: any close of the file by the process would drop them, so nobody but the program may close
 * one. Also on a descriptor that appends, which mappings do not care about. */
#include "fact.h"

/* Can somebody else lock the file now? */
static int is_free(const char *name)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int status, fd;
	pid_t pid = fork();

	if (pid == 0) {
		fd = open(name, O_RDWR);
		_exit(fcntl(fd, F_SETLK, &fl) == 0);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void locked_while(const char *what, int flags)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open("locks.dat", O_RDWR | O_CREAT | flags, 0600);
	char *p, *q;

	printf("%s\n", what);
	called("size", ftruncate(fd, NPAGES(4)));
	called("lock", fcntl(fd, F_SETLK, &fl));
	p = mmap(NULL, NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("free after mmap", is_free("locks.dat"));
	p[NPAGES(1)] = 'a';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	fact("free after msync", is_free("locks.dat"));
	q = mmap(NULL, NPAGES(1), PROT_READ, MAP_SHARED, fd, NPAGES(1));
	fact("seen", q[0]);
	munmap(q, NPAGES(1));
	munmap(p, NPAGES(4));
	fact("free after munmap", is_free("locks.dat"));
	called("fsync", fsync(fd));
	raw("locks.dat");
	close(fd);
	fact("free after close", is_free("locks.dat"));
}

static void facts(void)
{
	locked_while("plain", 0);
	locked_while("appending", O_APPEND);
}

