/* SPDX-License-Identifier: MIT */
/* fcntl locks on a mapped file: any close of the file by the process would drop them, so nobody but the
 * program may close one. Also on a descriptor that appends, which mappings do not care about. */
#include "fact.h"
#include <sys/file.h>

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

/* The calls themselves, on a file that is mapped and has uncommitted stores. */
static void each_call(void)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open("calls.dat", O_RDWR | O_CREAT, 0600);
	char *p;

	called("size", ftruncate(fd, NPAGES(1)));
	p = mmap(NULL, NPAGES(1), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p[0] = 'a';
	called("lockf", lockf(fd, F_LOCK, 10));
	called("lockf, tried", lockf(fd, F_TLOCK, 10));
	fact("free", is_free("calls.dat"));
	called("lockf, test", lockf(fd, F_TEST, 10));
	called("lockf, unlock", lockf(fd, F_ULOCK, 10));
	fact("free", is_free("calls.dat"));
	called("lockf, nonsense", lockf(fd, 77, 10));
	called("lockf, of nothing", lockf(-1, F_LOCK, 10));
	called("flock", flock(fd, LOCK_EX | LOCK_NB));
	called("flock, shared", flock(fd, LOCK_SH));
	called("flock, unlock", flock(fd, LOCK_UN));
	called("flock, nonsense", flock(fd, 77));
	called("flock, of nothing", flock(-1, LOCK_UN));
	called("OFD", fcntl(fd, F_OFD_SETLK, &fl));
	fl.l_pid = 1;
	called("OFD with a pid", fcntl(fd, F_OFD_SETLK, &fl));
	fl.l_type = 99;
	called("a lock of no type", fcntl(fd, F_SETLK, &fl));
	called("a lock in nothing", fcntl(fd, F_SETLK, (struct flock *)8));
	fl.l_type = F_UNLCK;
	called("unlock", fcntl(fd, F_SETLK, &fl));
	fact("seen", p[0]);
	munmap(p, NPAGES(1));
	close(fd);
}

static void facts(void)
{
	each_call();
	locked_while("plain", 0);
	locked_while("appending", O_APPEND);
}

