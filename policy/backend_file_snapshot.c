/* SPDX-License-Identifier: MIT */
/* The file backend's operations where each process has a snapshot of its own: those of the file backend, each
 * under the hold. */
#define _GNU_SOURCE 1
#include "backend_file_snapshot.h"
#include "log.h"
#include "vm.h"

#include <errno.h>

/* What a crash left goes into the file before that is looked at. The lock is ours. */
static int begin_storage(struct vm_bigfile *f, bool first)
{
	struct pol_journal_report r;
	int err = 0;

	if (first && !f->writable) {
		err = pol_journal_recover(f->path, pol_file_priv(f)->arg, NULL, NULL, &r);
		if (err)
			pol_log(POL_LOG_ERROR, "%s", r.text);
	}
	if (!err && first)
		err = pol_file_leave(f);
	if (!err)
		err = pol_snapshot_begin_hold(f);
	return err || !f->writable ? err : pol_file_open_write(f);
}

static int snapshot_open(struct vm_bigfile *f, const char *arg)
{
	bool first;
	int err = pol_file_prepare(f, arg);

	if (err)
		return err;
	err = pol_snapshot_join(f, &first);
	if (err) {
		pol_file_free(f);
		return err;
	}
	err = begin_storage(f, first);
	if (err)
		pol_snapshot_remove_if_last(f);
	pol_snapshot_let_go(f);
	if (err)
		pol_snapshot_leave(f);
	return err;
}

static int snapshot_close(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	int err = pol_snapshot_hold(f);
	bool held = !err;

	if (!err)
		err = pol_file_idle(f);
	if (err)
		pol_log(POL_LOG_ERROR, "%s: the journal %s stays, the file may need recovery: %s", f->path,
			p->jpath, pol_errno_name(err));
	vm_fd_drop(&p->j.fd);
	if (held) {
		pol_snapshot_remove_if_last(f);
		pol_snapshot_let_go(f);
	}
	pol_snapshot_leave(f);
	return err;
}

void pol_snapshot_end(struct vm_bigfile *f)
{
	if (pol_snapshot_hold(f))
		return; /* litter */
	pol_snapshot_remove_if_last(f);
	pol_snapshot_let_go(f);
}

static void snapshot_detach(struct vm_bigfile *f)
{
	vm_fd_drop(&pol_file_priv(f)->j.fd);
	pol_snapshot_leave(f);
}

static struct pol_snapshot_mark *mark_of(struct vm_bigfile *f)
{
	return f->shared;
}

static int hold(struct vm_bigfile *f, struct vm_news *news)
{
	int err = pol_snapshot_hold(f);

	if (err)
		return err;
	err = pol_news_tell(f, mark_of(f)->seq, news);
	if (err)
		pol_snapshot_let_go(f);
	return err;
}

static void let_go(struct vm_bigfile *f, int seen)
{
	if (seen)
		mark_of(f)->seq = pol_file_priv(f)->snapshot->all->seq;
	pol_snapshot_let_go(f);
}

static int snapshot_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	int err = pol_news_begin(f, txn);

	if (err)
		return err;
	err = pol_file_commit(f, txn, flags);
	pol_news_end(f, !err);
	return err;
}

static int under_hold(struct vm_bigfile *f, int (*op)(struct vm_bigfile *f))
{
	int err = pol_snapshot_hold(f);

	if (err)
		return err;
	err = op(f);
	pol_snapshot_let_go(f);
	return err;
}

static int snapshot_open_write(struct vm_bigfile *f)
{
	return under_hold(f, pol_file_open_write);
}

static int snapshot_idle(struct vm_bigfile *f)
{
	return under_hold(f, pol_file_idle);
}

static int snapshot_checkpoint(struct vm_bigfile *f)
{
	return under_hold(f, pol_file_checkpoint);
}

static int snapshot_reserve(struct vm_bigfile *f, uint64_t off, uint64_t len)
{
	int err = pol_snapshot_hold(f);

	if (err)
		return err;
	err = pol_file_reserve(f, off, len);
	pol_snapshot_let_go(f);
	return err;
}

/* A name or a time that nobody can be kept out from is set nonetheless: at worst a conflict too many. */
static void snapshot_moved(struct vm_bigfile *f)
{
	int err = pol_snapshot_hold(f);

	pol_file_moved(f);
	if (!err)
		pol_snapshot_let_go(f);
}

static void snapshot_times(struct vm_bigfile *f, int done)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;

	if (!done && pol_snapshot_hold(f))
		return;
	if (done && s->nholds) {
		pol_file_times(f, 1);
		pol_snapshot_let_go(f);
	}
}

const struct vm_backend_ops pol_backend_file_snapshot = {
	.abi = VM_BACKEND_ABI,
	.name = "file",
	.open = snapshot_open,
	.close = snapshot_close,
	.detach = snapshot_detach,
	.reserve = snapshot_reserve,
	.idle = snapshot_idle,
	.moved = snapshot_moved,
	.times = snapshot_times,
	.open_write = snapshot_open_write,
	.getsize = pol_file_size,
	.loadblk = pol_file_load,
	.nextdata = pol_file_nextdata,
	.begin = pol_file_begin,
	.storeblk = pol_file_store,
	.commit = snapshot_commit,
	.abort = pol_file_abort,
	.checkpoint = snapshot_checkpoint,
	.hold = hold,
	.let_go = let_go,
};
