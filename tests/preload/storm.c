/* SPDX-License-Identifier: MIT */
/* A signal every millisecond, whose handler makes the very call that it interrupted, on the same file: by
 * turns each of the calls there are. Nothing is lost, nothing waits for itself, errno is the interrupted
 * call's. */
#include "fact.h"
#include <sys/time.h>
#include <sys/uio.h>

#define NSIGNALS 200

static unsigned char *p;
static int fd;
static volatile int nhandled, nbad, now;

static void check(int ok, const char *what)
{
	if (!ok) {
		nbad++;
		printf("call %d, %s: %s\n", now, what, strerrorname_np(errno));
	}
}

/* One call of each kind, by number; where: a region of whoever calls. */
static void call(int which, size_t where)
{
	struct iovec iov = {(char[8]){'v'}, 8};
	struct stat st;
	char buf[64] = "w";
	unsigned char *q;
	int f;

	switch (which) {
	case 0:
		check(msync(p, NPAGES(16), MS_SYNC) == 0, "msync");
		break;
	case 1:
		check(pread(fd, buf, 64, (off_t)where) == 64, "pread");
		break;
	case 2:
		check(pwrite(fd, buf, 64, (off_t)where) == 64, "pwrite");
		break;
	case 3:
		q = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(where & ~(size_t)(PAGE - 1)));
		check(q != MAP_FAILED, "mmap");
		q[1] = 'q';
		check(munmap(q, NPAGES(2)) == 0, "munmap");
		break;
	case 4:
		f = open("storm.dat", O_RDWR);
		check(f >= 0 && close(f) == 0, "open and close");
		break;
	case 5:
		f = dup(fd);
		check(f >= 0 && write(f, buf, 1) == 1 && close(f) == 0, "dup and write");
		break;
	case 6:
		check(preadv(fd, &iov, 1, (off_t)where) == 8 && pwritev(fd, &iov, 1, (off_t)where) == 8, "vectors");
		break;
	case 7:
		check(fsync(fd) == 0, "fsync");
		break;
	case 8:
		check(fstat(fd, &st) == 0 && st.st_size >= (off_t)NPAGES(16) && stat("storm.dat", &st) == 0, "stat");
		break;
	case 9:
		check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)where, 100) == 0, "punch");
		break;
	case 10:
		check(mprotect(p + NPAGES(15), PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
		break;
	case 11:
		check(madvise(p, NPAGES(16), MADV_WILLNEED) == 0, "madvise");
		break;
	case 12:
		check(rename("storm.dat", "storm.dat") == 0, "rename");
		break;
	case 13:
		check(ftruncate(fd, (off_t)NPAGES(16)) == 0, "ftruncate");
		break;
	case 14:
		q = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
		q = q == MAP_FAILED ? q : mremap(q, PAGE, NPAGES(2), MREMAP_MAYMOVE);
		check(q != MAP_FAILED && munmap(q, NPAGES(2)) == 0, "mremap");
		break;
	default:
		p[where]++;
		check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
	}
}

static void handler(int signo)
{
	(void)signo;
	errno = 99;
	call(now, NPAGES(8) + (size_t)(nhandled % 1000));
	nhandled++;
}

static void careful(int signo)
{
	int saved = errno;

	handler(signo);
	errno = saved;
}

static void facts(void)
{
	struct sigaction sa = {.sa_handler = careful, .sa_flags = SA_RESTART};
	struct itimerval it = {{0, 1000}, {0, 1000}};

	fd = make("storm.dat", NPAGES(16));
	p = map(fd, NPAGES(16));
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	for (int i = 0; nhandled < NSIGNALS; i++) {
		now = i / 8 % 16;
		errno = 17;
		call(now, (size_t)(i % 4096));
		if (errno != 17) {
			printf("call %d changed errno\n", now);
			nbad++;
		}
	}
	memset(&it, 0, sizeof(it));
	setitimer(ITIMER_REAL, &it, NULL);
	fact("wrong", nbad);
	memset(p, 'z', NPAGES(16));
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("storm.dat");
}
