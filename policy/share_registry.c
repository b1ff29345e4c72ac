/* SPDX-License-Identifier: MIT */
/*
 * Who has a file: RUNTIME_DIR/share-DEV-INO, a process id a line. A process enters itself while it holds the
 * file's flock, from before it looks who has it until it has a handle: so two newcomers cannot both begin an
 * overlay. Who left takes itself out, the last one removes the file; who was killed stays there until
 * somebody asks it and finds nobody.
 */
#define _GNU_SOURCE 1
#include "control_priv.h"
#include "share.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define TRY_MSEC 5
#define MANY	 32
#define TEXT_MAX (POL_REGISTRY_MAX * 12)

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* a flock is the process's, too, after a fork */
static int fd = -1;					 /* the file that is locked (one) */

void pol_registry_fork_child(void)
{
	one = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (fd >= 0 && vm_fd_is_ours(fd))
		vm_fd_drop(&fd); /* the lock is the parent's */
	fd = -1;
}

static int open_dir(bool create, dev_t dev, ino_t ino, struct pol_registry *ret)
{
	char why[512];
	int err = pol_runtime_dir_open(pol_config_get()->runtime_dir, create, &ret->dirfd, why, sizeof(why));

	if (err && err != -ENOENT)
		pol_log(POL_LOG_INFO, "sharing between processes is not possible: %s", why);
	(void)snprintf(ret->name, sizeof(ret->name), "share-%llx-%llx", (unsigned long long)dev, (unsigned long long)ino);
	ret->dev = dev;
	ret->ino = ino;
	ret->n = 0;
	return err;
}

/* What is no number is nobody. */
static int read_pids(int from, struct pol_registry *r)
{
	char text[TEXT_MAX + 1], *end;
	ssize_t n = vm_sys->pread(from, text, TEXT_MAX, 0);

	if (n < 0)
		return (int)n;
	text[n] = 0;
	for (char *p = text; *p; p = *end ? end + 1 : end) {
		long pid = strtol(p, &end, 10);

		if (end != p && *end == '\n' && pid && pid >= -INT32_MAX && pid <= INT32_MAX)
			pol_registry_add(r, (int32_t)pid);
	}
	return 0;
}

/* 0: ours, and still at its name. -EAGAIN: look again. */
static int try_lock(const struct pol_registry *r)
{
	struct stat a, b;
	int err;

	fd = vm_sys->openat(r->dirfd, r->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0) {
		err = fd;
		fd = -1;
		return err;
	}
	err = vm_fd_adopt(&fd);
	if (err)
		return err;
	err = vm_sys->flock(fd, LOCK_EX | LOCK_NB);
	if (!err)
		err = vm_sys->fstat(fd, &a);
	if (!err && !S_ISREG(a.st_mode))
		err = -EINVAL;
	if (!err && (vm_sys->fstatat(r->dirfd, r->name, &b, AT_SYMLINK_NOFOLLOW) || a.st_ino != b.st_ino || a.st_dev != b.st_dev))
		err = -EAGAIN; /* the last one removed it while we waited */
	if (err)
		vm_fd_drop(&fd);
	return err;
}

/* Killed ones. What they left in the directory goes, too. */
static void prune(struct pol_registry *r)
{
	for (unsigned i = r->n; i-- > 0;)
		(void)pol_registry_forget(r, abs(r->pids[i]));
}

int pol_registry_lock(dev_t dev, ino_t ino, unsigned msec, struct pol_registry *ret)
{
	uint64_t until = pol_now_usec(CLOCK_MONOTONIC) + msec * UINT64_C(1000);
	int err;

	/* who cannot wait has another thread of ours to answer for, which does */
	if (msec ? pthread_mutex_lock(&one) : pthread_mutex_trylock(&one))
		return -EBUSY;
	err = open_dir(true, dev, ino, ret);
	if (err)
		goto unlock;
	while ((err = try_lock(ret)) == -EAGAIN && pol_now_usec(CLOCK_MONOTONIC) < until)
		(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* nothing tells when a flock is free, but having got it */
	if (!err)
		err = read_pids(fd, ret);
	ret->nbefore = ret->n;
	if (!err && ret->n >= MANY)
		prune(ret);
	if (!err)
		return 0;
	if (err != -EAGAIN)
		pol_log(POL_LOG_WARN, "%s/%s: %s: other processes cannot share its file", pol_config_get()->runtime_dir, ret->name,
			err == -EINVAL ? "no regular file" : pol_errno_name(err));
	vm_fd_drop(&fd);
	(void)vm_sys->close(ret->dirfd); /* only looked at */
unlock:
	(void)pthread_mutex_unlock(&one);
	return err == -EAGAIN ? -EBUSY : err;
}

bool pol_registry_forget(struct pol_registry *r, int32_t pid)
{
	if (!pol_socket_forget(r->dirfd, pid))
		return false;
	pol_registry_remove(r, pid);
	return true;
}

void pol_registry_add(struct pol_registry *r, int32_t pid)
{
	pol_registry_remove(r, pid);
	if (r->n < POL_REGISTRY_MAX)
		r->pids[r->n++] = pid;
}

void pol_registry_remove(struct pol_registry *r, int32_t pid)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->pids[i] == pid || r->pids[i] == -pid) {
			memmove(&r->pids[i], &r->pids[i + 1], (r->n - i - 1) * sizeof(r->pids[0]));
			r->n--;
			return;
		}
}

int pol_registry_write(struct pol_registry *r)
{
	char text[TEXT_MAX + 1];
	size_t len = 0;
	int err;

	for (unsigned i = 0; i < r->n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%d\n", r->pids[i]);
	if (!r->nbefore && len)
		pol_hint_count(r->dev, r->ino, 1);
	err = len ? vm_sys_pwrite_full(fd, text, len, 0) : vm_sys->unlinkat(r->dirfd, r->name, 0);
	if (!err && len)
		err = vm_sys->ftruncate(fd, (off_t)len);
	if (!err && r->nbefore && !len)
		pol_hint_count(r->dev, r->ino, -1);
	return err;
}

void pol_registry_unlock(struct pol_registry *r)
{
	(void)vm_sys->flock(fd, LOCK_UN); /* a child that was forked meanwhile has the descriptor, too */
	vm_fd_drop(&fd);
	(void)vm_sys->close(r->dirfd); /* only looked at */
	(void)pthread_mutex_unlock(&one);
}

int pol_registry_read(dev_t dev, ino_t ino, struct pol_registry *ret)
{
	int err = open_dir(false, dev, ino, ret), from;

	if (err)
		return err;
	from = vm_sys->openat(ret->dirfd, ret->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	err = from < 0 ? from : read_pids(from, ret);
	if (from >= 0)
		(void)vm_sys->close(from); /* was only read */
	if (err)
		pol_registry_close(ret);
	return err;
}

void pol_registry_close(struct pol_registry *r)
{
	(void)vm_sys->close(r->dirfd); /* only looked at */
}

void pol_registry_sweep(dev_t dev, ino_t ino)
{
	struct pol_registry r;
	unsigned n = 0;

	if (pol_registry_read(dev, ino, &r))
		return;
	for (unsigned i = 0; i < r.n; i++)
		n += pol_socket_forget(r.dirfd, abs(r.pids[i]));
	pol_registry_close(&r);
	if (n < r.n || pol_registry_lock(dev, ino, 0, &r))
		return; /* somebody lives, or is about to */
	prune(&r);
	(void)pol_registry_write(&r); /* litter, at worst */
	pol_registry_unlock(&r);
}
