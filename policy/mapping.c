/* SPDX-License-Identifier: MIT */
/* Mappings of managed files, and calls on ranges that touch one. */
#include "managed_priv.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MADV_POPULATE_READ /* newer than some headers */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* ---- the files of a range ---- */

/* The files mapped in a range, each with a reference. More than FEW in one call is rare and costs a mapping. */
#define FEW 16u
struct touched {
	struct pol_file *few[FEW], **m;
	size_t n, cap;
	int err;
};

static void touched_add(struct vm_fileh *h, void *arg)
{
	struct touched *t = arg;
	struct pol_file *m = pol_file_of_handle(h);

	if (!m)
		return;
	if (t->n == t->cap) {
		size_t cap = t->cap * 4;
		struct pol_file **p = vm_own_map(cap * sizeof(*p), PROT_READ | PROT_WRITE,
						   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(p)) {
			t->err = vm_sys_err(p);
			pol_file_put(m);
			return;
		}
		for (size_t i = 0; i < t->n; i++)
			p[i] = t->m[i];
		if (t->m != t->few)
			(void)vm_sys->munmap(t->m, t->cap * sizeof(*p));
		t->m = p;
		t->cap = cap;
	}
	t->m[t->n++] = m;
}

static int touched_get(struct touched *t, void *addr, size_t len)
{
	t->m = t->few;
	t->cap = FEW;
	t->n = 0;
	t->err = 0;
	vm_for_each_mapped(addr, len, touched_add, t);
	return t->err;
}

/* Is m[i] in the list once more? Then the last reference is not given back yet. */
static bool comes_again(const struct touched *t, size_t i)
{
	for (size_t k = i + 1; k < t->n; k++)
		if (t->m[k] == t->m[i])
			return true;
	return false;
}

/* Give the references back: a file that lost its last mapping, and has no descriptor, ends here. */
static void touched_put(struct touched *t, void (*put)(struct pol_file *m))
{
	for (size_t i = 0; i < t->n; i++)
		(comes_again(t, i) ? pol_file_put : put)(t->m[i]);
	if (t->m != t->few)
		(void)vm_sys->munmap(t->m, t->cap * sizeof(*t->m));
}

/* A call that may have ended mappings in what was looked at is done. */
static void touched_end(struct touched *t, bool is_unmapped, void (*put)(struct pol_file *m))
{
	for (size_t i = 0; is_unmapped && i < t->n; i++)
		(void)pol_event(t->m[i], POL_EV_MUNMAP); /* the mapping is gone: logged, and the stores are kept */
	touched_put(t, put);
}

/* ---- map ---- */

/* Arguments that are seldom, or wrong: whether they are, and what is told first, only the kernel knows. */
static bool is_ordinary(size_t len, int prot, int flags, int accmode, off_t off)
{
	const int known = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_NONBLOCK | MAP_NORESERVE | MAP_STACK |
			  MAP_DENYWRITE | MAP_EXECUTABLE;
	int type = flags & MAP_TYPE;

	if ((type != MAP_SHARED && type != MAP_PRIVATE) || (flags & ~(known | MAP_TYPE)) ||
	    (prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC)))
		return false;
	if (!len || len > (size_t)1 << 46 || off < 0 || off % (off_t)VM_BLKSIZE || off > INT64_MAX / 2)
		return false;
	return accmode == O_RDWR || (accmode == O_RDONLY && (type == MAP_PRIVATE || !(prot & PROT_WRITE)));
}

/* What mmap(2) itself says, by a mapping of the file that goes at once. With a fixed address, it is only
 * asked for one that it refuses in any case, or at another place: what is there must stay. */
static int ask_kernel(int fd, void *addr, size_t len, int prot, int flags, int accmode, off_t off)
{
	int type = flags & MAP_TYPE, err;
	bool is_refused = accmode == O_WRONLY || (type != MAP_PRIVATE && (prot & PROT_WRITE) && accmode != O_RDWR) || !len;
	void *p;

	if ((flags & MAP_FIXED) && !is_refused)
		flags &= ~MAP_FIXED;
	p = vm_sys->mmap(addr, len, prot, flags, fd, off);
	err = vm_sys_err(p);
	if (err)
		return err;
	(void)vm_sys->munmap(p, len); /* just made */
	/* it promises that a store is on the medium: ours are in memory */
	return type == MAP_SHARED_VALIDATE && (flags & MAP_SYNC) ? -EOPNOTSUPP : 0;
}

static int refused(struct pol_file *m, int err)
{
	if (m->rule->on_error == POL_REFUSE)
		return err;
	pol_log(POL_LOG_WARN, "%s: NOT managed (%s), the program uses it directly: on_error=passthrough", m->path,
		pol_errno_name(err));
	return -ENOTSUP;
}

static bool has_no_name(int fd)
{
	struct stat st;

	return !vm_sys->fstat(fd, &st) && !st.st_nlink;
}

static int refused_as_unfit(struct pol_file *m)
{
	pol_log(m->rule->on_error == POL_REFUSE ? POL_LOG_ERROR : POL_LOG_DEBUG,
		"%s: matches a rule but is %s; only regular files on ordinary file systems can be managed", m->path,
		m->unfit);
	return refused(m, -ENODEV);
}

int pol_mmap(struct pol_file *m, int fd, void *addr, size_t len, int prot, int flags, off_t off, void **ret_addr)
{
	int fl = vm_sys->fcntl(fd, F_GETFL, 0), accmode = fl & O_ACCMODE, err;
	bool shared = (flags & MAP_TYPE) != MAP_PRIVATE, writable = shared && accmode == O_RDWR;
	struct touched t;

	if (fl < 0)
		return fl;
	if (!shared && !m->h && !m->refused) { /* refused: the file may hold half a commit */
		/* who only reads need not wait for the file to be loaded, nor be alone with it */
		pol_left_private();
		return -ENOTSUP;
	}
	if (!m->h && has_no_name(fd)) { /* unlinked since it was opened: as one that was opened so */
		pol_log(POL_LOG_DEBUG, "%s: not managed: it was unlinked", m->path);
		return -ENOTSUP;
	}
	if (!is_ordinary(len, prot, flags, accmode, off)) {
		err = ask_kernel(fd, addr, len, prot, flags, accmode, off);
		if (err)
			return err;
		prot &= PROT_READ | PROT_WRITE | PROT_EXEC;
		flags &= ~MAP_SYNC;
	}
	if ((flags & MAP_TYPE) == MAP_SHARED_VALIDATE) /* which has MAP_PRIVATE's bit in it */
		flags = (flags & ~MAP_TYPE) | MAP_SHARED;
	if (m->unfit)
		return refused_as_unfit(m);
	if (m->refused)
		return refused(m, m->refused);
	if (!m->h || (writable && !m->file.writable)) {
		err = pol_file_go_live(m, fd, writable);
		if (err)
			return m->h ? err : refused(m, err);
	}
	pol_see_change(m);
	err = touched_get(&t, addr, flags & MAP_FIXED ? len : 0); /* what is there goes, if the call succeeds */
	if (!err)
		err = vm_map(m->h, addr, len, prot, flags, (uint64_t)off, writable, ret_addr);
	touched_end(&t, !err, pol_file_put);
	return err;
}

bool pol_addr_is_managed(const void *addr, size_t len)
{
	return vm_is_mapped(addr, len);
}

/* ---- unmap ---- */

int pol_munmap(void *addr, size_t len)
{
	struct touched t;
	int err = touched_get(&t, addr, len);

	if (!err)
		err = vm_unmap(addr, len);
	touched_end(&t, !err, pol_file_put_last);
	return err;
}

int pol_mmap_other(void *addr, size_t len, int prot, int flags, int fd, off_t off, void **ret_addr)
{
	struct touched t;
	int err = touched_get(&t, addr, len);

	if (!err)
		err = vm_map_other(addr, len, prot, flags, fd, (uint64_t)off, ret_addr);
	touched_end(&t, !err, pol_file_put_last);
	return err;
}

int pol_shmat(int id, void *addr, size_t len, int flags, void **ret_addr)
{
	struct touched t;
	int err = touched_get(&t, addr, len);

	if (!err)
		err = vm_attach_segment(id, addr, len, flags, ret_addr);
	touched_end(&t, !err, pol_file_put_last);
	return err;
}

void pol_mapped_other(void *addr, size_t len)
{
	struct touched t;

	if (touched_get(&t, addr, len))
		return; /* no memory: found out later */
	if (t.n)
		vm_forget_gone(addr, len);
	touched_end(&t, t.n, pol_file_put);
}

/* ---- the others ---- */

/* On Linux this flag never drops a store; nor does it here, but what others committed of a page with stores
 * is in conflict. */
static int invalidate_clean(struct pol_file *m)
{
	int err = vm_fileh_invalidate(m->h, 0, 0, VM_DIRTY_KEEP, NULL);

	if (err)
		pol_file_failed(m, "msync: invalidate", err);
	return err;
}

int pol_msync(void *addr, size_t len, int flags)
{
	struct touched t;
	/* the kernel's verdict on arguments and holes; for the memory itself it has nothing to do */
	int err = vm_sys->msync(addr, len, flags), e;

	if (err == -EINVAL || err == -EBUSY || !(flags & (MS_SYNC | MS_ASYNC | MS_INVALIDATE)))
		return err;
	e = touched_get(&t, addr, len);
	for (size_t i = 0; !e && i < t.n; i++) {
		if (flags & MS_SYNC)
			e = pol_event(t.m[i], POL_EV_MSYNC);
		else if (flags & MS_ASYNC)
			e = pol_event(t.m[i], POL_EV_MSYNC_ASYNC);
		if (!e && (flags & MS_INVALIDATE) && t.m[i]->rule->invalidate == POL_INV_MSYNC)
			e = invalidate_clean(t.m[i]);
	}
	touched_put(&t, pol_file_put);
	return e ? e : err;
}

int pol_mprotect(void *addr, size_t len, int prot)
{
	return vm_protect(addr, len, prot);
}

int pol_madvise(void *addr, size_t len, int advice)
{
	int ready = 0, err;

	/* the kernel touches the pages itself; its verdict on those that cannot be had is the answer */
	if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)
		ready = vm_prepare(addr, len, advice == MADV_POPULATE_WRITE);
	err = vm_advise(addr, len, advice);
	/* a page beyond the end of the file, which the segv engine does not let the kernel find out */
	return err == -EINVAL && ready == -ENXIO ? -EFAULT : err;
}

/* The kernel's own refusals are for the program to tell; ours are not what it could expect. */
static void log_mremap(const void *old, size_t old_len, size_t new_len, int err)
{
	enum pol_log_level level = err == -EAGAIN ? POL_LOG_WARN : POL_LOG_INFO;
	struct touched t;

	if (!pol_log_is_on(level) || touched_get(&t, (void *)old, old_len ? old_len : 1))
		return;
	pol_log(level, "%s: mremap from %zu to %zu bytes: %s", t.n ? t.m[0]->path : "?", old_len, new_len,
		pol_errno_name(err));
	touched_put(&t, pol_file_put);
}

int pol_mlock(const void *addr, size_t len, unsigned flags)
{
	return vm_mlock(addr, len, flags);
}

int pol_remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags)
{
	struct touched t;
	int err = touched_get(&t, addr, len);

	if (!err)
		err = vm_remap_file_pages(addr, len, prot, pgoff, flags);
	touched_end(&t, !err, pol_file_put);
	return err;
}

int pol_mremap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr)
{
	struct touched t;
	int err = touched_get(&t, new_addr, flags & MREMAP_FIXED ? new_len : 0); /* it goes, if the call succeeds */

	if (!err)
		err = vm_remap(old, old_len, new_len, flags, new_addr, ret_addr);
	if (err)
		log_mremap(old, old_len, new_len, err);
	touched_end(&t, !err, pol_file_put_last);
	return err;
}

int pol_prepare(const void *addr, size_t len, bool write)
{
	return vm_prepare(addr, len, write);
}
