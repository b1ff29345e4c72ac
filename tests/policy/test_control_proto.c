/* SPDX-License-Identifier: MIT */
/* The control socket's language and its place, without the thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control_priv.h"
#include "faulty_sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pol_request q;
static const char *why;

static int parse(const char *text)
{
	static char line[256];

	snprintf(line, sizeof(line), "%s", text);
	return pol_request_parse(line, &q, &why);
}

static void words_are_separated_by_any_number_of_blanks(void **state)
{
	(void)state;
	assert_int_equal(parse("  commit   /srv/a.db "), 0);
	assert_int_equal(q.nwords, 2);
	assert_string_equal(q.words[0], "commit");
	assert_string_equal(q.words[1], "/srv/a.db");
	assert_null(q.words[2]);
}

static void percent_and_two_digits_stand_for_a_byte(void **state)
{
	(void)state;
	assert_int_equal(parse("commit /a%20b%25%c3%A9%0Ac"), 0);
	assert_string_equal(q.words[1], "/a b%\xc3\xa9\nc");
}

static void a_request_that_is_none_is_refused(void **state)
{
	(void)state;
	for (const char *const *bad =
		     (const char *const[]){"", "   ", "a %", "a %2", "a %zz", "a %00", "a b c d e f", NULL};
	     *bad; bad++) {
		why = NULL;
		assert_int_equal(parse(*bad), -EINVAL);
		assert_non_null(why);
	}
}

static void a_string_is_valid_json_whatever_the_name_holds(void **state)
{
	struct pol_out o = {0};
	const char *want =
		"\"a\\\"b\\\\c\\u000a\\u007f\xc3\xa9\\udcff\\udcc3\xe2\x82\xac\\udced\\udca0\\udc80\"";

	(void)state;
	pol_out_string(&o, "a\"b\\c\n\x7f\xc3\xa9\xff\xc3\xe2\x82\xac\xed\xa0\x80");
	assert_int_equal(o.len, strlen(want));
	assert_memory_equal(o.mem, want, o.len);
	pol_out_free(&o);
}

static void a_reply_grows_as_far_as_there_is_memory(void **state)
{
	struct pol_out o = {0};

	(void)state;
	for (int i = 0; i < 100000; i++)
		pol_out_text(&o, "%09d\n", i);
	assert_false(o.failed);
	assert_int_equal(o.len, 1000000);
	assert_memory_equal(o.mem + 999990, "000099999\n", 10);
	pol_out_free(&o);

	faulty_arm(FAULTY_BIT(mmap) | FAULTY_BIT(mremap), 3, ENOMEM, FAULTY_FOR_EVER);
	for (int i = 0; i < 100000; i++)
		pol_out_text(&o, "%09d\n", i);
	faulty_disarm();
	assert_true(o.failed);
	pol_out_free(&o);
}

/* ---- the socket's place ---- */

static char dir[64];
static char text[512];

static unsigned nfds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int listen_at(const char *where, int *ret_fd)
{
	text[0] = 0;
	*ret_fd = -1;
	return pol_socket_listen(where, getpid(), ret_fd, text, sizeof(text));
}

static void the_directory_is_made_for_us_alone(void **state)
{
	char path[128];
	struct stat st;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/made", dir);
	assert_int_equal(listen_at(path, &fd), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	pol_socket_unlink(path, getpid());
	assert_int_equal(rmdir(path), 0);
}

static void a_directory_that_is_not_ours_alone_is_refused_with_the_reason(void **state)
{
	char path[128], target[128];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/bad", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0750), 0);
	assert_int_equal(listen_at(path, &fd), -EPERM);
	assert_non_null(strstr(text, "0750"));
	assert_int_equal(chmod(path, 0700), 0);
	if (!geteuid()) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(listen_at(path, &fd), -EPERM);
		assert_non_null(strstr(text, "uid 65534"));
		assert_int_equal(chown(path, 0, 0), 0);
	}
	snprintf(target, sizeof(target), "%s/link", dir);
	assert_int_equal(symlink(path, target), 0);
	assert_true(listen_at(target, &fd) < 0);
	assert_non_null(strstr(text, "symbolic link"));
	unlink(target);
	assert_int_equal(rmdir(path), 0);

	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_true(listen_at(path, &fd) < 0);
	assert_non_null(strstr(text, path));
	unlink(path);

	snprintf(path, sizeof(path), "%s/no/where", dir);
	assert_int_equal(listen_at(path, &fd), -ENOENT);
	assert_non_null(strstr(text, "ENOENT"));
	assert_int_equal(fd, -1);
}

static void a_socket_left_by_a_dead_process_is_replaced(void **state)
{
	int fd;

	(void)state;
	assert_int_equal(listen_at(dir, &fd), 0);
	close(fd);
	assert_int_equal(listen_at(dir, &fd), 0);
	close(fd);
	pol_socket_unlink(dir, getpid());
}

static void what_is_not_a_dead_socket_stays(void **state)
{
	char path[128];
	struct stat st;
	int fd, second;

	(void)state;
	assert_int_equal(listen_at(dir, &fd), 0);
	assert_int_equal(listen_at(dir, &second), -EADDRINUSE);
	close(fd);
	pol_socket_unlink(dir, getpid());
	snprintf(path, sizeof(path), "%s/%d.sock", dir, getpid());
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(listen_at(dir, &fd), -EADDRINUSE);
	assert_non_null(strstr(text, path));
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	unlink(path);
}

static void a_directory_with_a_long_name_will_do(void **state)
{
	char path[300];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/%0200d", dir, 7);
	assert_int_equal(listen_at(path, &fd), 0);
	close(fd);
	pol_socket_unlink(path, getpid());
	assert_int_equal(rmdir(path), 0);
}

static void a_host_call_that_fails_is_the_reason_and_leaks_nothing(void **state)
{
	int fd, n;

	(void)state;
	assert_int_equal(listen_at(dir, &fd), 0);
	close(fd); /* stale now: the longest way */
	for (n = 1;; n++) {
		unsigned before = nfds(), ncalls;
		int err;

		faulty_arm(FAULTY_ALL, (unsigned)n, EIO, 0);
		err = listen_at(dir, &fd);
		ncalls = faulty_disarm();
		if (ncalls < (unsigned)n) {
			assert_int_equal(err, 0);
			close(fd);
			break;
		}
		assert_true(err < 0);
		assert_int_equal(fd, -1);
		assert_int_not_equal(text[0], 0);
		assert_int_equal(nfds(), before);
	}
	assert_true(n > 3);
	pol_socket_unlink(dir, getpid());
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_separated_by_any_number_of_blanks),
		cmocka_unit_test(percent_and_two_digits_stand_for_a_byte),
		cmocka_unit_test(a_request_that_is_none_is_refused),
		cmocka_unit_test(a_string_is_valid_json_whatever_the_name_holds),
		cmocka_unit_test(a_reply_grows_as_far_as_there_is_memory),
		cmocka_unit_test(the_directory_is_made_for_us_alone),
		cmocka_unit_test(a_directory_that_is_not_ours_alone_is_refused_with_the_reason),
		cmocka_unit_test(a_socket_left_by_a_dead_process_is_replaced),
		cmocka_unit_test(what_is_not_a_dead_socket_stays),
		cmocka_unit_test(a_directory_with_a_long_name_will_do),
		cmocka_unit_test(a_host_call_that_fails_is_the_reason_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
