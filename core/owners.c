/* SPDX-License-Identifier: MIT */
/*
 * Robust mutexes of the program in a mapping, where the kernel cannot store.
 *
 * When a thread ends the kernel walks its list of them (robust_list(7) in the kernel's documentation) and
 * marks each: its owner died. While a mapping is frozen, and with the segv engine after every harvest, it
 * cannot. So whenever rights are taken away, what the threads of the process hold there is noted in ctl, and
 *
 *	the process dies meanwhile	who buries it marks them
 *	a thread does			the process itself does, at the thaw
 *	both live			the engine opens those pages at once: they may be stored into at any time
 *
 * Lists and words change while they are read: a note is a guess, and the word itself says whether it holds.
 */
#include "internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define MAX_HELD 64u /* that are looked at of one thread */

static int tasks =
	-1; /* home of /proc/self/task: a thread of ours takes no low number for it later (map lock) */

void vm_owners_begin(void)
{
	if (tasks >= 0 || !vm_process_is_visible())
		return;
	tasks = vm_sys->openat(AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (tasks >= 0)
		(void)vm_fd_adopt(&tasks); /* without, nothing is noted */
}

void vm_owners_fork_child(void)
{
	vm_fd_drop(&tasks); /* the parent's threads */
}

/* ---- notes ---- */

static void note(struct vm_fileh *h, uintptr_t word, int32_t tid)
{
	struct vma *v = vm_vma_at(word);
	struct vm_owner *free = NULL;
	uint64_t off;

	if (!v || v->fileh != h || !v->shared || word % sizeof(uint32_t))
		return;
	off = (v->pgoff << VM_PAGE_SHIFT) + (word - v->start);
	for (struct vm_owner *o = h->ctl->owner; o < h->ctl->owner + VM_MAX_OWNERS; o++) {
		if (o->tid == tid && o->off == off && o->peer == h->peer)
			return;
		if (!o->tid && !free)
			free = o;
	}
	if (!free)
		return;
	free->off = off;
	free->peer = h->peer;
	__atomic_store_n(&free->tid, tid, __ATOMIC_RELEASE); /* last: this process may be killed here */
}

/* Memory of the program, which it may take away meanwhile, and which may be frozen or not loaded. */
static bool peek(void *to, uintptr_t from, size_t len)
{
	struct iovec local = {to, len}, remote = {(void *)from, len};
	struct vma *v = vm_vma_at(from);

	if (v && v->shared)
		return vm_sys->pread(v->fileh->ram.fd, to, len,
				     (off_t)((v->pgoff << VM_PAGE_SHIFT) + (from - v->start))) ==
		       (ssize_t)len;
	return vm_sys_raw(__NR_process_vm_readv, vm_sys->getpid(), (long)&local, 1, (long)&remote, 1, 0) ==
	       (long)len;
}

static void note_thread(struct vm_fileh *h, int32_t tid)
{
	struct robust_list_head head;
	uintptr_t at = 0, entry;
	size_t len = 0;

	if (vm_sys_raw(__NR_get_robust_list, tid, (long)&at, (long)&len, 0, 0, 0) || !at ||
	    !peek(&head, at, sizeof(head)))
		return;
	entry = (uintptr_t)head.list.next;
	for (unsigned n = 0; n < MAX_HELD && entry != at; n++) {
		entry &= ~(uintptr_t)1; /* a mutex that inherits priorities */
		note(h, entry + (uintptr_t)head.futex_offset, tid);
		if (!peek(&entry, entry, sizeof(entry)))
			break;
	}
	if (head.list_op_pending)
		note(h, ((uintptr_t)head.list_op_pending & ~(uintptr_t)1) + (uintptr_t)head.futex_offset,
		     tid);
}

static int32_t number(const char *p)
{
	int32_t n = 0;

	for (; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (*p - '0');
	return n;
}

void vm_owners_note(struct vm_fileh *h)
{
	_Alignas(struct dirent64) char buf[1024];
	long n;

	if (tasks < 0 || !h->ctl->was_shared || vm_sys->lseek(tasks, 0, SEEK_SET))
		return;
	while ((n = vm_sys_raw(__NR_getdents64, tasks, (long)buf, sizeof(buf), 0, 0, 0)) > 0)
		for (struct dirent64 *d = (void *)buf; (char *)d < buf + n;
		     d = (void *)((char *)d + d->d_reclen))
			if (number(d->d_name))
				note_thread(h, number(d->d_name));
}

/* ---- marks ---- */

/* As the kernel does it: only where the thread still has it, and who waits is woken. */
static void mark_word(uint32_t *word, uint32_t tid)
{
	uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	while ((old & FUTEX_TID_MASK) == tid)
		if (__atomic_compare_exchange_n(word, &old, (old & FUTEX_WAITERS) | FUTEX_OWNER_DIED, false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
			old |= FUTEX_WAITERS;
			break;
		}
	if (!old || old & FUTEX_WAITERS) /* 0: it was about to wake the next one */
		(void)vm_sys->futex(word, FUTEX_WAKE, 1, NULL);
}

/* What the kernel stores is no store of this process. */
static void mark(struct vm_fileh *h, const struct vm_owner *o)
{
	uint64_t pgoff = o->off >> VM_PAGE_SHIFT, skip;
	bool stored_here = h->stored_here;
	void *p;

	if (vm_ram_next(&h->ram, pgoff, pgoff + 1, &skip) != pgoff || o->off >= h->ctl->size ||
	    (h->lazy && vm_page_state(h, pgoff) <= VM_LOADING) ||
	    vm_pagemap_reserve(&h->pagemap, pgoff, pgoff + 1))
		return; /* it went with its page */
	p = vm_own_map(VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, h->ram.fd,
		       (off_t)(pgoff << VM_PAGE_SHIFT));
	if (vm_sys_err(p))
		return;
	mark_word((uint32_t *)((char *)p + o->off % VM_PAGE), (uint32_t)o->tid);
	vm_page_mark_dirty(h, pgoff, pgoff + 1);
	h->stored_here = stored_here;
	(void)vm_sys->munmap(p, VM_PAGE); /* just made */
}

void vm_owners_died(struct vm_fileh *h, unsigned peer)
{
	for (struct vm_owner *o = h->ctl->owner; o < h->ctl->owner + VM_MAX_OWNERS; o++)
		if (o->tid && o->peer == peer) {
			mark(h, o);
			o->tid = 0;
		}
}

void vm_owners_leave(struct vm_fileh *h)
{
	for (struct vm_owner *o = h->ctl->owner; o < h->ctl->owner + VM_MAX_OWNERS; o++)
		if (o->peer == h->peer)
			o->tid = 0;
}

static int open_page(struct vma *v, uint64_t start, uint64_t stop)
{
	(void)stop;
	if (v->prot & PROT_WRITE)
		(void)vm_engine_ops->touched(v, start, true); /* the store itself tries again */
	return 0;
}

void vm_owners_go_on(struct vm_fileh *h)
{
	for (struct vm_owner *o = h->ctl->owner; h->ctl->was_shared && o < h->ctl->owner + VM_MAX_OWNERS; o++) {
		if (!o->tid || o->peer != h->peer)
			continue;
		if (vm_sys_raw(__NR_tgkill, vm_sys->getpid(), o->tid, 0, 0, 0, 0) == -ESRCH)
			mark(h, o);
		else if (vm_engine_ops == &vm_engine_segv)
			(void)vm_vma_for_each(h, o->off >> VM_PAGE_SHIFT, (o->off >> VM_PAGE_SHIFT) + 1,
					      open_page);
		o->tid = 0;
	}
}
