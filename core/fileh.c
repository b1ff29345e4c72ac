/* SPDX-License-Identifier: MIT */
/* Open handles: life, and what is known of them. */
#define _GNU_SOURCE 1
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct vm_fileh *vm_filehs;

int vm_fileh_map_ctl(struct vm_fileh *h)
{
	void *p = vm_own_map(VM_CTL_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, h->ctl_fd, 0);

	if (vm_sys_err(p))
		return vm_sys_err(p);
	h->ctl = p;
	vm_pagemap_init(&h->pagemap, &h->ctl_fd, VM_CTL_LEN);
	return 0;
}

static int open_ctl(struct vm_fileh *h)
{
	struct vm_ctl *ctl;
	int err;

	h->ctl_fd = vm_sys->memfd_create("txmap-ctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (h->ctl_fd < 0)
		return h->ctl_fd;
	err = vm_fd_adopt(&h->ctl_fd);
	if (!err)
		err = vm_sys->ftruncate(h->ctl_fd, VM_CTL_LEN);
	if (!err) /* nobody can take the page from under us */
		err = vm_sys->fcntl(h->ctl_fd, F_ADD_SEALS, F_SEAL_SHRINK);
	if (!err)
		err = vm_fileh_map_ctl(h);
	if (err) {
		vm_fd_drop(&h->ctl_fd);
		return err;
	}
	ctl = h->ctl;
	ctl->magic = VM_CTL_MAGIC;
	ctl->version = VM_CTL_VERSION;
	ctl->len = sizeof(*ctl);
	ctl->dev = h->file->dev;
	ctl->ino = h->file->ino;
	vm_ctl_ops_name(h->file->ops, ctl->ops);
	vm_lock_init_shared(&ctl->lock, VM_RANK_FILEH);
	return vm_fileh_attach_peer(h);
}

void vm_fileh_close_ctl(struct vm_fileh *h)
{
	vm_pagemap_fini(&h->pagemap);
	(void)vm_sys->munmap(h->ctl, VM_CTL_LEN); /* ours, aligned */
	vm_fd_drop(&h->ctl_fd);
}

/* Eager handles hold all data from the start; holes of the storage stay holes of ram. */
static int load_all(struct vm_fileh *h)
{
	const struct vm_backend_ops *ops = h->file->ops;
	uint64_t size = h->ctl->size, off = 0, start, stop;
	int err = 0;

	while (!err && off < size) {
		start = off;
		stop = size;
		if (ops->nextdata) {
			err = ops->nextdata(h->file, off, &start, &stop);
			if (err)
				return err == -ENXIO ? 0 : err;
		}
		err = vm_load(h, start >> VM_PAGE_SHIFT, vm_npages(stop < size ? stop : size));
		off = stop;
	}
	return err;
}

/* Most bytes of data that are loaded at once. Where the engine serves the kernel's touches, too, lazy pays
 * from a few MiB on; where it does not, a file is loaded at once as long as that is sane. */
static uint64_t eager_max(void)
{
	long npages = sysconf(_SC_PHYS_PAGES);

	if (vm_can_load_lazily() || npages <= 0)
		return 4u << 20;
	return (uint64_t)npages * VM_PAGE / 4;
}

static bool wants_lazy(struct vm_bigfile *f, uint64_t size, enum vm_load load)
{
	uint64_t off = 0, start, stop, data = 0, max = eager_max();

	if (load != VM_LOAD_AUTO)
		return load == VM_LOAD_LAZY;
	if (size <= max)
		return false;
	if (!f->ops->nextdata)
		return true;
	while (off < size && data <= max && !f->ops->nextdata(f, off, &start, &stop)) {
		data += stop - start;
		off = stop;
	}
	return data > max;
}

static int open_backend(struct vm_fileh *h, const char *arg, enum vm_load load, struct vm_held *held)
{
	struct vm_bigfile *f = h->file;
	uint64_t size;
	int err;

	f->shared = h->ctl->backend;
	f->shared_len = VM_BACKEND_SHARED;
	err = f->ops->open(f, arg);
	if (err)
		return err;
	err = vm_hold(h, held);
	if (!err)
		err = f->ops->getsize(f, &size);
	if (!err && vm_npages(size) > VM_MAX_PGOFF)
		err = -EFBIG;
	if (!err)
		err = vm_ram_open(&h->ram, size);
	if (err) {
		vm_let_go(h, held, false);
		(void)f->ops->close(f); /* err is the one to report */
		return err;
	}
	h->lazy = h->ctl->lazy = !held->is_held && wants_lazy(f, size, load); /* a snapshot is taken at once */
	h->ctl->size = h->ctl->size_committed = h->ctl->size_low = size;
	return 0;
}

int vm_fileh_alloc(struct vm_bigfile *f, struct vm_fileh **ret_h)
{
	struct vm_fileh *h = vm_own_map(sizeof(*h), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (vm_sys_err(h))
		return vm_sys_err(h);
	h->file = f;
	h->ctl_fd = h->ram.fd = -1;
	*ret_h = h;
	return 0;
}

bool vm_fileh_is_before(const struct vm_fileh *a, const struct vm_fileh *b)
{
	if (a->ctl->dev != b->ctl->dev)
		return a->ctl->dev < b->ctl->dev;
	return a->ctl->ino < b->ctl->ino;
}

void vm_fileh_enlist(struct vm_fileh *h)
{
	struct vm_fileh **pp;

	vm_lock(&vm_map_lock);
	/* L1: a fork takes the locks of all in this order, in each process the same */
	for (pp = &vm_filehs; *pp && vm_fileh_is_before(*pp, h);)
		pp = &(*pp)->next;
	h->next = *pp;
	*pp = h;
	vm_fileh_lock(h);
	vm_fileh_peer(h)->ctl_fd = h->ctl_fd; /* from here on vm_fd_move tells */
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

int vm_fileh_open(struct vm_bigfile *f, const char *arg, enum vm_load load, struct vm_fileh **ret_h)
{
	struct vm_held held;
	struct vm_fileh *h;
	int err = vm_fileh_alloc(f, &h);

	if (err)
		return err;
	err = open_ctl(h);
	if (err)
		goto free;
	err = open_backend(h, arg, load, &held);
	if (err)
		goto close_ctl;
	vm_fileh_enlist(h);
	err = h->lazy ? 0 : load_all(h);
	vm_let_go(h, &held, !err);
	if (err) {
		(void)vm_fileh_close(h); /* err is the one to report */
		return err;
	}
	*ret_h = h;
	return 0;
close_ctl:
	vm_fileh_close_ctl(h);
free:
	(void)vm_sys->munmap(h, sizeof(*h));
	return err;
}

void vm_fileh_pin(struct vm_fileh *h)
{
	BUG_ON(!vm_lock_is_held(VM_RANK_MAP));
	h->nusers++;
}

void vm_fileh_unpin(struct vm_fileh *h)
{
	vm_lock(&vm_map_lock);
	h->nusers--;
	vm_wake(&h->ctl->seq); /* before the lock goes: afterwards h may be gone */
	vm_unlock(&vm_map_lock);
}

/* Take the handle out of the list, once no fault is being served for it. */
void vm_fileh_unlist(struct vm_fileh *h)
{
	struct vm_fileh **pp;
	uint32_t seen;

	vm_lock(&vm_map_lock);
	BUG_ON(h->nvmas);
	while (h->nusers) {
		seen = __atomic_load_n(&h->ctl->seq, __ATOMIC_ACQUIRE);
		vm_unlock(&vm_map_lock);
		vm_wait(&h->ctl->seq, seen, VM_WAIT_MSEC);
		vm_lock(&vm_map_lock);
	}
	for (pp = &vm_filehs; *pp != h; pp = &(*pp)->next)
		BUG_ON(!*pp);
	*pp = h->next;
	vm_unlock(&vm_map_lock);
}

/* This process is none of those that have h. Are there any? */
static bool leave(struct vm_fileh *h)
{
	bool others;

	if (vm_fileh_is_lost(h))
		return true;
	(void)vm_fileh_others(h, false, NULL, 0); /* a child that is on its way is one of them */
	if (vm_fileh_is_shared(h))
		(void)vm_fileh_idle(h); /* the last one may not be able to; if this one is, it does it again */
	vm_fileh_unlist(h);
	vm_serve_end(h);
	vm_fileh_lock(h);
	vm_fileh_repair(h);
	others = vm_fileh_has_others(h);
	vm_owners_leave(h);
	memset(vm_fileh_peer(h), 0, sizeof(struct vm_peer));
	vm_wake(&h->ctl->seq);
	vm_fileh_unlock(h);
	return others;
}

int vm_fileh_close(struct vm_fileh *h)
{
	struct vm_bigfile *f = h->file;
	int err = 0;

	if (!leave(h))
		err = f->ops->close(f);
	else if (f->ops->detach)
		f->ops->detach(f);
	f->shared = NULL;
	vm_idle_fini(h);
	vm_fileh_close_ctl(h);
	vm_ram_close(&h->ram);
	vm_runs_free(&h->round);
	if (h->scratch)
		(void)vm_sys->munmap(h->scratch, VM_BATCH_NPAGES * VM_PAGE);
	(void)vm_sys->munmap(h, sizeof(*h));
	return err;
}

/* ---- facts ---- */

uint64_t vm_fileh_size(struct vm_fileh *h)
{
	uint64_t size;

	vm_fileh_lock(h);
	size = h->ctl->size;
	vm_fileh_unlock(h);
	return size;
}

unsigned vm_fileh_nvmas(struct vm_fileh *h)
{
	unsigned n;

	vm_lock(&vm_map_lock);
	n = h->nvmas;
	vm_unlock(&vm_map_lock);
	return n;
}

void vm_fileh_stat(struct vm_fileh *h, bool harvest, struct vm_fileh_stat *ret)
{
	struct vm_ctl *ctl = h->ctl;

	if (harvest && vm_fileh_is_shared(h)) {
		vm_fileh_begin_busy(h);
		(void)vm_ask(h, VM_ASK_HARVEST);
		vm_fileh_end_busy(h);
	}
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	/* an error leaves the count as it was at the last harvest that worked */
	if (harvest)
		(void)vm_harvest(h);
	vm_fileh_repair(h);
	*ret = (struct vm_fileh_stat){
		.size = ctl->size,
		.npages_resident = ctl->npages[VM_LOADED] + ctl->npages[VM_DIRTY] + ctl->npages[VM_STORING],
		.npages_dirty = ctl->npages[VM_DIRTY] + ctl->npages[VM_STORING],
		.txid = ctl->txid,
		.size_dirty = vm_size_is_changed(ctl),
		.stored_here = h->stored_here || (ctl->owed && !vm_fileh_has_others(h)),
	};
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}
