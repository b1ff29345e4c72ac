/* SPDX-License-Identifier: MIT */
/* A member's stub: where it says that the group's journal is, and its end. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The way from one directory to a path that lies in it or above: "../../.RULE.txmap". Otherwise the path itself. */
static int way(const char *from_dir, const char *to, char *ret)
{
	const char *slash = strrchr(to, '/');
	size_t common = (size_t)(slash - to), len = 0;
	const char *rest = from_dir + common;

	if (strncmp(from_dir, to, common) || (*rest && *rest != '/'))
		return snprintf(ret, PATH_MAX, "%s", to) < PATH_MAX ? 0 : -ENAMETOOLONG;
	for (; *rest; rest++)
		if (*rest == '/') {
			if (len + 4 > PATH_MAX)
				return -ENAMETOOLONG;
			len += (size_t)sprintf(ret + len, "../");
		}
	return snprintf(ret + len, PATH_MAX - len, "%s", slash + 1) < (int)(PATH_MAX - len) ? 0
											    : -ENAMETOOLONG;
}

int pol_stub_write(int fd, const char *stub_dir, const struct vm_journal_id *id, const struct pol_group *g)
{
	char path[PATH_MAX];
	int err = way(strcmp(stub_dir, "/") ? stub_dir : "", g->jpath, path);

	return err ? err : vm_journal_write_stub(fd, id, g->all->id, path);
}

int pol_stub_write_again(int fd, const char *jpath, const struct vm_journal_id *id, const struct pol_group *g)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(jpath, '/');

	(void)snprintf(dir, sizeof(dir), "%.*s", slash > jpath ? (int)(slash - jpath) : 1, jpath);
	return pol_stub_write(fd, dir, id, g);
}

/* Without the "..", so that it is the same whichever stub tells it. */
static int walk(const char *dir, const char *rel, char *ret)
{
	size_t len = strcmp(dir, "/") ? strlen(dir) : 0;

	for (; !strncmp(rel, "../", 3); rel += 3) {
		while (len && dir[len - 1] != '/')
			len--;
		len -= len > 0;
	}
	return snprintf(ret, PATH_MAX, "%.*s/%s", (int)len, dir, rel) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int pol_stub_read(int fd, const char *stub_dir, char *ret_jpath)
{
	char path[PATH_MAX];
	int err = vm_journal_read_stub(fd, path);

	if (err)
		return err;
	if (path[0] != '/')
		return walk(stub_dir, path, ret_jpath);
	strcpy(ret_jpath, path);
	return 0;
}

bool pol_stub_peek(const char *path, const char *stub_dir, char *ret_jpath)
{
	struct vm_scan scan;
	bool says;
	int fd = vm_sys->openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);

	if (fd < 0)
		return false;
	says = !vm_journal_scan(fd, NULL, &scan) && scan.state == VM_SCAN_MEMBER &&
	       !pol_stub_read(fd, stub_dir, ret_jpath);
	(void)vm_sys->close(fd); /* only looked at */
	return says;
}

static int remove_locked(int fd, const char *path, uint64_t id)
{
	struct vm_scan scan;
	int err = vm_journal_scan(fd, NULL, &scan);

	if (err)
		return err;
	if (scan.state == VM_SCAN_DAMAGED)
		return -EUCLEAN;
	if (scan.state != VM_SCAN_MEMBER || scan.header.group != id)
		return 1; /* something else */
	err = vm_sys->unlinkat(AT_FDCWD, path, 0);
	return err ? err : 1;
}

int pol_stub_remove(const char *path, uint64_t id)
{
	const char *what;
	int fd, err = pol_journal_open_idle(path, &fd, &what);

	if (err)
		return err == -ENOENT ? 1 : err == -EBUSY ? 0 : err;
	err = remove_locked(fd, path, id);
	vm_fd_drop(&fd);
	return err;
}

static int remove_in(const char *path, const char *journal_dir, uint64_t id)
{
	char dir[PATH_MAX], stub[PATH_MAX];
	int err = pol_journal_path(path, journal_dir, dir, stub);

	if (err)
		return err;
	err = pol_stub_remove(stub, id);
	if (err != 1)
		return err;
	err = pol_journal_sync_dir(dir);
	return err && err != -ENOENT && err != -ENOTDIR ? err
							: 1; /* without the directory there is no stub */
}

int pol_stub_remove_of(const char *path, const char *group_dir, uint64_t id)
{
	int beside = remove_in(path, NULL, id), there = remove_in(path, group_dir, id);

	return beside == 1 ? there : beside;
}

static bool is_kept(const char *path, const char *journal_dir)
{
	char dir[PATH_MAX], stub[PATH_MAX];
	const char *what;
	int fd, err = pol_journal_path(path, journal_dir, dir, stub);

	if (!err)
		err = pol_journal_open_idle(stub, &fd, &what);
	if (!err)
		vm_fd_drop(&fd);
	return err == -EBUSY;
}

bool pol_stub_is_kept(const char *path, const char *group_dir)
{
	return is_kept(path, NULL) || is_kept(path, group_dir);
}
