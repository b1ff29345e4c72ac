/* SPDX-License-Identifier: MIT */
/*
 * The journal as a file: its name, its locks, its beginning and its end.
 *
 * Locks, all on the open file, so that they go when its last holder dies:
 *
 *	flock LOCK_EX	    a live process (with what it forked) has the journal
 *	flock LOCK_SH	    the same, of those who have a snapshot each and commit in turn
 *	OFD lock, byte 0    somebody looks at the journal or recovers it; short, so one waits for it, LOCK_MSEC at
 *			    most, since whoever may read the file can have it; taken first
 *	OFD lock, byte 1    shared, with LOCK_SH: tells those from somebody who only looks
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
#define LOCK_MSEC 30000u
#define TRY_MSEC  5
#define MAX_RACES 1000 /* journals removed while we opened them, one after the other */
#define ENDS_MSEC 500 /* a process that is at its end, and out of the registry, is still being taken apart by the kernel */

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

enum { LOOKS, LIVES };

static int ofd_lock(int fd, short type)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOOKS, .l_len = 1};

	for (unsigned msec = 0;; msec += TRY_MSEC) {
		int err = vm_sys->fcntl(fd, F_OFD_SETLK, (long)&fl);

		if ((err != -EAGAIN && err != -EACCES && err != -EINTR) || msec >= LOCK_MSEC)
			return err == -EAGAIN || err == -EACCES ? -EBUSY : err;
		(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* nothing tells when it is free and no longer than so */
	}
}

void pol_journal_end_exclusive(int fd)
{
	(void)ofd_lock(fd, F_UNLCK); /* unlocking what is locked cannot fail */
}

int pol_journal_keep_with_others(int fd)
{
	struct flock fl = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = LIVES, .l_len = 1};
	int err = vm_sys->fcntl(fd, F_OFD_SETLK, (long)&fl);

	return err ? err : vm_sys->flock(fd, LOCK_SH | LOCK_NB);
}

static bool is_kept_by_others(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LIVES, .l_len = 1};

	return !vm_sys->fcntl(fd, F_OFD_GETLK, (long)&fl) && fl.l_type != F_UNLCK;
}

int pol_journal_is_at(const char *jpath, int fd)
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

static int open_and_lock(const char *jpath, const struct stat *data, int flags, int how, int *fd, const char **ret_what)
{
	struct stat st;
	int err;

	*ret_what = "open";
	*fd = vm_sys->openat(AT_FDCWD, jpath, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (*fd < 0) {
		err = *fd;
		*fd = -1;
		return err;
	}
	err = vm_fd_adopt(fd);
	if (!err) /* before there is anything to wait for */
		err = check_regular(*fd, data, &st, ret_what);
	if (err)
		return err;
	*ret_what = "lock";
	err = ofd_lock(*fd, (flags & O_ACCMODE) == O_RDONLY ? F_RDLCK : F_WRLCK);
	if (!err)
		err = vm_sys->flock(*fd, how | LOCK_NB);
	return err == -EWOULDBLOCK ? -EBUSY : err;
}

static int open_present(const char *jpath, const struct stat *data, int flags, int how, int *fd, const char **ret_what)
{
	for (int i = 0; i < MAX_RACES; i++) {
		int err = open_and_lock(jpath, data, flags, how, fd, ret_what);

		/* also when it is busy: its holder may be about to have removed it */
		if (!err || err == -EBUSY) {
			int there = pol_journal_is_at(jpath, *fd);

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
	int err = -EBUSY;

	for (unsigned msec = 0; err == -EBUSY && msec < ENDS_MSEC; msec += TRY_MSEC) {
		if (msec)
			(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* nothing tells when a flock is free, but having got it */
		err = open_present(jpath, data, O_RDWR | (create ? O_CREAT : 0), LOCK_EX, fd, ret_what);
	}
	if (err)
		return err;
	*ret_what = "fstat";
	err = vm_sys->fstat(*fd, &st);
	*ret_created = !err && create && !st.st_size;
	if (!err && (*ret_created || !pol_journal_mode_fits(&st, data))) {
		*ret_what = "mode";
		err = pol_journal_give(*fd, data);
	}
	if (err)
		vm_fd_drop(fd);
	return err;
}

int pol_journal_open_shared(const char *jpath, const struct stat *data, int *fd, const char **ret_what)
{
	int err = open_present(jpath, data, O_RDWR, LOCK_SH, fd, ret_what);

	if (err)
		return err;
	err = pol_journal_keep_with_others(*fd);
	if (err)
		vm_fd_drop(fd);
	return err;
}

int pol_journal_open_check(const char *jpath, int *fd, const char **ret_what)
{
	int err = open_present(jpath, NULL, O_RDONLY, LOCK_SH, fd, ret_what);

	if (!err && is_kept_by_others(*fd)) {
		vm_fd_drop(fd);
		err = -EBUSY;
	}
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

int pol_journal_open_idle(const char *jpath, int *fd, const char **ret_what)
{
	return open_present(jpath, NULL, O_RDWR, LOCK_EX, fd, ret_what);
}

int pol_journal_open_group(const char *jpath, const struct stat *data, bool shared, int *fd, bool *ret_first,
			   const char **ret_what)
{
	int err = -EBUSY;

	for (unsigned msec = 0; err == -EBUSY && msec < ENDS_MSEC; msec += TRY_MSEC) {
		if (msec)
			(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* as above */
		*ret_first = true;
		err = open_present(jpath, data, O_RDWR | O_CREAT, LOCK_EX, fd, ret_what);
		if (err != -EBUSY || !shared)
			continue;
		*ret_first = false;
		err = open_present(jpath, data, O_RDWR, LOCK_SH, fd, ret_what);
		if (!err && !is_kept_by_others(*fd)) { /* somebody only looks */
			vm_fd_drop(fd);
			err = -EBUSY;
		}
		if (err == -ENOENT) /* the last one left */
			err = -EBUSY;
	}
	return err;
}

bool pol_journal_remove_idle(const char *jpath)
{
	const char *what;
	struct vm_scan scan;
	bool removed = false;
	int fd;

	if (pol_journal_open_idle(jpath, &fd, &what))
		return false;
	/* an empty one that stays does no harm */
	if (!vm_journal_scan(fd, NULL, &scan) && scan.state == VM_SCAN_EMPTY)
		removed = !vm_sys->unlinkat(AT_FDCWD, jpath, 0);
	vm_fd_drop(&fd);
	return removed;
}
