/* SPDX-License-Identifier: MIT */
/*
 * A handle between processes that are no relatives: one hands out the descriptors of ctl and ram, the other
 * makes a handle of its own from them. Afterwards it is one more peer, as a forked child is.
 *
 * The newcomer is busy from the moment it is in the table of peers until it answers what is asked: so it
 * comes neither in the middle of a cut nor of an invalidation, and when it dies on the way that is noticed.
 */
#define _GNU_SOURCE 1
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CHILD_MSEC 1000

_Static_assert(VM_MAX_OTHERS == VM_MAX_PEERS, "one number, in two headers");

void vm_ctl_ops_name(const struct vm_backend_ops *ops, char *ret_name)
{
	memset(ret_name, 0, sizeof(((struct vm_ctl *)0)->ops));
	strncpy(ret_name, ops->name, sizeof(((struct vm_ctl *)0)->ops) - 1);
}

/* A fork may want the same. */
static int serve(struct vm_fileh *h)
{
	int err;

	vm_lock(&vm_map_lock);
	err = vm_serve(h);
	vm_unlock(&vm_map_lock);
	return err;
}

int vm_fileh_share(struct vm_fileh *h, int *ret_fds)
{
	int err;

	vm_fileh_lock(h);
	if (!h->ctl->was_shared)
		__atomic_store_n(&h->unsettled, VM_UNSETTLED, __ATOMIC_RELEASE);
	h->ctl->was_shared = true;
	vm_fileh_unlock(h);
	err = serve(h);
	vm_serve_wake(h);
	ret_fds[0] = h->ctl_fd;
	ret_fds[1] = h->ram.fd;
	return err;
}

/* Sizes and counts make sense. Whoever could change them afterwards is a process that shares all its bytes
 * with us in any case. Handle lock held. */
static bool is_sane(const struct vm_ctl *ctl)
{
	const uint64_t max = VM_MAX_PGOFF << VM_PAGE_SHIFT;

	for (unsigned i = 0; i < VM_NSTATES; i++)
		if (ctl->npages[i] > VM_MAX_PGOFF)
			return false;
	return ctl->size <= max && ctl->size_committed <= max && ctl->size_low <= ctl->size &&
	       ctl->size_low <= ctl->size_committed;
}

/* Is it what vm_fileh_share of this version gave, of this file? */
static int check_ctl(const struct vm_fileh *h)
{
	const struct vm_ctl *ctl = h->ctl;
	char name[sizeof(ctl->ops)];

	if (ctl->magic != VM_CTL_MAGIC || ctl->version != VM_CTL_VERSION || ctl->len != sizeof(*ctl) ||
	    !ctl->lock.is_shared || ctl->lock.rank != VM_RANK_FILEH)
		return -EPROTO;
	if (ctl->dev != h->file->dev || ctl->ino != h->file->ino)
		return -ESTALE;
	vm_ctl_ops_name(h->file->ops, name);
	return memcmp(name, ctl->ops, sizeof(name)) ? -EMEDIUMTYPE : 0;
}

/* A memfd with at least these seals. */
static bool is_memfd(int fd, int seals)
{
	int has = vm_sys->fcntl(fd, F_GET_SEALS, 0);

	return has >= 0 && (has & seals) == seals && !(has & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE));
}

static int adopt(struct vm_fileh *h, const int *fds)
{
	struct stat st;
	int err = vm_fd_adopt_copy(fds[0], &h->ctl_fd);

	if (!err)
		err = vm_fd_adopt_copy(fds[1], &h->ram.fd);
	if (!err)
		err = vm_sys->fstat(h->ctl_fd, &st);
	/* beyond its end there would be SIGBUS */
	if (!err && ((uint64_t)st.st_size < VM_CTL_LEN || !is_memfd(h->ctl_fd, F_SEAL_SHRINK) || !is_memfd(h->ram.fd, 0)))
		err = -EPROTO;
	return err ? err : vm_fileh_map_ctl(h);
}

/* Busy; ends that. On an error this process is no peer any more. */
static int become_peer(struct vm_fileh *h)
{
	uint64_t size;
	int err;

	vm_fileh_lock(h);
	size = h->ctl->size;
	err = is_sane(h->ctl) ? 0 : -EPROTO;
	vm_fileh_unlock(h);
	if (!err)
		err = vm_pagemap_reserve(&h->pagemap, 0, vm_npages(size));
	if (!err) {
		vm_fileh_enlist(h);
		err = serve(h);
		if (err)
			vm_fileh_unlist(h);
	}
	vm_fileh_end_busy(h);
	if (err) {
		vm_fileh_lock(h);
		memset(vm_fileh_peer(h), 0, sizeof(struct vm_peer));
		vm_fileh_unlock(h);
	}
	return err;
}

int vm_fileh_attach(struct vm_bigfile *f, const char *arg, const int *fds, unsigned msec, struct vm_fileh **ret_h)
{
	struct vm_fileh *h;
	int err = f->ops->attach ? vm_fileh_alloc(f, &h) : -EOPNOTSUPP;

	if (err)
		return err;
	err = adopt(h, fds);
	if (!err)
		err = check_ctl(h);
	if (err)
		goto drop;
	h->lazy = h->ctl->lazy;
	f->shared = h->ctl->backend;
	f->shared_len = VM_BACKEND_SHARED;
	err = f->ops->attach(f, arg);
	if (err)
		goto drop;
	err = vm_fileh_attach_busy(h, msec);
	if (!err)
		err = become_peer(h);
	if (err)
		goto detach;
	*ret_h = h;
	return 0;
detach:
	if (f->ops->detach)
		f->ops->detach(f);
drop:
	f->shared = NULL;
	if (h->ctl)
		vm_fileh_close_ctl(h);
	else
		vm_fd_drop(&h->ctl_fd);
	vm_ram_close(&h->ram);
	(void)vm_sys->munmap(h, sizeof(*h));
	return err;
}

/* Children that are on their way are there soon, or never: killed, or not forked after all. Handle lock held. */
static void await_children(struct vm_fileh *h)
{
	uint64_t until = vm_deadline(CHILD_MSEC);

	while (vm_fileh_peer(h)->nforks && !vm_is_past(until))
		vm_fileh_wait(h);
	vm_fileh_peer(h)->nforks = 0;
}

unsigned vm_fileh_others(struct vm_fileh *h, bool leaves, int32_t *ret_pids, unsigned max)
{
	unsigned n = 0;

	vm_fileh_lock(h);
	vm_fileh_repair(h);
	await_children(h);
	for (unsigned i = 0; i < VM_MAX_PEERS && n < max; i++)
		if (h->ctl->peers[i].pid && !h->ctl->peers[i].leaves && i != h->peer)
			ret_pids[n++] = h->ctl->peers[i].pid;
	vm_fileh_peer(h)->leaves |= leaves;
	vm_fileh_unlock(h);
	return n;
}

int vm_fileh_open_write(struct vm_fileh *h)
{
	int err;

	vm_fileh_begin_busy(h);
	err = vm_need_scratch(h); /* a commit must not be the first that finds no room for it */
	if (!err && h->file->ops->open_write)
		err = h->file->ops->open_write(h->file);
	vm_fileh_end_busy(h);
	return err;
}
