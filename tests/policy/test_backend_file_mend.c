/* SPDX-License-Identifier: MIT */
/* A process of several that have a file is killed in its commit, and the others live on. */
#include "file_rig.h"

static struct vm_sys table;

static int sync_and_die(int fd)
{
	(void)vm_sys_linux.fdatasync(fd);
	_exit(7);
}

/* One commit; and a child that dies in the next, when that is on the disk, and nobody knows it. */
static void die_in_second(struct rig *r, struct image *first, struct image *second)
{
	uint64_t rnd = 2;
	int status;
	pid_t pid;

	*first = r->now;
	set_byte(first, 100, 'a');
	assert_int_equal(commit(r, first, first->size, VM_COMMIT_DURABLE, &rnd), 0);
	*second = *first;
	set_byte(second, 5000, 'b');
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		table = vm_sys_linux;
		table.fdatasync = sync_and_die;
		vm_sys = &table;
		(void)commit(r, second, second->size, VM_COMMIT_DURABLE, &rnd);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void what_a_killed_process_did_not_finish_does_not_come_back(void **state)
{
	struct rig *r = *state;
	struct image first, second;

	die_in_second(r, &first, &second);
	assert_loads(r, &first);
	assert_int_equal(ops->mend(&r->f), 0);
	assert_recovers_to(r, &first);
}

static void without_a_word_of_the_living_the_killed_ones_commit_counts(void **state)
{
	struct rig *r = *state;
	struct image first, second;

	die_in_second(r, &first, &second);
	assert_recovers_to(r, &second);
}

static void who_has_no_journal_leaves_it_to_one_who_has(void **state)
{
	struct rig *r = *state;

	assert_int_equal(ops->mend(&r->f), -ENOENT);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_a_killed_process_did_not_finish_does_not_come_back),
		T(without_a_word_of_the_living_the_killed_ones_commit_counts),
		T(who_has_no_journal_leaves_it_to_one_who_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
