/* SPDX-License-Identifier: MIT */
/* Processes that are stopped, and go on between two steps of what another one does. */
#include "board.h"
#include "faulty_sys.h"

enum { WIDE = 2 * VM_BATCH_NPAGES + 10, LAST = WIDE - 1 }; /* copied in three steps */

static pid_t stopped;
static struct vm_fileh *its;

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static char *open_and_map(struct rig *r)
{
	char *m;

	clear_board();
	rig_open(r, WIDE * VM_PAGE);
	m = rig_map(r->h, 0, WIDE);
	for (uint64_t pg = 0; pg < WIDE; pg++)
		rig_store8(at(m, pg), 9);
	(void)rig_commit(r->h);
	its = r->h;
	return m;
}

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

static void who_goes_on_and_is_stopped_again_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 0), 1);
		rig_store8(at(m, LAST), 1);
		vm_lock(&vm_map_lock); /* its server does not get to answer */
		stop_here();
		rig_store8(at(m, 0), 2);
		rig_store8(at(m, LAST), 2);
		stop_here();
		vm_unlock(&vm_map_lock);
		until_stopped();
		_exit(0);
	}
	until_it_stands(pid);
	stopped = pid;
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

static const struct rig_case cases[] = {
	RIG_BOTH(who_goes_on_and_is_stopped_again_in_the_middle_of_a_commit_does_not_tear_it),
};

RIG_MAIN(cases)
