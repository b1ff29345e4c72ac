/* SPDX-License-Identifier: MIT */
/*
 * fork(2). The child shares ram, page map and control block with its parent, and has its mappings, but no
 * engine behind them: it arms them anew before the program runs in it. Mappings whose pages are not all
 * loaded are not inherited at all (MADV_DONTFORK) and are made again here, so that not even a child made
 * behind our back can see, or make, zeros where a page was not loaded.
 */
#include "internal.h"
#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int32_t forker; /* (map lock) */

void vm_fork_wait(void)
{
	(void)vm_map_lock_thawed(NULL, 0, UINTPTR_MAX, VM_FOREVER); /* cannot fail */
	vm_unlock(&vm_map_lock);
}

int vm_fork_prepare(unsigned msec)
{
	/* a child is asked for nothing, and would not be frozen */
	int err = vm_map_lock_thawed(NULL, 0, UINTPTR_MAX, msec);

	if (err)
		return err;
	/* before: other threads of this process may store as soon as there is a child that asks; without a
	 * server the child is told when it commits */
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		if (h->server == VM_SERVER_NONE)
			__atomic_store_n(&h->unsettled, VM_UNSETTLED, __ATOMIC_RELEASE);
		(void)vm_serve(h);
	}
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		if (vm_lock_another(&h->ctl->lock))
			vm_fileh_inherit(h);
		/* A commit of the child's must not come without the stores before the fork, which only this
		 * process can see: it is asked for them. If it cannot be, they are at worst in the next one
		 * of ours. */
		if (h->server == VM_SERVER_NONE)
			(void)vm_harvest(h);
		vm_fileh_peer(h)->nforks++;
		h->forked_gen = h->ctl->gen;
	}
	forker = vm_sys->getpid();
	vm_fd_fork_prepare();
	return 0;
}

void vm_fork_parent(void)
{
	vm_fd_fork_parent();
	for (struct vm_fileh *h = vm_filehs; h; h = h->next)
		vm_unlock_another(&h->ctl->lock, !h->next);
	vm_unlock(&vm_map_lock);
}

/* Nothing of the parent's is there: the addresses must be taken before anything else is mapped in the child,
 * or a thread's stack, say, may be put there. */
static int map_again(struct vma *v)
{
	void *p;

	if (v->nofork)
		return 1; /* the program does not want it here */
	if (!v->dontfork)
		return 0;
	p = vm_sys->mmap((void *)v->start, v->stop - v->start, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE,
			 v->fileh->ram.fd, (off_t)(v->pgoff << VM_PAGE_SHIFT));
	v->dontfork = false;
	if (!vm_sys_err(p))
		(void)vm_sys->madvise(p, v->stop - v->start, MADV_DONTDUMP); /* only makes cores large */
	return vm_sys_err(p);
}

/* Parent and child do not know each other's number then: neither could tell whether the other one lives. */
static bool is_in_new_namespace(void)
{
	return !vm_sys_raw(__NR_getppid, 0, 0, 0, 0, 0, 0);
}

static int arm(struct vma *v)
{
	int err = vm_fileh_is_lost(v->fileh) ? 1 : 0;

	if (!v->shared && !err)
		return 0;
	if (!err) {
		vm_engine_ops->detach(v);
		vm_fileh_lock(v->fileh);
		err = vm_engine_ops->attach(v);
		if (!err)
			err = vm_engine_ops->protect(v, v->pgoff, vm_vma_pgstop(v));
		vm_fileh_unlock(v->fileh);
	}
	if (err) /* better no mapping than one that shows zeros or loses stores */
		(void)vm_sys->munmap((void *)v->start, v->stop - v->start);
	return err;
}

/* Calls fn for every mapping; one that it fails for, or returns 1, is no more. Returns the first error. */
static int for_each_vma(int (*fn)(struct vma *v))
{
	int err = 0, e;

	vm_lock(&vm_map_lock);
	for (size_t i = 0; i < vm_nvmas;) {
		struct vma *v = vm_vmas[i];

		e = fn(v);
		if (e) {
			if (v->shared)
				vm_engine_ops->detach(v);
			vm_vma_remove(v);
			vm_vma_free(v);
			err = err || e > 0 ? err : e;
		} else {
			i++;
		}
	}
	vm_vma_publish();
	vm_unlock(&vm_map_lock);
	return err;
}

static int join(struct vm_fileh *h)
{
	struct vm_peer *parent = vm_fileh_peer(h);
	int err;

	h->nusers = 0;
	h->server = VM_SERVER_NONE;
	h->unsettled = VM_SETTLED; /* until arm says something else */
	vm_idle_fini(h);
	h->frozen = VM_THAWED; /* who froze it is not in this process; arm gives the protections back */
	h->round = (struct vm_runs){0}; /* another thread may have been growing it */
	vm_fileh_lock(h);
	if (parent->pid == forker && parent->nforks) {
		parent->nforks--;
		vm_wake(&h->ctl->seq);
	}
	err = is_in_new_namespace() ? -EREMOTE : vm_fileh_attach_peer(h);
	if (err)
		h->peer = VM_MAX_PEERS; /* and not its parent's entry, for which it would answer */
	else
		vm_fileh_peer(h)->nprivate = h->nprivate;
	for (size_t i = 0; !err && i < vm_nvmas; i++)
		vm_fileh_peer(h)->may_store |= vm_vmas[i]->fileh == h && vm_vmas[i]->shared && vm_vmas[i]->writable;
	vm_fileh_unlock(h);
	return err;
}

/* A child on its way is not known to have private mappings, of which nobody loads what is dropped: what went
 * meanwhile is loaded before the program runs. No other thread maps or unmaps yet. */
static int fill_private(void)
{
	int err = 0, e;

	for (size_t i = 0; i < vm_nvmas; i++) {
		struct vma *v = vm_vmas[i];
		struct vm_fileh *h = v->fileh;

		if (v->shared || !h->lazy || h->ctl->gen == h->forked_gen)
			continue;
		e = vm_load(h, v->pgoff, vm_vma_pgstop(v));
		if (e) /* better SIGSEGV than zeros */
			(void)vm_sys->mprotect((void *)v->start, v->stop - v->start, PROT_NONE);
		err = err ? err : e;
	}
	return err;
}

/* Handles that this process is none of those to have. */
static void unlist_lost(void)
{
	struct vm_fileh **pp = &vm_filehs;

	vm_lock(&vm_map_lock);
	while (*pp)
		if (vm_fileh_is_lost(*pp))
			*pp = (*pp)->next;
		else
			pp = &(*pp)->next;
	vm_unlock(&vm_map_lock);
}

int vm_fork_child(void)
{
	int err = 0, e;

	vm_lock_fork_child();
	vm_thread_fork_child();
	vm_peer_fork_child();
	vm_fd_fork_child();
	vm_owners_fork_child();
	vm_unlock_fork_child(&vm_map_lock);
	if (!vm_engine_ops)
		return 0;
	err = for_each_vma(map_again);
	vm_engine_fork_child();
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		h->stored_here = h->committed_here = false;
		e = join(h);
		err = err ? err : e;
	}
	e = for_each_vma(arm);
	unlist_lost();
	err = err ? err : e;
	e = fill_private();
	for (struct vm_fileh *h = vm_filehs; h; h = h->next)
		(void)vm_serve(h); /* without, the parent cannot commit: it is told */
	return err ? err : e;
}
