/* SPDX-License-Identifier: MIT */
/* A copy of a file, made beside its name: by reflink, or extent by extent; see copy_out.h. */
#define _GNU_SOURCE 1
#include "copy_out.h"
#include "backends.h"
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK	  (8u << 20)
#define BUF_LEN	  (1u << 20)
#define HOLE	  (64u << 10)
#define MAX_RACES 100 /* copies to the same name that come and go while ours begins */

/* ---- its name ---- */

/* out is where the name is taken from, dir or not; name is path's when out is a directory. */
static int find_name(struct pol_copy_out *c, const char *path, const char *out, bool must_be_dir)
{
	struct stat st;
	int err = vm_sys->fstatat(AT_FDCWD, out, &st, 0), n;
	bool is_dir = !err && S_ISDIR(st.st_mode);

	c->what = "look for it";
	if (err && err != -ENOENT)
		return err;
	c->what = "several files go into a directory";
	if (must_be_dir && !is_dir)
		return -ENOTDIR;
	c->what = "name";
	n = snprintf(c->out, sizeof(c->out), "%s%s", out, is_dir ? strrchr(path, '/') : "");
	if (n >= (int)sizeof(c->out))
		return -ENAMETOOLONG;
	c->name = strrchr(c->out, '/') + 1;
	if (!*c->name)
		return -EISDIR;
	return strlen(c->name) > NAME_MAX ? -ENAMETOOLONG : 0;
}

static int open_dir(struct pol_copy_out *c)
{
	char slash = *c->name;
	int fd;

	*c->name = 0;
	fd = vm_sys->openat(AT_FDCWD, c->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	*c->name = slash;
	c->what = "open its directory";
	if (fd < 0)
		return fd;
	c->dirfd = fd;
	return vm_fd_adopt(&c->dirfd);
}

/* May it get its name? */
static int check_name(struct pol_copy_out *c)
{
	char journal[NAME_MAX + 16];
	struct stat self, st;
	int err = vm_sys->fstat(*c->from, &self);

	c->what = "look at the file";
	if (err)
		return err;
	c->what = "that is the name of a journal";
	if (pol_is_journal(c->out))
		return -EINVAL;
	c->what = "that is the file itself";
	if (!vm_sys->fstatat(c->dirfd, c->name, &st, 0) && st.st_dev == self.st_dev &&
	    st.st_ino == self.st_ino)
		return -EINVAL;
	err = vm_sys->fstatat(c->dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW);
	c->what = "it exists";
	if (!err && !c->replace)
		return -EEXIST;
	c->what = "it is no regular file";
	if (!err && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return -EINVAL;
	c->what = "look for it";
	if (err && err != -ENOENT)
		return err;
	/* with it a commit could be lost, or come into the copy */
	c->what = "it has a journal: it is in use, or needs recovery";
	if (snprintf(journal, sizeof(journal), ".%s.txmap", c->name) > NAME_MAX)
		return 0;
	err = vm_sys->fstatat(c->dirfd, journal, &st, AT_SYMLINK_NOFOLLOW);
	return err == -ENOENT ? 0 : err ? err : -EBUSY;
}

/* Does the temporary name still name what fd is? 1, 0, -errno. */
static int is_at_its_name(struct pol_copy_out *c, int fd)
{
	struct stat st, now;
	int err = vm_sys->fstat(fd, &st);

	if (!err)
		err = vm_sys->fstatat(c->dirfd, c->tmp, &now, AT_SYMLINK_NOFOLLOW);
	if (err)
		return err == -ENOENT ? 0 : err;
	return now.st_dev == st.st_dev && now.st_ino == st.st_ino;
}

/* The temporary name is taken. By one who was killed? Then it goes. */
static int remove_left(struct pol_copy_out *c)
{
	struct stat st;
	int err, fd = vm_sys->openat(c->dirfd, c->tmp,
				     O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);

	c->what = "what somebody else made is at its temporary name";
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	err = vm_fd_adopt(&fd);
	if (err)
		return err;
	err = vm_sys->fstat(fd, &st);
	if (!err && (!S_ISREG(st.st_mode) || st.st_uid != geteuid()))
		err = -EPERM;
	if (!err)
		err = vm_sys->flock(fd, LOCK_EX | LOCK_NB);
	if (err == -EWOULDBLOCK) {
		c->what = "another copy to there is being made";
		err = -EBUSY;
	}
	if (!err)
		err = is_at_its_name(c, fd);
	if (err == 1)
		err = vm_sys->unlinkat(c->dirfd, c->tmp, 0);
	vm_fd_drop(&fd);
	return err == -ENOENT ? 0 : err;
}

/* Make it, with our lock. 0: somebody took it for one that was left; 1; -errno. */
static int create(struct pol_copy_out *c)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
	int err, fd = vm_sys->openat(c->dirfd, c->tmp, flags, 0600);

	c->what = "create";
	if (fd == -EEXIST)
		return remove_left(c);
	if (fd < 0)
		return fd;
	c->fd = fd;
	c->is_made = true;
	err = vm_fd_adopt(&c->fd);
	if (!err)
		err = vm_sys->flock(c->fd, LOCK_EX | LOCK_NB);
	if (!err)
		err = is_at_its_name(c, c->fd);
	if (err == 0 || err == -EWOULDBLOCK) {
		c->is_made = false;
		vm_fd_drop(&c->fd);
		return 0;
	}
	return err;
}

static int open_copy(struct pol_copy_out *c)
{
	int done = 0;

	(void)snprintf(c->tmp, sizeof(c->tmp), ".%.200s.txmap-copy", c->name);
	for (unsigned i = 0; !done && i < MAX_RACES; i++)
		done = create(c);
	return done > 0 ? 0 : done ? done : -EBUSY;
}

/* ---- its content ---- */

static bool is_zeros(const char *buf, size_t len)
{
	return !buf[0] && !memcmp(buf, buf + 1, len - 1);
}

/* What is not zeros of len bytes, as they are at off, into a hole. */
static int write_into_hole(struct pol_copy_out *c, const char *buf, size_t len, uint64_t off)
{
	int err = 0;

	for (size_t at = 0, n; !err && at < len; at += n) {
		n = len - at < HOLE ? len - at : HOLE;
		if (!is_zeros(buf + at, n))
			err = vm_sys_pwrite_full(c->fd, buf + at, n, (off_t)(off + at));
	}
	return err;
}

/* The kernel cannot do it: by hand. Where no extents are known, what is zeros may be a hole, and becomes one. */
static int copy_by_hand(struct pol_copy_out *c, uint64_t off, uint64_t stop)
{
	int err = 0;

	if (!c->buf) {
		c->buf = vm_own_map(BUF_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		err = vm_sys_err(c->buf);
		if (err) {
			c->buf = NULL;
			return err;
		}
	}
	while (!err && off < stop) {
		size_t n = stop - off < BUF_LEN ? (size_t)(stop - off) : BUF_LEN;

		c->what = "read the file";
		err = vm_sys_pread_full(*c->from, c->buf, n, (off_t)off);
		if (!err) {
			c->what = "write";
			err = write_into_hole(c, c->buf, n, off);
		}
		off += n;
	}
	return err;
}

static int copy_extent(struct pol_copy_out *c, uint64_t off, uint64_t stop, uint64_t total)
{
	int err = 0;

	while (!err && off < stop) {
		uint64_t end = stop - off < CHUNK ? stop : off + CHUNK;
		off_t from = (off_t)off, to = from;
		ssize_t n = c->by_hand ? 0 : vm_sys->copy_file_range(*c->from, &from, c->fd, &to, end - off);

		/* a true error comes again; 0: it became shorter, or it is a file of a kind of its own */
		if (n <= 0)
			err = copy_by_hand(c, off, end);
		off = n > 0 ? off + (uint64_t)n : end;
		if (c->progress)
			c->progress(off, total, c->arg);
	}
	return err;
}

int pol_copy_out_base(struct pol_copy_out *c, uint64_t len)
{
	/* what has no place on the disk yet is not seen as data by every file system at every moment */
	struct fiemap flush = {.fm_length = len, .fm_flags = FIEMAP_FLAG_SYNC};
	uint64_t off = 0, start, stop;
	int err = vm_sys->ftruncate(c->fd, 0); /* of one that was made before */

	c->what = "resize";
	c->reflinked = false;
	if (err || !len)
		return err;
	c->reflinked = !vm_sys->ioctl(c->fd, FICLONE, (void *)(intptr_t)*c->from);
	c->by_hand = !c->reflinked && vm_sys->ioctl(*c->from, FS_IOC_FIEMAP, &flush);
	err = vm_sys->ftruncate(c->fd, (off_t)len);
	while (!err && !c->reflinked && off < len) {
		start = off;
		stop = len;
		err = pol_file_next_extent(*c->from, &start, &stop);
		if (err == -ENXIO)
			return 0;
		off = stop;
		if (!err)
			err = copy_extent(c, start, stop, len);
	}
	return err;
}

static int copy_base(struct vm_copy *copy, uint64_t len)
{
	struct pol_copy_out *c = (struct pol_copy_out *)copy; /* its first member */
	bool is_there = pol_backend_file_is_in_place(c->f);
	int err = pol_copy_out_base(c, is_there ? len : 0);

	c->what = err ? c->what : NULL;
	return err ? err : !is_there;
}

static int copy_store(struct vm_copy *copy, uint64_t pgoff, size_t npages, const void *buf)
{
	struct pol_copy_out *c = (struct pol_copy_out *)copy; /* its first member */

	int err = vm_sys_pwrite_full(c->fd, buf, npages * VM_BLKSIZE, (off_t)(pgoff * VM_BLKSIZE));

	c->what = err ? "write" : NULL;
	return err;
}

/* ---- its life ---- */

int pol_copy_out_begin(struct pol_copy_out *c, const char *path, const char *out, bool must_be_dir)
{
	int err;

	c->copy.base = copy_base;
	c->copy.store = copy_store;
	c->fd = c->dirfd = -1;
	err = find_name(c, path, out, must_be_dir);
	if (!err)
		err = open_dir(c);
	if (!err)
		err = check_name(c);
	if (!err)
		err = open_copy(c);
	if (err)
		pol_copy_out_end(c);
	else
		c->what = NULL;
	return err;
}

/* Whose the file is, as far as we may give it away: nobody may do more with the copy than with the file. */
static int give(struct pol_copy_out *c)
{
	struct stat st;
	mode_t mode;
	int err = vm_sys->fstat(*c->from, &st);

	c->what = "mode and owner";
	if (err)
		return err;
	mode = st.st_mode & 07777;
	if (vm_sys->fchown(c->fd, st.st_uid, st.st_gid)) {
		mode &= 0777;
		if (vm_sys->fchown(c->fd, (uid_t)-1, st.st_gid))
			mode &= ~(mode_t)070; /* another group than the file's */
	}
	return vm_sys->fchmod(c->fd, mode);
}

static int give_name(struct pol_copy_out *c)
{
	int err = check_name(c);

	if (err)
		return err;
	c->what = "rename";
	if (c->replace)
		return vm_sys->renameat(c->dirfd, c->tmp, c->dirfd, c->name);
	err = vm_sys->renameat2(c->dirfd, c->tmp, c->dirfd, c->name, RENAME_NOREPLACE);
	if (err != -EINVAL && err != -ENOSYS)
		return err;
	/* a file system that cannot; when both names stay the next copy removes the other one */
	err = vm_sys->linkat(c->dirfd, c->tmp, c->dirfd, c->name);
	if (!err)
		(void)vm_sys->unlinkat(c->dirfd, c->tmp, 0);
	return err;
}

int pol_copy_out_place(struct pol_copy_out *c, uint64_t size)
{
	int err = vm_sys->ftruncate(c->fd, (off_t)size);

	c->what = "resize";
	if (!err)
		err = give(c);
	if (!err) {
		c->what = "fsync";
		err = vm_sys->fsync(c->fd);
	}
	if (!err)
		err = give_name(c);
	if (err)
		return err;
	c->is_made = false;
	c->what = "it is there, but fsync of its directory failed";
	err = vm_sys->fsync(c->dirfd);
	return err == -EINVAL ? 0 : err; /* this file system has no such thing */
}

void pol_copy_out_end(struct pol_copy_out *c)
{
	if (c->is_made)
		(void)vm_sys->unlinkat(c->dirfd, c->tmp, 0); /* if not, the next copy removes it */
	c->is_made = false;
	if (c->fd >= 0) {
		(void)vm_sys->flock(c->fd, LOCK_UN); /* a child that was forked meanwhile has it, too */
		vm_fd_drop(&c->fd);
	}
	if (c->dirfd >= 0)
		vm_fd_drop(&c->dirfd);
	if (c->buf)
		(void)vm_sys->munmap(c->buf, BUF_LEN); /* ours, whole: cannot fail */
	c->buf = NULL;
}
