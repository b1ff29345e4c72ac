/* SPDX-License-Identifier: MIT */
#include "faulty_sys.h"

/* Helper threads of core look at them, too. */
static _Atomic uint64_t kinds;
static _Atomic unsigned nth, how, ncalls;
static _Atomic int err;
static _Atomic bool failed;
static _Thread_local bool is_mine;
static void (*tell)(enum faulty_kind kind, unsigned n);

/* Count the call; is it its turn? */
static bool is_due(enum faulty_kind kind)
{
	unsigned n;

	if (!(kinds & 1ull << kind) || (how & FAULTY_MINE && !is_mine))
		return false;
	n = ++ncalls;
	if (tell)
		tell(kind, n);
	if (!nth || (how & FAULTY_FOR_EVER ? n < nth : n != nth))
		return false;
	failed = true;
	return true;
}

#define X(ret, name, decl, args)                                                                             \
	static ret faulty_##name decl                                                                        \
	{                                                                                                    \
		return is_due(FAULTY_##name) ? -err : vm_sys_linux.name args;                                \
	}
FAULTY_CALLS(X)
#undef X

static ssize_t faulty_read(int fd, void *buf, size_t len)
{
	if (!is_due(FAULTY_read))
		return vm_sys_linux.read(fd, buf, len);
	return how & FAULTY_SHORT ? vm_sys_linux.read(fd, buf, len > 1 ? len / 2 : len) : -err;
}

static ssize_t faulty_pread(int fd, void *buf, size_t len, off_t off)
{
	if (!is_due(FAULTY_pread))
		return vm_sys_linux.pread(fd, buf, len, off);
	return how & FAULTY_SHORT ? vm_sys_linux.pread(fd, buf, len > 1 ? len / 2 : len, off) : -err;
}

static ssize_t faulty_write(int fd, const void *buf, size_t len)
{
	if (!is_due(FAULTY_write))
		return vm_sys_linux.write(fd, buf, len);
	if (how & FAULTY_SHORT)
		return vm_sys_linux.write(fd, buf, len > 1 ? len / 2 : len);
	if (how & FAULTY_TORN)
		(void)vm_sys_linux.write(fd, buf, len / 2); /* the failure is what counts */
	return -err;
}

static ssize_t faulty_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	if (!is_due(FAULTY_pwrite))
		return vm_sys_linux.pwrite(fd, buf, len, off);
	if (how & FAULTY_SHORT)
		return vm_sys_linux.pwrite(fd, buf, len > 1 ? len / 2 : len, off);
	if (how & FAULTY_TORN)
		(void)vm_sys_linux.pwrite(fd, buf, len / 2, off); /* the failure is what counts */
	return -err;
}

static ssize_t faulty_pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	return is_due(FAULTY_pwritev) ? -err : vm_sys_linux.pwritev(fd, iov, niov, off);
}

static void *faulty_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return is_due(FAULTY_mmap) ? (void *)(intptr_t)-err
				   : vm_sys_linux.mmap(addr, len, prot, flags, fd, off);
}

static void *faulty_mremap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr)
{
	return is_due(FAULTY_mremap) ? (void *)(intptr_t)-err
				     : vm_sys_linux.mremap(old, old_len, new_len, flags, new_addr);
}

static struct vm_sys table;

__attribute__((constructor)) static void make_table(void)
{
	table = vm_sys_linux;
#define X(ret, name, decl, args) table.name = faulty_##name;
	FAULTY_CALLS(X)
#undef X
	table.read = faulty_read;
	table.pread = faulty_pread;
	table.write = faulty_write;
	table.pwrite = faulty_pwrite;
	table.pwritev = faulty_pwritev;
	table.mmap = faulty_mmap;
	table.mremap = faulty_mremap;
}

/* Unknown to the thread sanitizer: helper threads of core may be reading vm_sys, and either table is good for
 * them. */
__attribute__((no_sanitize("thread"))) void faulty_use(const struct vm_sys *sys)
{
	*(const struct vm_sys *volatile *)&vm_sys = sys;
}

void faulty_arm(uint64_t kinds_, unsigned nth_, int err_, unsigned how_)
{
	nth = nth_;
	err = err_;
	how = how_;
	is_mine = true;
	ncalls = 0;
	failed = false;
	kinds = kinds_;
	faulty_use(&table);
}

unsigned faulty_disarm(void)
{
	faulty_use(&vm_sys_linux);
	return ncalls;
}

void faulty_tell(void (*fn)(enum faulty_kind kind, unsigned n))
{
	tell = fn;
}

const char *faulty_name(enum faulty_kind kind)
{
	static const char *const names[] = {
#define X(ret, name, decl, args) [FAULTY_##name] = #name,
		FAULTY_CALLS(X)
#undef X
			[FAULTY_read] = "read",
		[FAULTY_pread] = "pread",
		[FAULTY_write] = "write",
		[FAULTY_pwrite] = "pwrite",
		[FAULTY_pwritev] = "pwritev",
		[FAULTY_mmap] = "mmap",
		[FAULTY_mremap] = "mremap",
	};

	return names[kind];
}

bool faulty_has_failed(void)
{
	return failed;
}
