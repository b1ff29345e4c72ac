/* SPDX-License-Identifier: MIT */
#include "lock.h"
#include "bug.h"
#include "vm.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

/* Ranks this thread holds, bit per rank. */
static __thread uint8_t held;

static struct vm_lock_hook hook;

void vm_set_lock_hook(const struct vm_lock_hook *h)
{
	hook = *h;
}

void vm_lock_init_shared(struct vm_lock *l, enum vm_rank rank)
{
	*l = (struct vm_lock){.is_shared = true, .rank = rank};
}

static int try(struct vm_lock *l)
{
	return l->is_shared ? vm_robust_try(&l->robust) : -pthread_mutex_trylock(&l->mutex);
}

static void *begin_wait(void)
{
	return hook.release ? hook.release() : NULL;
}

static void end_wait(void *token)
{
	if (hook.reacquire)
		hook.reacquire(token);
}

/* Returns true when the former holder died. */
static bool take(struct vm_lock *l)
{
	void *token;
	int err = try(l);

	if (err == -EBUSY) {
		token = begin_wait();
		err = l->is_shared ? vm_robust_lock(&l->robust) : -pthread_mutex_lock(&l->mutex);
		end_wait(token);
	}
	BUG_ON(err && err != -EOWNERDEAD);
	return err;
}

static void give(struct vm_lock *l)
{
	int err = 0;

	if (l->is_shared)
		vm_robust_unlock(&l->robust);
	else
		err = pthread_mutex_unlock(&l->mutex);
	BUG_ON(err);
}

bool vm_lock(struct vm_lock *l)
{
	BUG_ON(held >= (1u << l->rank)); /* wrong order, or the same rank twice */
	bool died = take(l);

	held |= 1u << l->rank;
	return died;
}

#define TRY_MSEC 2

int vm_lock_within(struct vm_lock *l, unsigned msec)
{
	uint64_t until = vm_deadline(msec);
	int err;

	BUG_ON(held >= (1u << l->rank));
	while ((err = try(l)) == -EBUSY && !vm_is_past(until))
		(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* seldom: who waits for ever is woken, who may give up asks */
	BUG_ON(err && err != -EBUSY && err != -EOWNERDEAD);
	if (err == -EBUSY)
		return err;
	held |= 1u << l->rank;
	return err == -EOWNERDEAD;
}

void vm_unlock(struct vm_lock *l)
{
	BUG_ON(!(held & (1u << l->rank)));
	held &= ~(1u << l->rank);
	give(l);
}

bool vm_lock_is_held(enum vm_rank rank)
{
	return held & (1u << rank);
}

bool vm_lock_another(struct vm_lock *l)
{
	BUG_ON(held >= (2u << l->rank));
	bool died = take(l);

	held |= 1u << l->rank;
	return died;
}

void vm_unlock_another(struct vm_lock *l, bool last)
{
	give(l);
	if (last)
		held &= ~(1u << l->rank);
}

void vm_lock_fork_child(void)
{
	held = 0;
}

void vm_unlock_fork_child(struct vm_lock *l)
{
	give(l);
}

void vm_wait(uint32_t *seq, uint32_t seen, unsigned timeout_msec)
{
	struct timespec ts = {.tv_sec = timeout_msec / 1000, .tv_nsec = timeout_msec % 1000 * 1000000L};
	void *token;

	BUG_ON(held);
	token = begin_wait();
	/* every outcome (woken, changed, timed out, interrupted) means: look again */
	(void)vm_sys->futex(seq, FUTEX_WAIT, seen, &ts);
	end_wait(token);
}

static uint64_t now_msec(void)
{
	struct timespec ts = {0};

	(void)vm_sys->clock_gettime(CLOCK_MONOTONIC, &ts); /* always there */
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t vm_deadline(unsigned msec)
{
	return msec == VM_FOREVER ? UINT64_MAX : now_msec() + msec;
}

bool vm_is_past(uint64_t deadline)
{
	return deadline != UINT64_MAX && now_msec() >= deadline;
}

void vm_wake(uint32_t *seq)
{
	__atomic_add_fetch(seq, 1, __ATOMIC_RELEASE);
	(void)vm_sys->futex(seq, FUTEX_WAKE, INT_MAX, NULL); /* cannot fail on a mapped word */
}
