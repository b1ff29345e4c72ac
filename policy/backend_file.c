/* SPDX-License-Identifier: MIT */
/*
 * The file backend: blocks live in the program's own file; a commit goes to the journal first.
 *
 * A commit, and where it can end: runs are gathered (storeblk), written as frames and synced (commit; up to
 * here an error means that it did not happen), then applied to the file (an error means that the file needs
 * recovery, while loads still see the commit, out of the journal).
 */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "log.h"
#include "recover.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LAZY_BEFORE_BEGIN (64u << 10) /* more unapplied journal than this would make the diffs slow */
#define LAZY_AT_COMMIT	  (1u << 20)

/* ---- memory ---- */

static void *get_memory(size_t len)
{
	void *p = vm_sys->mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return vm_sys_err(p) ? NULL : p;
}

static void free_priv(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	vm_journal_fini(&p->j);
	if (p->scratch)
		(void)vm_sys->munmap(p->scratch,
				     POL_FILE_BATCH * VM_BLKSIZE); /* whole mappings: cannot fail */
	if (p->extents)
		(void)vm_sys->munmap(p->extents, p->max_extents * sizeof(*p->extents));
	(void)vm_sys->munmap(p, sizeof(*p));
	f->priv = NULL;
}

/* Remember a block range that is stored as differences: see add_base. */
static int note_extent(struct pol_file_priv *p, uint64_t pgoff, uint64_t npages)
{
	struct pol_file_extent *last = p->nextents ? &p->extents[p->nextents - 1] : NULL;

	if (last && last->pgoff + last->npages == pgoff) {
		last->npages += npages;
		return 0;
	}
	if (p->nextents == p->max_extents) {
		size_t len = p->max_extents * sizeof(*p->extents);
		size_t new_len = len ? len * 2 : 64u << 10;
		void *new = len ? vm_sys->mremap(p->extents, len, new_len, MREMAP_MAYMOVE, NULL)
				: get_memory(new_len);

		if (!new || vm_sys_err(new))
			return -ENOMEM;
		p->extents = new;
		p->max_extents = new_len / sizeof(*p->extents);
	}
	p->extents[p->nextents++] = (struct pol_file_extent){pgoff, npages};
	return 0;
}

/* ---- the file's state as we left it ---- */

static bool is_as_left(const struct pol_file_shared *s, const struct stat *st)
{
	return s->mtime_sec == st->st_mtim.tv_sec && s->mtime_nsec == st->st_mtim.tv_nsec &&
	       s->size == (uint64_t)st->st_size;
}

static void leave_as(struct pol_file_shared *s, const struct stat *st)
{
	s->mtime_sec = st->st_mtim.tv_sec;
	s->mtime_nsec = st->st_mtim.tv_nsec;
	s->size = (uint64_t)st->st_size;
}

/* Run what writes to the file, without taking a change of somebody else's for ours. */
static int write_file(struct vm_bigfile *f, int (*fn)(struct vm_journal *j, int data_fd))
{
	struct pol_file_priv *p = f->priv;
	struct stat before, after;
	int err = vm_sys->fstat(f->fd, &before);

	if (!err)
		err = fn(&p->j, f->fd);
	if (!err && is_as_left(f->shared, &before) && !vm_sys->fstat(f->fd, &after))
		leave_as(f->shared, &after);
	return err;
}

/* What is durable goes to the file. An error changes nothing about what was committed. */
static void apply(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = write_file(f, vm_journal_apply);

	if (err)
		pol_log(POL_LOG_ERROR,
			"%s: committed, but writing it to the file failed: %s; the commit is in %s, and the "
			"file "
			"needs recovery",
			f->path, pol_errno_name(err), p->jpath);
}

bool pol_backend_file_needs_recovery(const struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	return m.applied < m.synced;
}

/* ---- operations ---- */

static int file_open(struct vm_bigfile *f, const char *arg)
{
	struct pol_file_priv *p = get_memory(sizeof(*p));
	struct stat st;
	int err;

	if (!p)
		return -ENOMEM;
	f->priv = p;
	p->j.fd = -1;
	p->j.pos = &pol_file_shared(f)->pos;
	p->j.limit = VM_JOURNAL_LIMIT;
	p->scratch = get_memory(POL_FILE_BATCH * VM_BLKSIZE);
	err = p->scratch ? vm_journal_init(&p->j) : -ENOMEM;
	if (!err)
		err = pol_journal_path(f->path, arg, p->dir, p->jpath);
	if (!err)
		err = vm_sys->fstat(f->fd, &st);
	if (err) {
		free_priv(f);
		return err;
	}
	leave_as(f->shared, &st);
	return 0;
}

static int file_checkpoint(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	return p->j.fd < 0 ? 0 : write_file(f, vm_journal_checkpoint);
}

/* What others wrote must not be undone by replaying what we committed before: the journal starts over. */
static int accept_change(struct vm_bigfile *f, const struct stat *st)
{
	leave_as(f->shared, st);
	return file_checkpoint(f);
}

static int file_changed(struct vm_bigfile *f, int accept)
{
	struct stat st;
	int err = vm_sys->fstat(f->fd, &st);

	if (err)
		return err;
	if (is_as_left(f->shared, &st))
		return 0;
	if (accept)
		err = accept_change(f, &st);
	return err ? err : 1;
}

static int file_close(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = file_checkpoint(f);

	if (p->j.fd >= 0) {
		vm_fd_drop(&p->j.fd);
		/* a relative by fork still has it: then it stays, and the last one removes it */
		if (!err)
			(void)pol_journal_remove_idle(p->jpath);
	}
	if (err)
		pol_log(POL_LOG_ERROR, "%s: the journal %s stays, the file needs recovery: %s", f->path,
			p->jpath, pol_errno_name(err));
	free_priv(f);
	return err;
}

static int file_reserve(struct vm_bigfile *f, uint64_t off, uint64_t len)
{
	struct stat before, after;
	int err = vm_sys->fstat(f->fd, &before);

	if (!err)
		err = vm_sys->fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
	/* this moved the file's time, and is no change of somebody else's */
	if (is_as_left(f->shared, &before) && !vm_sys->fstat(f->fd, &after))
		leave_as(f->shared, &after);
	return err;
}

/* The process may end now: nothing is in the journal that matters, and the next begin makes a new one. */
static int file_idle(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = file_checkpoint(f);

	if (err || p->j.fd < 0)
		return err;
	vm_fd_drop(&p->j.fd);
	/* a relative by fork that still has it goes by its position */
	if (pol_journal_remove_idle(p->jpath))
		vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0});
	return 0;
}

static void file_detach(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	vm_fd_drop(&p->j.fd); /* the others have it, too, and with it its lock */
	free_priv(f);
}

static int file_open_write(struct vm_bigfile *f)
{
	return f->writable ? pol_journal_attach(f) : -EBADF;
}

static int committed_size(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;
	struct stat st;
	int err;

	vm_journal_mark(&p->j, &m);
	if (m.applied != m.tail) {
		*ret_size = m.size;
		return 0;
	}
	err = vm_sys->fstat(f->fd, &st);
	if (!err)
		*ret_size = (uint64_t)st.st_size;
	return err;
}

static int file_getsize(struct vm_bigfile *f, uint64_t *ret_size)
{
	int changed = file_changed(f, 1);

	return changed < 0 ? changed : committed_size(f, ret_size);
}

/* A relative by fork began the journal, after the fork: look into it for what it did not apply yet. */
static int load_beside_relative(struct vm_bigfile *f, uint64_t off, size_t len, void *buf)
{
	struct pol_file_priv *p = f->priv;
	struct pol_file_shared *s = f->shared;
	struct vm_journal j = {.pos = p->j.pos};
	struct stat st;
	int err;

	j.fd = vm_sys->openat(AT_FDCWD, p->jpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (j.fd < 0)
		return j.fd;
	err = vm_sys->fstat(j.fd, &st);
	if (!err && (st.st_dev != s->jdev || st.st_ino != s->jino))
		err = -ESTALE;
	if (!err)
		err = vm_journal_read(&j, f->fd, buf, len, off);
	(void)vm_sys->close(j.fd); /* was only read */
	return err;
}

static int file_loadblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	if (p->j.fd < 0 && m.applied != m.tail)
		return load_beside_relative(f, pgoff * VM_BLKSIZE, npages * VM_BLKSIZE, buf);
	return vm_journal_read(&p->j, f->fd, buf, npages * VM_BLKSIZE, pgoff * VM_BLKSIZE);
}

static int file_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;
	uint64_t size;
	off_t start, stop;
	int err = committed_size(f, &size);

	if (err)
		return err;
	if (off >= size)
		return -ENXIO;
	*ret_start = off;
	*ret_stop = size;
	vm_journal_mark(&p->j, &m);
	if (m.applied != m.tail) /* the file's own holes do not count now */
		return 0;
	start = vm_sys->lseek(f->fd, (off_t)off, SEEK_DATA);
	if (start == -ENXIO)
		return -ENXIO;
	if (start < 0) /* this file system cannot tell */
		return 0;
	stop = vm_sys->lseek(f->fd, start, SEEK_HOLE);
	*ret_start = (uint64_t)start;
	if (stop > start)
		*ret_stop = (uint64_t)stop;
	return 0;
}

/* Somebody removed the journal: what it would protect goes to the disk now, and a new one begins. */
static int replace_lost_journal(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = file_checkpoint(f);

	pol_log(POL_LOG_ERROR, "%s: the journal %s was removed; %s", f->path, p->jpath,
		err ? pol_errno_name(err) : "beginning a new one");
	if (err)
		return err;
	vm_fd_drop(&p->j.fd);
	return pol_journal_attach(f);
}

/* All that must be in order before a transaction can be built on it. */
static int file_begin(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;
	struct stat st;
	int err = file_open_write(f);

	if (!err)
		err = vm_sys->fstat(p->j.fd, &st);
	if (!err && !st.st_nlink)
		err = replace_lost_journal(f);
	if (err)
		return err;
	vm_journal_mark(&p->j, &m);
	if (m.flags & VM_MARK_START || m.tail > VM_JOURNAL_START + p->j.limit / 2) {
		err = file_checkpoint(f);
	} else if (m.applied < m.synced || m.tail - m.synced > LAZY_BEFORE_BEGIN) {
		err = vm_journal_sync(&p->j);
		if (!err)
			err = write_file(f, vm_journal_apply);
	}
	if (err)
		return err;
	p->nextents = 0;
	vm_journal_begin(&p->j);
	return 0;
}

static int file_storeblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	struct pol_file_priv *p = f->priv;
	const uint8_t *now = buf;
	int err;

	if (flags & VM_STORE_AGAIN)
		return vm_journal_add(&p->j, pgoff * VM_BLKSIZE, buf, npages * VM_BLKSIZE, 0);
	err = note_extent(p, pgoff, npages);
	while (!err && npages) {
		size_t n = npages < POL_FILE_BATCH ? npages : POL_FILE_BATCH;

		err = file_loadblk(f, pgoff, n, p->scratch);
		if (!err)
			err = pol_file_add_changes(&p->j, pgoff * VM_BLKSIZE, p->scratch, now,
						   n * VM_BLKSIZE);
		pgoff += n;
		now += n * VM_BLKSIZE;
		npages -= n;
	}
	return err;
}

/* The size was smaller meanwhile: what lay in [cut, size) is taken away by the commit. Blocks stored there as
 * differences from it need it back, below these differences. */
static int add_base(struct vm_bigfile *f, uint64_t cut, uint64_t size)
{
	struct pol_file_priv *p = f->priv;

	for (size_t i = 0; i < p->nextents; i++) {
		uint64_t start = p->extents[i].pgoff * VM_BLKSIZE;
		uint64_t stop = start + p->extents[i].npages * VM_BLKSIZE;

		start = start > cut ? start : cut;
		stop = stop < size ? stop : size;
		while (start < stop) {
			uint64_t max = (uint64_t)POL_FILE_BATCH * VM_BLKSIZE;
			size_t n = (size_t)(stop - start < max ? stop - start : max);
			int err = vm_journal_read(&p->j, f->fd, p->scratch, n, start);

			if (!err)
				err = vm_journal_add(&p->j, start, p->scratch, n, VM_RUN_BASE);
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

static int file_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	struct pol_file_priv *p = f->priv;
	bool durable = flags & VM_COMMIT_DURABLE;
	uint64_t size, cut = txn->size_low < txn->size ? txn->size_low : txn->size;
	struct vm_journal_mark m;
	int err = committed_size(f, &size);

	if (err)
		return err;
	if (!vm_journal_has_runs(&p->j) && txn->size == size && cut == size)
		return commit_nothing(f, durable) ?: 1;
	if (cut < size)
		err = add_base(f, cut, size);
	if (err)
		return err;
	vm_journal_mark(&p->j, &m);
	durable |= p->j.tail + p->j.fill - m.applied > LAZY_AT_COMMIT;
	err = vm_journal_commit(&p->j, txn, durable);
	if ((err == -ENOSPC || err == -EDQUOT) && !p->j.nframes && !file_checkpoint(f)) {
		/* the journal's own space, from its beginning */
		vm_journal_rebase(&p->j);
		err = vm_journal_commit(&p->j, txn, durable);
	}
	if (!err && durable)
		apply(f);
	return err;
}

static void file_abort(struct vm_bigfile *f)
{
	(void)f; /* begin starts anew, and what was streamed is overwritten by the next commit */
}

const struct vm_backend_ops pol_backend_file = {
	.abi = VM_BACKEND_ABI,
	.name = "file",
	.open = file_open,
	.close = file_close,
	.detach = file_detach,
	.reserve = file_reserve,
	.idle = file_idle,
	.open_write = file_open_write,
	.getsize = file_getsize,
	.loadblk = file_loadblk,
	.nextdata = file_nextdata,
	.begin = file_begin,
	.storeblk = file_storeblk,
	.commit = file_commit,
	.abort = file_abort,
	.checkpoint = file_checkpoint,
	.changed = file_changed,
};
