/* SPDX-License-Identifier: MIT */
/* The address map: which mapping of which handle lies where. A sorted array; lookups are binary searches. */
#include "internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct vm_lock vm_map_lock = VM_LOCK_INIT(VM_RANK_MAP);
struct vma **vm_vmas;
size_t vm_nvmas;
static size_t cap;

static struct vma *free_list; /* linked through ->fileh */

/* Everything of ours lies in [lowest, highest): a first answer without a lock. */
static uintptr_t lowest, highest;

size_t vm_vma_index(uintptr_t addr)
{
	size_t lo = 0, hi = vm_nvmas;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (vm_vmas[mid]->stop > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct vma *vm_vma_at(uintptr_t addr)
{
	size_t i = vm_vma_index(addr);

	return i < vm_nvmas && vm_vmas[i]->start <= addr ? vm_vmas[i] : NULL;
}

bool vm_vma_touches(uintptr_t start, uintptr_t stop)
{
	size_t i = vm_vma_index(start);

	return i < vm_nvmas && vm_vmas[i]->start < stop;
}

void vm_vma_publish(void)
{
	__atomic_store_n(&lowest, vm_nvmas ? vm_vmas[0]->start : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&highest, vm_nvmas ? vm_vmas[vm_nvmas - 1]->stop : 0, __ATOMIC_RELEASE);
}

bool vm_is_mapped(const void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr, stop = start + len < start ? UINTPTR_MAX : start + len;
	bool hit;

	if (start >= __atomic_load_n(&highest, __ATOMIC_ACQUIRE) || stop <= __atomic_load_n(&lowest, __ATOMIC_ACQUIRE))
		return false;
	vm_lock(&vm_map_lock);
	hit = vm_vma_touches(start, stop);
	vm_unlock(&vm_map_lock);
	return hit;
}

/* Tell the other processes how many of h's mappings here are private. Map lock held. */
static void publish_private(struct vm_fileh *h)
{
	__atomic_store_n(&vm_fileh_peer(h)->nprivate, h->nprivate, __ATOMIC_SEQ_CST);
}

/* Room for one more mapping. */
static int reserve_slot(void)
{
	if (vm_nvmas == cap) {
		size_t n = cap ? cap * 2 : 512;
		void *p;

		if (cap)
			p = vm_own_grow(vm_vmas, cap * sizeof(*vm_vmas), n * sizeof(*vm_vmas));
		else
			p = vm_own_map(n * sizeof(*vm_vmas), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(p))
			return vm_sys_err(p);
		vm_vmas = p;
		cap = n;
	}
	return 0;
}

int vm_vma_insert(struct vma *v)
{
	int err = reserve_slot();
	size_t i;

	if (err)
		return err;
	i = vm_vma_index(v->start);
	BUG_ON(i < vm_nvmas && vm_vmas[i]->start < v->stop); /* overlap */
	memmove(&vm_vmas[i + 1], &vm_vmas[i], (vm_nvmas - i) * sizeof(*vm_vmas));
	vm_vmas[i] = v;
	vm_nvmas++;
	v->fileh->nvmas++;
	v->fileh->nprivate += !v->shared;
	publish_private(v->fileh);
	vm_vma_publish();
	return 0;
}

void vm_vma_remove(struct vma *v)
{
	size_t i = vm_vma_index(v->start);

	BUG_ON(i >= vm_nvmas || vm_vmas[i] != v);
	vm_nvmas--;
	memmove(&vm_vmas[i], &vm_vmas[i + 1], (vm_nvmas - i) * sizeof(*vm_vmas));
	v->fileh->nvmas--;
	v->fileh->nprivate -= !v->shared;
	publish_private(v->fileh);
}

struct vma *vm_vma_alloc(void)
{
	const size_t slab = 64 * 1024;
	struct vma *v = free_list;

	if (!v) {
		void *p = vm_own_map(slab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(p))
			return NULL;
		for (size_t i = 0; i < slab / sizeof(*v); i++)
			vm_vma_free((struct vma *)p + i);
		v = free_list;
	}
	free_list = (struct vma *)v->fileh;
	memset(v, 0, sizeof(*v));
	return v;
}

void vm_vma_free(struct vma *v)
{
	v->fileh = (struct vm_fileh *)free_list;
	free_list = v;
}

/* Cut the mapping that crosses addr in two. */
static int split_at(uintptr_t addr)
{
	struct vma *v = vm_vma_at(addr), *tail;
	int err;

	if (!v || v->start == addr)
		return 0;
	err = reserve_slot(); /* after the engine's split nothing may fail */
	if (err)
		return err;
	tail = vm_vma_alloc();
	if (!tail)
		return -ENOMEM;
	tail->start = addr;
	tail->stop = v->stop;
	tail->pgoff = v->pgoff + ((addr - v->start) >> VM_PAGE_SHIFT);
	tail->fileh = v->fileh;
	tail->prot = v->prot;
	tail->shared = v->shared;
	tail->writable = v->writable;
	tail->dontfork = v->dontfork;
	tail->nofork = v->nofork;
	tail->fresh = v->fresh;
	err = v->shared ? vm_engine_ops->split(v, tail) : 0;
	if (err) {
		vm_vma_free(tail);
		return err;
	}
	v->stop = addr;
	err = vm_vma_insert(tail);
	BUG_ON(err);
	return 0;
}

int vm_vma_split(uintptr_t start, uintptr_t stop)
{
	int err = split_at(start);

	return err ? err : split_at(stop);
}

int vm_vma_for_each(struct vm_fileh *h, uint64_t start, uint64_t stop,
		    int (*fn)(struct vma *v, uint64_t start, uint64_t stop))
{
	int err = 0;

	BUG_ON(!vm_lock_is_held(VM_RANK_MAP));
	for (size_t i = 0; !err && i < vm_nvmas; i++) {
		struct vma *v = vm_vmas[i];
		uint64_t from = start > v->pgoff ? start : v->pgoff;
		uint64_t to = stop < vm_vma_pgstop(v) ? stop : vm_vma_pgstop(v);

		if (v->fileh == h && v->shared && from < to)
			err = fn(v, from, to);
	}
	return err;
}
