/* SPDX-License-Identifier: MIT */
/* The file backend for files that commit together: the operations of one file of a group. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "managed.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>

/* ---- operations ---- */

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

	uint64_t size;
	int err = p->group ? pol_file_basics(f->fd, &size, NULL) : 0;

	if (!err && p->group)
		__atomic_store_n(&pol_group_member(p->group->all, p->here.number)->size, size,
				 __ATOMIC_RELEASE);
	return err;
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
	.loadblk = pol_group_load,
	.nextdata = pol_group_nextdata,
	.begin = pol_group_begin,
	.storeblk = pol_group_store,
	.commit = pol_group_commit,
	.abort = pol_group_abort,
	.mend = group_mend,
	.checkpoint = group_checkpoint,
	.changed = group_changed,
};
