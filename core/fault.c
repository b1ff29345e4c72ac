/* SPDX-License-Identifier: MIT */
/*
 * A touch that arrived as SIGSEGV or SIGBUS.
 *
 *	1. whose address? not ours, or forbidden by the program's own protection: the program's fault
 *	2. the mapping is frozen: wait for the thaw, touch again
 *	3. the engine resolves it, or wants the page loaded first (vm_load), then touch again
 *
 * Runs in the touching thread's signal handler: no malloc, and no lock of ours is held by this thread, since
 * our code touches no memory of the program while it holds one.
 */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define RA_MIN 16u /* pages around a random touch: what the kernel maps around one */

/* The same touch again and again, though nothing was missing, is a fault after all. */
#define MAX_REPEATS 10000u
static __thread uint16_t repeats;
static __thread uintptr_t last_addr;

void vm_readahead(struct vm_fileh *h, uint64_t pgoff, uint64_t *ret_start, uint64_t *ret_stop)
{
	if (h->ra_npages && pgoff >= h->ra_next && pgoff < h->ra_next + h->ra_npages)
		h->ra_npages = h->ra_npages * 2 < VM_BATCH_NPAGES ? h->ra_npages * 2 : VM_BATCH_NPAGES;
	else
		h->ra_npages = RA_MIN;
	*ret_start = h->ra_npages == RA_MIN ? pgoff / RA_MIN * RA_MIN : pgoff;
	*ret_stop = *ret_start + h->ra_npages;
	h->ra_next = *ret_stop;
}

enum touch { LOAD, STORE, UNKNOWN };

static enum touch touch_of(void *ucontext)
{
#if defined(__x86_64__)
	return ((ucontext_t *)ucontext)->uc_mcontext.gregs[REG_ERR] & 2 ? STORE : LOAD;
#elif defined(__aarch64__)
	/* the esr_context record, which an emulator may leave out: ESR_ELx.WnR is bit 6 */
	char *p = (char *)((ucontext_t *)ucontext)->uc_mcontext.__reserved;
	struct head {
		uint32_t magic, size;
	} *head = (struct head *)p;

	while (head->magic && head->size) {
		if (head->magic == 0x45535201)
			return *(uint64_t *)(head + 1) >> 6 & 1 ? STORE : LOAD;
		head = (struct head *)((char *)head + head->size);
	}
	return UNKNOWN;
#else
#error "tell loads from stores on this machine"
#endif
}

/* Unknown counts as a load; had it been one, the same touch would not arrive again. */
static bool is_store(const struct vma *v, uintptr_t addr, enum touch touch)
{
	return touch == STORE || (touch == UNKNOWN && addr == last_addr && v->prot & PROT_WRITE);
}

void vm_wait_for_thaw(struct vm_fileh *h, unsigned msec)
{
	const unsigned step = msec < 1000 ? msec : 1000; /* a wake-up that was lost is made up for */
	uint64_t until = vm_deadline(msec);
	uint32_t seen;

	while ((seen = __atomic_load_n(&h->frozen, __ATOMIC_SEQ_CST)) != VM_THAWED && !vm_is_past(until)) {
		vm_wait(&h->frozen, seen, step);
		if (seen == __atomic_load_n(&h->frozen, __ATOMIC_SEQ_CST)) {
			vm_fileh_lock(h);
			vm_fileh_repair(h); /* does who froze it still live? */
			vm_fileh_unlock(h);
		}
	}
}

static int load_around(struct vm_fileh *h, uint64_t pgoff, uint64_t start, uint64_t stop)
{
	int err = vm_load(h, start, stop);

	return err ? vm_load(h, pgoff, pgoff + 1) : 0; /* only a neighbour could not be had? */
}

/* needless: the engine found nothing to do for this touch. */
static bool is_repeating(uintptr_t addr, bool needless)
{
	if (addr != last_addr || !needless)
		repeats = 0;
	last_addr = addr;
	return ++repeats > MAX_REPEATS;
}

/* resolve: something was waited for, the touch has to be tried again; nothing was missing */
#define AGAIN	 2
#define NEEDLESS 3

/* Steps 2 and 3 for one page. Map lock held, released on return. 1, AGAIN, NEEDLESS, 0 (not ours after all),
 * -errno. */
static int resolve(struct vma *v, uint64_t pgoff, bool write)
{
	struct vm_fileh *h = v->fileh;
	uint64_t start, stop;
	int err;

	if (__atomic_load_n(&h->frozen, __ATOMIC_SEQ_CST)) {
		vm_fileh_pin(h);
		vm_unlock(&vm_map_lock);
		vm_wait_for_thaw(h, VM_FOREVER);
		vm_fileh_unpin(h);
		return AGAIN;
	}
	if (v->fresh && v->writable) { /* before the server got to it */
		while ((err = vm_engine_ops->settle(v)) > 0)
			;
		vm_unlock(&vm_map_lock);
		return err ? err : AGAIN;
	}
	vm_fileh_lock(h);
	if (pgoff >= vm_npages(h->ctl->size))
		err = -ENXIO; /* what the kernel answers with SIGBUS, had it got that far */
	else
		err = v->shared ? vm_engine_ops->touched(v, pgoff, write) : 0;
	if (!err) /* a private one was being exchanged (adopt.c) */
		err = NEEDLESS;
	vm_fileh_unlock(h);
	if (err != -EAGAIN) {
		vm_unlock(&vm_map_lock);
		return err;
	}
	vm_fileh_pin(h);
	vm_readahead(h, pgoff, &start, &stop);
	vm_unlock(&vm_map_lock);
	err = load_around(h, pgoff, start, stop);
	vm_fileh_unpin(h);
	return err ? err : AGAIN;
}

/* SIGBUS within the file: a page that could not be loaded has a mark (uffd). It goes: the next touch tries
 * again. Map lock held. 0: none of ours. */
static int unmark(struct vma *v, uint64_t pgoff)
{
	struct vm_fileh *h = v->fileh;
	int err = 0;

	vm_fileh_lock(h);
	if (h->poison && v->shared && pgoff < vm_npages(h->ctl->size)) {
		err = h->poison;
		/* loaded by somebody else meanwhile, and who was as late as we may have stored there since */
		if (vm_page_state(h, pgoff) > VM_LOADING && h->file->writable)
			vm_page_mark_dirty(h, pgoff, pgoff + 1);
		(void)vm_engine_ops->emptied(v, pgoff, pgoff + 1); /* it stays: SIGBUS once more */
	}
	vm_fileh_unlock(h);
	return err;
}

int vm_fault(const siginfo_t *info, void *ucontext)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	bool write, allowed;
	uint64_t pgoff;
	struct vma *v;
	int err;

	if (info->si_code <= 0 || info->si_code == SI_KERNEL) /* sent by somebody, or no address known */
		return 0;
	if (!vm_is_mapped(info->si_addr, 1))
		return 0;
	vm_lock(&vm_map_lock);
	v = vm_vma_at(addr);
	write = v && is_store(v, addr, touch_of(ucontext));
	allowed = v && (v->prot & (write ? PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC));
	if (!allowed) {
		vm_unlock(&vm_map_lock);
		return 0;
	}
	pgoff = v->pgoff + ((addr - v->start) >> VM_PAGE_SHIFT);
	if (info->si_signo == SIGBUS) {
		err = unmark(v, pgoff); /* beyond the end of the file it is the program's own */
		vm_unlock(&vm_map_lock);
		return err;
	}
	err = resolve(v, pgoff, write);
	if (is_repeating(addr, err == NEEDLESS))
		return 0;
	return err == AGAIN || err == NEEDLESS ? 1 : err;
}

/* Load pages, and have them in ram: one that was loaded as zeros, or zeroed, need not be there. */
static int load_and_hold(struct vm_fileh *h, uint64_t start, uint64_t stop)
{
	int err = vm_load(h, start, stop);
	uint64_t end;

	if (err)
		return err;
	vm_fileh_lock(h);
	end = vm_npages(h->ctl->size);
	err = vm_ram_hold(&h->ram, start, stop < end ? stop : end);
	vm_fileh_unlock(h);
	return err;
}

/* User mode only: the kernel cannot wait for a page, so it must be there. Map lock held, released on return. */
static int prepare_uffd(struct vma *v, uint64_t pgoff)
{
	struct vm_fileh *h = v->fileh;
	int err = 0;

	vm_fileh_pin(h);
	vm_unlock(&vm_map_lock);
	if (__atomic_load_n(&h->frozen, __ATOMIC_SEQ_CST))
		vm_wait_for_thaw(h, VM_FOREVER);
	if (h->lazy && !vm_can_load_lazily())
		err = load_and_hold(h, pgoff, pgoff + 1);
	vm_fileh_unpin(h);
	return err;
}

/* The first lazy mapping in [*addr, stop), or NULL; *addr: behind it. Its handle is pinned. */
static struct vm_fileh *next_lazy(uintptr_t *addr, uintptr_t stop, uint64_t *ret_start, uint64_t *ret_stop)
{
	struct vm_fileh *h = NULL;

	vm_lock(&vm_map_lock);
	for (size_t i = vm_vma_index(*addr); !h && i < vm_nvmas && vm_vmas[i]->start < stop; i++) {
		struct vma *v = vm_vmas[i];
		uintptr_t from = *addr > v->start ? *addr : v->start, to = stop < v->stop ? stop : v->stop;

		if (!v->shared || !v->fileh->lazy)
			continue;
		h = v->fileh;
		vm_fileh_pin(h);
		*ret_start = v->pgoff + ((from - v->start) >> VM_PAGE_SHIFT);
		*ret_stop = v->pgoff + vm_npages(to - v->start);
		*addr = to;
	}
	vm_unlock(&vm_map_lock);
	return h;
}

int vm_load_mapped(const void *addr, size_t len)
{
	uintptr_t p = (uintptr_t)addr, stop = p + len;
	uint64_t pgstart, pgstop;
	struct vm_fileh *h;
	int err = 0;

	if (!len || stop < p || !vm_is_mapped(addr, len))
		return 0;
	while (!err && p < stop && (h = next_lazy(&p, stop, &pgstart, &pgstop))) {
		err = load_and_hold(h, pgstart, pgstop);
		vm_fileh_unpin(h);
	}
	return err;
}

/* One page of vm_prepare; *addr: the next one, or the same one again. */
static int prepare_page(uintptr_t *addr, bool write)
{
	struct vma *v;
	uint64_t pgoff;
	size_t i;
	int err;

	vm_lock(&vm_map_lock);
	i = vm_vma_index(*addr);
	v = i < vm_nvmas ? vm_vmas[i] : NULL;
	if (!v || v->start > *addr) { /* nothing of ours up to there */
		*addr = v ? v->start : UINTPTR_MAX;
		vm_unlock(&vm_map_lock);
		return 0;
	}
	pgoff = v->pgoff + ((*addr - v->start) >> VM_PAGE_SHIFT);
	*addr += VM_PAGE;
	if (!v->shared || !(v->prot & (write ? PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC))) {
		vm_unlock(&vm_map_lock); /* the kernel says what is wrong, if anything */
		return 0;
	}
	if (vm_engine_ops == &vm_engine_uffd && !(write && v->fresh))
		return prepare_uffd(v, pgoff);
	err = resolve(v, pgoff, write);
	if (err == AGAIN)
		*addr -= VM_PAGE;
	return err < 0 ? err : 0;
}

int vm_prepare(const void *addr, size_t len, bool write)
{
	uintptr_t p = (uintptr_t)addr & ~(VM_PAGE - 1), stop = (uintptr_t)addr + len;
	int err = 0;

	if (!len || stop < (uintptr_t)addr || !vm_is_mapped(addr, len))
		return 0;
	while (!err && p < stop)
		err = prepare_page(&p, write);
	return err;
}
