/* SPDX-License-Identifier: MIT */
/* All invariants of docs/invariants.md, walked. Slow; for tests, and for whoever suspects something. */
#include "internal.h"
#include <sys/stat.h>

/* M1 to M3 */
static void check_map(void)
{
	for (size_t i = 0; i < vm_nvmas; i++) {
		struct vma *v = vm_vmas[i];
		struct vm_fileh *h;

		BUG_ON(v->start >= v->stop || v->start % VM_PAGE || v->stop % VM_PAGE);
		BUG_ON(i && vm_vmas[i - 1]->stop > v->start);
		for (h = vm_filehs; h && h != v->fileh; h = h->next)
			;
		BUG_ON(!h);
	}
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		unsigned n = 0, npriv = 0;

		for (size_t i = 0; i < vm_nvmas; i++) {
			n += vm_vmas[i]->fileh == h;
			npriv += vm_vmas[i]->fileh == h && !vm_vmas[i]->shared;
		}
		BUG_ON(n != h->nvmas || npriv != h->nprivate);
		BUG_ON(h->ctl->peers[h->peer].nprivate != npriv);
	}
}

static bool has_writer(const struct vm_ctl *ctl)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (ctl->peers[i].pid && ctl->peers[i].nwriters)
			return true;
	return false;
}

/* P1 to P3, E1 */
static void check_pages(struct vm_fileh *h)
{
	uint64_t end = vm_npages(h->ctl->size);

	for (enum vm_page_state s = VM_LOADING; s < VM_NSTATES; s++) {
		uint64_t n = 0, pg = vm_pagemap_find(&h->pagemap, 0, VM_MAX_PGOFF, s);

		for (; pg < VM_MAX_PGOFF; pg = vm_pagemap_find(&h->pagemap, pg + 1, VM_MAX_PGOFF, s)) {
			BUG_ON(pg >= end && s != VM_LOADING && !has_writer(h->ctl));
			n++;
		}
		BUG_ON(n != h->ctl->npages[s]);
	}
	/* of a lazy handle nothing is in ram that is not accounted for */
	for (uint64_t pg = 0, stop; h->lazy && pg < end; pg = stop)
		for (pg = vm_ram_next(&h->ram, pg, end, &stop); pg < stop; pg++)
			BUG_ON(vm_page_state(h, pg) <= VM_LOADING);
	/* and what it holds is watched */
	for (size_t i = 0; vm_engine_ops->check && i < vm_nvmas; i++)
		if (vm_vmas[i]->fileh == h && vm_vmas[i]->shared)
			vm_engine_ops->check(vm_vmas[i]);
}

/* C1 to C4 */
static void check_ctl(struct vm_fileh *h)
{
	struct vm_ctl *ctl = h->ctl;
	struct stat st;

	BUG_ON(ctl->magic != VM_CTL_MAGIC || ctl->version != VM_CTL_VERSION);
	BUG_ON(ctl->size_low > ctl->size || ctl->size_low > ctl->size_committed);
	BUG_ON(ctl->npages[VM_STORING] && !ctl->busy_pid);
	BUG_ON(ctl->gate != VM_GATE_OPEN && !ctl->busy_pid);
	BUG_ON(vm_sys->fstat(h->ram.fd, &st));
	BUG_ON((uint64_t)st.st_size < ctl->size);
	BUG_ON((uint64_t)st.st_size != ctl->size && !has_writer(ctl));
	BUG_ON(ctl->peers[h->peer].pid != vm_sys->getpid());
}

void vm_check(void)
{
	vm_lock(&vm_map_lock);
	check_map();
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		vm_fileh_lock(h);
		check_ctl(h);
		check_pages(h);
		vm_fileh_unlock(h);
	}
	vm_unlock(&vm_map_lock);
}
