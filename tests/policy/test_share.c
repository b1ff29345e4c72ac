/* SPDX-License-Identifier: MIT */
/*
 * Who has a file, and what becomes of a process that asks somebody who hangs, answers nonsense, or is no more. The others are
 * children that were forked before anything was managed here, and play a process of another kind.
 */
#define _GNU_SOURCE 1
#include "share.h"
#include "pol.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { LEN = 16384 };

static char dir[64], run_dir[96], path[128];
static struct pol_file *file;
static int fd = -1;
static char *map;

static int make_dirs(void **state)
{
	char glob[96];

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	snprintf(path, sizeof(path), "%s/data", dir);
	snprintf(glob, sizeof(glob), "%s/data", dir);
	setenv("TXMAP_PATHS", glob, 1);
	setenv("TXMAP_COMMIT", "none", 1);
	setenv("TXMAP_RUNTIME_DIR", run_dir, 1);
	setenv("TXMAP_LOG", getenv("SHOW") ?: "off", 1);
	return mkdir(run_dir, 0700) || pol_start() != 1;
}

static int remove_dirs(void **state)
{
	char name[160];

	(void)state;
	pol_control_stop();
	snprintf(name, sizeof(name), "%s/shares", run_dir);
	unlink(name);
	return rmdir(run_dir) || rmdir(dir);
}

/* A file of its own for each test: the kernel may give it the inode number of the last one. */
static int make_file(void **state)
{
	(void)state;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	return fd < 0 || ftruncate(fd, LEN);
}

static int remove_file(void **state)
{
	(void)state;
	if (map)
		(void)pol_munmap(map, LEN);
	map = NULL;
	if (file)
		(void)pol_fd_close(file);
	file = NULL;
	close(fd);
	return unlink(path);
}

static int use(void)
{
	void *addr;
	int err = pol_fd_open(fd, O_RDWR, &file);

	if (err < 0)
		return err;
	err = pol_mmap(file, fd, NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, 0, &addr);
	if (!err)
		map = addr;
	return err;
}

static void registry_name(char *name, size_t len)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	snprintf(name, len, "%s/share-%llx-%llx", run_dir, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

/* What others wrote: with, as they do, the count that says that it is there. */
static void write_registry(const char *text)
{
	char name[160];
	struct stat st;
	int r;

	registry_name(name, sizeof(name));
	r = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(r >= 0);
	assert_int_equal(write(r, text, strlen(text)), strlen(text));
	close(r);
	assert_int_equal(fstat(fd, &st), 0);
	pol_hint_open();
	pol_hint_count(st.st_dev, st.st_ino, 1);
}

static void read_registry(char *text, size_t len)
{
	char name[160];
	ssize_t n;
	int r;

	registry_name(name, sizeof(name));
	r = open(name, O_RDONLY);
	n = r < 0 ? 0 : read(r, text, len - 1);
	text[n > 0 ? n : 0] = 0;
	if (r >= 0)
		close(r);
}

static void is_in_registry(pid_t pid, bool alone)
{
	char text[4096], want[32];

	read_registry(text, sizeof(text));
	snprintf(want, sizeof(want), "%d\n", pid);
	assert_non_null(strstr(text, want));
	if (alone)
		assert_string_equal(text, want);
}

/* ---- those who are asked ---- */

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

/* ---- the registry ---- */

static void the_first_enters_itself_and_the_last_leaves_nothing(void **state)
{
	char name[160];

	(void)state;
	assert_int_equal(use(), 0);
	is_in_registry(getpid(), true);
	assert_int_equal(pol_munmap(map, LEN), 0);
	map = NULL;
	assert_int_equal(pol_fd_close(file), 0);
	file = NULL;
	registry_name(name, sizeof(name));
	assert_int_equal(access(name, F_OK), -1);
}

static void entries_of_the_dead_and_nonsense_are_no_obstacle(void **state)
{
	pid_t dead = fork();
	char text[256];

	(void)state;
	if (!dead)
		_exit(0);
	assert_int_equal(waitpid(dead, NULL, 0), dead);
	/* of the dead; of this process before an exec; of one that runs and never heard of us */
	snprintf(text, sizeof(text), "%d\n%d\n%d\nnonsense\n-5\n\n99999999999999999999\n7", dead, getpid(), getppid());
	write_registry(text);
	assert_int_equal(use(), 0);
	is_in_registry(getpid(), true);
}

static void a_registry_that_somebody_holds_is_waited_for_so_long(void **state)
{
	struct pol_registry r;
	struct stat st;
	char name[160];
	int held;

	(void)state;
	write_registry("");
	registry_name(name, sizeof(name));
	held = open(name, O_RDWR);
	assert_int_equal(flock(held, LOCK_EX), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pol_registry_lock(st.st_dev, st.st_ino, 50, &r), -EBUSY);
	close(held);
	assert_int_equal(pol_registry_lock(st.st_dev, st.st_ino, 50, &r), 0);
	assert_int_equal(pol_registry_write(&r), 0);
	pol_registry_unlock(&r);
	pol_hint_count(st.st_dev, st.st_ino, -1);
}

static void a_registry_takes_no_more_than_it_has_room_for_and_forgets_the_dead(void **state)
{
	struct pol_registry r;
	struct stat st;
	char text[POL_REGISTRY_MAX * 12], *p = text;

	(void)state;
	for (int i = 0; i < POL_REGISTRY_MAX; i++) /* numbers that no process has */
		p += sprintf(p, "%d\n", INT32_MAX - i);
	write_registry(text);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pol_registry_lock(st.st_dev, st.st_ino, 50, &r), 0);
	assert_int_equal(r.n, 0);
	for (int i = 1; i < 1000; i++)
		pol_registry_add(&r, i);
	assert_int_equal(r.n, POL_REGISTRY_MAX);
	r.n = 0;
	assert_int_equal(pol_registry_write(&r), 0);
	pol_registry_unlock(&r);
}

/* ---- two that are what they seem ---- */

static void a_forked_child_is_entered_and_stays_when_its_parent_has_left(void **state)
{
	char byte;
	int to[2], from[2];
	pid_t pid;

	(void)state;
	assert_int_equal(use(), 0);
	map[0] = 'p';
	assert_int_equal(pipe(to) || pipe(from), 0);
	pol_fork_prepare();
	pid = fork();
	if (!pid) {
		pol_fork_child();
		if (write(from[1], "x", 1) != 1 || read(to[0], &byte, 1) != 1)
			_exit(1);
		pol_control_stop();
		_exit(map[0] != 'p');
	}
	pol_fork_parent();
	assert_int_equal(read(from[0], &byte, 1), 1);
	assert_int_equal(pol_munmap(map, LEN), 0);
	map = NULL;
	assert_int_equal(pol_fd_close(file), 0);
	file = NULL;
	is_in_registry(pid, true);
	/* and is asked: what the parent stored is there, and nothing else has it */
	assert_int_equal(use(), 0);
	assert_int_equal(map[0], 'p');
	assert_int_equal(write(to[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_file, remove_file)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(the_first_enters_itself_and_the_last_leaves_nothing),
		TEST(entries_of_the_dead_and_nonsense_are_no_obstacle),
		TEST(a_registry_that_somebody_holds_is_waited_for_so_long),
		TEST(a_registry_takes_no_more_than_it_has_room_for_and_forgets_the_dead),
		TEST(who_does_not_have_the_file_is_no_obstacle),
		TEST(who_hangs_is_a_reason_to_refuse),
		TEST(who_closes_and_still_listens_is_a_reason_to_refuse),
		TEST(who_answers_nonsense_is_a_reason_to_refuse),
		TEST(half_an_answer_is_a_reason_to_refuse),
		TEST(another_version_is_a_reason_to_refuse),
		TEST(an_answer_without_descriptors_is_a_reason_to_refuse),
		TEST(descriptors_of_something_else_are_a_reason_to_refuse),
		TEST(more_descriptors_than_asked_for_are_a_reason_to_refuse),
		TEST(a_forked_child_is_entered_and_stays_when_its_parent_has_left),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
