/* SPDX-License-Identifier: MIT */
/* The thread that loads what is touched first: one a process, from the first lazy mapping on, all signals
 * blocked. */
#include "uffd.h"
#include "uapi.h"
#include <errno.h>
#include <poll.h>

static bool thread_runs; /* (map lock) */

/* Locks held. */
static void zero_page(struct vm_fileh *h, uint64_t pgoff, uintptr_t addr)
{
	static const char zeros[VM_PAGE];
	/* not UFFDIO_ZEROPAGE: its page counts as stored into */
	struct uffdio_copy c = {.dst = addr, .src = (uintptr_t)zeros, .len = VM_PAGE, .mode = UFFDIO_COPY_MODE_WP};

	/* EEXIST: somebody was faster; anything else: the thread faults again and we come back */
	if (!vm_vma_for_each(h, pgoff, pgoff + 1, vm_engine_ops->will_fill))
		(void)vm_uffd_ioctl(UFFDIO_COPY, &c);
}

/* The page cannot be had: whoever touches it gets SIGBUS, and takes the mark away, so that the next touch
 * tries again. */
static void poison(struct vm_fileh *h, uintptr_t addr, int err)
{
	struct uffdio_poison p = {.range = {addr, VM_PAGE}};

	h->poison = err;
	(void)vm_uffd_ioctl(UFFDIO_POISON, &p);
}

static void wake(uintptr_t addr, size_t len)
{
	struct uffdio_range r = {addr, len};

	(void)vm_uffd_ioctl(UFFDIO_WAKE, &r); /* fails only when the mapping is gone, and its waiters with it */
}

static void serve(uintptr_t addr)
{
	uint64_t pgoff, start, stop, skip;
	struct vm_fileh *h;
	struct vma *v;
	bool absent;
	int err;

	vm_lock(&vm_map_lock);
	v = vm_vma_at(addr);
	if (!v) {
		vm_unlock(&vm_map_lock);
		wake(addr, VM_PAGE);
		return;
	}
	h = v->fileh;
	vm_fileh_pin(h);
	pgoff = v->pgoff + ((addr - v->start) >> VM_PAGE_SHIFT);
	vm_readahead(h, pgoff, &start, &stop);
	vm_unlock(&vm_map_lock);

	err = vm_load(h, start, stop);
	if (err)
		err = vm_load(h, pgoff, pgoff + 1); /* only the neighbours could not be had? */

	vm_lock(&vm_map_lock);
	if (vm_vma_at(addr) == v && v->fileh == h && vm_vma_addr(v, pgoff) == addr) {
		vm_fileh_lock(h);
		absent = !err && vm_page_state(h, pgoff) > VM_LOADING &&
			 vm_ram_next(&h->ram, pgoff, pgoff + 1, &skip) != pgoff;
		if (err)
			poison(h, addr, err);
		else if (absent) /* known to be zeros, never put into ram */
			zero_page(h, pgoff, addr);
		vm_fileh_unlock(h);
		for (uint64_t pg = start < v->pgoff ? v->pgoff : start; pg < stop && pg < vm_vma_pgstop(v);
		     pg = vm_vma_pgstop(v))
			wake(vm_vma_addr(v, pg),
			     ((stop < vm_vma_pgstop(v) ? stop : vm_vma_pgstop(v)) - pg) << VM_PAGE_SHIFT);
	}
	vm_unlock(&vm_map_lock);
	wake(addr, VM_PAGE);
	vm_fileh_unpin(h);
}

static void *handler_main(void *arg)
{
	struct uffd_msg msg[16];

	(void)arg;
	for (;;) {
		struct pollfd pfd = {.fd = vm_uffd_fd(), .events = POLLIN};
		ssize_t n;

		if (vm_sys->poll(&pfd, 1, -1) < 0)
			continue; /* all signals are blocked: only a debugger interrupts */
		n = vm_sys->read(vm_uffd_fd(), msg, sizeof(msg));
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msg); i++)
			if (msg[i].event == UFFD_EVENT_PAGEFAULT)
				serve((uintptr_t)msg[i].arg.pagefault.address & ~(VM_PAGE - 1));
	}
	return NULL;
}

int vm_uffd_need_thread(void)
{
	int err = thread_runs ? 0 : vm_thread_start(handler_main, NULL, VM_STACK_LEN);

	thread_runs |= !err;
	return err;
}

void vm_uffd_thread_fork_child(void)
{
	thread_runs = false;
}
