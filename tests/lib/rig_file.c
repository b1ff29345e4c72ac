/* SPDX-License-Identifier: MIT */
/* The file of a rig. */
#include "rig.h"
#include "rig_file.h"

void rig_must(bool ok, const char *what)
{
	if (ok)
		return;
	(void)fprintf(stderr, "rig: %s\n", what);
	vm_backtrace(NULL);
	abort();
}

static int memfd(void)
{
	int fd = vm_sys_linux.memfd_create("rig", 0);

	rig_must(fd >= 0, "memfd_create");
	return fd;
}

void *rig_shared(size_t len)
{
	void *p = vm_sys_linux.mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				    0);

	rig_must(!vm_sys_err(p), "mmap");
	return p;
}

void rig_get_bytes(int fd, uint64_t off, void *buf, size_t len)
{
	ssize_t n = vm_sys_linux.pread(fd, buf, len, (off_t)off);

	rig_must(n >= 0, "pread");
	memset((char *)buf + n, 0, len - (size_t)n);
}

void rig_put_bytes(int fd, uint64_t off, const void *buf, size_t len)
{
	rig_must(vm_sys_linux.pwrite(fd, buf, len, (off_t)off) == (ssize_t)len, "pwrite");
}

struct rig_file *rig_file_make_sparse(uint64_t size)
{
	struct rig_file *f = rig_shared(sizeof(*f));

	f->file = (struct vm_bigfile){.ops = &rig_ops, .path = "rig", .fd = -1};
	f->fd = memfd();
	f->staged = memfd();
	f->base = memfd();
	f->how = rig_shared(RIG_MAX_PGOFF);
	f->order = rig_shared(RIG_MAX_STORED * sizeof(*f->order));
	rig_must(!vm_sys_linux.ftruncate(f->fd, (off_t)size), "ftruncate");
	return f;
}

struct rig_file *rig_file_make(uint64_t size)
{
	struct rig_file *f = rig_file_make_sparse(size);
	char page[VM_BLKSIZE];

	for (uint64_t off = 0; off < size; off += VM_PAGE) {
		memset(page, rig_byte(off / VM_PAGE), VM_PAGE);
		rig_put_bytes(f->fd, off, page, size - off < VM_PAGE ? size - off : VM_PAGE);
	}
	return f;
}

void rig_file_free(struct rig_file *f)
{
	(void)vm_sys_linux.close(f->fd);
	(void)vm_sys_linux.close(f->staged);
	(void)vm_sys_linux.close(f->base);
	(void)vm_sys_linux.munmap(f->how, RIG_MAX_PGOFF);
	(void)vm_sys_linux.munmap(f->order, RIG_MAX_STORED * sizeof(*f->order));
	(void)vm_sys_linux.munmap(f, sizeof(*f));
}

uint64_t rig_size(struct rig_file *f)
{
	return (uint64_t)vm_sys_linux.lseek(f->fd, 0, SEEK_END);
}

void rig_get(struct rig_file *f, uint64_t off, void *buf, size_t len)
{
	rig_get_bytes(f->fd, off, buf, len);
}

uint8_t rig_get_byte(struct rig_file *f, uint64_t off)
{
	uint8_t byte;

	rig_get(f, off, &byte, 1);
	return byte;
}

void rig_put(struct rig_file *f, uint64_t off, const void *buf, size_t len)
{
	rig_put_bytes(f->fd, off, buf, len);
	f->version++;
}

void rig_put_byte(struct rig_file *f, uint64_t off, uint8_t byte)
{
	rig_put(f, off, &byte, 1);
}

void rig_put_size(struct rig_file *f, uint64_t size)
{
	rig_must(!vm_sys_linux.ftruncate(f->fd, (off_t)size), "ftruncate");
	f->version++;
}

/* ---- failures and hooks ---- */

void rig_fail(struct rig_file *f, enum rig_op op, unsigned nth, int err)
{
	f->fail_err[op] = err;
	__atomic_store_n(&f->fail_nth[op], nth, __ATOMIC_SEQ_CST);
}

void rig_fail_page(struct rig_file *f, uint64_t pgoff, int err)
{
	__atomic_store_n(&f->bad_pgoff, pgoff, __ATOMIC_SEQ_CST);
	__atomic_store_n(&f->bad_err, err, __ATOMIC_SEQ_CST);
}

void rig_fail_none(struct rig_file *f)
{
	for (enum rig_op op = 0; op < RIG_NOPS; op++)
		__atomic_store_n(&f->fail_nth[op], 0, __ATOMIC_SEQ_CST);
	rig_fail_page(f, 0, 0);
}

void rig_hook_at(struct rig_file *f, enum rig_op op, rig_hook *hook, void *arg)
{
	if (hook)
		f->hook_arg = arg;
	__atomic_store_n(&f->hook[op], hook, __ATOMIC_SEQ_CST);
}

unsigned rig_ncalls(struct rig_file *f, enum rig_op op)
{
	return __atomic_load_n(&f->ncalls[op], __ATOMIC_SEQ_CST);
}
