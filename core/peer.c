/* SPDX-License-Identifier: MIT */
/* The lock of a handle, waiting for others who have it, and who they are. */
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- peers that died ---- */

/* A process that ended, began another program, or left its number to another has not our control memfd at
 * that descriptor. One that we may not look at counts as alive. */
static bool looks_alive(struct vm_fileh *h, const struct vm_peer *p)
{
	struct stat ours, theirs;
	char path[48];
	int err;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", p->pid, p->ctl_fd);
	err = vm_sys->fstatat(AT_FDCWD, path, &theirs, 0);
	if (!err)
		return vm_sys->fstat(h->ctl_fd, &ours) || (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev);
	/* Its number may be another's by now, whom we may not look at either. */
	if ((err == -EACCES || err == -EPERM) && p->started && p->started != vm_process_started(p->pid))
		return false;
	/* A main thread that ended has no descriptors, and what is left of it may be root's; the others can
	 * go on. */
	if (vm_process_state(p->pid) == 'Z')
		return vm_process_nthreads(p->pid) > 1;
	return err != -ENOENT && err != -ESRCH;
}

static bool is_alive(struct vm_fileh *h, const struct vm_peer *p)
{
	return p->pid == vm_sys->getpid() || looks_alive(h, p) ||
	       (!vm_process_is_visible() && !vm_process_has_ended(p->pid));
}

/* Who died while the size changed may have got as far as ram's: longer is undone, shorter is done, since the
 * bytes are gone. Handle lock held. */
static void repair_size(struct vm_fileh *h)
{
	struct vm_ctl *ctl = h->ctl;
	struct stat st;

	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (ctl->peers[i].pid && ctl->peers[i].nwriters)
			return; /* that one is alive, and will say how long the file is */
	if (vm_sys->fstat(h->ram.fd, &st) || (uint64_t)st.st_size == ctl->size)
		return;
	if ((uint64_t)st.st_size > ctl->size) {
		(void)vm_ram_resize(&h->ram, ctl->size); /* tried again by the next one who repairs */
		return;
	}
	if (!vm_pagemap_reserve(&h->pagemap, vm_npages((uint64_t)st.st_size), vm_npages(ctl->size)))
		(void)vm_page_drop(h, vm_npages((uint64_t)st.st_size), vm_npages(ctl->size));
	ctl->size = (uint64_t)st.st_size;
	if (ctl->size_low > ctl->size)
		ctl->size_low = ctl->size;
	ctl->gen++;
}

/* What p was inside of is over. Handle lock held. */
static void bury(struct vm_fileh *h, struct vm_peer *p)
{
	struct vm_ctl *ctl = h->ctl;

	if (ctl->busy_pid == p->pid) {
		vm_page_store_failed(h);
		ctl->gate = VM_GATE_OPEN;
		ctl->busy_pid = 0;
		ctl->abandoned = true;
		vm_ask_post(h, VM_ASK_THAW, true); /* whom it froze */
	}
	ctl->suspect |= p->may_store && !p->harvested;
	vm_owners_died(h, (unsigned)(p - ctl->peers));
	memset(p, 0, sizeof(*p));
	/* pages it was loading never arrive; loads of others that are under way are done again */
	ctl->gen++;
	for (uint64_t pg = 0; ctl->npages[VM_LOADING]; pg++) {
		pg = vm_pagemap_find(&h->pagemap, pg, VM_MAX_PGOFF, VM_LOADING);
		if (pg == VM_MAX_PGOFF)
			break;
		vm_page_end_load(h, pg, pg + 1, false);
	}
	repair_size(h);
	vm_wake(&ctl->seq);
}

/* Forget peers that died. Handle lock held. */
void vm_fileh_repair(struct vm_fileh *h)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (h->ctl->peers[i].pid && !is_alive(h, &h->ctl->peers[i]))
			bury(h, &h->ctl->peers[i]);
}

static uint64_t image; /* of this process (atomic) */

static uint64_t this_image(void)
{
	uint64_t none = 0, now = vm_deadline(0) << 20 ^ (uintptr_t)&image >> VM_PAGE_SHIFT; /* when, and where it was put */

	if (!__atomic_load_n(&image, __ATOMIC_ACQUIRE))
		(void)__atomic_compare_exchange_n(&image, &none, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&image, __ATOMIC_ACQUIRE);
}

void vm_peer_fork_child(void)
{
	image = 0;
}

/* Before this process is a peer: one of its number is what it was before an exec, or a dead one whose number
 * it got. With the same number of the descriptor, which is likely, others cannot tell. Handle lock held. */
static void bury_namesakes(struct vm_fileh *h)
{
	const int32_t pid = vm_sys->getpid();

	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (h->ctl->peers[i].pid == pid && h->ctl->peers[i].image != this_image())
			bury(h, &h->ctl->peers[i]);
}

/* ---- lock and wait ---- */

void vm_fileh_inherit(struct vm_fileh *h)
{
	vm_page_recount(h);
	vm_fileh_repair(h);
}

void vm_fileh_lock(struct vm_fileh *h)
{
	if (vm_lock(&h->ctl->lock))
		vm_fileh_inherit(h);
}

void vm_fileh_unlock(struct vm_fileh *h)
{
	vm_unlock(&h->ctl->lock);
}

void vm_fileh_wait(struct vm_fileh *h)
{
	vm_fileh_wait_msec(h, VM_WAIT_MSEC);
}

void vm_fileh_wait_msec(struct vm_fileh *h, unsigned msec)
{
	uint32_t seen = __atomic_load_n(&h->ctl->seq, __ATOMIC_ACQUIRE);

	vm_fileh_unlock(h);
	vm_wait(&h->ctl->seq, seen, msec);
	vm_fileh_lock(h);
	if (!vm_is_past(h->look_msec))
		return;
	vm_fileh_repair(h); /* also when something happened: it may all be the doing of others than who is waited for */
	h->look_msec = vm_deadline(VM_WAIT_MSEC);
}

/* Busy, without locks. */
static void mend(struct vm_fileh *h)
{
	const struct vm_backend_ops *ops = h->file->ops;

	if (ops->mend && ops->mend(h->file))
		return; /* the next one tries */
	vm_fileh_lock(h);
	h->ctl->abandoned = false;
	vm_fileh_unlock(h);
}

void vm_fileh_begin_busy(struct vm_fileh *h)
{
	bool abandoned;

	vm_fileh_lock(h);
	while (h->ctl->busy_pid || (h->ctl->comes_until && !vm_is_past(h->ctl->comes_until)))
		vm_fileh_wait(h);
	h->ctl->busy_pid = vm_sys->getpid();
	abandoned = h->ctl->abandoned;
	vm_fileh_unlock(h);
	if (abandoned)
		mend(h);
}

int vm_fileh_attach_busy(struct vm_fileh *h, unsigned msec)
{
	uint64_t until = vm_deadline(msec);
	int err = vm_lock_within(&h->ctl->lock, msec);

	if (err < 0)
		return err; /* who has it is stopped, or no such process */
	if (err)
		vm_fileh_inherit(h);
	err = 0;
	bury_namesakes(h);
	while (h->ctl->busy_pid && !err) {
		h->ctl->comes_until = vm_deadline(2 * VM_WAIT_MSEC); /* before others are busy again. It may be killed */
		vm_fileh_wait(h);
		if (h->ctl->busy_pid && vm_is_past(until))
			err = -EBUSY;
	}
	h->ctl->comes_until = 0;
	if (!err)
		err = vm_fileh_attach_peer(h);
	if (!err) {
		h->ctl->was_shared = true;
		h->ctl->busy_pid = vm_sys->getpid();
	}
	vm_fileh_unlock(h);
	return err;
}

void vm_fileh_end_busy(struct vm_fileh *h)
{
	vm_fileh_lock(h);
	BUG_ON(h->ctl->busy_pid != vm_sys->getpid());
	h->ctl->busy_pid = 0;
	h->ctl->gate = VM_GATE_OPEN;
	vm_wake(&h->ctl->seq);
	vm_fileh_unlock(h);
}

static bool anyone_inside(struct vm_ctl *ctl, enum vm_gate gate)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		struct vm_peer *p = &ctl->peers[i];

		if (p->pid && (p->nwriters || (gate == VM_GATE_CLOSED && p->nreaders)))
			return true;
	}
	return false;
}

void vm_fileh_gate(struct vm_fileh *h, enum vm_gate gate)
{
	BUG_ON(h->ctl->busy_pid != vm_sys->getpid());
	h->ctl->gate = gate;
	if (gate == VM_GATE_OPEN)
		vm_wake(&h->ctl->seq);
	else
		while (anyone_inside(h->ctl, gate))
			vm_fileh_wait(h);
}

/* ---- who has it ---- */

struct vm_peer *vm_fileh_peer(struct vm_fileh *h)
{
	return h->peer < VM_MAX_PEERS ? &h->ctl->peers[h->peer] : &h->nobody;
}

int vm_fileh_attach_peer(struct vm_fileh *h)
{
	bury_namesakes(h);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		if (h->ctl->peers[i].pid)
			continue;
		h->ctl->was_shared |= i > 0;
		h->ctl->joined = true;
		h->ctl->peers[i] = (struct vm_peer){
			.pid = vm_sys->getpid(),
			.ctl_fd = h->ctl_fd,
			.image = this_image(),
			.started = vm_process_started(0),
			.protects = vm_engine_ops == &vm_engine_segv,
		};
		h->peer = i;
		return 0;
	}
	return -EAGAIN;
}

bool vm_fileh_has_others(struct vm_fileh *h)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (h->ctl->peers[i].pid && i != h->peer)
			return true;
	return false;
}

bool vm_fileh_is_lost(const struct vm_fileh *h)
{
	return h->peer == VM_MAX_PEERS;
}

bool vm_fileh_is_shared(struct vm_fileh *h)
{
	bool others;

	vm_fileh_lock(h);
	vm_fileh_repair(h);
	others = vm_fileh_has_others(h);
	vm_fileh_unlock(h);
	return others;
}
