/* SPDX-License-Identifier: MIT */
/*
 * The helper thread: one a process, started when the first file becomes managed. It serves the control socket
 * and does what may not be done elsewhere: timers, and work that signal handlers left.
 *
 * Its descriptors are ours (vm_fd_adopt) and may get other numbers at any time: each is read from its
 * variable every time it is used.
 */
#include "control_priv.h"
#include "log.h"
#include "managed.h"
#include "share.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define NCLIENTS   8
#define IDLE_USEC  (60u * 1000000u) /* a client that is silent this long goes */
#define EVICT_USEC (1u * 1000000u)  /* ... or this long, when another waits for its place */
#define STACK_LEN  (1u << 20) /* backends, and exit handlers of the program */
#define SHORT_MSEC 20	 /* before another try, while there is no descriptor left */
#define LAST_USEC  20000 /* so often the helper looks whether only helpers are left */

enum { IDLE, RUNNING, STOPPING };

static int state = IDLE; /* (atomic) */
static int event_fd = -1;
static int listen_fd = -1;
static pid_t listen_pid; /* whose socket file it is */
static int main_ended; /* or is about to (atomic) */
static bool warned;	 /* about the socket, once also for all children */
static struct pol_client clients[NCLIENTS] = {[0 ... NCLIENTS - 1] = {.fd = -1}}; /* the thread's alone */

/* ---- clients ---- */

/* A free place, or the place of the client that was silent longest. NULL: none yet. */
static struct pol_client *find_place(uint64_t now)
{
	struct pol_client *oldest = NULL;

	for (struct pol_client *c = clients; c < clients + NCLIENTS; c++) {
		if (c->fd < 0)
			return c;
		if (c->active_usec + EVICT_USEC <= now && (!oldest || c->active_usec < oldest->active_usec))
			oldest = c;
	}
	return oldest;
}

static void accept_client(uint64_t now)
{
	struct pol_client *c = find_place(now);
	int fd;

	if (!c)
		return;
	fd = vm_sys->accept4(listen_fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS)
		(void)vm_sys->poll(NULL, 0, SHORT_MSEC); /* it stays to be accepted: not as fast as we can */
	if (fd < 0)
		return;
	if (c->fd >= 0)
		pol_client_close(c);
	c->fd = fd;
	if (vm_fd_adopt(&c->fd))
		return;
	pol_client_begin(c);
}

/* ---- the thread ---- */

static void open_socket(void)
{
	const struct pol_config *config = pol_config_get();
	char why[512];
	int err;

	if (!config->control)
		return;
	listen_pid = vm_sys->getpid();
	err = pol_socket_listen(config->runtime_dir, listen_pid, &listen_fd, why, sizeof(why));
	if (!err) {
		err = vm_fd_adopt(&listen_fd);
		if (err) {
			(void)snprintf(why, sizeof(why), "%s", pol_errno_name(err));
			pol_socket_unlink(config->runtime_dir, listen_pid);
		}
	}
	if (err) {
		listen_fd = -1;
		listen_pid = 0;
		if (!warned)
			pol_log(POL_LOG_WARN, "no control socket: %s", why);
		warned = true;
	}
}

static int open_event(void)
{
	int fd = (int)vm_sys_fd(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK, 0, 0);

	if (fd < 0)
		return fd;
	event_fd = fd;
	return vm_fd_adopt(&event_fd);
}

static int timeout_msec(uint64_t now, int64_t tick_usec, bool more)
{
	uint64_t usec = tick_usec < 0 ? UINT64_MAX : (uint64_t)tick_usec;

	if (more)
		return 0;
	for (const struct pol_client *c = clients; c < clients + NCLIENTS; c++) {
		uint64_t gone = c->active_usec + (find_place(now) ? IDLE_USEC : EVICT_USEC);

		if (c->fd >= 0 && usec > (gone > now ? gone - now : 0))
			usec = gone > now ? gone - now : 0;
	}
	if (usec == UINT64_MAX)
		return -1;
	return usec / 1000 >= INT_MAX ? INT_MAX : (int)((usec + 999) / 1000);
}

/* Somebody closed descriptors by a way that cannot be seen (a raw system call): make them anew. */
static void reopen(const struct pollfd *event, const struct pollfd *sock)
{
	if (event->revents & POLLNVAL) {
		vm_fd_drop(&event_fd);
		if (open_event())
			pol_log(POL_LOG_ERROR,
				"the helper thread's descriptor was closed; triggers by signal are lost");
	}
	if (sock->revents & POLLNVAL) {
		vm_fd_drop(&listen_fd);
		open_socket();
	}
}

/* One turn: wait, then serve whoever wants something. Returns whether more is at hand. */
static bool turn(int64_t tick_usec, bool more)
{
	struct pollfd fds[2 + NCLIENTS];
	uint64_t now = pol_client_now(), count;

	fds[0] = (struct pollfd){.fd = event_fd, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = find_place(now) ? listen_fd : -1, .events = POLLIN};
	for (int i = 0; i < NCLIENTS; i++) {
		const struct pol_client *c = &clients[i];

		fds[2 + i] = (struct pollfd){.fd = c->fd, .events = c->sent < c->out.len ? POLLOUT : POLLIN};
	}
	if (vm_sys->poll(fds, 2 + NCLIENTS, timeout_msec(now, tick_usec, more)) < 0)
		return more;

	now = pol_client_now();
	reopen(&fds[0], &fds[1]);
	if (fds[0].revents & POLLIN)
		(void)vm_sys->read(event_fd, &count, sizeof(count)); /* only the waking matters */
	more = false;
	for (int i = 0; i < NCLIENTS; i++) {
		struct pol_client *c = &clients[i];

		if (c->fd < 0)
			continue;
		if (fds[2 + i].revents || c->in_len)
			more |= pol_client_serve(c);
		if (c->fd >= 0 && c->active_usec + IDLE_USEC <= now)
			pol_client_close(c);
	}
	if (fds[1].revents & POLLIN)
		accept_client(now);
	return more;
}

void pol_main_thread_ends(void)
{
	__atomic_store_n(&main_ended, 1, __ATOMIC_RELEASE);
	pol_control_kick();
}

/* The process ends with its last thread. libc takes ours for one of those: then it is ours to do. */
static void end_with_the_last(void)
{
	const uint64_t none = 0;

	if (!vm_thread_is_last())
		return;
	(void)vm_sys->sigprocmask(SIG_SETMASK, &none, NULL); /* exit handlers are the program's: they may fault */
	exit(0);
}

static void *helper(void *arg)
{
	bool more = false;

	(void)pthread_setname_np(pthread_self(), "txmap"); /* for people who look at threads */
	while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == RUNNING) {
		int64_t tick_usec;

		pol_managed_deferred();
		tick_usec = pol_managed_tick();
		if (__atomic_load_n(&main_ended, __ATOMIC_ACQUIRE)) {
			end_with_the_last();
			tick_usec = tick_usec < 0 || tick_usec > LAST_USEC ? LAST_USEC : tick_usec;
		}
		more = turn(tick_usec, more);
	}
	for (struct pol_client *c = clients; c < clients + NCLIENTS; c++) {
		if (c->fd >= 0)
			pol_client_close(c);
	}
	vm_fd_drop(&listen_fd);
	return arg;
}

int pol_control_start(void)
{
	int expected = IDLE, saved = errno, err;

	if (!__atomic_compare_exchange_n(&state, &expected, RUNNING, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return 0;
	err = open_event();
	if (!err) {
		open_socket();
		err = vm_thread_start(helper, NULL, STACK_LEN);
	}
	if (err) {
		pol_control_stop();
		vm_fd_drop(&listen_fd);
		vm_fd_drop(&event_fd);
		__atomic_store_n(&state, IDLE, __ATOMIC_RELEASE);
	}
	errno = saved;
	return err;
}

void pol_control_kick(void)
{
	const uint64_t one = 1;

	if (event_fd >= 0)
		(void)vm_sys->write(event_fd, &one, sizeof(one)); /* full: it is awake anyway */
}

/* The thread may have been at work at the moment of the fork: what it had in hand is neither closed nor
 * unmapped here, because the number or address may be another's by now. */
static void forget_fd(int *fd)
{
	if (*fd >= 0 && vm_fd_is_ours(*fd))
		vm_fd_drop(fd);
	*fd = -1;
}

void pol_control_fork_child(void)
{
	bool ran = state == RUNNING;

	for (struct pol_client *c = clients; c < clients + NCLIENTS; c++) {
		forget_fd(&c->fd);
		c->out = (struct pol_out){0};
	}
	forget_fd(&listen_fd);
	forget_fd(&event_fd);
	listen_pid = 0; /* the file is the parent's */
	state = IDLE;
	warned = true; /* a child that locked itself in has none, and its output is the program's */
	main_ended = 0; /* whoever forked is the main thread */
	if (ran)
		(void)pol_control_start();
}

void pol_control_stop(void)
{
	int expected = RUNNING;

	pol_share_stop();
	if (!__atomic_compare_exchange_n(&state, &expected, STOPPING, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return;
	if (listen_pid == vm_sys->getpid())
		pol_socket_unlink(pol_config_get()->runtime_dir, listen_pid);
	listen_pid = 0;
	pol_control_kick();
}
