/* SPDX-License-Identifier: MIT */
/*
 * A commit, and where it can end: runs are gathered (storeblk), written as frames and synced (commit; up to
 * here an error means that it did not happen), then applied to the file (an error means that the file needs
 * recovery, while loads still see the commit, out of the journal).
 */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define LAZY_BEFORE_BEGIN (64u << 10) /* more unapplied journal than this would make the diffs slow */
#define LAZY_AT_COMMIT	  (1u << 20)

int pol_file_extents_add(struct pol_file_extents *l, uint64_t pgoff, uint64_t npages)
{
	struct pol_file_extent *last = l->n ? &l->e[l->n - 1] : NULL;

	if (last && last->pgoff + last->npages == pgoff) {
		last->npages += npages;
		return 0;
	}
	if (l->n == l->max) {
		size_t len = l->max * sizeof(*l->e);
		size_t new_len = len ? len * 2 : 64u << 10;
		void *new = len ? vm_own_grow(l->e, len, new_len) : pol_file_memory(new_len);

		if (!new || vm_sys_err(new))
			return -ENOMEM;
		l->e = new;
		l->max = new_len / sizeof(*l->e);
	}
	l->e[l->n++] = (struct pol_file_extent){pgoff, npages};
	return 0;
}

/* What is durable goes to the file. An error changes nothing about what was committed. */
static void apply(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = pol_file_write(f, vm_journal_apply);

	if (err)
		pol_log(POL_LOG_ERROR,
			"%s: committed, but writing it to the file failed: %s; the file needs recovery from "
			"%s",
			f->path, pol_errno_name(err), p->jpath);
}

/* Somebody removed the journal: what it would protect goes to the disk now, and a new one begins. */
static int replace_lost_journal(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = pol_file_checkpoint(f);

	pol_log(POL_LOG_ERROR, "%s: the journal %s was removed; %s", f->path, p->jpath,
		err ? pol_errno_name(err) : "beginning a new one");
	if (err)
		return err;
	vm_fd_drop(&p->j.fd);
	vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0}); /* nobody has one */
	return pol_journal_attach(f);
}

/* All that must be in order before a transaction can be built on it. */
int pol_file_begin(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;
	unsigned nlink = 0, data_nlink = 0;
	int err;

	if (p->j.fd >= 0 && !pol_backend_file_is_journal(f, p->j.fd))
		vm_fd_drop(&p->j.fd); /* another process had to begin a new one */
	err = pol_file_open_write(f);
	if (!err)
		err = pol_file_basics(p->j.fd, NULL, &nlink);
	if (!err && !nlink) /* together with the file? */
		err = pol_file_basics(f->fd, NULL, &data_nlink);
	if (!err && !nlink && data_nlink)
		err = replace_lost_journal(f);
	if (err)
		return err;
	vm_journal_mark(&p->j, &m);
	if (m.flags & VM_MARK_START || m.tail > VM_JOURNAL_START + p->j.limit / 2) {
		err = pol_file_checkpoint(f);
	} else if (m.applied < m.synced || m.tail - m.synced > LAZY_BEFORE_BEGIN) {
		err = vm_journal_sync(&p->j);
		if (!err)
			err = pol_file_write(f, vm_journal_apply);
	}
	if (err)
		return err;
	p->diffs.n = p->changed.n = 0;
	vm_journal_begin(&p->j);
	return 0;
}

/* Others who have a snapshot are told of what is other than it was. */
static int note_changed(struct pol_file_priv *p, uint64_t pgoff, size_t npages, const uint8_t *was,
			const uint8_t *now)
{
	int err = 0;

	for (size_t i = 0; !err && i < npages; i++)
		if (memcmp(was + i * VM_BLKSIZE, now + i * VM_BLKSIZE, VM_BLKSIZE))
			err = pol_file_extents_add(&p->changed, pgoff + i, 1);
	return err;
}

int pol_file_store(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	struct pol_file_priv *p = f->priv;
	const uint8_t *now = buf;
	int err;

	if (flags & VM_STORE_AGAIN) {
		err = p->snapshot ? pol_file_extents_add(&p->changed, pgoff, npages) : 0;
		return err ? err
			   : vm_journal_add(p->to, pgoff * VM_BLKSIZE, buf, npages * VM_BLKSIZE,
					    p->here.number << VM_RUN_FILE_SHIFT);
	}
	err = pol_file_extents_add(&p->diffs, pgoff, npages);
	while (!err && npages) {
		size_t n = npages < POL_FILE_BATCH ? npages : POL_FILE_BATCH;

		err = vm_journal_read(p->to, p->here.number, f->fd, p->scratch, n * VM_BLKSIZE,
				      pgoff * VM_BLKSIZE);
		if (!err && p->snapshot)
			err = note_changed(p, pgoff, n, p->scratch, now);
		if (!err)
			err = pol_file_add_changes(p->to, p->here.number, pgoff * VM_BLKSIZE, p->scratch, now,
						   n * VM_BLKSIZE);
		pgoff += n;
		now += n * VM_BLKSIZE;
		npages -= n;
	}
	return err;
}

int pol_file_add_base(struct vm_bigfile *f, uint64_t cut, uint64_t size)
{
	struct pol_file_priv *p = f->priv;

	for (size_t i = 0; i < p->diffs.n; i++) {
		uint64_t start = p->diffs.e[i].pgoff * VM_BLKSIZE;
		uint64_t stop = start + p->diffs.e[i].npages * VM_BLKSIZE;

		start = start > cut ? start : cut;
		stop = stop < size ? stop : size;
		while (start < stop) {
			uint64_t max = (uint64_t)POL_FILE_BATCH * VM_BLKSIZE;
			size_t n = (size_t)(stop - start < max ? stop - start : max);
			int err = vm_journal_read(p->to, p->here.number, f->fd, p->scratch, n, start);

			if (!err)
				err = vm_journal_add(p->to, start, p->scratch, n,
						     VM_RUN_BASE | p->here.number << VM_RUN_FILE_SHIFT);
			if (err)
				return err;
			start += n;
		}
	}
	return 0;
}

/* Nothing to commit; but may something before have to become durable? */
static int commit_nothing(struct vm_bigfile *f, bool durable)
{
	struct pol_file_priv *p = f->priv;
	int err = durable ? vm_journal_sync(&p->j) : 0;

	if (!err)
		apply(f);
	return err;
}

int pol_file_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	struct pol_file_priv *p = f->priv;
	bool durable = flags & VM_COMMIT_DURABLE;
	uint64_t size, cut = txn->size_low < txn->size ? txn->size_low : txn->size;
	struct vm_journal_mark m;
	int err = pol_file_size(f, &size);

	if (err)
		return err;
	if (!vm_journal_has_runs(&p->j) && txn->size == size && cut == size)
		return commit_nothing(f, durable) ?: 1;
	if (cut < size)
		err = pol_file_add_base(f, cut, size);
	if (err)
		return err;
	vm_journal_mark(&p->j, &m);
	durable |= p->j.tail + p->j.fill - m.applied > LAZY_AT_COMMIT;
	err = vm_journal_commit(&p->j, txn, durable);
	if ((err == -ENOSPC || err == -EDQUOT) && !p->j.nframes && !pol_file_checkpoint(f)) {
		/* the journal's own space, from its beginning */
		vm_journal_rebase(&p->j);
		err = vm_journal_commit(&p->j, txn, durable);
	}
	if (!err && durable)
		apply(f);
	return err;
}

void pol_file_abort(struct vm_bigfile *f)
{
	(void)f; /* begin starts anew, and what was streamed is overwritten by the next commit */
}
