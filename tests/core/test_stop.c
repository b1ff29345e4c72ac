/* SPDX-License-Identifier: MIT */
/* Processes that are stopped, and go on between two steps of what another one does. */
#include "wide.h"

static pid_t stopped;
static struct vm_fileh *its;

static void until_it_stands(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

static void stop_here(void)
{
	(void)kill(getpid(), SIGSTOP);
}

static char *open_and_commit(struct rig *r)
{
	char *m = open_and_fill(r);

	(void)rig_commit(r->h);
	its = r->h;
	return m;
}

/* It stores 1 to the first and the last page and is stopped; when it goes on it does what is left. Its server
 * does not get to answer before that is done. */
static pid_t stopped_child(char *m, void (*rest)(char *m))
{
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 0), 1);
		rig_store8(at(m, LAST), 1);
		vm_lock(&vm_map_lock);
		stop_here();
		rest(m);
		vm_unlock(&vm_map_lock);
		until_stopped();
		_exit(0);
	}
	until_it_stands(pid);
	stopped = pid;
	return pid;
}

/* The first pages of the last round are copied, the last ones not. */
static void go_on_and_stop_again(struct rig_file *f, uint64_t pgoff)
{
	(void)f;
	if (pgoff || !stopped || its->ctl->ask != VM_ASK_FREEZE)
		return;
	assert_int_equal(kill(stopped, SIGCONT), 0);
	until_it_stands(stopped);
	stopped = 0;
}

static void store_and_stop_again(char *m)
{
	rig_store8(at(m, 0), 2);
	rig_store8(at(m, LAST), 2);
	stop_here();
}

static void who_goes_on_and_is_stopped_again_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	pid_t pid = stopped_child(open_and_commit(r), store_and_stop_again);

	rig_hook_at(r->f, RIG_STOREBLK, go_on_and_stop_again, NULL);
	(void)rig_commit(r->h);
	rig_hook_at(r->f, RIG_STOREBLK, NULL, NULL);
	assert_int_equal(stopped, 0);
	assert_int_equal(rig_get_byte(r->f, 0), rig_get_byte(r->f, LAST * VM_PAGE));
	assert_int_equal(kill(pid, SIGCONT), 0);
	end(pid);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 0), 2);
	assert_int_equal(rig_get_byte(r->f, LAST * VM_PAGE), 2);
}

/* The first pages are as the storage has them, the last ones not yet. */
static void go_on_for_a_moment(struct rig_file *f, uint64_t pgoff)
{
	(void)f;
	if (pgoff < VM_BATCH_NPAGES || !stopped)
		return;
	assert_int_equal(kill(stopped, SIGCONT), 0);
	stopped = 0;
	await(1);
}

static void store_the_last_one_first(char *m)
{
	rig_store8(at(m, LAST), 2);
	rig_store8(at(m, 0), 2);
	say(1);
}

static void who_goes_on_in_the_middle_of_a_discard_keeps_no_store_without_those_before(struct rig *r)
{
	char *m = open_and_commit(r);
	pid_t pid = stopped_child(m, store_the_last_one_first);

	rig_hook_at(r->f, RIG_LOADBLK, go_on_for_a_moment, NULL);
	rig_discard(r->h);
	rig_hook_at(r->f, RIG_LOADBLK, NULL, NULL);
	assert_int_equal(stopped, 0);
	(void)rig_commit(r->h);
	if (rig_get_byte(r->f, 0) == 2)
		assert_int_equal(rig_get_byte(r->f, LAST * VM_PAGE), 2);
	assert_int_equal((uint8_t)rig_load8(at(m, 0)), rig_get_byte(r->f, 0));
	assert_int_equal((uint8_t)rig_load8(at(m, LAST)), rig_get_byte(r->f, LAST * VM_PAGE));
	end(pid);
}

static void who_goes_on_in_the_middle_of_an_invalidation_that_keeps_stores_makes_it_fail(struct rig *r)
{
	char *m;
	pid_t pid;

	if (!rig_is_uffd())
		skip(); /* its store would be a signal, that waits for the lock */
	clear_board();
	rig_open_sparse(r, WIDE * VM_PAGE);
	m = rig_map(r->h, 0, WIDE);
	pid = rig_fork();
	if (!pid) {
		vm_lock(&vm_map_lock);
		stop_here();
		rig_store8(at(m, LAST), 2); /* where the storage's byte is about to be put */
		say(1);
		vm_unlock(&vm_map_lock);
		until_stopped();
		_exit(0);
	}
	until_it_stands(pid);
	stopped = pid;
	for (uint64_t pg = 0; pg < WIDE; pg++)
		rig_put_byte(r->f, pg * VM_PAGE, 7);
	r->f->seen_version = r->f->version; /* else it fails for what the stopped one may have stored */
	rig_hook_at(r->f, RIG_LOADBLK, go_on_for_a_moment, NULL);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), -EBUSY);
	rig_hook_at(r->f, RIG_LOADBLK, NULL, NULL);
	assert_int_equal(stopped, 0);
	end(pid);
}

static const struct rig_case cases[] = {
	RIG_BOTH(who_goes_on_and_is_stopped_again_in_the_middle_of_a_commit_does_not_tear_it),
	RIG_EAGER(who_goes_on_in_the_middle_of_a_discard_keeps_no_store_without_those_before),
	RIG_EAGER(who_goes_on_in_the_middle_of_an_invalidation_that_keeps_stores_makes_it_fail),
};

RIG_MAIN(cases)
