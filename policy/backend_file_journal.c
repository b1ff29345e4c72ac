/* SPDX-License-Identifier: MIT */
/*
 * The journal as a file: its name, its locks, its beginning and its end.
 *
 * Two locks, both on the open file, so that they go when its last holder dies:
 *
 *	flock LOCK_EX	    a live process (with what it forked) has the journal
 *	OFD lock, byte 0    somebody looks at the journal or recovers it; short, so one waits for it; taken
 *first
 *
 * A journal is removed only under the flock, and whoever got the flock looks whether the path still names it.
 */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "log.h"
#include "recover.h"
#include "share.h"
#include "vm.h"

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#define SUFFIX	  ".txmap"
#define MAX_RACES 1000 /* journals removed while we opened them, one after the other */

/* ---- name and identity ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Beside the file: .NAME.txmap. In a directory for several: .NAME-HASH.txmap, HASH being of the path; not of
 * the device and inode number, because device numbers change over a boot and then a journal would not be
 * found. A name that is too long is cut and gets the hash too. */
int pol_journal_path(const char *path, const char *dir, char *ret_dir, char *ret_jpath)
{
	const char *name = base_name(path);
	size_t max = NAME_MAX - strlen("." SUFFIX);
	char hash[24] = "";
	int n;

	if (dir)
		n = snprintf(ret_dir, PATH_MAX, "%s", dir);
	else if (name - path > 1)
		n = snprintf(ret_dir, PATH_MAX, "%.*s", (int)(name - path - 1), path);
	else
		n = snprintf(ret_dir, PATH_MAX, "%s", name > path ? "/" : ".");
	if (n >= PATH_MAX)
		return -ENAMETOOLONG;
	if (dir || strlen(name) > max) {
		uint64_t h = XXH3_64bits(path, strlen(path));

		max -= (size_t)snprintf(hash, sizeof(hash), "-%016llx", (unsigned long long)h);
	}
	n = snprintf(ret_jpath, PATH_MAX, "%s%s.%.*s%s" SUFFIX, ret_dir, strcmp(ret_dir, "/") ? "/" : "",
		     (int)max, name, hash);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

void pol_journal_id(const char *path, const struct stat *st, int fd, struct vm_journal_id *ret)
{
	int igen = 0;

	memset(ret, 0, sizeof(*ret));
	ret->dev = st->st_dev;
	ret->ino = st->st_ino;
	/* tells a new file with an old one's inode number; not every file system has it */
	if (fd >= 0 && !vm_sys->ioctl(fd, FS_IOC_GETVERSION, &igen))
		ret->igen = (uint32_t)igen;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", base_name(path));
}

/* ---- locks ---- */

static int ofd_lock(int fd, short type)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	int err;

	do {
		err = vm_sys->fcntl(fd, F_OFD_SETLKW, (long)&fl);
	} while (err == -EINTR);
	return err;
}

void pol_journal_end_exclusive(int fd)
{
	(void)ofd_lock(fd, F_UNLCK); /* unlocking what is locked cannot fail */
}

/* 1: the path still names what fd is. */
static int is_still_at(const char *jpath, int fd)
{
	struct stat a, b;
	int err = vm_sys->fstat(fd, &a);

	if (err)
		return err;
	err = vm_sys->fstatat(AT_FDCWD, jpath, &b, AT_SYMLINK_NOFOLLOW);
	if (err == -ENOENT)
		return 0;
	return err ? err : a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Who may read the file may read its journal, nobody else. */
int pol_journal_give(int fd, const struct stat *data)
{
	mode_t mode = data->st_mode & 0666;

	if (vm_sys->fchown(fd, data->st_uid, data->st_gid) && vm_sys->fchown(fd, (uid_t)-1, data->st_gid))
		mode &= ~(mode_t)070; /* another group than the file's */
	return vm_sys->fchmod(fd, mode | 0600);
}

bool pol_journal_mode_fits(const struct stat *journal, const struct stat *data)
{
	mode_t more = journal->st_mode & 0777 & ~(data->st_mode | 0600);

	return !more && (journal->st_gid == data->st_gid || !(journal->st_mode & 070));
}

/* In a directory where anybody may create names: is the journal made by somebody we trust with the file? */
static int check_regular(int fd, const struct stat *data, struct stat *ret_st, const char **ret_what)
{
	int err = vm_sys->fstat(fd, ret_st);

	*ret_what = "fstat";
	if (err)
		return err;
	*ret_what = "not a regular file";
	if (!S_ISREG(ret_st->st_mode))
		return -EINVAL;
	*ret_what = "belongs to another user";
	if (data && ret_st->st_uid != data->st_uid && ret_st->st_uid != geteuid() && ret_st->st_uid != 0)
		return -EPERM;
	/* one that holds commits says whose they are */
	*ret_what = "an empty file that has another name, too: it may be meant for something else";
	return !ret_st->st_size && ret_st->st_nlink > 1 ? -EPERM : 0;
}

static int open_and_lock(const char *jpath, int flags, int how, int *fd, const char **ret_what)
{
	int err;

	*ret_what = "open";
	*fd = vm_sys->openat(AT_FDCWD, jpath, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (*fd < 0) {
		err = *fd;
		*fd = -1;
		return err;
	}
	err = vm_fd_adopt(fd);
	if (err)
		return err;
	*ret_what = "lock";
	err = ofd_lock(*fd, (flags & O_ACCMODE) == O_RDONLY ? F_RDLCK : F_WRLCK);
	if (!err)
		err = vm_sys->flock(*fd, how | LOCK_NB);
	return err == -EWOULDBLOCK ? -EBUSY : err;
}

static int open_present(const char *jpath, int flags, int how, int *fd, const char **ret_what)
{
	for (int i = 0; i < MAX_RACES; i++) {
		int err = open_and_lock(jpath, flags, how, fd, ret_what);

		/* also when it is busy: its holder may be about to have removed it */
		if (!err || err == -EBUSY) {
			int there = is_still_at(jpath, *fd);

			if (there > 0 && !err)
				return 0;
			err = there < 0 ? there : there ? err : -EAGAIN;
		}
		if (*fd >= 0)
			vm_fd_drop(fd);
		if (err != -EAGAIN)
			return err;
	}
	return -EBUSY;
}

int pol_journal_open(const char *jpath, const struct stat *data, bool create, int *fd, bool *ret_created,
		     const char **ret_what)
{
	struct stat st;
	int err = open_present(jpath, O_RDWR | (create ? O_CREAT : 0), LOCK_EX, fd, ret_what);

	if (err)
		return err;
	err = check_regular(*fd, data, &st, ret_what);
	*ret_created = !err && create && !st.st_size;
	if (!err && (*ret_created || !pol_journal_mode_fits(&st, data))) {
		*ret_what = "mode";
		err = pol_journal_give(*fd, data);
	}
	if (err)
		vm_fd_drop(fd);
	return err;
}

int pol_journal_open_check(const char *jpath, int *fd, const char **ret_what)
{
	struct stat st;
	int err = open_present(jpath, O_RDONLY, LOCK_SH, fd, ret_what);

	if (err)
		return err;
	err = check_regular(*fd, NULL, &st, ret_what);
	if (err)
		vm_fd_drop(fd);
	return err;
}

int pol_journal_sync_dir(const char *dir)
{
	int fd = vm_sys->openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return fd;
	err = vm_fd_adopt(&fd);
	if (err)
		return err;
	err = vm_sys->fsync(fd);
	vm_fd_drop(&fd);
	return err == -EINVAL ? 0 : err; /* this file system has no such thing */
}

bool pol_journal_remove_idle(const char *jpath)
{
	const char *what;
	struct vm_scan scan;
	bool removed = false;
	int fd;

	if (open_present(jpath, O_RDWR, LOCK_EX, &fd, &what))
		return false;
	/* an empty one that stays does no harm */
	if (!vm_journal_scan(fd, NULL, &scan) && scan.state == VM_SCAN_EMPTY)
		removed = !vm_sys->unlinkat(AT_FDCWD, jpath, 0);
	vm_fd_drop(&fd);
	return removed;
}

/* ---- beginning ---- */

/* What a crash left, now that the lock is ours. */
static int take_over(struct vm_bigfile *f, struct vm_scan *scan, const char **ret_what)
{
	struct pol_file_priv *p = f->priv;
	struct pol_file_own own;
	int err;

	*ret_what = "read";
	err = vm_journal_scan(p->j.fd, &p->j.id, scan);
	if (err || scan->state == VM_SCAN_EMPTY)
		return err;
	*ret_what = scan->state == VM_SCAN_FOREIGN ? "is another file's or another version's" : "is damaged";
	if (scan->state != VM_SCAN_COMMITS)
		return -EUCLEAN;
	*ret_what = "recover";
	err = pol_file_own_begin(f, &own);
	if (err)
		return err;
	err = vm_journal_replay(p->j.fd, f->fd, VM_JOURNAL_START, scan->end, NULL, NULL);
	pol_file_own_end(f, &own);
	return err ? err : vm_sys->fsync(f->fd);
}

/* A file without a name is gone with its last descriptor, and nobody would find its journal. */
static int open_nameless(int *fd, const char **ret_what)
{
	*ret_what = "memfd_create";
	*fd = vm_sys->memfd_create("txmap-journal", 1u /* MFD_CLOEXEC */);
	if (*fd < 0) {
		int err = *fd;

		*fd = -1;
		return err;
	}
	return vm_fd_adopt(fd);
}

static int begin_journal(struct vm_bigfile *f, const struct stat *data, const char **ret_what)
{
	struct pol_file_priv *p = f->priv;
	struct pol_file_shared *s = f->shared;
	struct vm_journal_mark m = {0};
	struct vm_scan scan;
	struct stat st, now;
	bool created = false;
	int err = data->st_nlink ? pol_journal_open(p->jpath, data, true, &p->j.fd, &created, ret_what)
				 : open_nameless(&p->j.fd, ret_what);

	if (err)
		return err;
	err = take_over(f, &scan, ret_what);
	if (err)
		goto close;
	*ret_what = "fstat";
	err = vm_sys->fstat(p->j.fd, &st);
	if (!err)
		err = vm_sys->fstat(f->fd, &now);
	if (err)
		goto close;
	m.generation = scan.header.generation;
	m.good_slot = scan.slot;
	m.alloc = (uint64_t)st.st_size & ~(uint64_t)(VM_JOURNAL_ALIGN - 1);
	m.flags = VM_MARK_START;
	vm_journal_set_mark(&p->j, &m);
	*ret_what = "write";
	err = vm_journal_start_over(&p->j, (uint64_t)now.st_size);
	if (err)
		goto unset;
	*ret_what = "sync its directory";
	err = data->st_nlink ? pol_journal_sync_dir(p->dir) : 0;
	if (err)
		goto unset;
	s->jdev = st.st_dev;
	s->jino = st.st_ino;
	s->mode = data->st_mode;
	s->gid = data->st_gid;
	pol_journal_end_exclusive(p->j.fd);
	return 0;
unset:
	vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0});
close:
	if (created)
		(void)vm_sys->unlinkat(AT_FDCWD, p->jpath, 0); /* it holds nothing */
	vm_fd_drop(&p->j.fd);
	return err;
}

/* The name that fd's file has now. false: it has none that leads to it. */
static bool name_of(int fd, char *ret_path)
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = vm_sys->readlinkat(AT_FDCWD, link, ret_path, PATH_MAX - 1);
	if (n <= 0 || n >= PATH_MAX - 1)
		return false;
	ret_path[n] = 0;
	return is_still_at(ret_path, fd) > 0;
}

/* The file, or a directory above it, may have been renamed by somebody who did not tell us: the journal goes beside it. */
static void look_where_the_file_is(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char path[PATH_MAX];

	if (name_of(f->fd, path) && strcmp(path, f->path))
		(void)pol_journal_path(path, p->arg, p->dir, p->jpath); /* too long: the open says so */
}

void pol_journal_look_where_it_is(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char path[PATH_MAX];

	if (!is_still_at(p->jpath, p->j.fd) && name_of(p->j.fd, path))
		strcpy(p->jpath, path);
}

/* One who has it open gives it: the same open file, so that its lock is ours, too. Was it so? */
static bool take_from_others(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	if (!m.tail || pol_share_fetch_journal(f, &p->j.fd))
		return false;
	pol_journal_look_where_it_is(f);
	return true;
}

int pol_journal_attach(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	const char *what = "fstat";
	struct stat st;
	int err;

	if (p->j.fd >= 0)
		return 0;
	look_where_the_file_is(f);
	err = vm_sys->fstat(f->fd, &st);
	if (!err) {
		pol_journal_id(f->path, &st, f->fd, &p->j.id);
		err = take_from_others(f) ? 0 : begin_journal(f, &st, &what);
	}
	if (err == -EBUSY)
		what = "another process has the file managed, and does not share it: it is another user's, or has another runtime_dir";
	if (err)
		pol_log(POL_LOG_ERROR, "%s: journal %s: %s: %s", f->path, p->jpath, what,
			pol_errno_name(err));
	return err;
}
