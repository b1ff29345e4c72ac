/* SPDX-License-Identifier: MIT */
/* Clocks, timers, waiting, limits, queues: small structures in memory of every kind. */
#include "place.h"
#include <linux/capability.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

int capget(cap_user_header_t head, cap_user_data_t data);

static void clocks(enum place k)
{
	struct itimerspec *its, *old;
	struct itimerval *itv;
	struct timespec *ts;
	struct sigevent none = {.sigev_notify = SIGEV_NONE};
	timer_t t;
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t *n;

	ts = place(k, sizeof(*ts));
	if (k < GOOD) { /* elsewhere it may be the vdso's own store that faults */
		told("clock_gettime", k, clock_gettime(CLOCK_REALTIME, ts), ts->tv_sec > 1000000000);
		ts = place(k, sizeof(*ts));
	}
	told("clock_gettime of the process", k, clock_gettime(CLOCK_PROCESS_CPUTIME_ID, ts),
	     ts->tv_nsec >= 0);
	if (k < GOOD) {
		struct timeval *tv = place(k, sizeof(*tv));
		struct timespec *rest = place(k, sizeof(*rest));

		told("gettimeofday", k, gettimeofday(tv, NULL), tv->tv_sec > 1000000000);
		ts = place(k, sizeof(*ts));
		told("clock_getres", k, clock_getres(CLOCK_MONOTONIC, ts), ts->tv_nsec > 0);
		*ts = (struct timespec){.tv_nsec = 1000};
		settle(k);
		told("nanosleep", k, nanosleep(ts, rest), 1);
		settle(k);
		told("clock_nanosleep", k, clock_nanosleep(CLOCK_MONOTONIC, 0, ts, rest), 1);
	} else {
		told("nanosleep", k, nanosleep(ts, NULL), 1);
	}
	its = place(k, sizeof(*its));
	old = place(k, sizeof(*old));
	if (k < GOOD)
		*its = (struct itimerspec){.it_value.tv_nsec = 1}, settle(k);
	told("timerfd_settime", k, timerfd_settime(fd, 0, its, NULL), 1);
	if (k >= GOOD)
		timerfd_settime(fd, 0, &(struct itimerspec){.it_value.tv_nsec = 1}, NULL);
	told("timerfd_gettime", k, timerfd_gettime(fd, old), old->it_interval.tv_nsec == 0);
	n = place(k, sizeof(*n));
	told("its expirations", k, read(fd, n, sizeof(*n)), *n == 1);
	if (timer_create(CLOCK_MONOTONIC, &none, &t))
		die("timer_create");
	if (k < GOOD)
		its->it_value.tv_sec = 100, settle(k);
	told("timer_settime", k, timer_settime(t, 0, its, k < GOOD ? old : NULL), old->it_value.tv_sec == 0);
	told("timer_gettime", k, timer_gettime(t, old), old->it_value.tv_sec >= 99);
	timer_delete(t);
	itv = place(k, sizeof(*itv));
	if (k < GOOD)
		memset(itv, 0, sizeof(*itv)), settle(k);
	told("setitimer", k, setitimer(ITIMER_REAL, itv, NULL), 1);
	told("getitimer", k, getitimer(ITIMER_REAL, itv), itv->it_value.tv_sec == 0);
	close(fd);
}

static void waits(enum place k)
{
	struct epoll_event *ev;
	struct pollfd *fds;
	struct timeval *tv;
	struct timespec *ts, now = {0};
	sigset_t *set;
	siginfo_t *info;
	uint64_t *n;
	fd_set *in;
	int *status, pi[2], ep = epoll_create1(0), efd = eventfd(3, EFD_NONBLOCK), sfd, *pair;
	pid_t pid;

	if (pipe(pi))
		die("pipe");
	fds = place(k, 2 * sizeof(*fds));
	if (k < GOOD) {
		fds[0] = (struct pollfd){.fd = pi[1], .events = POLLOUT};
		fds[1] = (struct pollfd){.fd = pi[0], .events = POLLIN};
		settle(k);
	}
	told("poll", k, poll(fds, 2, 0), fds[0].revents == POLLOUT && fds[1].revents == 0);
	ts = k < GOOD ? place(k, sizeof(*ts)) : &now; /* libc makes a copy of it */
	if (k < GOOD)
		*ts = now, settle(k);
	told("ppoll", k, ppoll(fds, 2, ts, NULL), fds[0].revents == POLLOUT);
	in = place(k, sizeof(*in));
	tv = place(k, sizeof(*tv));
	if (k < GOOD) {
		FD_ZERO(in);
		FD_SET(pi[1], in);
		memset(tv, 0, sizeof(*tv));
		settle(k);
	}
	told("select", k, select(pi[1] + 1, NULL, in, NULL, k < GOOD ? tv : &(struct timeval){0}),
	     FD_ISSET(pi[1], in));
	told("pselect", k, pselect(pi[1] + 1, NULL, in, NULL, ts, NULL), FD_ISSET(pi[1], in));
	ev = place(k, sizeof(*ev));
	if (k < GOOD)
		*ev = (struct epoll_event){.events = EPOLLOUT, .data.u32 = 7}, settle(k);
	told("epoll_ctl", k, epoll_ctl(ep, EPOLL_CTL_ADD, pi[1], ev), 1);
	if (k >= GOOD)
		epoll_ctl(ep, EPOLL_CTL_ADD, pi[1], &(struct epoll_event){.events = EPOLLOUT});
	ev = place(k, 8 * sizeof(*ev));
	told("epoll_wait", k, epoll_wait(ep, ev, 8, 0), ev->data.u32 == 7);
	told("epoll_pwait", k, epoll_pwait(ep, ev, 8, 0, NULL), ev->data.u32 == 7);
	n = place(k, sizeof(*n));
	told("eventfd", k, read(efd, n, sizeof(*n)), *n == 3);
	n = place(k, sizeof(*n));
	if (k < GOOD)
		*n = 5, settle(k);
	told("eventfd, write", k, write(efd, n, sizeof(*n)), 1);

	set = place(k, sizeof(*set));
	if (k < GOOD) {
		sigemptyset(set);
		sigaddset(set, SIGUSR2);
		sigprocmask(SIG_BLOCK, set, NULL);
		settle(k);
	}
	told("signalfd", k, (sfd = signalfd(-1, set, SFD_NONBLOCK)) < 0 ? -1 : 0, 1);
	if (k < GOOD) {
		struct signalfd_siginfo *si = place(k, sizeof(*si));

		raise(SIGUSR2);
		told("its signal", k, read(sfd, si, sizeof(*si)), si->ssi_signo == SIGUSR2);
		raise(SIGUSR2);
		told("sigpending", k, sigpending(set), sigismember(set, SIGUSR2));
		sigemptyset(set);
		sigaddset(set, SIGUSR2);
		info = place(k, sizeof(*info));
		settle(k);
		told("sigwaitinfo", k, sigwaitinfo(set, info), info->si_signo == SIGUSR2);
		settle(k);
		told("sigtimedwait", k, sigtimedwait(set, info, ts), 1);
	}
	pid = fork();
	if (pid == 0)
		_exit(6);
	info = place(k, sizeof(*info));
	told("waitid", k, waitid(P_PID, (id_t)pid, info, WEXITED | WNOWAIT), info->si_status == 6);
	status = place(k, sizeof(*status));
	told("waitpid", k, waitpid(pid, status, 0) < 0 ? -1 : 0, WEXITSTATUS(*status) == 6);
	pair = place(k, 2 * sizeof(*pair));
	told("pipe", k, pipe2(pair, O_CLOEXEC), pair[1] > pair[0]);
	if (k < GOOD)
		close(pair[0]), close(pair[1]);
	close(pi[0]), close(pi[1]), close(ep), close(efd), close(sfd);
}

static void machine(enum place k)
{
	struct utsname *u = place(k, sizeof(*u));
	struct sysinfo *si = place(k, sizeof(*si));
	struct rusage *ru = place(k, sizeof(*ru));
	struct rlimit *rl = place(k, sizeof(*rl)), was;
	struct tms *t = place(k, sizeof(*t));
	cpu_set_t *cpus = place(k, sizeof(*cpus));
	struct winsize *ws;
	uid_t *ids;
	gid_t *groups = place(k, 64 * sizeof(*groups));
	char *s = place(k, 300);
	int tty = posix_openpt(O_RDWR | O_NOCTTY), pi[2], *avail;

	told("getrandom", k, getrandom(s, 300, 0), 1);
	s = place(k, 200);
	told("getentropy", k, getentropy(s, 200), 1);
	told("uname", k, uname(u), !strcmp(u->sysname, "Linux"));
	told("sysinfo", k, sysinfo(si), si->totalram > 0);
	told("getrusage", k, getrusage(RUSAGE_SELF, ru), ru->ru_maxrss > 0);
	told("getrlimit", k, getrlimit(RLIMIT_CORE, rl), rl->rlim_cur <= rl->rlim_max);
	rl = place(k, sizeof(*rl));
	getrlimit(RLIMIT_CORE, &was);
	if (k < GOOD)
		*rl = was, settle(k);
	told("setrlimit", k, setrlimit(RLIMIT_CORE, rl), 1);
	told("prlimit", k, prlimit(0, RLIMIT_CORE, NULL, rl), rl->rlim_cur == was.rlim_cur);
	if (k < GOOD) /* else libc touches it */
		told("times", k, times(t) == (clock_t)-1 ? -1 : 0, 1);
	if (k == HALF)
		return; /* libc clears the rest of it */
	told("sched_getaffinity", k, sched_getaffinity(0, sizeof(*cpus), cpus), CPU_COUNT(cpus) > 0);
	told("sched_setaffinity", k, sched_setaffinity(0, sizeof(*cpus), cpus), 1);
	ids = place(k, 3 * sizeof(*ids));
	told("getresuid", k, getresuid(ids, ids + 1, ids + 2), ids[0] == getuid() && ids[2] == getuid());
	told("getgroups", k, getgroups(64, groups) < 0 ? errno == EFAULT ? -1 : -2 : 0, 1);

	ws = place(k, sizeof(*ws));
	if (k < GOOD)
		*ws = (struct winsize){.ws_row = 33, .ws_col = 44}, settle(k);
	told("ioctl, setting", k, ioctl(tty, TIOCSWINSZ, ws), 1);
	ws = place(k, sizeof(*ws));
	told("ioctl, getting", k, ioctl(tty, TIOCGWINSZ, ws), ws->ws_col == 44);
	if (pipe(pi) || write(pi[1], "12345", 5) != 5)
		die("pipe");
	avail = place(k, sizeof(*avail));
	told("ioctl, an int", k, ioctl(pi[0], FIONREAD, avail), *avail == 5);
	s = place(k, 16);
	told("prctl", k, prctl(PR_GET_NAME, s), !strcmp(s, "buffers_time"));
	close(pi[0]), close(pi[1]), close(tty);
}

static void queues(enum place k)
{
	struct msg {
		long type;
		char text[100];
	} *m = place(k, sizeof(*m)), other = {.type = 3};
	int q = msgget(IPC_PRIVATE, 0600), sem = semget(IPC_PRIVATE, 2, 0600);
	struct sembuf *op = place(k, sizeof(*op));
	struct msqid_ds *ds = place(k, sizeof(*ds));
	unsigned short *vals = place(k, 2 * sizeof(*vals));

	if (k < GOOD)
		*m = other, settle(k);
	told("msgsnd", k, msgsnd(q, m, 100, 0), 1);
	if (k >= GOOD)
		msgsnd(q, &other, 100, 0);
	m = place(k, sizeof(*m));
	told("msgrcv", k, msgrcv(q, m, 100, 0, IPC_NOWAIT), m->type == 3);
	told("msgctl", k, msgctl(q, IPC_STAT, ds), ds->msg_qbytes > 0);
	if (k < GOOD)
		*op = (struct sembuf){.sem_num = 1, .sem_op = 2}, settle(k);
	told("semop", k, semop(sem, op, 1), 1);
	told("semctl", k, semctl(sem, 0, GETALL, vals), vals[1] == 2);
	msgctl(q, IPC_RMID, NULL);
	semctl(sem, 0, IPC_RMID);
}

static void named_queues(enum place k)
{
	struct mq_attr *attr = place(k, sizeof(*attr)), a = {.mq_maxmsg = 3, .mq_msgsize = 64};
	char name[32], *s = name;
	unsigned *prio = place(k, sizeof(*prio));
	mqd_t q;

	snprintf(name, sizeof(name), "/txmap.%d", getpid());
	if (k < GOOD) { /* elsewhere libc itself touches the name */
		*attr = a;
		s = place_string(k, name);
		settle(k);
	}
	told("mq_open", k, (q = mq_open(s, O_CREAT | O_RDWR | O_NONBLOCK, 0600, attr)) < 0 ? -1 : 0, 1);
	if (q == (mqd_t)-1)
		q = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &a);
	attr = place(k, sizeof(*attr));
	told("mq_getattr", k, mq_getattr(q, attr), attr->mq_msgsize == 64);
	told("mq_unlink", k, mq_unlink(s), 1);
	s = place(k, 64);
	told("mq_send", k, mq_send(q, s, 64, 7), 1);
	if (k >= GOOD)
		mq_send(q, (char[64]){0}, 64, 7);
	s = place(k, 64);
	told("mq_receive", k, mq_receive(q, s, 64, k < GOOD ? prio : NULL), *prio == 7);
	mq_close(q);
}

/* Rights, as the kernel has them. */
static void rights(enum place k)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3},
					*h = place(k, sizeof(*h));
	struct __user_cap_data_struct *d = place(k, 2 * sizeof(*d));

	if (k < GOOD)
		*h = head, settle(k);
	else
		h = &head;
	if (k < GOOD)
		memset(d, 0xaa, 2 * sizeof(*d)), settle(k);
	told("capget", k, capget(h, d), d[0].effective != 0xaaaaaaaa);
}

/* Large pieces through libc's own buffers, and from process to process. */
static void pieces(enum place k)
{
	FILE *f = fopen("pieces.tmp", "w+");
	struct iovec ours, theirs;
	static char text[6000];
	char *s;

	if (!f)
		die("fopen");
	s = place(k, 6000);
	memset(text, 't', sizeof(text));
	told("fwrite", k, (long)fwrite(k < GOOD ? s : text, 1, 6000, f), 1);
	rewind(f);
	s = place(k, 6000);
	told("fread", k, k < GOOD ? (long)fread(s, 1, 6000, f) : 0, 1);
	if (k < GOOD) {
		s = place(k, BUFSIZ);
		fact("setvbuf", setvbuf(f, s, _IOFBF, BUFSIZ / 4));
		rewind(f);
		settle(k);
		fact("getc", getc(f) == EOF);
	}
	fclose(f);
	ours = (struct iovec){place(k, 3000), 3000};
	theirs = (struct iovec){text, sizeof(text)};
	told("process_vm_readv", k, process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0),
	     ((char *)ours.iov_base)[5] == 't');
	ours.iov_base = place(k, 3000);
	told("process_vm_writev", k, process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0), 1);
}

static void facts(void)
{
	places("time.dat");
	for (enum place k = 0; k < NPLACES; k++) {
		clocks(k);
		waits(k);
		machine(k);
		queues(k);
		named_queues(k);
		rights(k);
		if (k != HALF)
			pieces(k);
	}
}
