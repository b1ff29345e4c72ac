/* SPDX-License-Identifier: MIT */
/* The committed bytes and size of a file of a group, whether it is a member in this process, in another one, or in
 * none. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>

/* ---- those who are no members, while another process that has the file is one ---- */

static int open_group_journal(const char *path, const struct pol_group_shared *all, int *home)
{
	struct stat st;
	int err;

	*home = vm_sys->openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (*home < 0)
		return *home;
	err = vm_fd_adopt(home);
	if (err)
		return err;
	err = vm_sys->fstat(*home, &st);
	if (!err && (st.st_dev != all->dev || st.st_ino != all->ino))
		err = -ESTALE;
	if (err)
		vm_fd_drop(home);
	return err;
}

/* Is it in the group as this one knows it? Without a stub everything is in the file: who was killed is recovered. */
static int look_for_member(struct vm_bigfile *f, const struct pol_group_shared *all, bool *ret_is_one)
{
	struct pol_file_priv *p = pol_file_priv(f);
	uint32_t number = p->shared->number;
	struct stat st;
	int err;

	*ret_is_one = all && number && number <= all->nmembers && pol_group_member(all, number)->is_used &&
		      pol_group_member(all, number)->dev == f->dev &&
		      pol_group_member(all, number)->ino == f->ino;
	if (*ret_is_one)
		return 0;
	err = vm_sys->fstatat(AT_FDCWD, p->jpath, &st, AT_SYMLINK_NOFOLLOW);
	return err == -ENOENT ? 0 : err ? err : -EUCLEAN;
}

/* The group's shared memory when f is a member there, NULL when it is none, and the file is all there is. */
static int find_member(struct vm_bigfile *f, struct pol_group_shared **ret)
{
	struct pol_file_shared *s = pol_file_shared(f);
	bool is_one;
	int err = pol_group_shared_look(s->gdev, s->gino, ret);

	if (err && err != -ENOENT)
		return err;
	if (err)
		*ret = NULL;
	err = look_for_member(f, *ret, &is_one);
	if (*ret && !is_one) {
		pol_group_shared_forget(*ret);
		*ret = NULL;
	}
	return err;
}

/* Look into the group's journal for what is not in the file yet. */
static int load_beside(struct vm_bigfile *f, uint64_t off, size_t len, void *buf)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct vm_journal j = {.fd = -1};
	struct pol_group_shared *all;
	int err = find_member(f, &all);

	if (err || !all)
		return err ? err : vm_sys_pread_full(f->fd, buf, len, (off_t)off);
	err = open_group_journal(p->group_arg, all, &j.fd);
	if (!err) {
		j.pos = &all->pos;
		err = vm_journal_read(&j, p->shared->number, f->fd, buf, len, off);
		vm_fd_drop(&j.fd);
	}
	pol_group_shared_forget(all);
	return err;
}

static int load_outside(struct vm_bigfile *f, uint64_t off, size_t len, void *buf)
{
	struct pol_file_shared *s = pol_file_shared(f);
	uint64_t waiting;
	int err;

	do {
		waiting = atomic_load(&s->waiting);
		err = waiting & 1 ? load_beside(f, off, len, buf)
				  : vm_sys_pread_full(f->fd, buf, len, (off_t)off);
	} while (waiting != atomic_load(&s->waiting));
	return err;
}

static uint64_t size_of(struct vm_journal *j, const struct pol_group_member *e, bool *ret_waits)
{
	struct vm_journal_mark m;
	uint64_t turn, size;

	do {
		turn = vm_journal_mark(j, &m);
		*ret_waits = m.applied != m.tail;
		size = pol_group_size(e, &m);
	} while (turn != atomic_load(&j->pos->turn));
	return size;
}

static int size_outside(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct pol_file_shared *s = pol_file_shared(f);
	struct vm_journal j = {.fd = -1};
	struct pol_group_shared *all;
	bool waits = false;
	int err;

	if (atomic_load(&s->waiting) & 1) {
		err = find_member(f, &all);
		if (err)
			return err;
		if (all) {
			j.pos = &all->pos;
			*ret_size = size_of(&j, pol_group_member(all, s->number), &waits);
			pol_group_shared_forget(all);
		}
	}
	return waits ? 0 : pol_file_basics(f->fd, ret_size, NULL);
}

/* ---- whoever it is ---- */

int pol_group_file_size(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct pol_file_priv *p = pol_file_priv(f);
	bool waits;

	if (!p->group)
		return size_outside(f, ret_size);
	*ret_size = size_of(&p->group->j, pol_group_member(p->group->all, p->here.number), &waits);
	return waits ? 0 : pol_file_basics(f->fd, ret_size, NULL);
}

int pol_group_load(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
{
	struct pol_file_priv *p = pol_file_priv(f);
	uint64_t off = pgoff * VM_BLKSIZE;
	size_t len = npages * VM_BLKSIZE;
	struct pol_group *g;
	int err;

	atomic_fetch_add(&p->here.nloads, 1);
	g = __atomic_load_n(&p->group, __ATOMIC_SEQ_CST);
	err = g ? vm_journal_read(&g->j, p->here.number, f->fd, buf, len, off)
		: load_outside(f, off, len, buf);
	atomic_fetch_sub(&p->here.nloads, 1);
	return err;
}

int pol_group_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct vm_journal_mark m = {0};
	uint64_t size;
	int err = pol_group_file_size(f, &size);

	if (err)
		return err;
	if (off >= size)
		return -ENXIO;
	if (p->group)
		vm_journal_mark(&p->group->j, &m);
	*ret_start = off;
	*ret_stop = size;
	if (m.applied != m.tail ||
	    atomic_load(&p->shared->waiting) & 1) /* the file's own holes do not count now */
		return 0;
	return pol_file_next_extent(f->fd, ret_start, ret_stop);
}
