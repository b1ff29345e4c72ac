/* SPDX-License-Identifier: MIT */
/* The managed files of this process: known, live, ended. */
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
#include "share.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

uint64_t pol_now_usec(int clock)
{
	struct timespec ts;

	if (vm_sys->clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

void pol_file_failed(struct pol_file *m, const char *what, int err)
{
	pol_lock();
	(void)snprintf(m->last_error, sizeof(m->last_error), "%s: %s (%s), size %llu", what, strerror(-err),
		       pol_errno_name(err), (unsigned long long)(m->h ? vm_fileh_size(m->h) : 0));
	pol_unlock();
	pol_log(POL_LOG_ERROR, "%s: %s: %s (%s)", m->path, what, strerror(-err), pol_errno_name(err));
}

/* ---- at work ---- */

bool pol_file_is_live(struct pol_file *m, int fd)
{
	return __atomic_load_n(&m->h, __ATOMIC_ACQUIRE) ||
	       (pol_hint_maybe(m->file.dev, m->file.ino) && pol_share_join(m, fd));
}

void pol_file_get(struct pol_file *m)
{
	pol_lock();
	m->refs++;
	pol_unlock();
}

struct pol_file *pol_file_of_handle(struct vm_fileh *h)
{
	struct pol_file *m;

	pol_lock();
	for (m = pol_files; m && m->h != h; m = m->next)
		;
	if (m)
		m->refs++;
	pol_unlock();
	return m;
}

static void drop_ref_locked(struct pol_file *m)
{
	m->refs--;
	if (m->nending)
		pol_changed();
}

struct pol_file *pol_file_next(struct pol_file *prev)
{
	struct pol_file *m;

	pol_lock();
	m = prev ? prev->next : pol_files;
	while (m && (m->busy || !m->h)) {
		if (m->busy) { /* coming or going: it counts once that is decided */
			m->refs++;
			while (m->busy)
				pol_wait();
			drop_ref_locked(m);
		} else {
			m = m->next;
		}
	}
	if (m)
		m->refs++;
	pol_unlock();
	if (prev)
		pol_file_put(prev);
	return m;
}

/* ---- known ---- */

/* Why the file behind fd can never be managed, for the message, or NULL. */
static const char *why_unfit(int fd, const struct stat *st)
{
	struct statfs fs;

	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		return "a device";
	if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode))
		return "a pipe or socket";
	if (S_ISREG(st->st_mode) && !vm_sys->fstatfs(fd, &fs) && (unsigned long)fs.f_type == HUGETLBFS_MAGIC)
		return "on hugetlbfs";
	return NULL;
}

int pol_file_recover(const struct pol_file *m)
{
	const struct pol_rule *rule = m->rule;
	struct pol_journal_report r;
	int err;

	if (strcmp(rule->backend, "file"))
		return 0;
	err = pol_journal_recover(m->path, rule->journal_dir, NULL, NULL, &r);
	if (err == -EBUSY) /* a live process has it: ours by fork, or a stranger, which mmap finds out */
		return 0;
	if (err)
		pol_log(POL_LOG_ERROR, "%s", r.text);
	else if (r.state == POL_JOURNAL_REPLAY || r.bytes_dropped)
		pol_log(POL_LOG_WARN, "%s", r.text);
	return err;
}

/* Once: without /proc it would be said for every file. */
static void tell_unknown_name(int fd, int err)
{
	static bool told;
	struct stat st;

	if (vm_sys->fstat(fd, &st) || !S_ISREG(st.st_mode))
		return; /* a pipe has none */
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		pol_log(POL_LOG_WARN, "descriptor %d: the name of its file cannot be found (%s)%s: no rule is looked for, and it "
			"is NOT managed", fd, pol_errno_name(err), err == -ENOENT ? "; is /proc mounted?" : "");
}

bool pol_path_of_fd(int fd, char *ret_path)
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = vm_sys->readlinkat(AT_FDCWD, link, ret_path, PATH_MAX);
	if (n >= PATH_MAX)
		n = -ENAMETOOLONG;
	if (n < 0)
		tell_unknown_name(fd, (int)n);
	if (n <= 0 || ret_path[0] != '/')
		return false;
	ret_path[n] = 0;
	return true;
}

/* First descriptor of a file in this process. Lock held. */
static int discover_locked(int fd, const struct stat *st, struct pol_file **ret_m)
{
	const struct pol_rule *rule;
	char path[PATH_MAX + 1];
	const char *never;
	struct pol_file *m;
	int err;

	/* a file without a name goes with its last descriptor: there is nothing to recover, and no name for a
	 * journal */
	if (S_ISDIR(st->st_mode) || !st->st_nlink || !pol_path_of_fd(fd, path))
		return 0;
	rule = pol_config_rule(pol_config_get(), path);
	never = rule || pol_is_journal(path) ? pol_never_managed(fd, st, path) : NULL;
	if (never) {
		pol_log(POL_LOG_INFO, "%s: never managed: it is %s", path, never);
		return 0;
	}
	if (!rule) {
		pol_log(POL_LOG_DEBUG, "%s: no rule matches", path);
		return 0;
	}
	*ret_m = m = pol_list_add_locked(st, path, rule);
	if (!m)
		return -ENOMEM;
	m->unfit = why_unfit(fd, st);
	if (!m->unfit) {
		pol_unlock();
		m->unrecovered = rule->snapshot ? pol_snapshot_has_somebody(st->st_dev, st->st_ino)
						: pol_share_has_somebody(st->st_dev, st->st_ino);
		err = m->unrecovered ? 0 : pol_file_recover(m);
		pol_lock();
		m->refused = err;
	}
	m->busy = false;
	pol_changed();
	return 0;
}

int pol_fd_open(int fd, struct pol_file **ret_m)
{
	struct pol_file *m;
	struct stat st;
	int err = 0;

	*ret_m = NULL;
	if (vm_sys->fstat(fd, &st))
		return 0;
	pol_lock();
	while ((m = pol_list_find_locked(st.st_dev, st.st_ino)) && m->busy)
		pol_wait();
	if (!m) {
		err = discover_locked(fd, &st, &m);
		if (m)
			err = 1;
	}
	if (m)
		m->nfds++;
	pol_unlock();
	*ret_m = m;
	return err;
}

void pol_fd_dup(struct pol_file *m)
{
	pol_lock();
	m->nfds++;
	pol_unlock();
}

struct pol_file *pol_file_of_stat(const struct stat *st)
{
	struct pol_file *m;

	if (!pol_inode_may_be_known(st->st_ino))
		return NULL;
	pol_lock();
	while ((m = pol_list_find_locked(st->st_dev, st->st_ino)) && m->busy)
		pol_wait();
	if (m && !m->h)
		m = NULL;
	if (m)
		m->nfds++;
	pol_unlock();
	return m;
}

struct pol_file *pol_file_of_path(int dirfd, const char *path, bool follow)
{
	struct stat st;

	if (vm_sys->fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))
		return NULL;
	return pol_file_of_stat(&st);
}

/* ---- ended ---- */

static void free_if_unused_locked(struct pol_file *m)
{
	if (m->refs || m->nending || m->nfds || m->busy || m->h)
		return;
	pol_file_drop_descriptors(m); /* it was never live, but it was tried */
	pol_list_remove_locked(m);
}

/* The program's last use may just have gone. The release is done when its call returns: whoever is at work on
 * the file, as the helper thread with its timers, is waited for. */
static int end_of_use_locked(struct pol_file *m)
{
	int err = 0;

	m->nending++;
	while (m->busy || (m->h && m->refs && !m->nfds && !vm_fileh_nvmas(m->h)))
		pol_wait();
	m->nending--;
	if (pol_file_is_due_locked(m))
		err = pol_file_end_locked(m);
	free_if_unused_locked(m);
	return err;
}

int pol_fd_close(struct pol_file *m)
{
	int err;

	pol_lock();
	m->nfds--;
	err = end_of_use_locked(m);
	pol_unlock();
	return err;
}

void pol_file_put_last(struct pol_file *m)
{
	pol_lock();
	drop_ref_locked(m);
	(void)end_of_use_locked(m); /* logged; the file stays live when the commit failed */
	pol_unlock();
}

void pol_file_put(struct pol_file *m)
{
	pol_lock();
	drop_ref_locked(m);
	if (!m->nending && pol_file_is_due_locked(m) && pol_now_usec(CLOCK_MONOTONIC) >= m->end_again_usec)
		(void)pol_file_end_locked(m); /* logged; the file stays live when the commit failed */
	free_if_unused_locked(m);
	pol_unlock();
}
