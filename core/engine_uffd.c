/* SPDX-License-Identifier: MIT */
/*
 * userfaultfd(2): WP_ASYNC tells which pages were stored into (the kernel clears the write-protect bit by itself, for its
 * own stores, too; PAGEMAP_SCAN reads and sets it again), MISSING loads on first touch.
 *
 * Invariant: where a page table exists below a mapping of ours, every entry in it is write-protected or was stored
 * into. An absent entry of an unprotected table would count as stored into, so a region of 2 MiB (one page table)
 * is protected as a whole ("armed") before its first page is put into ram. Where no table exists the scan
 * skips the region, so that a large sparse mapping costs nothing.
 */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

static int uffd = -1, pagemap_fd = -1; /* homes */
static bool full;		       /* kernel accesses to missing pages are served */
static bool blind;		       /* no PAGEMAP_SCAN in this (forked) process: every page may have been stored into */
static bool thread_runs;

/* Result buffer of a scan (map lock). */
static struct page_region found[1024];

#define FEATURES                                                                                             \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED |    \
	 UFFD_FEATURE_WP_ASYNC)

bool vm_uffd_is_full(void)
{
	return full;
}

/* ---- the descriptor ---- */

static int open_mode(int flags)
{
	int fd = vm_sys->userfaultfd(O_CLOEXEC | O_NONBLOCK | flags), dev;

	if (fd != -EPERM || flags)
		return fd;
	/* a machine may open it to a group by the permissions of the device instead */
	dev = vm_sys->openat(AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
	if (dev < 0)
		return -EPERM;
	fd = vm_sys->ioctl(dev, USERFAULTFD_IOC_NEW, (void *)(intptr_t)(O_CLOEXEC | O_NONBLOCK));
	(void)vm_sys->close(dev); /* nothing was written */
	return fd;
}

static int handshake(int fd, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	return vm_sys->ioctl(fd, UFFDIO_API, &api);
}

static int open_uffd(void)
{
	uint64_t more[] = {UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_POISON, 0};
	int fd, err = -ENOSYS;

	/* a failed handshake spoils the descriptor: each try has its own */
	for (int user_only = 0; user_only < 2; user_only++) {
		for (int i = user_only; i < 2; i++) {
			fd = open_mode(user_only ? UFFD_USER_MODE_ONLY : 0);
			if (fd < 0) {
				err = fd;
				break;
			}
			err = handshake(fd, FEATURES | more[i]);
			if (!err) {
				full = more[i];
				uffd = fd;
				return vm_fd_adopt(&uffd);
			}
			(void)vm_sys->close(fd); /* unused */
		}
	}
	return err;
}

static int ioctl_retry(unsigned long request, void *arg)
{
	int err;

	do
		err = vm_sys->ioctl(uffd, request, arg);
	while (err == -EAGAIN);
	return err;
}

static int write_protect(uintptr_t addr, size_t len)
{
	struct uffdio_writeprotect wp = {.range = {addr, len}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	return ioctl_retry(UFFDIO_WRITEPROTECT, &wp);
}

static int register_range(uintptr_t addr, size_t len, bool missing)
{
	struct uffdio_register reg = {
		.range = {addr, len},
		.mode = UFFDIO_REGISTER_MODE_WP | (missing ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};

	return vm_sys->ioctl(uffd, UFFDIO_REGISTER, &reg);
}

/* Scan [start, stop) addresses; calls fn for each run stored into. */
static int scan(uintptr_t start, uintptr_t stop, void (*fn)(uintptr_t, uintptr_t, void *), void *arg)
{
	while (start < stop) {
		struct pm_scan_arg a = {
			.size = sizeof(a),
			.flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
			.start = start,
			.end = stop,
			.vec = (uint64_t)(uintptr_t)found,
			.vec_len = sizeof(found) / sizeof(found[0]),
			.category_mask = PAGE_IS_WRITTEN,
			.return_mask = PAGE_IS_WRITTEN,
		};
		int n = vm_sys->ioctl(pagemap_fd, PAGEMAP_SCAN, &a);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			fn(found[i].start, found[i].end, arg);
		/* walk_end can lag behind what was reported; it never does when nothing was */
		uintptr_t next = (uintptr_t)a.walk_end;
		if (n && found[n - 1].end > next)
			next = (uintptr_t)found[n - 1].end;
		if (next <= start)
			return -EIO;
		start = next;
	}
	return 0;
}

/* ---- probe: one page, one store, must be seen once ---- */

static void count(uintptr_t start, uintptr_t stop, void *arg)
{
	*(size_t *)arg += (stop - start) / VM_PAGE;
}

static int probe(void)
{
	const size_t len = 4 * VM_PAGE;
	size_t before = 0, after = 0, again = 0;
	struct vm_ram ram;
	char *p;
	int err;

	err = vm_ram_open(&ram, len);
	if (err)
		return err;
	p = vm_sys->mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ram.fd, 0);
	err = vm_sys_err(p);
	if (err)
		goto close;
	err = register_range((uintptr_t)p, len, false);
	if (!err)
		err = write_protect((uintptr_t)p, len);
	if (!err)
		err = scan((uintptr_t)p, (uintptr_t)p + len, count, &before);
	if (!err) {
		(void)*(volatile char *)p;
		*(volatile char *)(p + VM_PAGE) = 1;
		err = scan((uintptr_t)p, (uintptr_t)p + len, count, &after);
	}
	if (!err)
		err = scan((uintptr_t)p, (uintptr_t)p + len, count, &again);
	if (!err && (before || after != 1 || again))
		err = -ENOTSUP;
	(void)vm_sys->munmap(p, len);
close:
	vm_ram_close(&ram);
	return err;
}

static int open_pagemap(void)
{
	pagemap_fd = vm_sys->openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	return pagemap_fd < 0 ? pagemap_fd : vm_fd_adopt(&pagemap_fd);
}

static void uffd_stop(void)
{
	vm_fd_drop(&pagemap_fd);
	vm_fd_drop(&uffd);
}

static int uffd_start(const char **ret_why)
{
	int err = open_uffd();

	if (err) {
		*ret_why = err == -EPERM   ? "userfaultfd(2) is not permitted"
			   : err == -EINVAL ? "this kernel's userfaultfd has no WP_ASYNC (Linux 6.7)"
					    : "userfaultfd(2) failed";
		return err;
	}
	err = open_pagemap();
	if (err) {
		*ret_why = "/proc/self/pagemap cannot be opened";
		goto close;
	}
	err = probe();
	if (err) {
		*ret_why = "userfaultfd and PAGEMAP_SCAN do not see a store (Linux 6.7)";
		goto close;
	}
	*ret_why = full ? NULL : "unprivileged: userfaultfd for user mode only, files are loaded at mmap";
	return 0;
close:
	uffd_stop();
	return err;
}

/* ---- armed regions ---- */

static uint64_t region_of(const struct vma *v, uint64_t pgoff)
{
	/* page tables cover aligned addresses, not aligned file offsets */
	return vm_vma_addr(v, pgoff) / (VM_REGION_NPAGES * VM_PAGE) - v->start / (VM_REGION_NPAGES * VM_PAGE);
}

static uint64_t nregions(const struct vma *v)
{
	return region_of(v, vm_vma_pgstop(v) - 1) + 1;
}

static size_t armed_len(const struct vma *v)
{
	return (nregions(v) + 63) / 64 * 8;
}

static bool is_armed(const struct vma *v, uint64_t r)
{
	return v->armed[r / 64] >> (r % 64) & 1;
}

static int alloc_armed(struct vma *v)
{
	void *p;

	v->armed = &v->armed_few;
	v->armed_few = 0;
	if (nregions(v) <= 64)
		return 0;
	p = vm_sys->mmap(NULL, armed_len(v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (vm_sys_err(p))
		return vm_sys_err(p);
	v->armed = p;
	return 0;
}

static void uffd_detach(struct vma *v)
{
	if (v->armed && v->armed != &v->armed_few)
		(void)vm_sys->munmap(v->armed, armed_len(v)); /* ours, aligned */
	v->armed = NULL;
}

/* Pages of region r that v shows. */
static void region_pages(const struct vma *v, uint64_t r, uint64_t *ret_start, uint64_t *ret_stop)
{
	uintptr_t size = VM_REGION_NPAGES * VM_PAGE, base = v->start / size * size + r * size;
	uintptr_t start = base > v->start ? base : v->start, stop = base + size < v->stop ? base + size : v->stop;

	*ret_start = v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT);
	*ret_stop = v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT);
}

static int protect_pages(const struct vma *v, uint64_t start, uint64_t stop)
{
	return write_protect(vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT);
}

/* Arm all regions that [start, stop) touches; neighbours in one call. */
static int uffd_will_fill(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t last = region_of(v, stop - 1), from, to, skip;
	int err;

	if (blind)
		return 0;
	for (uint64_t r = region_of(v, start); r <= last; r++) {
		if (is_armed(v, r))
			continue;
		uint64_t first = r;

		while (r < last && !is_armed(v, r + 1))
			r++;
		region_pages(v, first, &from, &skip);
		region_pages(v, r, &skip, &to);
		err = protect_pages(v, from, to);
		if (err)
			return err;
		for (; first <= r; first++)
			v->armed[first / 64] |= 1ull << (first % 64);
	}
	return 0;
}

/* The kernel dropped the marks with the pages; nobody can have stored there since, as long as a touch has to be
 * loaded first. */
static int uffd_emptied(struct vma *v, uint64_t start, uint64_t stop)
{
	int err = 0;

	if (blind || !v->fileh->lazy)
		return 0;
	for (uint64_t r = region_of(v, start); !err && start < stop; r++) {
		uint64_t from, to;

		region_pages(v, r, &from, &to);
		if (to > stop)
			to = stop;
		if (is_armed(v, r))
			err = protect_pages(v, start, to);
		start = to;
	}
	return err;
}

/* ---- the handler thread ---- */

static void zero_page(uintptr_t addr)
{
	struct uffdio_zeropage z = {.range = {addr, VM_PAGE}};

	/* EEXIST: somebody was faster; anything else: the thread faults again and we come back */
	(void)ioctl_retry(UFFDIO_ZEROPAGE, &z);
}

/* The page cannot be had: whoever touches it gets SIGBUS, until an invalidation takes the mark away. */
static void poison(uintptr_t addr)
{
	struct uffdio_poison p = {.range = {addr, VM_PAGE}};

	(void)ioctl_retry(UFFDIO_POISON, &p);
}

static void wake(uintptr_t addr, size_t len)
{
	struct uffdio_range r = {addr, len};

	(void)ioctl_retry(UFFDIO_WAKE, &r); /* fails only when the mapping is gone, and its waiters with it */
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
		absent = vm_page_state(h, pgoff) != VM_EMPTY && vm_ram_next(&h->ram, pgoff, pgoff + 1, &skip) != pgoff;
		vm_fileh_unlock(h);
		if (err)
			poison(addr);
		else if (absent) /* known to be zeros, never put into ram */
			zero_page(addr);
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
	vm_thread_begin();
	for (;;) {
		struct pollfd pfd = {.fd = uffd, .events = POLLIN};
		ssize_t n;

		if (poll(&pfd, 1, -1) < 0)
			continue; /* all signals are blocked: only a debugger interrupts */
		n = vm_sys->read(uffd, msg, sizeof(msg));
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msg); i++)
			if (msg[i].event == UFFD_EVENT_PAGEFAULT)
				serve((uintptr_t)msg[i].arg.pagefault.address & ~(VM_PAGE - 1));
	}
	return NULL;
}

static int need_thread(void)
{
	/* glibc's two internal signals stay: setuid() waits for every thread to answer one */
	const uint64_t all = ~(3ull << 31);
	pthread_attr_t attr;
	uint64_t old;
	pthread_t t;
	int err;

	if (thread_runs)
		return 0;
	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED); /* valid arguments */
	(void)pthread_attr_setstacksize(&attr, 128 * 1024);
	(void)vm_sys->sigprocmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&t, &attr, handler_main, NULL);
	(void)vm_sys->sigprocmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	thread_runs = !err;
	return -err;
}

/* ---- mappings ---- */

static int uffd_attach(struct vma *v)
{
	uint64_t start, stop, end = vm_vma_pgstop(v);
	int err;

	if (blind && v->fileh->lazy)
		return -ENOTSUP; /* nobody could load its pages */
	err = alloc_armed(v);
	if (err || blind)
		return err;
	err = v->fileh->lazy ? need_thread() : 0;
	if (!err)
		err = register_range(v->start, v->stop - v->start, v->fileh->lazy);
	for (start = v->pgoff; !err && start < end; start = stop) {
		start = vm_ram_next(&v->fileh->ram, start, end, &stop);
		if (start < end)
			err = uffd_will_fill(v, start, stop);
	}
	if (!err && v->fileh->lazy && !v->dontfork) {
		/* A child made behind our back would see, and make, zeros where pages are not loaded. */
		err = vm_sys->madvise((void *)v->start, v->stop - v->start, MADV_DONTFORK);
		v->dontfork = !err;
	}
	if (err)
		uffd_detach(v);
	return err;
}

static int uffd_split(struct vma *v, struct vma *tail)
{
	uint64_t first = region_of(v, tail->pgoff);
	int err = alloc_armed(tail);

	if (err)
		return err;
	for (uint64_t r = 0; r < nregions(tail); r++)
		if (is_armed(v, first + r))
			tail->armed[r / 64] |= 1ull << (r % 64);
	/* what v's own array was sized for shrinks with it; keep the mapping's length findable */
	if (v->armed != &v->armed_few) {
		struct vma head = *v;
		uint64_t *whole = v->armed;
		size_t whole_len = armed_len(v);

		head.stop = tail->start;
		err = alloc_armed(&head);
		if (err) {
			uffd_detach(tail);
			return err;
		}
		memcpy(head.armed, whole, armed_len(&head));
		v->armed_few = head.armed_few;
		v->armed = head.armed == &head.armed_few ? &v->armed_few : head.armed;
		(void)vm_sys->munmap(whole, whole_len);
	}
	return 0;
}

static void note(uintptr_t start, uintptr_t stop, void *arg)
{
	struct vma *v = arg;

	vm_page_note_stored(v->fileh, v->pgoff + ((start - v->start) >> VM_PAGE_SHIFT),
			    v->pgoff + ((stop - v->start) >> VM_PAGE_SHIFT));
}

static int uffd_harvest(struct vma *v, uint64_t start, uint64_t stop)
{
	uint64_t r, end, last = region_of(v, stop - 1), from, to, skip;
	int err = 0;

	if (blind) {
		vm_page_note_stored(v->fileh, start, stop);
		return 0;
	}
	/* Pages that appear behind our back, holes or those that another process put into ram, can be anywhere. */
	if (!v->fileh->lazy || v->fileh->ctl->was_shared)
		return scan(vm_vma_addr(v, start), vm_vma_addr(v, stop), note, v);
	for (r = region_of(v, start); !err && r <= last; r = end) {
		if (r % 64 == 0 && !v->armed[r / 64]) {
			end = r + 64;
			continue;
		}
		for (end = r; end <= last && is_armed(v, end); end++)
			;
		if (end > r) {
			region_pages(v, r, &from, &skip);
			region_pages(v, end - 1, &skip, &to);
			err = scan(vm_vma_addr(v, from), vm_vma_addr(v, to), note, v);
		}
		end++;
	}
	return err;
}

static int uffd_protect(struct vma *v, uint64_t start, uint64_t stop)
{
	return vm_sys->mprotect((void *)vm_vma_addr(v, start), (stop - start) << VM_PAGE_SHIFT, v->prot);
}

static int uffd_touched(struct vma *v, uint64_t pgoff, bool write)
{
	(void)write;
	/* a freeze ended between the touch and now, or could not give the access back */
	return uffd_protect(v, pgoff, pgoff + 1) ? -ENOMEM : 1;
}

static int uffd_flatten(struct vma *v)
{
	(void)v; /* its protection is uniform unless the program made it otherwise */
	return 0;
}

static int uffd_fork_child(void)
{
	int err;

	uffd_stop();
	thread_runs = false;
	err = open_uffd();
	if (!err)
		err = open_pagemap();
	blind = err;
	return err;
}

const struct vm_engine_ops vm_engine_uffd = {
	.name = "uffd",
	.start = uffd_start,
	.stop = uffd_stop,
	.attach = uffd_attach,
	.detach = uffd_detach,
	.split = uffd_split,
	.will_fill = uffd_will_fill,
	.emptied = uffd_emptied,
	.harvest = uffd_harvest,
	.protect = uffd_protect,
	.touched = uffd_touched,
	.flatten = uffd_flatten,
	.fork_child = uffd_fork_child,
};
