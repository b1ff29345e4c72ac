/* SPDX-License-Identifier: MIT */
/* The control socket, in a process with a real managed file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control_rig.h"
#include "log.h"
#include "version.h"

static char byte_in_file(off_t off)
{
	char c = 0;
	int f = open(path, O_RDONLY);

	assert_int_equal(pread(f, &c, 1, off), 1);
	close(f);
	return c;
}

/* ---- requests ---- */

static void ping_tells_the_process_and_the_version(void **state)
{
	char pid[32];

	(void)state;
	snprintf(pid, sizeof(pid), "\"pid\":%d,", getpid());
	ANSWERS("ping\n", "{\"ok\":true,", pid, "\"version\":\"" TXMAP_VERSION "\"}");
}

static void commit_puts_stores_into_the_file(void **state)
{
	char request[200];

	(void)state;
	map[5] = 'c';
	assert_int_not_equal(byte_in_file(5), 'c');
	snprintf(request, sizeof(request), "commit %s\n", path);
	ANSWERS(request, "{\"ok\":true,\"txid\":", "\"files\":1,", "\"pages\":1,", "\"usec\":");
	assert_int_equal(byte_in_file(5), 'c');
}

static void discard_brings_the_last_commit_back(void **state)
{
	char before = map[6];

	(void)state;
	map[6] = (char)(before + 1);
	ANSWERS("discard\n", "{\"ok\":true,", "\"files\":1,");
	assert_int_equal(map[6], before);
}

static void invalidate_loads_what_another_program_wrote(void **state)
{
	char request[200];
	int f = open(path, O_WRONLY);
	char before = map[4096];

	(void)state;
	assert_int_not_equal(before, 'n');
	assert_int_equal(pwrite(f, "n", 1, 4096), 1);
	close(f);
	assert_int_equal(map[4096], before);
	snprintf(request, sizeof(request), "invalidate %s 4K 4K\n", path);
	ANSWERS(request, "{\"ok\":true,", "\"files\":1,");
	assert_int_equal(map[4096], 'n');
}

static void status_lists_the_managed_file(void **state)
{
	char want[200];

	(void)state;
	map[7]++;
	snprintf(want, sizeof(want), "\"path\":\"%s\"", path);
	ANSWERS("status\n", "{\"ok\":true,\"pid\":", "\"comm\":\"test_control\"", "\"engine\":\"",
		"\"files\":[{", want, "\"size\":16384,", "\"dirty\":1,", "\"needs_recovery\":false");
	ANSWERS("discard\n", "\"ok\":true");
	ANSWERS("status\n", "\"dirty\":0,");
}

static void what_cannot_be_done_says_why(void **state)
{
	(void)state;
	ANSWERS("fly\n", "{\"ok\":false,\"errno\":\"EINVAL\",", "fly: unknown request; allowed: status");
	ANSWERS("\n", "EINVAL", "empty");
	ANSWERS("commit a.db\n", "EINVAL", "absolute");
	ANSWERS("commit /a /b\n", "EINVAL", "commit [PATH]");
	ANSWERS("commit /%g0\n", "EINVAL", "hexadecimal");
	ANSWERS("commit /nowhere\n", "ENOENT", "/nowhere");
	ANSWERS("invalidate\n", "EINVAL", "PATH");
	ANSWERS("invalidate /a 1X 2\n", "EINVAL", "sizes");
	ANSWERS("snapshot /nowhere /b\n", "ENOENT", "/nowhere");
	ANSWERS("snapshot /a b\n", "EINVAL", "snapshot to b: not an absolute path");
	ANSWERS("snapshot /a /b now\n", "EINVAL", "force");
	ANSWERS("snapshot /a\n", "EINVAL", "snapshot PATH OUT [force]");
	ANSWERS("set commit none\n", "EOPNOTSUPP", "commit");
	ANSWERS("set nonsense 1\n", "EINVAL", "nonsense");
	ANSWERS("set log loud\n", "EINVAL", "loud", "warn");
}

static void the_log_level_changes_at_run_time(void **state)
{
	(void)state;
	ANSWERS("set log debug\n", "\"ok\":true");
	assert_true(pol_log_is_on(POL_LOG_DEBUG));
	ANSWERS("set log error\n", "\"ok\":true");
	assert_false(pol_log_is_on(POL_LOG_WARN));
}

/* ---- connections ---- */

static void requests_are_answered_in_order_however_they_are_cut(void **state)
{
	int s = dial(getpid());

	(void)state;
	tell(s, "pi");
	assert_non_null(strstr(ask("ping\n"), "true")); /* the thread has seen the half */
	tell(s, "ng\nset log error\r\nfly\nping\n");
	assert_non_null(strstr(hear(s), "version"));
	assert_string_equal(hear(s), "{\"ok\":true}");
	assert_non_null(strstr(hear(s), "EINVAL"));
	assert_non_null(strstr(hear(s), "version"));
	shutdown(s, SHUT_WR);
	assert_string_equal(hear(s), "");
	close(s);
}

static void half_a_request_is_not_done_and_says_so(void **state)
{
	int s = dial(getpid());

	(void)state;
	map[8]++;
	tell(s, "discard");
	shutdown(s, SHUT_WR);
	assert_non_null(strstr(hear(s), "half a request"));
	assert_string_equal(hear(s), "");
	close(s);
	ANSWERS("status\n", "\"dirty\":1,");
	ANSWERS("discard\n", "\"ok\":true");
}

static void a_line_of_1_MiB_is_refused_and_the_connection_ends(void **state)
{
	static char line[1 << 20];
	int s = dial(getpid());

	(void)state;
	memset(line, 'a', sizeof(line) - 1);
	tell(s, line); /* all of it is taken, or this would be a broken pipe */
	assert_non_null(strstr(hear(s), "EMSGSIZE"));
	assert_string_equal(hear(s), "");
	close(s);
}

static void a_line_of_16384_bytes_is_a_request_and_one_more_is_not(void **state)
{
	static char line[16400];
	int s;

	(void)state;
	memset(line, ' ', sizeof(line));
	memcpy(line, "ping", 4);
	strcpy(line + 16384, "\n");
	assert_non_null(strstr(ask(line), "version"));
	strcpy(line + 16384, " \n");
	s = dial(getpid());
	tell(s, line);
	assert_non_null(strstr(hear(s), "EMSGSIZE"));
	close(s);
}

static void a_zero_byte_ends_the_connection(void **state)
{
	int s = dial(getpid());

	(void)state;
	assert_int_equal(send(s, "ping\0\n", 6, 0), 6);
	assert_non_null(strstr(hear(s), "EINVAL"));
	assert_string_equal(hear(s), "");
	close(s);
}

static void clients_that_hang_keep_nobody_waiting_for_long(void **state)
{
	int s[40];

	(void)state;
	for (int i = 0; i < 15; i++) { /* more than there are places */
		s[i] = dial(getpid());
		assert_true(s[i] >= 0);
		tell(s[i], i % 2 ? "pi" : "status\nstatus\nstatus\n"); /* and do not read */
	}
	ANSWERS("ping\n", "version"); /* hear() fails when this takes 20 s */
	for (int i = 0; i < 15; i++)
		close(s[i]);
}

static void a_client_that_never_reads_is_not_waited_for(void **state)
{
	int s = dial(getpid()), n = 0;

	(void)state;
	while (n < 100000 && send(s, "status\n", 7, MSG_DONTWAIT | MSG_NOSIGNAL) == 7)
		n++;
	ANSWERS("ping\n", "version");
	close(s);
	ANSWERS("ping\n", "version");
}

static void a_slow_reader_gets_every_answer(void **state)
{
	int s = dial(getpid()), n = 0;

	(void)state;
	while (n < 100000 && send(s, "status\n", 7, MSG_DONTWAIT | MSG_NOSIGNAL) == 7)
		n++;
	assert_true(n > 100); /* so many that the thread could not send every answer at once */
	for (int i = 0; i < n; i++)
		assert_non_null(strstr(hear(s), "\"files\":[{"));
	close(s);
}

static void another_user_is_refused(void **state)
{
	int status;

	(void)state;
	if (geteuid())
		skip();
	chmod(dir, 0755);
	chmod(run_dir, 0755); /* as if somebody had opened it later */
	if (!fork()) {
		char sock[128], answer[256] = "";
		int s;

		snprintf(sock, sizeof(sock), "%s/%d.sock", run_dir, getppid());
		chmod(sock, 0777);
		if (setgid(65534) || setuid(65534))
			_exit(1);
		s = dial(getppid());
		if (s < 0)
			_exit(2);
		if (recv(s, answer, sizeof(answer) - 1, 0) <= 0)
			_exit(3);
		_exit(strstr(answer, "EPERM") ? 0 : 4);
	}
	wait(&status);
	chmod(run_dir, 0700);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ping_tells_the_process_and_the_version),
		cmocka_unit_test(commit_puts_stores_into_the_file),
		cmocka_unit_test(discard_brings_the_last_commit_back),
		cmocka_unit_test(invalidate_loads_what_another_program_wrote),
		cmocka_unit_test(status_lists_the_managed_file),
		cmocka_unit_test(what_cannot_be_done_says_why),
		cmocka_unit_test(the_log_level_changes_at_run_time),
		cmocka_unit_test(requests_are_answered_in_order_however_they_are_cut),
		cmocka_unit_test(half_a_request_is_not_done_and_says_so),
		cmocka_unit_test(a_line_of_1_MiB_is_refused_and_the_connection_ends),
		cmocka_unit_test(a_line_of_16384_bytes_is_a_request_and_one_more_is_not),
		cmocka_unit_test(a_zero_byte_ends_the_connection),
		cmocka_unit_test(clients_that_hang_keep_nobody_waiting_for_long),
		cmocka_unit_test(a_client_that_never_reads_is_not_waited_for),
		cmocka_unit_test(a_slow_reader_gets_every_answer),
		cmocka_unit_test(another_user_is_refused),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
