/* SPDX-License-Identifier: MIT */
/* For the tests of the helper thread: a process with one managed file of four pages, mapped, and a client of
 * its socket. */
#ifndef CONTROL_RIG_H
#define CONTROL_RIG_H

#include "control_priv.h"
#include "managed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], run_dir[96], path[96];
static struct pol_file *file;
static int fd;
static char *map;

static int dial(pid_t pid)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = 20};
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d.sock", run_dir, pid);
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(s, (struct sockaddr *)&addr, sizeof(addr))) {
		close(s);
		return -1;
	}
	return s;
}

static void tell(int s, const char *request)
{
	assert_int_equal(send(s, request, strlen(request), MSG_NOSIGNAL), strlen(request));
}

/* One line without its newline; "" at the end of the connection. */
static char *hear(int s)
{
	static __thread char line[65536];
	size_t len = 0;

	while (len < sizeof(line) - 1) {
		ssize_t n = recv(s, line + len, 1, 0);

		if (n < 0)
			fail_msg("no answer: %s", strerror(errno));
		if (n == 0 || line[len] == '\n')
			break;
		len++;
	}
	line[len] = 0;
	return line;
}

static char *ask(const char *request)
{
	int s = dial(getpid());
	char *answer;

	assert_true(s >= 0);
	tell(s, request);
	answer = hear(s);
	close(s);
	return answer;
}

#define ANSWERS(request, ...)                                                                                \
	do {                                                                                                 \
		const char *answer_ = ask(request);                                                          \
		const char *const words_[] = {__VA_ARGS__};                                                  \
		for (size_t i_ = 0; i_ < sizeof(words_) / sizeof(words_[0]); i_++) {                         \
			if (!strstr(answer_, words_[i_]))                                                    \
				fail_msg("%s answers %s, not %s", request, answer_, words_[i_]);             \
		}                                                                                            \
	} while (0)

static int rig_setup(void **state)
{
	void *addr;

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	snprintf(path, sizeof(path), "%s/data", dir);
	setenv("TXMAP_PATHS", path, 1);
	setenv("TXMAP_COMMIT", "none", 1);
	setenv("TXMAP_CONFLICT", "overwrite", 1);
	setenv("TXMAP_RUNTIME_DIR", run_dir, 1);
	if (pol_start() != 1)
		return -1;
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 16384) || pol_fd_open(fd, &file) < 0 || !file)
		return -1;
	if (pol_mmap(file, fd, NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, 0, &addr))
		return -1;
	map = addr;
	return 0;
}

static int rig_teardown(void **state)
{
	char left[128];

	(void)state;
	pol_control_stop();
	pol_munmap(map, 16384);
	pol_fd_close(file);
	snprintf(left, sizeof(left), "%s/.data.txmap", dir);
	unlink(left);
	unlink(path);
	snprintf(left, sizeof(left), "%s/shares", run_dir);
	unlink(left);
	return rmdir(run_dir) || rmdir(dir);
}

#endif
