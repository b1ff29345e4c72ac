/* SPDX-License-Identifier: MIT */
/* The kernel's two interfaces behind the uffd engine: opened, tried, driven. */
#include "uffd.h"
#include "uapi.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static int uffd = -1, pagemap_fd = -1; /* homes */
static bool full;		       /* kernel accesses to missing pages are served */

/* Result buffer of a scan (map lock). */
static struct page_region found[1024];

#define FEATURES                                                                                             \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED |    \
	 UFFD_FEATURE_WP_ASYNC)

bool vm_uffd_is_full(void)
{
	return full;
}

int vm_uffd_fd(void)
{
	return uffd;
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

int vm_uffd_ioctl(unsigned long request, void *arg)
{
	int err;

	do
		err = vm_sys->ioctl(uffd, request, arg);
	while (err == -EAGAIN);
	return err;
}

int vm_uffd_protect(uintptr_t addr, size_t len)
{
	struct uffdio_writeprotect wp = {.range = {addr, len}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	return vm_uffd_ioctl(UFFDIO_WRITEPROTECT, &wp);
}

int vm_uffd_register(uintptr_t addr, size_t len, bool missing)
{
	struct uffdio_register reg = {
		.range = {addr, len},
		.mode = UFFDIO_REGISTER_MODE_WP | (missing ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};

	return vm_sys->ioctl(uffd, UFFDIO_REGISTER, &reg);
}

int vm_uffd_unregister(uintptr_t addr, size_t len)
{
	struct uffdio_range r = {addr, len};

	return vm_sys->ioctl(uffd, UFFDIO_UNREGISTER, &r);
}

/* Scan [start, stop) addresses; calls fn for each run stored into. */
int vm_uffd_scan(uintptr_t start, uintptr_t stop, void (*fn)(uintptr_t, uintptr_t, void *), void *arg)
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
	p = vm_own_map(len, PROT_READ | PROT_WRITE, MAP_SHARED, ram.fd, 0);
	err = vm_sys_err(p);
	if (err)
		goto close;
	err = vm_uffd_register((uintptr_t)p, len, false);
	if (!err)
		err = vm_uffd_protect((uintptr_t)p, len);
	if (!err)
		err = vm_uffd_scan((uintptr_t)p, (uintptr_t)p + len, count, &before);
	if (!err) {
		(void)*(volatile char *)p;
		*(volatile char *)(p + VM_PAGE) = 1;
		err = vm_uffd_scan((uintptr_t)p, (uintptr_t)p + len, count, &after);
	}
	if (!err)
		err = vm_uffd_scan((uintptr_t)p, (uintptr_t)p + len, count, &again);
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

void vm_uffd_close(void)
{
	vm_fd_drop(&pagemap_fd);
	vm_fd_drop(&uffd);
}

int vm_uffd_open(bool probed, const char **ret_why)
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
	err = probed ? 0 : probe();
	if (err) {
		*ret_why = "userfaultfd and PAGEMAP_SCAN do not see a store (Linux 6.7)";
		goto close;
	}
	*ret_why = full ? NULL : "unprivileged: userfaultfd for user mode only, files are loaded at mmap";
	return 0;
close:
	vm_uffd_close();
	return err;
}
