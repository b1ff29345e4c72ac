/* SPDX-License-Identifier: MIT */
/* What the processes of a group share: a file in the runtime directory, which all of them have mapped. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "control_priv.h"
#include "managed.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>

static void name_of(uint64_t dev, uint64_t ino, char *ret, size_t len)
{
	(void)snprintf(ret, len, "group-%llx-%llx", (unsigned long long)dev, (unsigned long long)ino);
}

static int open_file(int dirfd, const char *name, int flags, int *home)
{
	*home = vm_sys->openat(dirfd, name, O_RDWR | flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (*home < 0) {
		int err = *home;

		*home = -1;
		return err;
	}
	return vm_fd_adopt(home);
}

/* 1: the name is still that of what fd is. */
static int is_at(int dirfd, const char *name, int fd)
{
	struct stat a, b;
	int err = vm_sys->fstat(fd, &a);

	if (err)
		return err;
	err = vm_sys->fstatat(dirfd, name, &b, AT_SYMLINK_NOFOLLOW);
	if (err == -ENOENT)
		return 0;
	return err ? err : a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* The file with a lock that says that we live, which a sweep respects. */
static int open_alive(int dirfd, const char *name, int flags, int *home)
{
	int err;

	do {
		err = open_file(dirfd, name, flags, home);
		if (!err)
			err = vm_sys->flock(*home, LOCK_SH | LOCK_NB);
		if (!err)
			err = is_at(dirfd, name, *home) ?: -EAGAIN; /* swept meanwhile */
		err = err > 0 ? 0 : err;
		if (err && *home >= 0)
			vm_fd_drop(home);
	} while (err == -EAGAIN || err == -EINTR); /* EWOULDBLOCK: by who sweeps, and soon done */
	return err;
}

/* By a descriptor of its own: a child's mapping keeps the open file that it was made by, and would keep the lock. */
static int map(int dirfd, const char *name, int prot, struct pol_group_shared **ret)
{
	int fd = vm_sys->openat(dirfd, name,
				(prot & PROT_WRITE ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
				0);
	struct stat st;
	int err;

	if (fd < 0)
		return fd;
	err = vm_sys->fstat(fd, &st);
	if (!err && (uint64_t)st.st_size != POL_GROUP_LEN) /* beyond its end there would be SIGBUS */
		err = -EPROTO;
	if (!err) {
		*ret = vm_own_map(POL_GROUP_LEN, prot, MAP_SHARED, fd, 0);
		err = vm_sys_err(*ret);
	}
	(void)vm_sys->close(fd); /* it is mapped */
	return err;
}

void pol_group_shared_forget(struct pol_group_shared *all)
{
	(void)vm_sys->munmap(all, POL_GROUP_LEN); /* whole mappings: cannot fail */
}

static int check(struct pol_group_shared *all, uint64_t jdev, uint64_t jino)
{
	if (all->magic == POL_GROUP_MAGIC && all->version == POL_GROUP_VERSION && all->len == sizeof(*all) &&
	    all->dev == jdev && all->ino == jino)
		return 0;
	pol_group_shared_forget(all);
	return -EPROTO;
}

static int map_and_check(int dirfd, const char *name, int prot, uint64_t jdev, uint64_t jino,
			 struct pol_group_shared **ret)
{
	int err = map(dirfd, name, prot, ret);

	return err ? err : check(*ret, jdev, jino);
}

/* What of it is used is written, so that no touch of the mapping meets a full file system. */
static int fill(struct pol_group *g, const struct pol_group_shared *all)
{
	static const uint8_t zeros[POL_GROUP_START];
	int err = vm_sys_pwrite_full(g->life, zeros, sizeof(zeros), 0);

	if (!err)
		err = vm_sys_pwrite_full(g->life, all, sizeof(*all), 0);
	return err ? err : vm_sys->ftruncate(g->life, (off_t)POL_GROUP_LEN);
}

static int make_in_memory(struct pol_group *g, const struct pol_group_shared *all)
{
	struct pol_group_shared *p = vm_own_map(POL_GROUP_LEN, PROT_READ | PROT_WRITE,
						MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (vm_sys_err(p))
		return vm_sys_err(p);
	*p = *all;
	g->all = p;
	return 0;
}

int pol_group_shared_make(struct pol_group *g, int dirfd, uint64_t id)
{
	struct pol_group_shared all = {
		.magic = POL_GROUP_MAGIC, .version = POL_GROUP_VERSION, .len = sizeof(all), .id = id};
	struct stat st;
	char name[64];
	int err = vm_sys->fstat(g->j.fd, &st);

	if (err)
		return err;
	all.dev = st.st_dev;
	all.ino = st.st_ino;
	if (dirfd < 0)
		return make_in_memory(g, &all);
	name_of(all.dev, all.ino, name, sizeof(name));
	(void)vm_sys->unlinkat(dirfd, name,
			       0); /* what the dead left may be looked at yet by who is no member */
	err = open_alive(dirfd, name, O_CREAT | O_EXCL, &g->life);
	if (err)
		return err;
	err = fill(g, &all);
	if (!err)
		err = map_and_check(dirfd, name, PROT_READ | PROT_WRITE, all.dev, all.ino, &g->all);
	if (err) {
		(void)vm_sys->unlinkat(dirfd, name, 0); /* litter, at worst */
		vm_fd_drop(&g->life);
	}
	return err;
}

int pol_group_shared_join(struct pol_group *g, int dirfd)
{
	struct stat st;
	char name[64];
	int err = dirfd < 0 ? -ENOENT : vm_sys->fstat(g->j.fd, &st);

	if (err)
		return err;
	name_of(st.st_dev, st.st_ino, name, sizeof(name));
	err = open_alive(dirfd, name, 0, &g->life);
	if (err)
		return err;
	err = map_and_check(dirfd, name, PROT_READ | PROT_WRITE, st.st_dev, st.st_ino, &g->all);
	if (err)
		vm_fd_drop(&g->life);
	return err;
}

static int open_dir(int *ret_dirfd)
{
	const struct pol_config *c = pol_config_get();
	char why[256];

	return c ? pol_runtime_dir_open(c->runtime_dir, false, ret_dirfd, why, sizeof(why)) : -ENOENT;
}

void pol_group_shared_leave(struct pol_group *g, bool last)
{
	char name[64];
	int dirfd;

	if (last && g->life >= 0 && !open_dir(&dirfd)) {
		name_of(g->all->dev, g->all->ino, name, sizeof(name));
		if (is_at(dirfd, name, g->life) > 0)
			(void)vm_sys->unlinkat(dirfd, name, 0); /* litter, at worst */
		(void)vm_sys->close(dirfd);			/* only looked at */
	}
	if (g->life >= 0)
		vm_fd_drop(&g->life);
	if (g->all)
		pol_group_shared_forget(g->all);
}

int pol_group_shared_look(uint64_t jdev, uint64_t jino, struct pol_group_shared **ret)
{
	char name[64];
	int dirfd, err = open_dir(&dirfd);

	if (err)
		return err;
	name_of(jdev, jino, name, sizeof(name));
	err = map_and_check(dirfd, name, PROT_READ, jdev, jino, ret);
	(void)vm_sys->close(dirfd); /* only looked at */
	return err;
}

int pol_group_shared_grow(struct pol_group *g, uint32_t number)
{
	static const struct pol_group_member none;
	off_t at = (off_t)((char *)pol_group_member(g->all, number) - (char *)g->all);

	return g->life < 0 ? 0 : vm_sys_pwrite_full(g->life, &none, sizeof(none), at);
}

void pol_group_sweep(dev_t dev, ino_t ino)
{
	char name[64];
	int dirfd, fd;

	if (open_dir(&dirfd))
		return;
	name_of(dev, ino, name, sizeof(name));
	fd = vm_sys->openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0 && !vm_sys->flock(fd, LOCK_EX | LOCK_NB) && is_at(dirfd, name, fd) > 0)
		(void)vm_sys->unlinkat(dirfd, name, 0); /* litter still, at worst */
	if (fd >= 0)
		(void)vm_sys->close(fd); /* only looked at */
	(void)vm_sys->close(dirfd);	 /* only looked at */
}
