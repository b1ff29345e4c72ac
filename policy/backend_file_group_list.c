/* SPDX-License-Identifier: MIT */
/* The groups that this process has files of: how it comes to one, and leaves it. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "control_priv.h"
#include "managed.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Held while one is opened or closed: no other lock is waited for meanwhile, but those on the journal. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pol_group *groups;

void pol_group_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (struct pol_group *g = groups; g; g = g->next)
		g->holder = 0; /* a thread of the parent's */
}

static int split(struct pol_group *g)
{
	const char *slash = strrchr(g->jpath, '/');
	int len = slash ? (int)(slash - g->jpath) : 0;

	if (!slash)
		return -EINVAL;
	(void)snprintf(g->dir, sizeof(g->dir), "%.*s", len ? len : 1, g->jpath);
	(void)snprintf(g->j.id.name, sizeof(g->j.id.name), "%s", slash + 1);
	return 0;
}

/* ---- the journal ---- */

/* Nobody else has it: what a crash left goes into the files, and a generation begins. */
static int begin_journal(struct pol_group *g, int dirfd, const char **ret_what)
{
	struct vm_journal_mark m = {0};
	struct pol_journal_report rep;
	struct vm_scan scan;
	struct stat st;
	bool more;
	int err;

	err = pol_group_recover_locked(g->j.fd, g->jpath, NULL, NULL, &rep, &scan, &more);
	if (err || rep.state == POL_JOURNAL_REPLAY)
		pol_log(err ? POL_LOG_ERROR : POL_LOG_WARN, "%s", rep.text);
	*ret_what = "what a crash left";
	if (!err && !scan.header.group) {
		*ret_what = "random number";
		err = vm_journal_random(&scan.header.group);
	}
	if (err)
		return err;
	*ret_what = "memory that its processes share";
	err = pol_group_shared_make(g, dirfd, scan.header.group);
	if (err)
		return err;
	g->all->may_have_more = more;
	g->j.pos = &g->all->pos;
	g->j.group = g->all->id;
	*ret_what = "memory";
	err = vm_journal_init(&g->j);
	if (!err)
		err = vm_sys->fstat(g->j.fd, &st);
	if (err)
		return err;
	m.generation = scan.header.generation;
	m.good_slot = scan.slot;
	m.alloc = (uint64_t)st.st_size & ~(uint64_t)(VM_JOURNAL_ALIGN - 1);
	m.txid = scan.last_txid;
	m.flags = VM_MARK_START;
	vm_journal_set_mark(&g->j, &m);
	*ret_what = "write";
	err = vm_journal_start_over(&g->j, 0);
	if (err)
		return err;
	*ret_what = "sync its directory";
	return pol_journal_sync_dir(g->dir);
}

static int join_journal(struct pol_group *g, int dirfd, const char **ret_what)
{
	int err = pol_group_shared_join(g, dirfd);

	*ret_what = "the processes that have it have another runtime_dir, or another version";
	if (err == -ENOENT)
		err = -EBUSY;
	if (err)
		return err;
	g->j.pos = &g->all->pos;
	g->j.group = g->all->id;
	*ret_what = "memory";
	return vm_journal_init(&g->j);
}

static int open_runtime_dir(void)
{
	const struct pol_config *c = pol_config_get();
	char why[256];
	int dirfd;

	return c && !pol_runtime_dir_open(c->runtime_dir, true, &dirfd, why, sizeof(why)) ? dirfd : -1;
}

static int open_journal(struct pol_group *g, const struct stat *data, const char **ret_what)
{
	int dirfd = open_runtime_dir(), err;
	bool first = false, is_new = false;
	struct stat st;

	err = pol_journal_open_group(g->jpath, data, dirfd >= 0, &g->j.fd, &first, ret_what);
	if (!err)
		err = vm_sys->fstat(g->j.fd, &st);
	if (!err) {
		is_new = first && !st.st_size;
		if (is_new)
			err = pol_journal_give(g->j.fd, data);
	}
	if (!err) {
		if (pol_journal_name_of(g->j.fd, g->jpath)) /* without links */
			err = split(g);
		if (!err)
			err = first ? begin_journal(g, dirfd, ret_what) : join_journal(g, dirfd, ret_what);
		if (!err && dirfd >= 0) {
			*ret_what = "lock";
			err = pol_journal_keep_with_others(g->j.fd);
		}
		if (!err)
			pol_journal_end_exclusive(g->j.fd);
	}
	if (dirfd >= 0)
		(void)vm_sys->close(dirfd); /* only looked at */
	if (err && is_new)
		(void)vm_sys->unlinkat(AT_FDCWD, g->jpath, 0); /* it holds nothing */
	if (err && g->all)
		pol_group_shared_leave(g, first);
	return err;
}

int pol_group_follow_mode(struct pol_group *g, const struct stat *data)
{
	struct stat st;
	mode_t mode;
	int err = vm_sys->fstat(g->j.fd, &st);

	if (err)
		return err;
	mode = st.st_mode & (data->st_mode | 0600) & 0666;
	if (st.st_gid != data->st_gid)
		mode &= ~(mode_t)070;
	if (st.st_uid != data->st_uid && st.st_uid != geteuid()) {
		err = vm_sys->fchown(g->j.fd, geteuid(), (gid_t)-1);
		if (err)
			return err;
	}
	return mode == (st.st_mode & 0777) ? 0 : vm_sys->fchmod(g->j.fd, mode);
}

/* ---- the list ---- */

static void free_group(struct pol_group *g)
{
	vm_journal_fini(&g->j);
	(void)vm_sys->munmap(g, sizeof(*g)); /* whole mappings: cannot fail */
}

static int make(const char *path, const struct stat *data, struct pol_group **ret, const char **ret_what)
{
	struct pol_group *g = pol_file_memory(sizeof(*g));
	int err;

	*ret_what = "memory";
	if (!g)
		return -ENOMEM;
	g->j.fd = g->life = -1;
	g->j.limit = VM_JOURNAL_LIMIT;
	(void)snprintf(g->arg, sizeof(g->arg), "%s", path);
	(void)snprintf(g->jpath, sizeof(g->jpath), "%s", path);
	err = strlen(path) < PATH_MAX ? split(g) : -ENAMETOOLONG;
	if (!err)
		err = open_journal(g, data, ret_what);
	if (err) {
		if (g->j.fd >= 0)
			vm_fd_drop(&g->j.fd);
		free_group(g);
		return err;
	}
	*ret = g;
	return 0;
}

int pol_group_get(const struct vm_bigfile *f, const char *path, const struct stat *data,
		  struct pol_group **ret)
{
	const char *what = "";
	struct pol_group *g;
	int err = 0;

	(void)pthread_mutex_lock(&lock);
	for (g = groups; g && strcmp(g->arg, path); g = g->next)
		;
	if (!g) {
		err = make(path, data, &g, &what);
		if (!err) {
			g->next = groups;
			groups = g;
		}
	}
	if (!err) {
		g->nusers++;
		*ret = g;
	}
	(void)pthread_mutex_unlock(&lock);
	if (err == -EBUSY)
		what = "other processes have it, and do not share it: they are another user's, or have "
		       "another runtime_dir";
	if (err)
		pol_log(POL_LOG_ERROR, "%s: journal %s of its group: %s: %s", f->path, path, what,
			pol_errno_name(err));
	return err;
}

/* Nobody else has it, and nothing is in it: what those left who were killed goes, too, and then the journal (G2). */
static void remove_all(struct pol_group *g, int fd)
{
	bool all = !pol_group_holds_commits(fd);

	for (uint32_t n = 1; all && n <= g->all->nmembers; n++) {
		struct pol_group_member *e = pol_group_member(g->all, n);

		all = !e->is_used || (!e->is_stuck && pol_stub_remove_of(e->path, g->dir, g->all->id) == 1);
	}
	if (all && !g->all->may_have_more)
		(void)vm_sys->unlinkat(AT_FDCWD, g->jpath, 0); /* it stays: litter, and no harm */
}

void pol_group_put(struct pol_group *g)
{
	struct pol_group **pp;
	const char *what;
	bool last;
	int fd;

	(void)pthread_mutex_lock(&lock);
	if (--g->nusers) {
		(void)pthread_mutex_unlock(&lock);
		return;
	}
	for (pp = &groups; *pp != g; pp = &(*pp)->next)
		;
	*pp = g->next;
	if (!pol_journal_is_at(g->jpath, g->j.fd) && pol_journal_name_of(g->j.fd, g->jpath))
		(void)split(g);
	vm_fd_drop(&g->j.fd);
	last = !pol_journal_open_idle(g->jpath, &fd, &what);
	if (last)
		remove_all(g, fd);
	pol_group_shared_leave(g, last);
	if (last)
		vm_fd_drop(&fd);
	free_group(g);
	(void)pthread_mutex_unlock(&lock);
}
