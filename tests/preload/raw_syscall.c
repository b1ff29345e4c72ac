/* SPDX-License-Identifier: MIT */
/* Calls by their number do what calls by their name do. */
#include "place.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static void files(void)
{
	int fd, copy;
	unsigned char *p, buf[PAGE];
	struct iovec iov[2] = {{buf, 100}, {buf + 100, 200}};
	struct stat st;
	struct statx stx;

	close(make("raw.dat", NPAGES(8)));
	fd = (int)syscall(SYS_openat, AT_FDCWD, "raw.dat", O_RDWR, 0);
	p = (void *)syscall(SYS_mmap, NULL, NPAGES(8), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("mmap", p != MAP_FAILED && p[5] == pattern(5));
	memset(p, 'a', 100);
	fact("pread64", syscall(SYS_pread64, fd, buf, 100, 0));
	fact("sees the store", buf[99]);
	fact("pwrite64", syscall(SYS_pwrite64, fd, "bbbb", 4, NPAGES(1)));
	fact("is in the mapping", p[PAGE + 3]);
	fact("lseek", syscall(SYS_lseek, fd, 50, SEEK_SET));
	fact("read", syscall(SYS_read, fd, buf, 10));
	fact("sees it", buf[9]);
	fact("write", syscall(SYS_write, fd, "cc", 2));
	fact("is in the mapping", p[61]);
	fact("preadv", syscall(SYS_preadv, fd, iov, 2, PAGE - 200, 0));
	fact("sees it", buf[203]);
	fact("pwritev2", syscall(SYS_pwritev2, fd, iov, 1, NPAGES(2), 0, 0));
	fact("differs from the mapping", memcmp(p + NPAGES(2), buf, 100));
	called("msync", (int)syscall(SYS_msync, p, NPAGES(8), MS_SYNC));
	raw("raw.dat");
	memset(p + NPAGES(3), 'd', PAGE);
	called("fsync", (int)syscall(SYS_fsync, fd));
	raw("raw.dat");

	called("ftruncate", (int)syscall(SYS_ftruncate, fd, NPAGES(9)));
	p[10] = 'e';
	called("fstat", (int)syscall(SYS_fstat, fd, &st));
	fact("size", st.st_size);
	called("statx", (int)syscall(SYS_statx, AT_FDCWD, "raw.dat", 0, STATX_SIZE, &stx));
	fact("size", (long)stx.stx_size);
	called("fallocate", (int)syscall(SYS_fallocate, fd, 0, 0, NPAGES(10)));
	copy = (int)syscall(SYS_dup, fd);
	fact("dup", copy > fd);
	fact("fcntl", syscall(SYS_fcntl, copy, F_GETFD, 0));
	fact("read through it", syscall(SYS_pread64, copy, buf, 20, 0));
	fact("sees the store", buf[10]);
	called("close", (int)syscall(SYS_close, copy));
	p = (void *)syscall(SYS_mremap, p, NPAGES(8), NPAGES(10), MREMAP_MAYMOVE, NULL);
	p[NPAGES(9) + 1] = 'f';
	called("mprotect", (int)syscall(SYS_mprotect, p, PAGE, PROT_READ));
	called("madvise", (int)syscall(SYS_madvise, p, PAGE, MADV_WILLNEED));
	called("munmap", (int)syscall(SYS_munmap, p, NPAGES(10)));
	called("close", (int)syscall(SYS_close, fd));
	raw("raw.dat");
	fact("bad descriptor", syscall(SYS_read, 1000, buf, 1) == -1 && errno == EBADF);
	fact("bad number", syscall(100000) == -1 && errno == ENOSYS);
}

static uint32_t *word;

static void *waker(void *arg)
{
	(void)arg;
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	while (syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
		if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 2)
			break;
	return NULL;
}

static void futexes(enum place k)
{
	struct timespec *ts;
	pthread_t t;

	word = place(k, sizeof(*word));
	told("futex wait, another value", k, syscall(SYS_futex, word, FUTEX_WAIT, 12345, NULL, NULL, 0), 1);
	if (k >= GOOD)
		return;
	*word = 0;
	ts = place(k, sizeof(*ts));
	*ts = (struct timespec){.tv_nsec = 1000};
	settle(k);
	told("futex wait, a time", k, syscall(SYS_futex, word, FUTEX_WAIT, 0, ts, NULL, 0), 1);
	word = place(k, sizeof(*word));
	*word = 0;
	settle(k);
	told("futex lock", k, syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 1);
	settle(k);
	told("futex unlock", k, syscall(SYS_futex, word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), *word == 0);
	if (pthread_create(&t, NULL, waker, NULL))
		die("pthread_create");
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
		if (syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0) < 0 && errno != EAGAIN &&
		    errno != EINTR)
			die("futex");
	__atomic_store_n(word, 2, __ATOMIC_SEQ_CST);
	if (pthread_join(t, NULL))
		die("pthread_join");
}

static void others(enum place k)
{
	static const char text[100];
	struct utsname *u;
	struct rusage *ru;
	struct pollfd *fds;
	struct epoll_event *ev;
	int *status, pi[2], ep, sv[2];
	char *s;
	pid_t pid;

	s = place(k, 64);
	told("getrandom", k, syscall(SYS_getrandom, s, 64, 0), 1);
	u = place(k, sizeof(*u));
	told("uname", k, syscall(SYS_uname, u), !strcmp(u->sysname, "Linux"));
	ru = place(k, sizeof(*ru));
	told("getrusage", k, syscall(SYS_getrusage, RUSAGE_SELF, ru), ru->ru_maxrss > 0);
	s = k < GOOD ? place_string(k, "raw.dat") : place(k, 64);
	settle(k);
	told("access", k, syscall(SYS_faccessat, AT_FDCWD, s, R_OK), 1);
	if (pipe(pi) || socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		die("pipe");
	fds = place(k, sizeof(*fds));
	if (k < GOOD)
		*fds = (struct pollfd){.fd = pi[1], .events = POLLOUT}, settle(k);
	told("ppoll", k, syscall(SYS_ppoll, fds, 1, NULL, NULL, 8), fds->revents == POLLOUT);
	ep = epoll_create1(0);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, pi[1], &(struct epoll_event){.events = EPOLLOUT, .data.u32 = 77}))
		die("epoll_ctl");
	ev = place(k, 4 * sizeof(*ev));
	told("epoll_pwait", k, syscall(SYS_epoll_pwait, ep, ev, 4, 0, NULL, 8), ev->data.u32 == 77);
	s = place(k, sizeof(text));
	told("sendto", k, syscall(SYS_sendto, sv[0], s, sizeof(text), 0, NULL, 0), 1);
	if (k >= GOOD && send(sv[0], text, sizeof(text), 0) < 0)
		die("send");
	s = place(k, sizeof(text));
	told("recvfrom", k, syscall(SYS_recvfrom, sv[1], s, sizeof(text), MSG_DONTWAIT, NULL, NULL), 1);
	pid = fork();
	if (pid == 0)
		syscall(SYS_exit_group, 5);
	status = place(k, sizeof(*status));
	ru = place(k, sizeof(*ru));
	told("wait4", k, syscall(SYS_wait4, pid, status, 0, k < GOOD ? ru : NULL) > 0 ? 0 : -1,
	     WEXITSTATUS(*status) == 5);
	close(pi[0]), close(pi[1]), close(sv[0]), close(sv[1]), close(ep);
}

static void on_usr1(int signo)
{
	fact("signal", signo);
}

/* The kernel's own form of a mask. */
static void masks(void)
{
	uint64_t set = 1ull << (SIGSEGV - 1) | 1ull << (SIGUSR1 - 1), old = 0;
	struct timespec now = {0};
	sigset_t seen;

	signal(SIGUSR1, on_usr1);
	fact("rt_sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, &old, 8));
	sigprocmask(SIG_BLOCK, NULL, &seen);
	fact("SEGV is blocked", sigismember(&seen, SIGSEGV));
	place_map[NPAGES(PLACE_NPAGES * CLEAN)] = 'x'; /* a store to a clean page all the same */
	raise(SIGUSR1);
	set = 1ull << (SIGSEGV - 1);
	fact("ppoll with a mask", syscall(SYS_ppoll, NULL, 0, &now, &set, 8));
	fact("back", syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8));
	fact("wrong size", syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 7));
}

static void facts(void)
{
	pid_t pid;

	files();
	places("place.dat");
	for (enum place k = 0; k < NPLACES; k++) {
		futexes(k);
		others(k);
	}
	masks();
	place_map[0] = 'y';
	settle(CLEAN);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		place_map[0] = 'z';
		syscall(SYS_exit_group, 0);
	}
	ended("child", pid);
	fact("its store", place_map[0]);
	place_map[1] = 'z';
	(void)syscall(SYS_exit_group, 3);
}
