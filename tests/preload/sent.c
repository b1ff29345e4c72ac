/* SPDX-License-Identifier: MIT */
/* SIGSEGV and SIGBUS that somebody sent are signals like others, whatever address stands in them: by kill,
 * tgkill, raise, sigqueue and with what no kernel would say; blocked, ignored; and no call returns EINTR that
 * would not. */
#include "fact.h"
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

static unsigned char *p;
static volatile sig_atomic_t ncalls, code, value, sender_is_us;

static void handler(int signo, siginfo_t *info, void *uc)
{
	(void)uc;
	p[NPAGES(2)] = (unsigned char)signo;
	ncalls++;
	code = info->si_code;
	value = info->si_value.sival_int;
	sender_is_us = info->si_pid == getpid();
}

static void got(const char *what, int with_value)
{
	printf("%s: %d, code %d%s", what, ncalls, code, sender_is_us ? ", from us" : "");
	if (with_value)
		printf(", value %d", value);
	printf("\n");
	fflush(stdout);
	ncalls = 0;
	code = 0;
}

static void sent(int signo)
{
	siginfo_t info = {.si_signo = signo, .si_code = SI_QUEUE};
	sigset_t set, pending;
	int fd;
	char c;

	kill(getpid(), signo);
	got("kill", 0);
	raise(signo);
	got("raise", 0);
	syscall(SYS_tgkill, getpid(), gettid(), signo);
	got("tgkill", 0);
	pthread_kill(pthread_self(), signo);
	got("pthread_kill", 0);
	sigqueue(getpid(), signo, (union sigval){.sival_int = 77});
	got("sigqueue", 1);
	info.si_addr = p + NPAGES(3); /* where the sender would stand */
	syscall(SYS_rt_sigqueueinfo, getpid(), signo, &info);
	got("with an address of the mapping in it", 0);

	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), signo);
	raise(signo);
	fact("handled while blocked", ncalls);
	p[NPAGES(4)] = 'b'; /* and a store of ours in between */
	fd = open("sent.dat", O_RDWR);
	fact("a read into the mapping", read(fd, p + NPAGES(5), 10));
	close(fd);
	fact("still", ncalls);
	if (fork() == 0) { /* what is pending is not inherited */
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
		_exit(ncalls);
	}
	wait(&fd);
	fact("in a child", WEXITSTATUS(fd));
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	fact("handled afterwards", ncalls > 0);
	ncalls = 0;
	sigpending(&pending);
	fact("none is pending", sigismember(&pending, signo));
	fact("the read went on", (fd = open("sent.dat", O_RDONLY)) >= 0 && read(fd, &c, 1) == 1);
	close(fd);
}

/* Calls that wait, while commits go on: by this process's timers and others' threads. */
static int interrupted;

static void waited(const char *what, long ret, int expected)
{
	if (ret < 0 && errno == EINTR)
		interrupted++;
	if ((ret < 0 ? -errno : ret) != expected)
		printf("%s: %ld %s\n", what, ret, ret < 0 ? strerrorname_np(errno) : "");
}

static int stop;

static void *committer(void *arg)
{
	size_t i;

	for (i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		p[NPAGES(8) + i % PAGE]++;
		if (msync(p, PAGE, i % 2 ? MS_ASYNC : MS_SYNC))
			die("msync");
	}
	return arg;
}

static void no_eintr(void)
{
	struct timespec ts = {0, 20000000}, until;
	struct timeval tv = {0, 20000};
	int fds[2], s = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un addr = {AF_UNIX, "sent.sock"};
	struct pollfd pfd = {.events = POLLIN};
	pthread_t th[2];
	sem_t sem;

	if (pipe(fds) || sem_init(&sem, 0, 0) || s < 0 || bind(s, (void *)&addr, sizeof(addr)) ||
	    listen(s, 1) || setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)))
		die("setup");
	unlink("sent.sock");
	pfd.fd = fds[0];
	pthread_create(&th[0], NULL, committer, NULL);
	pthread_create(&th[1], NULL, committer, NULL);
	for (int i = 0; i < 3; i++) {
		waited("poll", poll(&pfd, 1, 20), 0);
		waited("nanosleep", nanosleep(&ts, NULL), 0);
		waited("select", select(0, NULL, NULL, NULL, &(struct timeval){0, 20000}), 0);
		waited("accept", accept(s, NULL, NULL), -EAGAIN);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 20000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		waited("sem_timedwait", sem_timedwait(&sem, &until), -ETIMEDOUT);
		waited("usleep", usleep(20000), 0);
		p[NPAGES(9) + (unsigned)i]++;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(th[0], NULL);
	pthread_join(th[1], NULL);
	fact("interrupted", interrupted);
	memset(p + NPAGES(8), 'z', PAGE);
}

static void dies(const char *what, int signo, sighandler_t how)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		signal(signo, how);
		p[NPAGES(10)]++;
		kill(getpid(), signo);
		_exit(5);
	}
	ended(what, pid);
}

static void facts(void)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

	p = map(make("sent.dat", NPAGES(16)), NPAGES(16));
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	sent(SIGSEGV);
	sent(SIGBUS);
	dies("sent, default", SIGSEGV, SIG_DFL);
	dies("sent, default", SIGBUS, SIG_DFL);
	dies("sent, ignored", SIGSEGV, SIG_IGN);
	no_eintr();
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("sent.dat");
}
