/* SPDX-License-Identifier: MIT */
/* Children are killed, run another program, or only look as if they were gone. */
#include "fork_rig.h"
#include <sched.h>

static void what_a_killed_child_stored_is_in_the_parents_next_commit(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 11), 1);
		rig_store8(at(m, 40), 1);
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	rig_store8(at(m, 12), 1);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 11 * VM_PAGE), 1);
	assert_int_equal(rig_get_byte(r->f, 12 * VM_PAGE), 1);
	assert_int_equal(rig_get_byte(r->f, 40 * VM_PAGE), 1);
	assert_false(vm_fileh_is_shared(r->h));
}

static pid_t owner;

static void die_in_a_transaction(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (getpid() != owner)
		(void)kill(getpid(), SIGKILL);
}

static void child_dies_in(struct rig *r, enum rig_op op)
{
	char *m = open_and_map(r);
	pid_t pid;

	owner = getpid();
	rig_hook_at(r->f, op, die_in_a_transaction, NULL);
	pid = rig_fork();
	if (!pid) {
		for (uint64_t pg = 0; pg < NPAGES; pg += 2)
			rig_store8(at(m, pg), (char)-1);
		(void)rig_try_commit(r->h);
		_exit(1);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	rig_store8(at(m, 1), (char)-1);
	(void)rig_commit(r->h); /* the transaction that the child left would be in the way */
	assert_int_equal(rig_ncalls(r->f, RIG_MEND), 1);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE), pg % 2 && pg > 1 ? rig_byte(pg) : 0xff);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_child_that_dies_while_it_stores_leaves_its_commit_to_the_parent(struct rig *r)
{
	child_dies_in(r, RIG_STOREBLK);
}

static void a_child_that_dies_before_its_commit_happened_leaves_it_to_the_parent(struct rig *r)
{
	child_dies_in(r, RIG_COMMIT);
}

static void who_dies_while_it_counts_pages_leaves_no_wrong_count(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	rig_store8(at(m, 1), (char)-1);
	rig_store8(at(m, 2), (char)-1);
	pid = rig_fork();
	if (!pid) {
		vm_fileh_lock(r->h);
		r->h->ctl->npages[VM_DIRTY] += 5;
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 1 * VM_PAGE), 0xff);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE), 0xff);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void die_in_a_load(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (getpid() != owner)
		(void)kill(getpid(), SIGKILL);
}

static void pages_that_a_child_died_loading_are_loaded_by_the_parent(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	owner = getpid();
	rig_hook_at(r->f, RIG_LOADBLK, die_in_a_load, NULL);
	pid = rig_fork();
	if (!pid)
		_exit(nwrong(m));
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_int_equal(nwrong(m), 0);
}

static void a_child_that_runs_another_program_is_gone(struct rig *r)
{
	char *m = open_and_map(r);
	int here[2], end[2];
	pid_t pid;

	assert_int_equal(pipe(here), 0);
	assert_int_equal(pipe(end), 0);
	pid = rig_fork();
	if (!pid) {
		rig_store8(at(m, 20), 1);
		(void)dup2(end[0], 0);
		(void)dup2(here[1], 1);
		(void)close(end[1]);
		(void)execl("/bin/sh", "sh", "-c", "echo; read nothing; exit 0", NULL);
		_exit(1);
	}
	(void)close(end[0]);
	wait_for_word(here[0]);
	assert_int_equal(kill(pid, 0), 0);
	assert_false(vm_fileh_is_shared(r->h));
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 20 * VM_PAGE), 1);
	(void)close(end[1]);
	assert_int_equal(rig_reap(pid), 0);
	(void)close(here[0]);
	(void)close(here[1]);
}

/* Our descriptors move out of the program's way; others must not take us for dead. */
static void a_child_whose_descriptors_moved_is_still_there(struct rig *r)
{
	int here[2], end[2], was;
	pid_t pid;

	(void)open_and_map(r);
	assert_int_equal(pipe(here), 0);
	assert_int_equal(pipe(end), 0);
	was = r->h->ctl_fd;
	pid = rig_fork();
	if (!pid) {
		int err = vm_fd_move(was);

		(void)close(end[1]);
		if (err || r->h->ctl_fd == was || dup2(end[0], was) != was)
			_exit(1);
		(void)!write(here[1], "", 1);
		wait_for_word(end[0]);
		_exit(0);
	}
	(void)close(end[0]);
	wait_for_word(here[0]);
	assert_true(vm_fileh_is_shared(r->h));
	(void)close(end[1]);
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	(void)close(here[0]);
	(void)close(here[1]);
}

static void *go_on(void *arg)
{
	int *fds = arg;

	(void)write(fds[1], "", 1);
	wait_for_word(fds[2]);
	_exit(0);
}

static void a_child_whose_main_thread_ended_is_still_there(struct rig *r)
{
	int fds[4]; /* here, go on */
	pid_t pid;

	(void)open_and_map(r);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	pid = rig_fork();
	if (!pid) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, go_on, fds))
			_exit(1);
		pthread_exit(NULL);
	}
	wait_for_word(fds[0]);
	while (vm_process_state(pid) != 'Z')
		(void)sched_yield();
	assert_true(vm_fileh_is_shared(r->h));
	assert_int_equal(write(fds[3], "", 1), 1);
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	for (unsigned i = 0; i < 4; i++)
		(void)close(fds[i]);
}

static const struct rig_case cases[] = {
	RIG_BOTH(what_a_killed_child_stored_is_in_the_parents_next_commit),
	RIG_BOTH(a_child_that_dies_while_it_stores_leaves_its_commit_to_the_parent),
	RIG_BOTH(a_child_that_dies_before_its_commit_happened_leaves_it_to_the_parent),
	RIG_BOTH(who_dies_while_it_counts_pages_leaves_no_wrong_count),
	RIG_LAZY(pages_that_a_child_died_loading_are_loaded_by_the_parent),
	RIG_BOTH(a_child_that_runs_another_program_is_gone),
	RIG_EAGER(a_child_whose_main_thread_ended_is_still_there),
	RIG_EAGER(a_child_whose_descriptors_moved_is_still_there),
};

RIG_MAIN(cases)
