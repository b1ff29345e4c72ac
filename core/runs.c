/* SPDX-License-Identifier: MIT */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

int vm_runs_add(struct vm_runs *r, uint64_t start, uint64_t stop)
{
	if (r->n && r->run[r->n - 1].stop == start) {
		r->run[r->n - 1].stop = stop;
		return 0;
	}
	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : VM_PAGE / sizeof(*r->run);
		void *p;

		if (r->cap)
			p = vm_own_grow(r->run, r->cap * sizeof(*r->run), cap * sizeof(*r->run));
		else
			p = vm_own_map(cap * sizeof(*r->run), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(p))
			return vm_sys_err(p);
		r->run = p;
		r->cap = cap;
	}
	r->run[r->n++] = (struct vm_pgrun){start, stop};
	return 0;
}

void vm_runs_free(struct vm_runs *r)
{
	if (r->cap)
		(void)vm_sys->munmap(r->run, r->cap * sizeof(*r->run)); /* ours, aligned */
	*r = (struct vm_runs){0};
}
