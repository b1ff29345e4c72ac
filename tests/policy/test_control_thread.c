/* SPDX-License-Identifier: MIT */
/* The helper thread: descriptors, forks, the program's own freedom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control_rig.h"

#include <pthread.h>
#include <semaphore.h>

static void descriptors_are_high_and_may_be_moved_at_any_time(void **state)
{
	unsigned nmoved = 0;

	(void)state;
	for (int i = 0; i < 128; i++)
		assert_false(vm_fd_is_ours(i));
	for (int i = 128; i < 1 << 20; i++) {
		if (vm_fd_is_ours(i) && nmoved < 20) {
			assert_true(fcntl(i, F_GETFD) & FD_CLOEXEC);
			assert_int_equal(vm_fd_move(i), 0);
			nmoved++;
		}
	}
	assert_true(nmoved >= 2);
	ANSWERS("ping\n", "version");
	pol_control_kick();
	ANSWERS("ping\n", "version");
}

static void starting_again_does_nothing(void **state)
{
	(void)state;
	assert_int_equal(pol_control_start(), 0);
	ANSWERS("ping\n", "version");
}

/* In a forked child: fn's result is the child's status. */
static int in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	pol_fork_prepare();
	pid = fork();
	if (!pid) {
		alarm(20);
		pol_fork_child();
		_exit(fn());
	}
	pol_fork_parent();
	waitpid(pid, &status, 0);
	pol_socket_unlink(run_dir, pid); /* of one that may no longer do it */
	return status;
}

static int child_has_its_own(void)
{
	char want[32], sock[128];

	snprintf(want, sizeof(want), "\"pid\":%d,", getpid());
	if (!strstr(ask("ping\n"), want))
		return 1;
	snprintf(want, sizeof(want), "\"pid\":%d,", getppid());
	snprintf(sock, sizeof(sock), "%s/%d.sock", run_dir, getppid());
	if (access(sock, F_OK))
		return 2;
	pol_control_stop();
	snprintf(sock, sizeof(sock), "%s/%d.sock", run_dir, getpid());
	return access(sock, F_OK) ? 0 : 3;
}

static void a_forked_child_listens_under_its_own_pid_and_cleans_up(void **state)
{
	(void)state;
	assert_int_equal(in_child(child_has_its_own), 0);
	ANSWERS("ping\n", "version");
}

/* libc asks every thread to change its ids, by a signal that must not be blocked. */
static int child_can_change_ids(void)
{
	if (setuid(65534))
		return 1;
	pol_control_stop();
	return getuid() == 65534 ? 0 : 2;
}

static void the_program_can_change_its_ids(void **state)
{
	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(in_child(child_can_change_ids), 0);
}

static volatile bool talking = true;
static sem_t begun;

static void *talk(void *arg)
{
	sem_post(&begun);
	while (talking) {
		int s = dial(*(pid_t *)arg);

		if (s < 0)
			continue;
		(void)send(s, "status\nping\n", 12, MSG_NOSIGNAL);
		(void)hear(s);
		close(s);
	}
	return NULL;
}

static int child_answers(void)
{
	int ok = strstr(ask("ping\n"), "version") != NULL;

	pol_control_stop();
	return !ok;
}

static void a_fork_in_the_middle_of_a_talk_leaves_both_sides_working(void **state)
{
	pid_t pid = getpid();
	pthread_t t;

	(void)state;
	sem_init(&begun, 0, 0);
	assert_int_equal(pthread_create(&t, NULL, talk, &pid), 0);
	/* a sanitizer's thread that is half begun has locks, which the child would wait for without end */
	sem_wait(&begun);
	for (int i = 0; i < 100; i++)
		assert_int_equal(in_child(child_answers), 0);
	talking = false;
	pthread_join(t, NULL);
	ANSWERS("ping\n", "version");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(descriptors_are_high_and_may_be_moved_at_any_time),
		cmocka_unit_test(starting_again_does_nothing),
		cmocka_unit_test(a_forked_child_listens_under_its_own_pid_and_cleans_up),
		cmocka_unit_test(the_program_can_change_its_ids),
		cmocka_unit_test(a_fork_in_the_middle_of_a_talk_leaves_both_sides_working),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
