/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static char file_path[96];

static size_t logged(char *buf, size_t len, void (*act)(void))
{
	int fds[2], saved = dup(2);
	ssize_t n;

	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	dup2(fds[1], 2);
	act();
	dup2(saved, 2);
	close(saved);
	n = read(fds[0], buf, len - 1);
	close(fds[0]);
	close(fds[1]);
	buf[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

static void say_things(void)
{
	pol_log_open(POL_LOG_WARN, NULL);
	errno = EDOM;
	pol_log(POL_LOG_WARN, "a\nb %s", pol_errno_name(-ENOSPC));
	assert_int_equal(errno, EDOM);
	pol_log(POL_LOG_INFO, "not this");
}

static void a_message_is_one_prefixed_line_of_a_level_that_is_on(void **state)
{
	char text[2048], want[64];

	(void)state;
	logged(text, sizeof(text), say_things);
	snprintf(want, sizeof(want), "txmap[%d]: warning: a?b ENOSPC\n", getpid());
	assert_string_equal(text, want);
}

static void say_much(void)
{
	pol_log_open(POL_LOG_WARN, NULL);
	pol_log(POL_LOG_ERROR, "%01500d", 0);
}

static void a_long_message_is_cut_and_still_a_line(void **state)
{
	char text[4096];
	size_t len;

	(void)state;
	len = logged(text, sizeof(text), say_much);
	assert_true(len > 1000 && len <= 1024);
	assert_int_equal(text[len - 1], '\n');
}

/* A program that closed stderr and got descriptor 2 for its database. */
static void a_message_never_goes_into_a_data_file(void **state)
{
	struct stat st;
	int status;

	(void)state;
	pol_log_open(POL_LOG_WARN, NULL);
	if (!fork()) {
		close(2);
		if (open(file_path, O_RDWR | O_CREAT | O_TRUNC, 0600) != 2)
			_exit(1);
		pol_log(POL_LOG_ERROR, "this would destroy it");
		_exit(0);
	}
	wait(&status);
	assert_int_equal(status, 0);
	assert_int_equal(stat(file_path, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void a_log_file_is_private_and_appended_to(void **state)
{
	char path[96], text[256];
	struct stat st;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/log", dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "before\n", 7), 7);
	close(fd);
	pol_log_open(POL_LOG_DEBUG, path);
	pol_log(POL_LOG_DEBUG, "after");
	pol_log_open(POL_LOG_WARN, NULL);
	fd = open(path, O_RDONLY);
	memset(text, 0, sizeof(text));
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_memory_equal(text, "before\ntxmap[", 13);
	assert_non_null(strstr(text, "]: debug: after\n"));
}

static void say_by_bad_file(void)
{
	pol_log_open(POL_LOG_WARN, "/nowhere/log");
	pol_log(POL_LOG_WARN, "but this");
	pol_log_open(POL_LOG_WARN, NULL);
}

static void a_log_file_is_made_by_the_first_message(void **state)
{
	char path[96];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/late", dir);
	pol_log_open(POL_LOG_WARN, path);
	pol_log(POL_LOG_INFO, "not this");
	assert_int_equal(stat(path, &st), -1);
	pol_log(POL_LOG_WARN, "but this");
	assert_int_equal(stat(path, &st), 0);
	assert_true(pol_log_is_file(&st));
	pol_log_open(POL_LOG_WARN, NULL);
	assert_int_equal(unlink(path), 0);
}

static void a_log_file_that_cannot_be_opened_is_told_on_stderr(void **state)
{
	char text[512];

	(void)state;
	logged(text, sizeof(text), say_by_bad_file);
	assert_non_null(strstr(text, "/nowhere/log"));
	assert_non_null(strstr(text, "ENOENT"));
	assert_non_null(strstr(text, "but this"));
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR") ?: "/var/tmp";

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", tmp);
	if (!mkdtemp(dir))
		return -1;
	snprintf(file_path, sizeof(file_path), "%s/data", dir);
	return 0;
}

static int teardown(void **state)
{
	char path[96];

	(void)state;
	unlink(file_path);
	snprintf(path, sizeof(path), "%s/log", dir);
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_one_prefixed_line_of_a_level_that_is_on),
		cmocka_unit_test(a_long_message_is_cut_and_still_a_line),
		cmocka_unit_test(a_message_never_goes_into_a_data_file),
		cmocka_unit_test(a_log_file_is_private_and_appended_to),
		cmocka_unit_test(a_log_file_that_cannot_be_opened_is_told_on_stderr),
		cmocka_unit_test(a_log_file_is_made_by_the_first_message),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
