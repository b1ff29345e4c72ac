/* SPDX-License-Identifier: MIT */
/*
 * What the busy process asks of the others that have the handle: their page tables know their stores, and
 * only they can take access away from their mappings.
 *
 *	busy one: ctl->ask, ctl->ask_seq + 1, wake ──▶ each other's server thread carries it out, peer->answered = ask_seq
 *
 * A process that is stopped cannot answer, and cannot store: its pages are compared with the storage
 * (ctl->suspect), and it is looked at again afterwards. One that runs and does not answer makes the request
 * fail.
 */
#include "internal.h"
#include <errno.h>
#include <linux/futex.h>

#define ASK_MSEC	10000
#define FIRST_LOOK_MSEC 4  /* at who died meanwhile; then ever more seldom */
#define WATCH_MSEC	500
#define SETTLE_MSEC	10 /* so long after a fork it is left to who stores */

/* ---- the one who asks ---- */

static bool is_stopped(int32_t pid)
{
	char state = vm_process_state(pid);

	return state == 'T' || state == 't'; /* by a signal, or a debugger */
}

enum answers { ALL_ANSWERED, STOPPED_DID_NOT, SOME_DO_NOT };

/* Handle lock held. *err: the first that an answer told. */
static enum answers answers(struct vm_fileh *h, int *err)
{
	enum answers ret = ALL_ANSWERED;

	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		struct vm_peer *p = &h->ctl->peers[i];

		if (!p->pid || i == h->peer || p->serves == VM_SERVES_NOT_YET)
			continue; /* no program runs in it yet */
		if (p->serves == VM_SERVES_NEVER)
			*err = *err ? *err : -EAGAIN;
		else if (p->answered == h->ctl->ask_seq)
			*err = *err ? *err : p->answer < 0 ? p->answer : 0;
		else if (is_stopped(p->pid))
			ret = ret == SOME_DO_NOT ? ret : STOPPED_DID_NOT;
		else
			ret = SOME_DO_NOT;
	}
	return ret;
}

static bool has_answered(struct vm_fileh *h)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		struct vm_peer *p = &h->ctl->peers[i];

		if (p->pid && i != h->peer && p->serves == VM_SERVES && p->answered != h->ctl->ask_seq)
			return false;
	}
	return true;
}

void vm_ask_post(struct vm_fileh *h, enum vm_ask ask, bool self)
{
	uint32_t seq = __atomic_add_fetch(&h->ctl->ask_seq, 1, __ATOMIC_RELEASE);

	h->ctl->ask = ask;
	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		struct vm_peer *p = &h->ctl->peers[i];

		/* unless this process has not got to an earlier one yet, which may be a thaw */
		if (i == h->peer && !self && p->answered + 1 == seq)
			__atomic_store_n(&p->answered, seq, __ATOMIC_RELAXED);
		else if (p->pid)
			vm_wake(&p->wake);
	}
}

void vm_ask_begin(struct vm_fileh *h, enum vm_ask ask)
{
	vm_fileh_lock(h);
	BUG_ON(h->ctl->busy_pid != vm_sys->getpid());
	h->ctl->ask = ask; /* also for who comes later */
	if (vm_fileh_has_others(h))
		vm_fileh_repair(h); /* who died is not waited for */
	h->asked = vm_fileh_has_others(h) && (ask != VM_ASK_HARVEST || !vm_others_are_idle(h));
	if (h->asked)
		vm_ask_post(h, ask, false); /* this thread does it itself */
	vm_fileh_unlock(h);
}

int vm_ask_end(struct vm_fileh *h)
{
	uint64_t until = vm_deadline(ASK_MSEC), look = vm_deadline(FIRST_LOOK_MSEC);
	enum answers a;
	int err = 0;

	if (!h->asked)
		return 0;
	vm_fileh_lock(h);
	for (unsigned msec = FIRST_LOOK_MSEC; !has_answered(h) && !vm_is_past(until);) {
		vm_fileh_wait_msec(h, msec);
		if (!vm_is_past(look))
			continue;
		vm_fileh_repair(h); /* not only when nothing else happens: others read and write all the time */
		if (2 * msec >= VM_WAIT_MSEC && answers(h, &err) == STOPPED_DID_NOT)
			break;
		msec = msec * 2 < VM_WAIT_MSEC ? msec * 2 : VM_WAIT_MSEC;
		look = vm_deadline(msec);
	}
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		h->others_touch |= i != h->peer && h->ctl->peers[i].pid && h->ctl->peers[i].answer > 0;
	a = answers(h, &err);
	if (a == STOPPED_DID_NOT)
		h->ctl->suspect = true;
	if (!err && a == SOME_DO_NOT)
		err = -ETIMEDOUT;
	vm_fileh_unlock(h);
	return err;
}

int vm_ask(struct vm_fileh *h, enum vm_ask ask)
{
	vm_ask_begin(h, ask);
	return vm_ask_end(h);
}

void vm_ask_thaw(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	h->ctl->ask = VM_ASK_THAW; /* also for who comes now, or wakes for nothing */
	if (vm_fileh_has_others(h))
		vm_ask_post(h, VM_ASK_THAW, false);
	vm_wake(&h->ctl->seq);
	vm_wake(&vm_fileh_peer(h)->wake); /* our server watches who does not answer */
	vm_fileh_unlock(h);
}

uint64_t vm_ask_stopped(struct vm_fileh *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		struct vm_peer *p = &h->ctl->peers[i];

		if (p->pid && i != h->peer && p->serves == VM_SERVES && p->answered != h->ctl->ask_seq &&
		    is_stopped(p->pid))
			n += 1 + vm_process_ran(p->pid);
	}
	return n;
}

bool vm_ask_still_holds(struct vm_fileh *h, uint64_t stopped)
{
	int err = 0;

	return answers(h, &err) != SOME_DO_NOT && vm_ask_stopped(h) == stopped;
}

/* ---- those who are asked ---- */

/* 1: there may have been something to tell. Both locks held. Each of them says all that is to be so
 * afterwards: one that was not answered is nothing that the next depends on. */
static int carry_out(struct vm_fileh *h, enum vm_ask ask)
{
	int err = 0;

	switch (ask) {
	case VM_ASK_THAW:
		vm_thaw(h);
		return 0;
	case VM_ASK_HARVEST:
		vm_thaw(h);
		return vm_harvest_if_touched(h);
	case VM_ASK_FREEZE:
	case VM_ASK_FREEZE_ALL:
		err = vm_freeze(h, NULL, false);
		if (!err)
			err = vm_harvest(h);
		if (!err && ask == VM_ASK_FREEZE_ALL)
			err = vm_freeze(h, NULL, true);
		return err;
	}
	return -EINVAL;
}

/* Who is frozen, or does not answer a thaw, is watched: others may wait for what it holds. Lock not held. */
static void wait_for_more(struct vm_fileh *h, uint32_t seen, bool soon)
{
	uint32_t *wake = &vm_fileh_peer(h)->wake;
	bool watches;

	vm_fileh_lock(h);
	watches = h->frozen || !has_answered(h);
	vm_fileh_unlock(h);
	vm_wait(wake, seen, soon ? SETTLE_MSEC : watches ? WATCH_MSEC : VM_FOREVER);
	if (!watches || soon || seen != __atomic_load_n(wake, __ATOMIC_ACQUIRE))
		return;
	vm_fileh_lock(h);
	vm_fileh_repair(h);
	vm_fileh_unlock(h);
}

static void *serve(void *arg)
{
	struct vm_fileh *h = arg;
	struct vm_ctl *ctl = h->ctl;
	struct vm_peer *self = vm_fileh_peer(h);
	bool waited = false; /* before it settles */
	uint32_t seen, seq;

	for (;;) {
		seen = __atomic_load_n(&self->wake, __ATOMIC_ACQUIRE); /* before what it wakes for is looked at */
		if (__atomic_load_n(&h->server, __ATOMIC_ACQUIRE) != VM_SERVER_RUNS)
			break;
		seq = __atomic_load_n(&ctl->ask_seq, __ATOMIC_ACQUIRE);
		if (seq == __atomic_load_n(&self->answered, __ATOMIC_RELAXED)) {
			bool soon = __atomic_load_n(&h->unsettled, __ATOMIC_ACQUIRE) == VM_UNSETTLED_SOON && !waited;

			if (soon || !vm_settle(h))
				wait_for_more(h, seen, soon);
			waited = soon;
			continue;
		}
		vm_lock(&vm_map_lock);
		vm_fileh_lock(h);
		seq = __atomic_load_n(&ctl->ask_seq, __ATOMIC_RELAXED);
		self->answer = carry_out(h, ctl->ask);
		__atomic_store_n(&self->answered, seq, __ATOMIC_RELAXED);
		vm_wake(&ctl->seq);
		vm_fileh_unlock(h);
		__atomic_store_n(&h->unsettled, VM_UNSETTLED, __ATOMIC_RELEASE); /* if the file grew */
		vm_unlock(&vm_map_lock);
	}
	__atomic_store_n(&h->server, VM_SERVER_NONE, __ATOMIC_RELEASE); /* and h may be gone */
	(void)vm_sys->futex(&h->server, FUTEX_WAKE, 1, NULL);
	return NULL;
}

/* While pages are replaced, or copied. */
static bool others_hold_still(const struct vm_ctl *ctl)
{
	return ctl->busy_pid && ctl->busy_pid != vm_sys->getpid() &&
	       (ctl->gate == VM_GATE_CLOSED || ctl->ask == VM_ASK_FREEZE || ctl->ask == VM_ASK_FREEZE_ALL);
}

int vm_serve(struct vm_fileh *h)
{
	struct vm_peer *self = vm_fileh_peer(h);
	int err = 0;

	if (h->server != VM_SERVER_NONE)
		return 0;
	vm_owners_begin();
	vm_fileh_lock(h);
	/* Nobody asked this process to hold still. Who holds the map lock is no newcomer: it is asked, or has
	 * told that it cannot serve. */
	while (others_hold_still(h->ctl) && !vm_lock_is_held(VM_RANK_MAP))
		vm_fileh_wait(h);
	/* nothing stored yet that was asked for, or harvested before; but when the thread could not be started the
	 * first time what was asked since is to be done */
	__atomic_store_n(&self->answered, h->ctl->ask_seq - (self->serves == VM_SERVES_NEVER), __ATOMIC_RELAXED);
	self->serves = VM_SERVES;
	vm_fileh_unlock(h);
	h->server = VM_SERVER_RUNS;
	err = vm_thread_start(serve, h, VM_STACK_LEN);
	if (!err)
		return 0;
	h->server = VM_SERVER_NONE;
	vm_fileh_lock(h);
	self->serves = VM_SERVES_NEVER;
	vm_wake(&h->ctl->seq);
	vm_fileh_unlock(h);
	return err;
}

void vm_serve_wake(struct vm_fileh *h)
{
	if (__atomic_load_n(&h->unsettled, __ATOMIC_ACQUIRE) != VM_SETTLED)
		vm_wake(&vm_fileh_peer(h)->wake);
}

void vm_serve_end(struct vm_fileh *h)
{
	if (h->server == VM_SERVER_NONE)
		return;
	__atomic_store_n(&h->server, VM_SERVER_ENDS, __ATOMIC_RELEASE);
	vm_wake(&vm_fileh_peer(h)->wake);
	while (__atomic_load_n(&h->server, __ATOMIC_ACQUIRE) != VM_SERVER_NONE)
		vm_wait(&h->server, VM_SERVER_ENDS, VM_FOREVER);
}
