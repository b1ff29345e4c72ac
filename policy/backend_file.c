/* SPDX-License-Identifier: MIT */
/* The file backend: blocks live in the program's own file; a commit goes to the journal first
 * (backend_file_txn.c). */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "log.h"
#include "recover.h"
#include "share.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- memory ---- */

void *pol_file_memory(size_t len)
{
	void *p = vm_own_map(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return vm_sys_err(p) ? NULL : p;
}

static void free_extents(struct pol_file_extents *l)
{
	if (l->e)
		(void)vm_sys->munmap(l->e, l->max * sizeof(*l->e)); /* whole mappings: cannot fail */
}

void pol_file_free(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	vm_journal_fini(&p->j);
	if (p->scratch)
		(void)vm_sys->munmap(p->scratch,
				     POL_FILE_BATCH * VM_BLKSIZE); /* whole mappings: cannot fail */
	free_extents(&p->diffs);
	free_extents(&p->changed);
	(void)vm_sys->munmap(p, sizeof(*p));
	f->priv = NULL;
}

/* ---- writing to the file ---- */

int pol_file_write(struct vm_bigfile *f, int (*fn)(struct vm_journal *j, const struct vm_journal_files *files))
{
	struct vm_journal_files one = {.fd = f->fd};
	struct pol_file_priv *p = f->priv;
	struct pol_file_own own;
	int err = pol_file_own_begin(f, &own);

	if (err)
		return err;
	err = fn(&p->j, &one);
	pol_file_own_end(f, &own); /* also when it failed: it may have written something before */
	return err;
}

/* ---- operations ---- */

int pol_file_prepare(struct vm_bigfile *f, const char *arg)
{
	struct pol_file_priv *p = pol_file_memory(sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	f->priv = p;
	p->shared = f->shared;
	p->j.fd = -1;
	p->j.pos = &p->shared->pos;
	p->to = &p->j;
	p->here.file = f;
	p->j.limit = VM_JOURNAL_LIMIT;
	p->scratch = pol_file_memory(POL_FILE_BATCH * VM_BLKSIZE);
	err = p->scratch ? vm_journal_init(&p->j) : -ENOMEM;
	p->arg = arg;
	if (!err)
		err = pol_journal_path(f->path, arg, p->dir, p->jpath);
	if (err)
		pol_file_free(f);
	return err;
}

static int file_open(struct vm_bigfile *f, const char *arg)
{
	int err = pol_file_prepare(f, arg);

	if (!err) {
		err = pol_file_leave(f);
		if (err)
			pol_file_free(f);
	}
	return err;
}

int pol_file_checkpoint(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	return p->j.fd < 0 ? 0 : pol_file_write(f, vm_journal_checkpoint);
}

static int file_changed(struct vm_bigfile *f, int accept)
{
	int changed = pol_file_look(f, accept), err;

	if (changed < 0 || !accept)
		return changed;
	/* What others wrote must not be undone by replaying what we committed before: the journal starts
	 * over. Also when no change is seen: who asks knows better than a clock that ticks. */
	err = pol_file_leave(f);
	if (!err)
		err = pol_file_checkpoint(f);
	return err ? err : changed;
}

/* Is there a journal, of this process, or one that another began and left behind? */
static bool has_begun(struct pol_file_priv *p)
{
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	return m.tail;
}

static int file_close(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = pol_file_checkpoint(f);

	if (has_begun(p)) {
		if (p->j.fd >= 0)
			pol_journal_look_where_it_is(f);
		vm_fd_drop(&p->j.fd);
		/* a relative by fork still has it: then it stays, and the last one removes it */
		if (!err)
			(void)pol_journal_remove_idle(p->jpath);
	}
	if (err)
		pol_log(POL_LOG_ERROR, "%s: the journal %s stays, the file needs recovery: %s", f->path,
			p->jpath, pol_errno_name(err));
	pol_file_free(f);
	return err;
}

int pol_file_reserve(struct vm_bigfile *f, uint64_t off, uint64_t len)
{
	struct pol_file_own own;
	int err = pol_file_own_begin(f, &own);

	if (err)
		return err;
	err = vm_sys->fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
	pol_file_own_end(f, &own); /* it moved the file's time */
	return err;
}

/* What it was before must not become ours together with the new times; an error is found by the next commit
 * again. */
void pol_file_times(struct vm_bigfile *f, int done)
{
	if (!done)
		(void)pol_file_look(f, true);
	else if (!pol_file_shared(f)->foreign)
		(void)pol_file_leave(f);
}

/* The process may end now: nothing is in the journal that matters, and the next begin makes a new one. Also
 * when there are others: as long as one has the journal open its lock keeps it there, and of several that end
 * at once none is the last. */
int pol_file_idle(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	int err = pol_file_checkpoint(f);

	if (err || !has_begun(p))
		return err;
	if (p->j.fd >= 0)
		pol_journal_look_where_it_is(f);
	vm_fd_drop(&p->j.fd);
	/* another process that still has it goes by its position */
	if (pol_journal_remove_idle(p->jpath))
		vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0});
	return 0;
}

/* The journal that relatives by fork have goes along, or with the file. */
static void move_journal(struct vm_bigfile *f, const char *from, const char *to)
{
	struct pol_file_shared *s = pol_file_shared(f);
	struct stat st;
	unsigned nlink;

	if (vm_sys->fstatat(AT_FDCWD, from, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != s->jdev || st.st_ino != s->jino)
		return;
	if (!pol_file_basics(f->fd, NULL, &nlink) && !nlink)
		(void)vm_sys->unlinkat(AT_FDCWD, from, 0); /* it stays: litter, and no harm */
	else
		(void)vm_sys->renameat(AT_FDCWD, from, AT_FDCWD, to); /* it stays: found again by whoever has it */
}

void pol_file_moved(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char from[PATH_MAX];

	strcpy(from, p->jpath);
	/* a name too long for a journal beside it: the next begin fails with it, and says so */
	if (pol_journal_path(f->path, p->arg, p->dir, p->jpath))
		p->jpath[0] = 0;
	move_journal(f, from, p->jpath);
}

static void file_detach(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;

	vm_fd_drop(&p->j.fd); /* the others have it, too, and with it its lock */
	pol_file_free(f);
}

int pol_file_open_write(struct vm_bigfile *f)
{
	return f->writable ? pol_journal_attach(f) : -EBADF;
}

int pol_file_size(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	if (m.applied == m.tail)
		return pol_file_basics(f->fd, ret_size, NULL);
	*ret_size = m.size;
	return 0;
}

static int file_getsize(struct vm_bigfile *f, uint64_t *ret_size)
{
	int changed = pol_file_look(f, true);

	if (changed > 0) /* the file's own size counts. Whether the change is accepted is another question */
		changed = pol_file_checkpoint(f);
	return changed < 0 ? changed : pol_file_size(f, ret_size);
}

/* The journal that another process began: by its name, or from who has it, when that has another place for
 * it. */
static int open_beside(struct vm_bigfile *f, int *home)
{
	int fd = vm_sys->openat(AT_FDCWD, pol_file_priv(f)->jpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd >= 0 && pol_backend_file_is_journal(f, fd)) {
		*home = fd;
		return vm_fd_adopt(home);
	}
	if (fd >= 0)
		(void)vm_sys->close(fd); /* was not even read */
	return pol_share_fetch_journal(f, home);
}

/* Another process began the journal, after we had the handle: look into it for what it did not apply yet. */
static int load_beside(struct vm_bigfile *f, uint64_t off, size_t len, void *buf)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal j = {.fd = -1, .pos = p->j.pos};
	int err = open_beside(f, &j.fd);

	if (err)
		return err;
	err = vm_journal_read(&j, 0, f->fd, buf, len, off);
	vm_fd_drop(&j.fd);
	return err;
}

int pol_file_load(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	if (p->j.fd < 0 && m.applied != m.tail)
		return load_beside(f, pgoff * VM_BLKSIZE, npages * VM_BLKSIZE, buf);
	return vm_journal_read(&p->j, 0, f->fd, buf, npages * VM_BLKSIZE, pgoff * VM_BLKSIZE);
}

/* Not by SEEK_DATA: the descriptor's position is the program's. */
int pol_file_next_extent(int fd, uint64_t *start, uint64_t *stop)
{
	char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)] __attribute__((aligned(8))) = {0};
	struct fiemap *map = (struct fiemap *)room;
	uint64_t from, to;

	map->fm_start = *start;
	map->fm_length = *stop - *start;
	map->fm_extent_count = 1;
	if (vm_sys->ioctl(fd, FS_IOC_FIEMAP, map))
		return 0; /* this file system cannot tell: all of it may be data */
	if (!map->fm_mapped_extents)
		return -ENXIO;
	from = map->fm_extents[0].fe_logical;
	to = from + map->fm_extents[0].fe_length;
	if (from >= *stop)
		return -ENXIO;
	*start = from > *start ? from : *start;
	*stop = to < *stop ? to : *stop;
	return *start < *stop ? 0 : -ENXIO;
}

int pol_file_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;
	uint64_t size;
	int err = pol_file_size(f, &size);

	if (err)
		return err;
	if (off >= size)
		return -ENXIO;
	*ret_start = off;
	*ret_stop = size;
	vm_journal_mark(&p->j, &m);
	if (m.applied != m.tail) /* the file's own holes do not count now */
		return 0;
	return pol_file_next_extent(f->fd, ret_start, ret_stop);
}

/* Its frames may be whole, and would count after a crash. */
static int file_mend(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);

	if (p->j.fd < 0 || !pol_backend_file_is_journal(f, p->j.fd))
		return -ENOENT; /* one who has it will be asked */
	vm_journal_forget(&p->j);
	return 0;
}

const struct vm_backend_ops pol_backend_file = {
	.abi = VM_BACKEND_ABI,
	.name = "file",
	.open = file_open,
	.attach = pol_file_prepare,
	.close = file_close,
	.detach = file_detach,
	.reserve = pol_file_reserve,
	.idle = pol_file_idle,
	.moved = pol_file_moved,
	.times = pol_file_times,
	.open_write = pol_file_open_write,
	.getsize = file_getsize,
	.loadblk = pol_file_load,
	.nextdata = pol_file_nextdata,
	.begin = pol_file_begin,
	.storeblk = pol_file_store,
	.commit = pol_file_commit,
	.abort = pol_file_abort,
	.mend = file_mend,
	.checkpoint = pol_file_checkpoint,
	.changed = file_changed,
};
