/* SPDX-License-Identifier: MIT */
/* A robust mutex in a mapping whose holder dies while the kernel cannot mark it. */
#include "fork_rig.h"

#define MUTEX_PAGE 3u

static pthread_mutex_t *make_mutex(char *m)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)(at(m, MUTEX_PAGE) + 64);
	pthread_mutexattr_t attr;

	assert_int_equal(pthread_mutexattr_init(&attr), 0);
	assert_int_equal(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
	assert_int_equal(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
	assert_int_equal(pthread_mutex_init(mutex, &attr), 0);
	return mutex;
}

/* Or the test ends here. Not by pthread_mutex_timedlock, of which TSan does not know that it can be so. */
static int lock_within_seconds(pthread_mutex_t *mutex)
{
	int err;

	(void)alarm(20);
	err = pthread_mutex_lock(mutex);
	(void)alarm(0);
	return err;
}

static void must_be_left_by_a_dead_owner(pthread_mutex_t *mutex)
{
	assert_int_equal(lock_within_seconds(mutex), EOWNERDEAD);
	assert_int_equal(pthread_mutex_consistent(mutex), 0);
	assert_int_equal(pthread_mutex_unlock(mutex), 0);
}

/* A child that has the mutex, and lives until it is killed. */
static pid_t begin_owner(pthread_mutex_t *mutex)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = rig_fork();
	if (!pid) {
		if (!pthread_mutex_lock(mutex) && write(fds[1], "", 1) == 1)
			for (;;)
				(void)pause();
		_exit(1);
	}
	wait_for_word(fds[0]);
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static void kill_owner(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(rig_reap(pid), -SIGKILL);
}

static void owner_is_killed_while_another_process_commits(struct rig *r)
{
	pthread_mutex_t *mutex = make_mutex(open_and_map(r));
	pid_t pid = begin_owner(mutex);

	vm_fileh_begin_busy(r->h);
	assert_int_equal(vm_ask(r->h, VM_ASK_FREEZE), 0);
	kill_owner(pid);
	vm_ask_thaw(r->h);
	vm_fileh_end_busy(r->h);
	must_be_left_by_a_dead_owner(mutex);
}

static void owner_is_killed_while_another_process_invalidates(struct rig *r)
{
	pthread_mutex_t *mutex = make_mutex(open_and_map(r));
	pid_t pid = begin_owner(mutex);

	vm_fileh_begin_busy(r->h);
	assert_int_equal(vm_ask(r->h, VM_ASK_FREEZE_ALL), 0);
	kill_owner(pid);
	vm_ask_thaw(r->h);
	vm_fileh_end_busy(r->h);
	must_be_left_by_a_dead_owner(mutex);
}

static void owner_is_stopped_in_a_commit_and_killed_later(struct rig *r)
{
	pthread_mutex_t *mutex = make_mutex(open_and_map(r));
	pid_t pid = begin_owner(mutex);

	vm_fileh_begin_busy(r->h);
	assert_int_equal(vm_ask(r->h, VM_ASK_FREEZE), 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WSTOPPED), 0);
	vm_ask_thaw(r->h);
	vm_fileh_end_busy(r->h);
	kill_owner(pid);
	must_be_left_by_a_dead_owner(mutex);
}

/* Freezes all, itself as well, as a cut does. */
static void freeze(struct vm_fileh *h)
{
	vm_fileh_begin_busy(h);
	if (vm_ask(h, VM_ASK_FREEZE))
		_exit(1);
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	if (vm_freeze(h, NULL, false) || vm_harvest(h))
		_exit(1);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

static void thaw(struct vm_fileh *h)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	vm_thaw(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
	vm_ask_thaw(h);
	vm_fileh_end_busy(h);
}

static void *wait_for(void *mutex)
{
	return (void *)(intptr_t)lock_within_seconds(mutex);
}

/* Who waits is asleep in the kernel, and touches nothing. */
static void owner_is_killed_in_its_own_commit(struct rig *r)
{
	pthread_mutex_t *mutex = make_mutex(open_and_map(r));
	pthread_t waiter;
	void *result;
	pid_t pid = rig_fork();

	if (!pid) {
		if (pthread_mutex_lock(mutex))
			_exit(1);
		while (!(__atomic_load_n(&mutex->__data.__lock, __ATOMIC_SEQ_CST) & (int)0x80000000))
			sched_yield();
		freeze(r->h);
		(void)kill(getpid(), SIGKILL);
	}
	while (!__atomic_load_n(&mutex->__data.__lock, __ATOMIC_SEQ_CST))
		sched_yield();
	assert_int_equal(pthread_create(&waiter, NULL, wait_for, mutex), 0);
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_int_equal(pthread_join(waiter, &result), 0);
	assert_int_equal((intptr_t)result, EOWNERDEAD);
}

static void owner_is_killed_after_a_commit(struct rig *r)
{
	pthread_mutex_t *mutex = make_mutex(open_and_map(r));
	pid_t pid = begin_owner(mutex);

	(void)rig_commit(r->h);
	(void)rig_commit(r->h);
	kill_owner(pid);
	must_be_left_by_a_dead_owner(mutex);
}

static void owner_goes_on_after_a_commit(struct rig *r)
{
	char *m = open_and_map(r);
	pthread_mutex_t *mutex = make_mutex(m);
	pid_t pid = begin_owner(mutex); /* others have the handle */

	kill_owner(pid);
	must_be_left_by_a_dead_owner(mutex);
	pid = begin_owner((pthread_mutex_t *)memcpy(at(m, 9), mutex, sizeof(*mutex)));
	assert_int_equal(pthread_mutex_lock(mutex), 0);
	(void)rig_commit(r->h);
	rig_store8(at(m, MUTEX_PAGE), 77); /* beside the mutex */
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, MUTEX_PAGE * VM_PAGE), 77);
	assert_int_equal(pthread_mutex_unlock(mutex), 0);
	assert_int_equal(pthread_mutex_lock(mutex), 0);
	assert_int_equal(pthread_mutex_unlock(mutex), 0);
	kill_owner(pid);
}

struct holder {
	pthread_mutex_t *mutex;
	int held[2], end[2]; /* pipes */
};

static void *hold(void *arg)
{
	struct holder *o = arg;

	if (pthread_mutex_lock(o->mutex) || write(o->held[1], "", 1) != 1)
		abort();
	wait_for_word(o->end[0]);
	return NULL;
}

static void a_thread_ends_during_a_commit_of_its_process(struct rig *r)
{
	char *m = open_and_map(r);
	struct holder o = {.mutex = make_mutex(m)};
	pthread_t t;
	pid_t pid = begin_owner((pthread_mutex_t *)memcpy(at(m, 9), o.mutex, sizeof(*o.mutex)));

	assert_int_equal(pipe(o.held) | pipe(o.end), 0);
	assert_int_equal(pthread_create(&t, NULL, hold, &o), 0);
	wait_for_word(o.held[0]);
	freeze(r->h);
	assert_int_equal(write(o.end[1], "", 1), 1);
	assert_int_equal(pthread_join(t, NULL), 0);
	thaw(r->h);
	must_be_left_by_a_dead_owner(o.mutex);
	kill_owner(pid);
	for (int i = 0; i < 2; i++)
		close(o.held[i]), close(o.end[i]);
}

int main(int argc, char **argv)
{
	static const struct rig_case cases[] = {
		RIG_BOTH(owner_is_killed_while_another_process_commits),
		RIG_BOTH(owner_is_killed_while_another_process_invalidates),
		RIG_BOTH(owner_is_stopped_in_a_commit_and_killed_later),
		RIG_BOTH(owner_is_killed_in_its_own_commit),
		RIG_BOTH(owner_is_killed_after_a_commit),
		RIG_BOTH(owner_goes_on_after_a_commit),
		RIG_EAGER(a_thread_ends_during_a_commit_of_its_process),
	};

	return rig_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
