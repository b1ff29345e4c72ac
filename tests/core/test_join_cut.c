/* SPDX-License-Identifier: MIT */
/* A forked child that comes, or goes, in the middle of a commit. */
#include "faulty_sys.h"
#include "wide.h"

static pid_t killed; /* who comes, and is killed when it has stored; or 0 */

/* ---- where a child waits on its way until a commit is half done ---- */

static void wait_here(void)
{
	await(1);
}

static int wait_before_serving(int dir, const char *path, int flags, mode_t mode)
{
	if (!strcmp(path, "/proc/self/task"))
		await(1);
	return vm_sys_linux.openat(dir, path, flags, mode);
}

/* When it has the handle already. */
static void wait_later(void)
{
	static struct vm_sys slow;

	slow = vm_sys_linux;
	slow.openat = wait_before_serving;
	faulty_use(&slow);
}

/* The first pages are copied, the last ones not: the child goes on, and stores if nothing keeps it. */
static void let_it_come(struct rig_file *f, uint64_t pgoff)
{
	(void)f;
	if (pgoff || __atomic_load_n(&board->step, __ATOMIC_SEQ_CST))
		return;
	say(1);
	for (unsigned i = 0; i < 200 && __atomic_load_n(&board->step, __ATOMIC_SEQ_CST) < 2; i++)
		(void)usleep(1000);
	if (killed && __atomic_load_n(&board->step, __ATOMIC_SEQ_CST) == 2)
		(void)kill(killed, SIGKILL);
}

static pid_t late_child(char *m, void (*wait_there)(void))
{
	pid_t pid = rig_fork_late(wait_there);

	if (pid)
		return pid;
	rig_store8(at(m, 0), 77);
	rig_store8(at(m, LAST), 77);
	say(2);
	until_stopped();
	_exit(0);
}

static void commit_while_it_comes(struct rig *r)
{
	rig_hook_at(r->f, RIG_STOREBLK, let_it_come, NULL);
	(void)rig_commit(r->h);
	rig_hook_at(r->f, RIG_STOREBLK, NULL, NULL);
	assert_int_equal(rig_get_byte(r->f, 0), rig_get_byte(r->f, LAST * VM_PAGE));
}

static void it_is_committed(struct rig *r)
{
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 0), 77);
	assert_int_equal(rig_get_byte(r->f, LAST * VM_PAGE), 77);
}

static void a_child_that_comes_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	pid_t pid = late_child(open_and_fill(r), wait_here);

	commit_while_it_comes(r);
	await(2);
	it_is_committed(r);
	end(pid);
}

static bool has_others(struct vm_fileh *h)
{
	bool others;

	vm_fileh_lock(h);
	others = vm_fileh_has_others(h);
	vm_fileh_unlock(h);
	return others;
}

static void a_child_that_begins_to_store_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	pid_t pid = late_child(open_and_fill(r), wait_later);

	while (!has_others(r->h))
		(void)sched_yield();
	commit_while_it_comes(r);
	await(2);
	it_is_committed(r);
	end(pid);
}

static void *stand_by(void *arg)
{
	until_stopped();
	return arg;
}

static void a_child_that_comes_in_the_middle_of_a_commit_beside_a_thread_does_not_tear_it(struct rig *r)
{
	char *m = open_and_fill(r);
	pthread_t thread;
	pid_t pid;

	assert_int_equal(pthread_create(&thread, NULL, stand_by, NULL), 0);
	pid = late_child(m, wait_here);
	commit_while_it_comes(r);
	await(2);
	it_is_committed(r);
	end(pid);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool serves(const struct vm_ctl *ctl, pid_t pid)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (ctl->peers[i].pid == pid)
			return __atomic_load_n(&ctl->peers[i].serves, __ATOMIC_ACQUIRE) == VM_SERVES;
	return false;
}

static void a_child_that_comes_in_the_middle_of_a_commit_beside_a_process_does_not_tear_it(struct rig *r)
{
	char *m = open_and_fill(r);
	pid_t other = rig_fork(), pid;

	if (!other) {
		for (uint8_t i = 0; !is_stopped(); i++) /* there is always a next round */
			rig_store8(at(m, 5), (char)i);
		_exit(0);
	}
	while (!serves(r->h->ctl, other))
		(void)sched_yield();
	pid = late_child(m, wait_here);
	commit_while_it_comes(r);
	await(2);
	it_is_committed(r);
	end(pid);
	assert_int_equal(rig_reap(other), 0);
}

static void a_child_that_was_killed_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	char *m = open_and_fill(r);

	killed = late_child(m, wait_here);
	commit_while_it_comes(r);
	await(2);
	(void)kill(killed, SIGKILL);
	assert_int_equal(rig_reap(killed), -SIGKILL);
	it_is_committed(r);
	killed = 0;
}

/* Its thread could not be started at first. */
static void who_begins_to_answer_answers_what_was_asked_before(struct rig *r)
{
	char *m = open_and_fill(r);
	uint64_t ndirty;
	pid_t pid;
	int err;

	(void)rig_commit(r->h);
	pid = rig_fork();
	if (!pid) {
		vm_serve_end(r->h);
		vm_fileh_peer(r->h)->serves = VM_SERVES_NEVER;
		rig_store8(at(m, 3), 77);
		say(1);
		await(2);
		vm_lock(&vm_map_lock); /* a fork tries again */
		err = vm_serve(r->h);
		vm_unlock(&vm_map_lock);
		say(3);
		until_stopped();
		_exit(err != 0);
	}
	await(1);
	vm_fileh_begin_busy(r->h);
	vm_ask_begin(r->h, VM_ASK_HARVEST);
	say(2);
	await(3);
	err = vm_ask_end(r->h);
	vm_fileh_lock(r->h);
	ndirty = r->h->ctl->npages[VM_DIRTY];
	vm_fileh_unlock(r->h);
	vm_fileh_end_busy(r->h);
	assert_int_equal(err, 0);
	assert_int_equal(ndirty, 1);
	end(pid);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_that_comes_in_the_middle_of_a_commit_does_not_tear_it),
	RIG_BOTH(a_child_that_begins_to_store_in_the_middle_of_a_commit_does_not_tear_it),
	RIG_BOTH(a_child_that_comes_in_the_middle_of_a_commit_beside_a_thread_does_not_tear_it),
	RIG_BOTH(a_child_that_comes_in_the_middle_of_a_commit_beside_a_process_does_not_tear_it),
	RIG_BOTH(who_begins_to_answer_answers_what_was_asked_before),
	RIG_BOTH(a_child_that_was_killed_in_the_middle_of_a_commit_does_not_tear_it),
};

RIG_MAIN(cases)
