/* SPDX-License-Identifier: MIT */
/* The file backend for files that commit together: the operations of one file of a group. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "managed.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

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

/* ---- operations ---- */

int pol_group_file_size(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct pol_file_priv *p = pol_file_priv(f);
	bool waits;

	if (!p->group)
		return size_outside(f, ret_size);
	*ret_size = size_of(&p->group->j, pol_group_member(p->group->all, p->here.number), &waits);
	return waits ? 0 : pol_file_basics(f->fd, ret_size, NULL);
}

static int group_load(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
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

/* Where the stub is: in the rule's journal directory, or beside the file. */
static const char *stub_dir(const struct vm_bigfile *f)
{
	const struct pol_config *c = pol_config_get();
	const struct pol_rule *r = c ? pol_config_rule(c, f->path) : NULL;

	return r ? r->journal_dir : NULL;
}

static int group_attach(struct vm_bigfile *f, const char *arg)
{
	int err = pol_file_prepare(f, stub_dir(f));

	if (!err)
		pol_file_priv(f)->group_arg = arg;
	return err;
}

/* What a process committed that was killed meanwhile goes into the file before that is looked at. */
static int bring_in_place_first(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_journal_report r;
	struct stat st;
	int err;

	if (f->writable)
		return pol_group_enroll(f);
	if (vm_sys->fstatat(AT_FDCWD, p->jpath, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	err = pol_journal_recover(f->path, p->arg, NULL, NULL, &r);
	if (err)
		pol_log(POL_LOG_ERROR, "%s", r.text);
	return err;
}

static int group_open(struct vm_bigfile *f, const char *arg)
{
	int err = group_attach(f, arg);

	if (err)
		return err;
	err = bring_in_place_first(f);
	if (!err)
		err = pol_file_leave(f);
	if (err) {
		(void)pol_group_leave(f); /* nothing was committed */
		pol_group_detach(f);
		pol_file_free(f);
	}
	return err;
}

/* Run op with the group's lock, and knowing what others wrote to the file. */
static int under_hold(struct vm_bigfile *f, int (*op)(struct vm_bigfile *f, int arg), int arg)
{
	struct pol_group *g = pol_file_priv(f)->group;
	int err;

	if (!g)
		return op(f, arg);
	err = pol_group_hold(g);
	if (err)
		return err;
	pol_group_take_in(f);
	err = op(f, arg);
	pol_group_let_go(g);
	return err;
}

static int checkpoint(struct vm_bigfile *f, int unused)
{
	struct pol_group *g = pol_file_priv(f)->group;

	(void)unused;
	return g ? pol_group_checkpoint(g) : 0;
}

static int group_checkpoint(struct vm_bigfile *f)
{
	return under_hold(f, checkpoint, 0);
}

/* What another process has, who is a member, is that one's to look after. */
static int look(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);

	return !p->group && p->shared->number ? p->shared->foreign : pol_file_look(f, true);
}

/* The file is what somebody else made of it. */
static int take_over_size(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);

	return p->group ? pol_file_basics(f->fd, &pol_group_member(p->group->all, p->here.number)->size, NULL)
			: 0;
}

static int changed(struct vm_bigfile *f, int accept)
{
	int is_changed = look(f), err;

	if (is_changed < 0 || !accept)
		return is_changed;
	/* what others wrote must not be undone by replaying what we committed before */
	err = pol_file_leave(f);
	if (!err)
		err = checkpoint(f, 0);
	if (!err)
		err = take_over_size(f);
	return err ? err : is_changed;
}

static int group_changed(struct vm_bigfile *f, int accept)
{
	return under_hold(f, changed, accept);
}

static int bring_in_place(struct vm_bigfile *f, int unused)
{
	int is_changed = look(f);

	/* the file's own size counts. Whether the change is accepted is another question */
	return is_changed > 0 ? checkpoint(f, unused) : is_changed;
}

static int group_getsize(struct vm_bigfile *f, uint64_t *ret_size)
{
	int err = under_hold(f, bring_in_place, 0);

	return err ? err : pol_group_file_size(f, ret_size);
}

static int group_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop)
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

static int group_reserve(struct vm_bigfile *f, uint64_t off, uint64_t len)
{
	struct pol_group *g = pol_file_priv(f)->group;
	int err = g ? pol_group_hold(g) : 0;

	if (err)
		return err;
	if (g)
		pol_group_take_in(f);
	err = pol_file_reserve(f, off, len);
	if (g)
		pol_group_let_go(g);
	return err;
}

static int times(struct vm_bigfile *f, int done)
{
	pol_file_times(f, done);
	return 0;
}

static void group_times(struct vm_bigfile *f, int done)
{
	(void)under_hold(f, times, done); /* at worst a conflict too many */
}

static int group_open_write(struct vm_bigfile *f)
{
	return f->writable ? pol_group_enroll(f) : -EBADF;
}

static int group_close(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	int err = pol_group_leave(f);

	if (err)
		pol_log(POL_LOG_ERROR, "%s: the journal %s stays, the files need recovery: %s", f->path,
			p->group_arg, pol_errno_name(err));
	pol_group_detach(f);
	pol_file_free(f);
	return err;
}

static void group_detach(struct vm_bigfile *f)
{
	pol_group_detach(f);
	pol_file_free(f);
}

static void group_moved(struct vm_bigfile *f)
{
	pol_file_moved(f);
	__atomic_add_fetch(&pol_file_shared(f)->nmoved, 1, __ATOMIC_SEQ_CST);
}

/* Who takes the lock next does it. */
static int group_mend(struct vm_bigfile *f)
{
	struct pol_group *g = pol_file_priv(f)->group;
	int err = g ? pol_group_hold(g) : -ENOENT; /* one who has it will be asked */

	if (!err)
		pol_group_let_go(g);
	return err;
}

const struct vm_backend_ops pol_backend_file_group = {
	.abi = VM_BACKEND_ABI,
	.name = "file-group",
	.open = group_open,
	.attach = group_attach,
	.close = group_close,
	.detach = group_detach,
	.reserve = group_reserve,
	.idle = pol_group_leave,
	.moved = group_moved,
	.times = group_times,
	.open_write = group_open_write,
	.getsize = group_getsize,
	.loadblk = group_load,
	.nextdata = group_nextdata,
	.begin = pol_group_begin,
	.storeblk = pol_group_store,
	.commit = pol_group_commit,
	.abort = pol_group_abort,
	.mend = group_mend,
	.checkpoint = group_checkpoint,
	.changed = group_changed,
};
