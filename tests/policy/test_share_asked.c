/* SPDX-License-Identifier: MIT */
/*
 * Who has a file, and what becomes of a process that asks somebody who hangs, answers nonsense, or is no
 * more. The others are children that were forked before anything was managed here, and play a process of
 * another kind.
 */
#define _GNU_SOURCE 1
#include "share_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

struct packet {
	uint32_t magic, version;
	int32_t err;
	uint32_t nfds;
};

enum play { HANG, CLOSE, NONSENSE, SHORT, OTHER_VERSION, NOT_MINE, NO_FDS, WRONG_FDS, MANY_FDS };

static void send_packet(int s, const void *buf, size_t len, int nfds)
{
	union {
		char room[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} c = {0};
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[8];

	for (int i = 0; i < nfds; i++)
		fds[i] = memfd_create("wrong", MFD_CLOEXEC);
	if (nfds) {
		msg.msg_control = &c;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		c.align.cmsg_level = SOL_SOCKET;
		c.align.cmsg_type = SCM_RIGHTS;
		c.align.cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(&c.align), fds, (size_t)nfds * sizeof(int));
	}
	(void)sendmsg(s, &msg, MSG_NOSIGNAL);
}

static void play(enum play p, int s)
{
	struct packet a = {0x68737874, 1, 0, 2};
	char request[64];

	if (recv(s, request, sizeof(request), 0) <= 0)
		return;
	switch (p) {
	case HANG:
		pause();
		break;
	case CLOSE:
		break;
	case NONSENSE:
		send_packet(s, "who are you, and what do you want?", 34, 0);
		break;
	case SHORT:
		send_packet(s, &a, 4, 0);
		break;
	case OTHER_VERSION:
		a.version = 99;
		send_packet(s, &a, sizeof(a), 2);
		break;
	case NOT_MINE:
		a.err = -ENOENT;
		a.nfds = 0;
		send_packet(s, &a, sizeof(a), 0);
		break;
	case NO_FDS:
		send_packet(s, &a, sizeof(a), 0);
		break;
	case WRONG_FDS:
		send_packet(s, &a, sizeof(a), 2);
		break;
	case MANY_FDS:
		send_packet(s, &a, sizeof(a), 8);
		break;
	}
}

/* A process that listens, and answers like that. */
static pid_t start(enum play p)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d.share", run_dir, getpid());
		if (bind(s, (struct sockaddr *)&addr, sizeof(addr)) || listen(s, 8) || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;) {
			int c = accept(s, NULL, NULL);

			play(p, c);
			close(c);
		}
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void stop(pid_t pid)
{
	char name[160];

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(name, sizeof(name), "%s/%d.share", run_dir, pid);
	unlink(name);
}

static int count_fds(void)
{
	int n = 0;

	for (int i = 0; i < 1 << 20; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static void asked(enum play p, int want)
{
	char text[32];
	pid_t pid = start(p);
	int before = count_fds(), err;

	snprintf(text, sizeof(text), "%d\n", pid);
	write_registry(text);
	err = use();
	assert_int_equal(err, want);
	if (err) {
		assert_true(count_fds() <= before + 4); /* engine and the file's, not those that were sent */
		before = count_fds();
		assert_int_equal(pol_mmap(file, fd, NULL, LEN, PROT_READ, MAP_SHARED, 0, (void **)&map), want);
		map = NULL;
		assert_int_equal(count_fds(), before);
		is_in_registry(pid, true);
	} else {
		is_in_registry(getpid(), true);
	}
	stop(pid);
	if (err) { /* nobody is in the way any more */
		(void)pol_fd_close(file);
		file = NULL;
		assert_int_equal(use(), 0);
		is_in_registry(getpid(), true);
	}
}

#define ASKED(name, p, want)                                                                                 \
	static void name(void **state)                                                                       \
	{                                                                                                    \
		(void)state;                                                                                 \
		asked(p, want);                                                                              \
	}

ASKED(who_hangs_is_a_reason_to_refuse, HANG, -EBUSY)
ASKED(who_closes_and_still_listens_is_a_reason_to_refuse, CLOSE, -EBUSY)
ASKED(who_answers_nonsense_is_a_reason_to_refuse, NONSENSE, -EBUSY)
ASKED(half_an_answer_is_a_reason_to_refuse, SHORT, -EBUSY)
ASKED(another_version_is_a_reason_to_refuse, OTHER_VERSION, -EBUSY)
ASKED(an_answer_without_descriptors_is_a_reason_to_refuse, NO_FDS, -EBUSY)
ASKED(descriptors_of_something_else_are_a_reason_to_refuse, WRONG_FDS, -EBUSY)
ASKED(more_descriptors_than_asked_for_are_a_reason_to_refuse, MANY_FDS, -EBUSY)
ASKED(who_does_not_have_the_file_is_no_obstacle, NOT_MINE, 0)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(who_does_not_have_the_file_is_no_obstacle),
		TEST(who_hangs_is_a_reason_to_refuse),
		TEST(who_closes_and_still_listens_is_a_reason_to_refuse),
		TEST(who_answers_nonsense_is_a_reason_to_refuse),
		TEST(half_an_answer_is_a_reason_to_refuse),
		TEST(another_version_is_a_reason_to_refuse),
		TEST(an_answer_without_descriptors_is_a_reason_to_refuse),
		TEST(descriptors_of_something_else_are_a_reason_to_refuse),
		TEST(more_descriptors_than_asked_for_are_a_reason_to_refuse),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
