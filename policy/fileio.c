/* SPDX-License-Identifier: MIT */
/* Calls on a descriptor of a live file: its data, size and position are the handle's. */
#include "managed_priv.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The program has a descriptor for writing: a file that was only read so far becomes one that is written. */
static int need_writable(struct pol_file *m, int fd)
{
	return m->file.writable ? 0 : pol_file_go_live(m, fd, true);
}

/* ---- data ---- */

/* Buffers may be managed memory themselves. Returns whether any is. */
static bool prepare(const struct iovec *iov, int niov, bool fill)
{
	bool any = false;

	for (int i = 0; i < niov; i++)
		if (vm_is_mapped(iov[i].iov_base, iov[i].iov_len)) {
			(void)vm_prepare(iov[i].iov_base, iov[i].iov_len, fill); /* the kernel says EFAULT, as it would */
			any = true;
		}
	return any;
}

#define FREEZE_TRIES 16 /* a commit can take a prepared buffer away just before the kernel uses it */

static ssize_t read_at(struct pol_file *m, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off)
{
	ssize_t n = -EFAULT;
	bool again = true;

	if (ret_off)
		*ret_off = off;
	for (int i = 0; i < FREEZE_TRIES && again && n == -EFAULT; i++) {
		again = prepare(iov, niov, true);
		n = vm_fileh_read(m->h, iov, niov, off);
	}
	return n;
}

static ssize_t write_all_at(struct pol_file *m, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off)
{
	ssize_t n = -EFAULT;
	bool again = true;

	for (int i = 0; i < FREEZE_TRIES && again && n == -EFAULT; i++) {
		again = prepare(iov, niov, false);
		n = vm_fileh_write(m->h, iov, niov, off, ret_off);
	}
	return n;
}

/* As far as the file may go: whole buffers, and then the beginning of one. */
static ssize_t write_up_to(struct pol_file *m, const struct iovec *iov, uint64_t room, uint64_t off, uint64_t *ret_off)
{
	struct iovec part;
	uint64_t whole = 0;
	ssize_t n = 0, more;
	int i;

	for (i = 0; iov[i].iov_len <= room - whole; i++)
		whole += iov[i].iov_len;
	if (whole)
		n = write_all_at(m, iov, i, off, ret_off);
	if (n < 0 || (uint64_t)n < whole || whole == room)
		return n;
	part = (struct iovec){iov[i].iov_base, room - whole};
	more = write_all_at(m, &part, 1, off == VM_APPEND ? off : off + whole, whole ? NULL : ret_off);
	return more < 0 ? (n ? n : more) : n + more;
}

static ssize_t write_at(struct pol_file *m, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off)
{
	uint64_t at = off == VM_APPEND ? vm_fileh_size(m->h) : off, len = 0, room;
	int err;

	for (int i = 0; i < niov; i++)
		len += iov[i].iov_len;
	if (at > INT64_MAX || len > INT64_MAX - at)
		return -EINVAL;
	err = pol_room(m, at, len, &room);
	if (err)
		return err;
	return room < len ? write_up_to(m, iov, room, off, ret_off) : write_all_at(m, iov, niov, off, ret_off);
}

/* The position is the kernel's, shared with duplicates and other processes; we only use and move it. */
static ssize_t at_position(struct pol_file *m, int fd, const struct iovec *iov, int niov,
			   ssize_t (*io)(struct pol_file *m, const struct iovec *iov, int niov, uint64_t off,
					 uint64_t *ret_off))
{
	uint64_t off;
	ssize_t n;
	off_t pos;

	(void)pthread_mutex_lock(&m->position);
	pos = vm_sys->lseek(fd, 0, SEEK_CUR);
	if (pos < 0) {
		n = pos;
	} else {
		n = io(m, iov, niov, (uint64_t)pos, &off);
		if (n > 0)
			(void)vm_sys->lseek(fd, (off_t)(off + (uint64_t)n), SEEK_SET); /* it could be read before */
	}
	(void)pthread_mutex_unlock(&m->position);
	return n;
}

static ssize_t append(struct pol_file *m, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off)
{
	(void)off;
	return write_at(m, iov, niov, VM_APPEND, ret_off);
}

#ifndef RWF_NOAPPEND /* newer than some headers */
#define RWF_NOAPPEND 0x20
#endif
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

/* What preadv2 and pwritev2 may be told; what only asks for speed changes nothing. */
#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND | RWF_DONTCACHE)

/* 0 or -errno. */
static int check_flags(int flags)
{
	if (flags & ~RWF_KNOWN)
		return -EOPNOTSUPP;
	return (flags & RWF_APPEND) && (flags & RWF_NOAPPEND) ? -EINVAL : 0;
}

ssize_t pol_read(struct pol_file *m, int fd, const struct iovec *iov, int niov, off_t off, int flags)
{
	int fl = vm_sys->fcntl(fd, F_GETFL, 0), err;

	if (fl < 0)
		return fl;
	if ((fl & O_ACCMODE) == O_WRONLY || (fl & O_PATH))
		return -EBADF;
	err = check_flags(flags);
	if (err)
		return err;
	if (off < 0)
		return at_position(m, fd, iov, niov, read_at);
	return read_at(m, iov, niov, (uint64_t)off, NULL);
}

ssize_t pol_write(struct pol_file *m, int fd, const struct iovec *iov, int niov, off_t off, int flags)
{
	int fl = vm_sys->fcntl(fd, F_GETFL, 0), err;
	bool at_end = (fl & O_APPEND && !(flags & RWF_NOAPPEND)) || flags & RWF_APPEND;
	ssize_t n;

	if (fl < 0)
		return fl;
	if ((fl & O_ACCMODE) == O_RDONLY || (fl & O_PATH))
		return -EBADF;
	err = check_flags(flags);
	if (!err)
		err = need_writable(m, fd);
	if (err)
		return err;
	if (off < 0)
		n = at_position(m, fd, iov, niov, at_end ? append : write_at);
	else
		n = write_at(m, iov, niov, at_end ? VM_APPEND : (uint64_t)off, NULL);
	if (n > 0 && (fl & O_DSYNC || flags & (RWF_DSYNC | RWF_SYNC))) {
		err = pol_event(m, POL_EV_FSYNC);
		if (err)
			return err;
	}
	return n;
}

off_t pol_lseek(struct pol_file *m, int fd, off_t off, int whence)
{
	off_t size = (off_t)vm_fileh_size(m->h), at;

	switch (whence) {
	case SEEK_END:
		if (__builtin_add_overflow(size, off, &at))
			return -EINVAL;
		return vm_sys->lseek(fd, at, SEEK_SET);
	case SEEK_DATA:
	case SEEK_HOLE:
		at = vm_fileh_seek(m->h, off, whence);
		return at < 0 ? at : vm_sys->lseek(fd, at, SEEK_SET);
	default:
		return vm_sys->lseek(fd, off, whence);
	}
}

/* ---- size ---- */

off_t pol_size(struct pol_file *m)
{
	return (off_t)vm_fileh_size(m->h);
}

void pol_fix_stat(struct pol_file *m, struct stat *st)
{
	st->st_size = pol_size(m);
}

int pol_truncate(struct pol_file *m, off_t len)
{
	int err;

	if ((uint64_t)len == vm_fileh_size(m->h))
		return 0;
	err = need_writable(m, m->file.fd);
	if (!err)
		err = pol_may_have_size(m, (uint64_t)len);
	if (!err)
		err = vm_fileh_resize(m->h, (uint64_t)len);
	if (err)
		pol_log(POL_LOG_ERROR, "%s: resize from %lld to %lld: %s", m->path, (long long)pol_size(m), (long long)len,
			pol_errno_name(err));
	return err;
}

void pol_times_begin(struct pol_file *m)
{
	vm_fileh_times_begin(m->h);
}

void pol_times_end(struct pol_file *m)
{
	vm_fileh_times_end(m->h);
}

int pol_fallocate(struct pol_file *m, int mode, off_t off, off_t len)
{
	uint64_t stop, size = vm_fileh_size(m->h);
	int err;

	if (off < 0 || len <= 0)
		return -EINVAL;
	if (__builtin_add_overflow((uint64_t)off, (uint64_t)len, &stop) || stop > INT64_MAX || pol_is_beyond_fs(m, stop))
		return -EFBIG;
	err = need_writable(m, m->file.fd);
	if (!err && !(mode & FALLOC_FL_KEEP_SIZE))
		err = pol_may_have_size(m, stop);
	if (err)
		return err;
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
		/* so that a lack of space is known now, and not at the commit */
		err = vm_fileh_reserve(m->h, (uint64_t)off, (uint64_t)len);
		break;
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		err = vm_fileh_zero(m->h, (uint64_t)off, (uint64_t)len);
		break;
	default: /* moving blocks of a file in a transaction is not done */
		return -EOPNOTSUPP;
	}
	if (!err && !(mode & FALLOC_FL_KEEP_SIZE) && stop > size)
		err = vm_fileh_resize(m->h, stop);
	return err;
}
