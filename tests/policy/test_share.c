/* SPDX-License-Identifier: MIT */
/* Who is entered in the registry of a file, and who is found there. */
#define _GNU_SOURCE 1
#include "share_rig.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/wait.h>

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

/* A number that no process has. */
#define NOBODY (INT32_MAX - 1)

static void a_registry_of_the_dead_is_swept_and_one_of_the_living_is_not(void **state)
{
	struct stat st;
	char name[160], text[64];

	(void)state;
	registry_name(name, sizeof(name));
	assert_int_equal(fstat(fd, &st), 0);
	snprintf(text, sizeof(text), "%d\n%d\n", NOBODY, getppid());
	write_registry(text);
	pol_registry_sweep(st.st_dev, st.st_ino);
	assert_int_equal(access(name, F_OK), 0);
	snprintf(text, sizeof(text), "%d\n", NOBODY);
	write_registry(text);
	pol_hint_count(st.st_dev, st.st_ino, -1); /* it was counted before */
	assert_true(pol_hint_maybe(st.st_dev, st.st_ino));
	pol_registry_sweep(st.st_dev, st.st_ino);
	assert_int_equal(access(name, F_OK), -1);
	assert_false(pol_hint_maybe(st.st_dev, st.st_ino)); /* the next descriptor is not looked for */
}

static void asking_whether_somebody_is_there_takes_a_registry_of_the_dead_away(void **state)
{
	struct stat st;
	char name[160], text[64];

	(void)state;
	registry_name(name, sizeof(name));
	assert_int_equal(fstat(fd, &st), 0);
	/* one that its parent, or who left before it, entered */
	snprintf(text, sizeof(text), "%d\n-%d\n", NOBODY, NOBODY - 1);
	write_registry(text);
	assert_false(pol_share_has_somebody(st.st_dev, st.st_ino));
	assert_int_equal(access(name, F_OK), -1);
}

static void a_count_of_registries_does_not_go_below_nothing(void **state)
{
	struct stat st;

	(void)state;
	pol_hint_open();
	assert_int_equal(fstat(fd, &st), 0);
	pol_hint_count(st.st_dev, st.st_ino, -1);
	pol_hint_count(st.st_dev, st.st_ino, -1);
	assert_false(pol_hint_maybe(st.st_dev, st.st_ino));
	pol_hint_count(st.st_dev, st.st_ino, 1);
	assert_true(pol_hint_maybe(st.st_dev, st.st_ino));
	assert_true(pol_hint_mask() & pol_inode_class(st.st_ino));
	pol_hint_count(st.st_dev, st.st_ino, -1);
	assert_false(pol_hint_mask() & pol_inode_class(st.st_ino));
}

static void the_directory_is_swept_by_one_and_not_all_the_time(void **state)
{
	char name[160];
	int s;

	(void)state;
	pol_hint_open();
	(void)pol_hint_sweep_is_due(0);
	snprintf(name, sizeof(name), "%s/%d.sock", run_dir, NOBODY);
	s = open(name, O_CREAT | O_RDWR, 0600); /* no socket: not ours to take away */
	close(s);
	assert_false(pol_hint_sweep_is_due(3600));
	pol_sweep();
	assert_int_equal(unlink(name), 0);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(the_first_enters_itself_and_the_last_leaves_nothing),
		TEST(entries_of_the_dead_and_nonsense_are_no_obstacle),
		TEST(a_registry_that_somebody_holds_is_waited_for_so_long),
		TEST(a_registry_takes_no_more_than_it_has_room_for_and_forgets_the_dead),
		TEST(a_registry_of_the_dead_is_swept_and_one_of_the_living_is_not),
		TEST(asking_whether_somebody_is_there_takes_a_registry_of_the_dead_away),
		TEST(a_count_of_registries_does_not_go_below_nothing),
		TEST(the_directory_is_swept_by_one_and_not_all_the_time),
		TEST(a_forked_child_is_entered_and_stays_when_its_parent_has_left),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
