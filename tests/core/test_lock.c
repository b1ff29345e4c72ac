/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "rig_file.h"

static struct vm_lock map = VM_LOCK_INIT(VM_RANK_MAP), fileh = VM_LOCK_INIT(VM_RANK_FILEH),
		      another = VM_LOCK_INIT(VM_RANK_FILEH), fd = VM_LOCK_INIT(VM_RANK_FD);

static void locks_are_taken_in_rising_rank(struct rig *r)
{
	(void)r;
	assert_false(vm_lock(&map));
	assert_false(vm_lock(&fileh));
	assert_false(vm_lock(&fd));
	assert_true(vm_lock_is_held(VM_RANK_FILEH));
	vm_unlock(&map); /* in any order */
	vm_unlock(&fd);
	vm_unlock(&fileh);
	assert_false(vm_lock_is_held(VM_RANK_FILEH));
	assert_false(vm_lock(&fd));
	vm_unlock(&fd);
}

static bool dies(void (*step)(void))
{
	pid_t pid = fork();

	if (!pid) {
		(void)close(2); /* what it says is not what is tested */
		(void)signal(SIGABRT, SIG_DFL);
		step();
		_exit(0);
	}
	return rig_reap(pid) == -SIGABRT;
}

static void lower_rank_after_higher(void)
{
	(void)vm_lock(&fileh);
	(void)vm_lock(&map);
}

static void same_rank_twice(void)
{
	(void)vm_lock(&fileh);
	(void)vm_lock(&another);
}

static void not_held(void)
{
	vm_unlock(&map);
}

static void wait_with_a_lock(void)
{
	uint32_t seq = 0;

	(void)vm_lock(&map);
	vm_wait(&seq, 0, 1);
}

static void right(void)
{
	(void)vm_lock(&map);
	(void)vm_lock_another(&fileh);
	(void)vm_lock_another(&another);
	vm_unlock_another(&another, false);
	vm_unlock_another(&fileh, true);
	vm_unlock(&map);
}

static void the_wrong_order_aborts(struct rig *r)
{
	(void)r;
	assert_true(dies(lower_rank_after_higher));
	assert_true(dies(same_rank_twice));
	assert_true(dies(not_held));
	assert_true(dies(wait_with_a_lock));
	assert_false(dies(right));
}

static void a_lock_whose_holder_died_is_taken_over_and_says_so(struct rig *r)
{
	struct vm_lock *l = rig_shared(sizeof(*l));
	pid_t pid;

	(void)r;
	vm_lock_init_shared(l, VM_RANK_FILEH);
	pid = fork();
	if (!pid) {
		(void)vm_lock(l);
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_true(vm_lock(l));
	vm_unlock(l);
	assert_false(vm_lock(l));
	vm_unlock(l);
	(void)munmap(l, sizeof(*l));
}

/* The program's mutex, in a page that is protected while we work: its and ours are in one list of the thread. */
static void a_lock_leaves_the_programs_robust_mutexes_alone(struct rig *r)
{
	struct vm_lock *l = rig_shared(sizeof(*l)), *also = rig_shared(sizeof(*also));
	pthread_mutex_t *theirs = rig_shared(4096);
	pthread_mutexattr_t attr;
	pid_t pid;

	(void)r;
	vm_lock_init_shared(l, VM_RANK_FILEH);
	vm_lock_init_shared(also, VM_RANK_FILEH);
	assert_int_equal(pthread_mutexattr_init(&attr), 0);
	assert_int_equal(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
	assert_int_equal(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
	assert_int_equal(pthread_mutex_init(theirs, &attr), 0);

	assert_int_equal(pthread_mutex_lock(theirs), 0);
	assert_int_equal(mprotect(theirs, 4096, PROT_NONE), 0);
	assert_false(vm_lock_another(l));
	assert_false(vm_lock_another(also));
	vm_unlock_another(l, false); /* the first first: fork does */
	vm_unlock_another(also, true);
	assert_int_equal(mprotect(theirs, 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(pthread_mutex_unlock(theirs), 0);

	pid = fork();
	if (!pid) {
		(void)pthread_mutex_lock(theirs);
		(void)vm_lock(l);
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_true(vm_lock(l));
	vm_unlock(l);
	assert_int_equal(pthread_mutex_lock(theirs), EOWNERDEAD); /* theirs stayed in the list */
	assert_int_equal(pthread_mutex_consistent(theirs), 0);
	assert_int_equal(pthread_mutex_unlock(theirs), 0);
	(void)munmap(l, sizeof(*l));
	(void)munmap(also, sizeof(*also));
	(void)munmap(theirs, 4096);
}

struct counters {
	struct vm_lock lock;
	unsigned long a, b;
};

static void count_for_ever(struct counters *c)
{
	for (;;) {
		if (vm_lock(&c->lock))
			c->b = c->a; /* the one before was killed in between */
		if (c->a != c->b)
			abort();
		c->a++;
		c->b++;
		vm_unlock(&c->lock);
	}
}

static void a_lock_survives_that_its_users_are_killed_again_and_again(struct rig *r)
{
	struct counters *c = rig_shared(sizeof(*c));
	unsigned long before;
	pid_t pids[3];

	(void)r;
	vm_lock_init_shared(&c->lock, VM_RANK_FILEH);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 3; i++) {
			pids[i] = fork();
			if (!pids[i])
				count_for_ever(c);
		}
		before = __atomic_load_n(&c->a, __ATOMIC_RELAXED);
		while (__atomic_load_n(&c->a, __ATOMIC_RELAXED) < before + 1000)
			(void)sched_yield();
		for (int i = 0; i < 3; i++) {
			assert_int_equal(kill(pids[i], SIGKILL), 0);
			assert_int_equal(rig_reap(pids[i]), -SIGKILL);
		}
	}
	(void)munmap(c, sizeof(*c));
}

/* ---- an embedder's own lock ---- */

static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
static unsigned nreleased, nreacquired;

static void *release(void)
{
	__atomic_add_fetch(&nreleased, 1, __ATOMIC_SEQ_CST);
	if (pthread_mutex_unlock(&gil))
		abort();
	return &gil;
}

static void reacquire(void *token)
{
	if (token != &gil || pthread_mutex_lock(&gil))
		abort();
	__atomic_add_fetch(&nreacquired, 1, __ATOMIC_SEQ_CST);
}

/* Holds the lock of core, and lets go of it only when it got the embedder's. */
static void *want_gil(void *arg)
{
	(void)vm_lock(&map);
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	if (pthread_mutex_lock(&gil) || pthread_mutex_unlock(&gil))
		abort();
	vm_unlock(&map);
	return NULL;
}

static void an_embedders_lock_is_released_while_waiting_for_ours(struct rig *r)
{
	bool has_lock = false;
	pthread_t t;

	(void)r;
	vm_set_lock_hook(&(struct vm_lock_hook){release, reacquire});
	assert_int_equal(pthread_mutex_lock(&gil), 0);
	assert_false(vm_lock(&fd)); /* free: no waiting, no hook */
	vm_unlock(&fd);
	assert_int_equal(nreleased, 0);
	assert_int_equal(pthread_create(&t, NULL, want_gil, &has_lock), 0);
	while (!__atomic_load_n(&has_lock, __ATOMIC_ACQUIRE))
		(void)sched_yield();
	assert_false(vm_lock(&map)); /* would never return with the embedder's lock held */
	vm_unlock(&map);
	assert_int_equal(nreleased, 1);
	assert_int_equal(nreacquired, 1);
	assert_int_equal(pthread_mutex_unlock(&gil), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	vm_set_lock_hook(&(struct vm_lock_hook){0});
}

static void waiting_ends_with_a_change_or_the_time(struct rig *r)
{
	uint32_t seq = 5;

	(void)r;
	vm_wait(&seq, 4, 1000000); /* changed before */
	vm_wait(&seq, 5, 1);
	vm_wake(&seq);
	assert_int_equal(seq, 6);
}

static const struct rig_case cases[] = {
	RIG_EAGER(locks_are_taken_in_rising_rank),
	RIG_EAGER(the_wrong_order_aborts),
	RIG_EAGER(a_lock_whose_holder_died_is_taken_over_and_says_so),
	RIG_EAGER(a_lock_leaves_the_programs_robust_mutexes_alone),
	RIG_EAGER(a_lock_survives_that_its_users_are_killed_again_and_again),
	RIG_EAGER(an_embedders_lock_is_released_while_waiting_for_ours),
	RIG_EAGER(waiting_ends_with_a_change_or_the_time),
};
RIG_MAIN(cases)
