/* SPDX-License-Identifier: MIT */
/* Choosing an engine, and what both share: harvest, freeze, thaw. */
#include "internal.h"
#include "uffd.h"
#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

const struct vm_engine_ops *vm_engine_ops;
static const char *why_not_better;

int vm_start(enum vm_engine engine)
{
	int err;

	if (vm_engine_ops)
		return 0;
	why_not_better = NULL;
	if (engine != VM_ENGINE_SEGV) {
		err = vm_engine_uffd.start(&why_not_better);
		if (!err)
			vm_engine_ops = &vm_engine_uffd;
		else if (engine == VM_ENGINE_UFFD)
			return err;
	} else {
		why_not_better = "asked for by engine=segv";
	}
	if (!vm_engine_ops) {
		err = vm_engine_segv.start(&why_not_better);
		if (err)
			return err;
		vm_engine_ops = &vm_engine_segv;
	}
	return 0;
}

int vm_probe(enum vm_engine engine)
{
	int err;

	if (vm_engine_ops)
		return 0;
	err = vm_start(engine);
	if (!err)
		vm_engine_ops->stop();
	vm_engine_ops = NULL;
	return err;
}

enum vm_engine vm_engine(const char **ret_why)
{
	if (ret_why)
		*ret_why = why_not_better;
	if (!vm_engine_ops)
		return VM_ENGINE_AUTO;
	return vm_engine_ops == &vm_engine_uffd ? VM_ENGINE_UFFD : VM_ENGINE_SEGV;
}

/* Where the child may not use what its parent opened before a seccomp filter, or before it gave up its
 * privileges, it goes on with what works everywhere. */
void vm_engine_fork_child(void)
{
	if (!vm_engine_ops->fork_child(&why_not_better))
		return;
	for (size_t i = 0; i < vm_nvmas; i++)
		if (vm_vmas[i]->shared)
			vm_engine_ops->detach(vm_vmas[i]);
	vm_engine_ops = &vm_engine_segv;
}

bool vm_can_load_lazily(void)
{
	return vm_engine_ops == &vm_engine_uffd && vm_uffd_is_full();
}

static int harvest_vma(struct vma *v, uint64_t start, uint64_t stop)
{
	int err;

	if (!v->writable)
		return 0;
	/* a scan finds nothing in a hole that somebody made by a bare system call; this says that there is
	 * one */
	err = vm_sys->msync((void *)v->start, v->stop - v->start, MS_ASYNC);
	return err ? err : vm_engine_ops->harvest(v, start, stop);
}

/* Page faults of this process so far; 0: it cannot be known. The kernel counts a fault when it has served it:
 * until then another thread could be storing there already. A process with one thread cannot. */
static uint64_t nfaults(void)
{
	struct rusage use;

	if (vm_engine_ops != &vm_engine_uffd || !vm_process_has_one_thread())
		return 0; /* with the other engine the program is told of stores, which is no fault for the kernel */
	return vm_sys_raw(__NR_getrusage, RUSAGE_SELF, (long)&use, 0, 0, 0, 0) ? 0 : (uint64_t)use.ru_minflt + (uint64_t)use.ru_majflt;
}

static int harvest(struct vm_fileh *h, uint64_t before)
{
	int err;

	vm_fileh_peer(h)->harvested = false; /* what is stored from here on */
	h->blind = false;
	do
		err = vm_vma_for_each(h, 0, UINT64_MAX, harvest_vma);
	while (err && vm_vma_drop_stale(0, UINTPTR_MAX, h));
	if (h->frozen || vm_engine_ops == &vm_engine_segv)
		vm_owners_note(h);
	if (!h->frozen && vm_engine_ops == &vm_engine_segv)
		vm_owners_go_on(h);
	vm_fileh_peer(h)->nfaults = err || h->blind ? 0 : before;
	vm_fileh_peer(h)->nthreads = vm_process_nknown();
	return err;
}

int vm_harvest(struct vm_fileh *h)
{
	return harvest(h, 0);
}

int vm_harvest_if_touched(struct vm_fileh *h)
{
	uint64_t n = nfaults();
	int err = 0;

	if (n && n == vm_fileh_peer(h)->nfaults)
		return 0;
	h->noted = false;
	err = harvest(h, n);
	return err ? err : h->noted;
}

void vm_harvest_doubt(void)
{
	vm_lock(&vm_map_lock);
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		vm_fileh_lock(h);
		vm_fileh_peer(h)->nfaults = 0;
		vm_fileh_unlock(h);
	}
	vm_unlock(&vm_map_lock);
}

bool vm_settle(struct vm_fileh *h)
{
	bool more = false;

	if (__atomic_load_n(&h->unsettled, __ATOMIC_ACQUIRE) == VM_SETTLED)
		return false;
	vm_lock(&vm_map_lock);
	for (size_t i = 0; vm_engine_ops->settle && i < vm_nvmas; i++)
		if (vm_vmas[i]->fileh == h && vm_vmas[i]->shared && vm_vmas[i]->writable)
			more |= vm_engine_ops->settle(vm_vmas[i]) > 0;
	/* after an error: who stores there tries again */
	__atomic_store_n(&h->unsettled, more ? VM_UNSETTLED : VM_SETTLED, __ATOMIC_RELEASE);
	vm_unlock(&vm_map_lock);
	return more;
}

/* Take write (or all) access away from the run where v shows it. */
static int freeze_run(struct vma *v, uint64_t start, uint64_t stop, bool all)
{
	if (start < v->pgoff)
		start = v->pgoff;
	if (stop > vm_vma_pgstop(v))
		stop = vm_vma_pgstop(v);
	if (start >= stop)
		return 0;
	return vm_sys->mprotect((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT,
				all ? PROT_NONE : v->prot & ~PROT_WRITE);
}

int vm_freeze(struct vm_fileh *h, const struct vm_runs *runs, bool all)
{
	bool by_harvest = !all && vm_engine_ops == &vm_engine_segv; /* which protects what is writable */
	int err = 0;

	if (!all) /* before that all of it was frozen for stores */
		vm_owners_note(h);
	if (!by_harvest || !h->frozen)
		__atomic_store_n(&h->frozen, by_harvest ? VM_FROZEN : VM_FROZEN_PROTECTED, __ATOMIC_SEQ_CST);
	if (by_harvest)
		return 0;
	for (size_t i = 0; !err && i < vm_nvmas; i++) {
		struct vma *v = vm_vmas[i];

		if (v->fileh != h || !v->shared)
			continue;
		if (!runs)
			err = freeze_run(v, 0, UINT64_MAX, all);
		for (size_t r = 0; !err && runs && r < runs->n; r++)
			err = freeze_run(v, runs->run[r].start, runs->run[r].stop, all);
		if (err == -ENOMEM && runs) /* no more kernel mappings: in one piece it needs none */
			err = freeze_run(v, 0, UINT64_MAX, all);
	}
	return err;
}

static int give_back(struct vma *v, uint64_t start, uint64_t stop)
{
	(void)vm_engine_ops->protect(v, start, stop);
	return 0; /* the other mappings get theirs in any case */
}

void vm_thaw(struct vm_fileh *h)
{
	if (!h->frozen)
		return;
	/* Protections first: a woken writer must not fault again. Where one cannot be given back (no memory
	 * for one more kernel mapping) the touch itself tries again. */
	if (h->frozen == VM_FROZEN_PROTECTED)
		(void)vm_vma_for_each(h, 0, UINT64_MAX, give_back);
	vm_owners_go_on(h);
	__atomic_store_n(&h->frozen, VM_THAWED, __ATOMIC_SEQ_CST);
	(void)vm_sys->futex(&h->frozen, FUTEX_WAKE, INT_MAX, NULL);
}
