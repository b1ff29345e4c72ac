/* SPDX-License-Identifier: MIT */
/* Those who have a snapshot of a file: how they come and go. */
#define _GNU_SOURCE 1
#include "backend_file_snapshot.h"
#include "control_priv.h"
#include "log.h"
#include "share.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

static void name_of(dev_t dev, ino_t ino, char *ret, size_t len)
{
	(void)snprintf(ret, len, "snapshots-%llx-%llx", (unsigned long long)dev, (unsigned long long)ino);
}

static int open_dir(bool create, int *ret_dirfd, char *why, size_t len)
{
	return pol_runtime_dir_open(pol_config_get()->runtime_dir, create, ret_dirfd, why, len);
}

static int open_all(int dirfd, const char *name, bool create, int *home)
{
	*home = vm_sys->openat(dirfd, name,
			       O_RDWR | (create ? O_CREAT : 0) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (*home < 0) {
		int err = *home;

		*home = -1;
		return err;
	}
	return vm_fd_adopt(home);
}

static bool is_at(int dirfd, const char *name, int fd)
{
	struct stat a, b;

	return !vm_sys->fstat(fd, &a) && !vm_sys->fstatat(dirfd, name, &b, AT_SYMLINK_NOFOLLOW) &&
	       a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Open and hold. -EAGAIN: the last one removed it meanwhile. */
static int open_and_hold(int dirfd, const char *name, int *home)
{
	int err = open_all(dirfd, name, true, home);

	if (!err)
		err = pol_snapshot_lock_in_turn(*home);
	if (!err && !is_at(dirfd, name, *home))
		err = -EAGAIN;
	if (err && *home >= 0)
		vm_fd_drop(home);
	return err;
}

/* Nobody lives: begin anew. All of it is written, so that no touch of the mapping meets a full file system. */
static int begin_anew(const struct vm_bigfile *f, int fd)
{
	static const uint8_t zeros[POL_SNAPSHOTS_RUNS];
	struct pol_snapshots all = {.magic = POL_SNAPSHOTS_MAGIC,
				    .version = POL_SNAPSHOTS_VERSION,
				    .len = sizeof(all),
				    .dev = f->dev,
				    .ino = f->ino};
	int err = vm_sys->ftruncate(fd, 0);

	if (!err)
		err = vm_sys_pwrite_full(fd, zeros, sizeof(zeros), 0);
	return err ? err : vm_sys_pwrite_full(fd, &all, sizeof(all), 0);
}

static bool is_ours(const struct vm_bigfile *f, const struct pol_snapshots *all)
{
	return all->magic == POL_SNAPSHOTS_MAGIC && all->version == POL_SNAPSHOTS_VERSION &&
	       all->len == sizeof(*all) && all->dev == f->dev && all->ino == f->ino;
}

/* By a descriptor of its own: a child's mapping keeps the open file that it was made by, and would keep the
 * locks. */
static int map_all(int dirfd, const char *name, struct pol_snapshots **ret)
{
	int fd = vm_sys->openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	*ret = vm_own_map(POL_SNAPSHOTS_RUNS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)vm_sys->close(fd); /* it is mapped */
	return vm_sys_err(*ret);
}

/* s->fd is held. */
static int join(struct vm_bigfile *f, struct pol_snapshot *s, int dirfd, const char *name, bool *ret_first)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct stat st;
	int err;

	*ret_first = !pol_snapshot_has_others(s->fd);
	err = *ret_first ? begin_anew(f, s->fd) : vm_sys->fstat(s->fd, &st);
	if (!err && !*ret_first && st.st_size < (off_t)POL_SNAPSHOTS_RUNS)
		err = -EPROTO;
	if (!err)
		err = pol_snapshot_lock(s->fd, POL_SNAPSHOT_LIFE, F_RDLCK);
	if (!err)
		err = map_all(dirfd, name, &s->all);
	if (err)
		return err;
	if (!is_ours(f, s->all)) {
		(void)vm_sys->munmap(s->all, POL_SNAPSHOTS_RUNS);
		return -EPROTO;
	}
	s->nholds = 1;
	p->shared = &s->all->storage;
	p->j.pos = &p->shared->pos;
	return 0;
}

int pol_snapshot_join(struct vm_bigfile *f, bool *ret_first)
{
	struct pol_snapshot *s = pol_file_memory(sizeof(*s));
	char name[64], why[256] = "";
	int dirfd, err;

	if (!s)
		return -ENOMEM;
	s->fd = -1;
	pol_file_priv(f)->snapshot = s; /* for a fork */
	err = open_dir(true, &dirfd, why, sizeof(why));
	if (err) {
		pol_log(POL_LOG_ERROR, "%s: share=process needs the runtime directory: %s", f->path, why);
		goto free;
	}
	name_of(f->dev, f->ino, name, sizeof(name));
	do {
		err = open_and_hold(dirfd, name, &s->fd);
	} while (err == -EAGAIN);
	if (!err)
		err = join(f, s, dirfd, name, ret_first);
	(void)vm_sys->close(dirfd); /* only looked at */
	if (!err)
		return 0;
	pol_log(POL_LOG_ERROR, "%s: %s/%s, by which processes with a snapshot know of each other: %s",
		f->path, pol_config_get()->runtime_dir, name, pol_errno_name(err));
	vm_fd_drop(&s->fd);
free:
	pol_file_priv(f)->snapshot = NULL;
	(void)vm_sys->munmap(s, sizeof(*s)); /* whole mappings: cannot fail */
	return err;
}

void pol_snapshot_leave(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_snapshot *s = p->snapshot;

	p->snapshot = NULL;
	vm_fd_drop(&s->fd);
	(void)vm_sys->munmap(s->all, POL_SNAPSHOTS_RUNS); /* whole mappings: cannot fail */
	(void)vm_sys->munmap(s, sizeof(*s));
	pol_file_free(f);
}

/* Writers that were killed, and readers that stayed: then nobody emptied the journal. Where this is not
 * allowed it stays. */
static void recover_for_the_dead(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_journal_report r;

	if (f->writable)
		return;
	if (pol_journal_recover(f->path, p->arg, NULL, NULL, &r))
		pol_log(POL_LOG_INFO, "%s", r.text);
	else
		vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0}); /* nobody has one */
}

void pol_snapshot_remove_if_last(struct vm_bigfile *f)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;
	char name[64], why[256];
	int dirfd;

	if (pol_snapshot_has_others(s->fd) || open_dir(false, &dirfd, why, sizeof(why)))
		return;
	name_of(f->dev, f->ino, name, sizeof(name));
	recover_for_the_dead(f);
	if (is_at(dirfd, name, s->fd))
		(void)vm_sys->unlinkat(dirfd, name, 0); /* litter, at worst */
	(void)vm_sys->close(dirfd);			/* only looked at */
}

/* Does somebody live who has a snapshot? What the dead left may go. */
static bool look_for_somebody(dev_t dev, ino_t ino, bool sweep)
{
	char name[64], why[256];
	int dirfd, fd;
	bool has;

	if (open_dir(false, &dirfd, why, sizeof(why)))
		return false;
	name_of(dev, ino, name, sizeof(name));
	fd = vm_sys->openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0 && sweep && pol_snapshot_lock(fd, POL_SNAPSHOT_HOLD, F_WRLCK)) /* somebody comes */
		sweep = false;
	has = fd >= 0 && pol_snapshot_has_others(fd);
	if (fd >= 0 && sweep && !has && is_at(dirfd, name, fd))
		(void)vm_sys->unlinkat(dirfd, name, 0); /* litter still, at worst */
	if (fd >= 0)
		(void)vm_sys->close(fd); /* only looked at */
	(void)vm_sys->close(dirfd);
	return has;
}

bool pol_snapshot_has_somebody(dev_t dev, ino_t ino)
{
	return look_for_somebody(dev, ino, false);
}

void pol_snapshot_sweep(dev_t dev, ino_t ino)
{
	(void)look_for_somebody(dev, ino, true);
}

/* The parent's locks must not outlive it here. What else was begun is never used. */
static void drop_half_open(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);

	if (p->snapshot)
		vm_fd_drop(&p->snapshot->fd);
	vm_fd_drop(&p->j.fd);
	f->priv = NULL;
}

void pol_snapshot_fork_child(struct vm_bigfile *f, bool is_open)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;
	char name[64], why[256];
	int dirfd, fd = -1, err;

	if (!is_open) {
		drop_half_open(f);
		return;
	}
	s->nholds = 0;
	err = open_dir(false, &dirfd, why, sizeof(why));
	if (!err) {
		name_of(f->dev, f->ino, name, sizeof(name));
		err = open_all(dirfd, name, false, &fd);
		(void)vm_sys->close(dirfd); /* only looked at */
	}
	if (!err)
		err = pol_snapshot_lock(fd, POL_SNAPSHOT_LIFE, F_RDLCK);
	if (err)
		pol_log(POL_LOG_WARN, "%s: forked child: it shares its parent's locks: %s", f->path,
			pol_errno_name(err));
	else
		vm_fd_swap(&s->fd, &fd);
	vm_fd_drop(&fd);
}
