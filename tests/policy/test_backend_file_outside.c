/* SPDX-License-Identifier: MIT */
/* What others do to the file is told from what we do ourselves. */
#define _GNU_SOURCE 1
#include "file_rig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* It looks at most once a millisecond, and a file's time goes on by ticks of up to 10. */
static void until_it_looks_again(void)
{
	struct timespec from, now;

	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < 12000000);
}

static void a_commit_between_looks_does_not_hide_a_change_before_it(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 3;

	assert_int_equal(ops->changed(&r->f, 0), 0);
	until_it_looks_again();
	assert_int_equal(utimensat(AT_FDCWD, r->box.data, NULL, 0), 0);
	set_byte(&next, 1, 98);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	until_it_looks_again();
	assert_int_equal(ops->changed(&r->f, 0), 1);
}

static void many_commits_are_no_change_by_somebody_else(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 4;

	for (int i = 0; i < 200; i++) {
		set_byte(&next, 1, (unsigned char)i);
		assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
		assert_int_equal(ops->changed(&r->f, 0), 0);
		if (i % 50 == 0)
			until_it_looks_again();
	}
}

/* The wall clock is set as soon as it was asked twice. */
static unsigned nasked;
static time_t set_by;

static int clock_that_is_set(int clock, struct timespec *ret_ts)
{
	int err = vm_sys_linux.clock_gettime(clock, ret_ts);

	if (clock != CLOCK_MONOTONIC && nasked++ >= 2)
		ret_ts->tv_sec += set_by;
	return err;
}

static void a_clock_that_is_set_during_a_commit_is_no_change_by_somebody_else(void **state)
{
	static const time_t by[] = {-3600, 3600};
	struct vm_sys with = vm_sys_linux;
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 4;

	with.clock_gettime = clock_that_is_set;
	for (unsigned i = 0; i < 2; i++) {
		set_byte(&next, 1, (unsigned char)i);
		assert_int_equal(ops->changed(&r->f, 1), 0);
		until_it_looks_again();
		nasked = 0;
		set_by = by[i];
		faulty_use(&with);
		assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
		faulty_use(&vm_sys_linux);
		assert_true(nasked > 2);
		until_it_looks_again();
		assert_int_equal(ops->changed(&r->f, 0), 0);
	}
}

static void a_change_by_somebody_else_is_seen_until_accepted(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 1, 99);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(ops->changed(&r->f, 0), 0);
	until_it_looks_again();
	image_put(r->box.data, &next);
	assert_int_equal(ops->changed(&r->f, 0), 1);
	assert_int_equal(ops->changed(&r->f, 1), 1);
	assert_int_equal(ops->changed(&r->f, 0), 0);
}

static void a_file_shortened_by_somebody_else_loads_zeros(void **state)
{
	struct rig *r = *state;
	struct image shorter = r->now;

	memset(shorter.bytes + 50, 0, IMAGE_MAX - 50);
	shorter.size = 50;
	assert_int_equal(truncate(r->box.data, 50), 0);
	assert_loads(r, &shorter);
}

static void reserved_space_is_there_and_no_outside_change(void **state)
{
	struct rig *r = *state;
	struct stat before, after;

	assert_int_equal(stat(r->box.data, &before), 0);
	assert_int_equal(ops->reserve(&r->f, 0, 1 << 20), 0);
	assert_int_equal(stat(r->box.data, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_true(after.st_blocks >= (1 << 20) / 512);
	assert_int_equal(ops->changed(&r->f, 0), 0);
}

/* It had the file by fork, and began the journal, which it left behind. */
static void what_a_relative_left_in_its_journal_is_no_change_by_somebody_else(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 4;
	int status;
	pid_t pid = fork();

	if (!pid) {
		set_byte(&next, 5000, 77);
		_exit(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(box_has(r->box.journal));
	until_it_looks_again();
	assert_int_equal(ops->open_write(&r->f), 0);
	until_it_looks_again();
	assert_int_equal(ops->changed(&r->f, 0), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_change_by_somebody_else_is_seen_until_accepted),
		T(a_commit_between_looks_does_not_hide_a_change_before_it),
		T(many_commits_are_no_change_by_somebody_else),
		T(a_clock_that_is_set_during_a_commit_is_no_change_by_somebody_else),
		T(a_file_shortened_by_somebody_else_loads_zeros),
		T(what_a_relative_left_in_its_journal_is_no_change_by_somebody_else),
		T(reserved_space_is_there_and_no_outside_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
