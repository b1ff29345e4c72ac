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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

struct pol_file *pol_files;
static struct pol_file *free_list; /* (pol_lock) */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a file's busy, refs or h */

void pol_lock(void)
{
	(void)pthread_mutex_lock(&lock); /* cannot fail: initialised, not recursive */
}

void pol_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

void pol_lock_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pol_rename_fork_child();
	for (struct pol_file *m = pol_files; m; m = m->next) {
		m->position = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		m->refs = m->nending = 0; /* those at work are in the parent */
		m->busy = false;
		if (m->file.priv && m->rule->snapshot)
			pol_snapshot_fork_child(&m->file, m->h);
	}
}

void pol_wait(void)
{
	(void)pthread_cond_wait(&changed, &lock);
}

void pol_changed(void)
{
	(void)pthread_cond_broadcast(&changed);
}

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

/* ---- the list ---- */

/* The inodes in the list: a set of 64 classes of them, so that most others are told apart by a look. (atomic) */
static uint64_t known_classes;

uint64_t pol_inode_class(ino_t ino)
{
	return UINT64_C(1) << (((uint64_t)ino * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

uint64_t pol_known_classes(void)
{
	return __atomic_load_n(&known_classes, __ATOMIC_ACQUIRE);
}

bool pol_inode_may_be_known(ino_t ino)
{
	return __atomic_load_n(&known_classes, __ATOMIC_ACQUIRE) & pol_inode_class(ino);
}

static void list_changed_locked(void)
{
	uint64_t classes = 0;

	for (struct pol_file *m = pol_files; m; m = m->next)
		classes |= pol_inode_class(m->file.ino);
	__atomic_store_n(&known_classes, classes, __ATOMIC_RELEASE);
}

static struct pol_file *find_locked(dev_t dev, ino_t ino)
{
	struct pol_file *m;

	for (m = pol_files; m; m = m->next)
		if (m->file.ino == ino && m->file.dev == dev)
			return m;
	return NULL;
}

static struct pol_file *alloc_locked(void)
{
	struct pol_file *m = free_list;

	if (m) {
		free_list = m->next;
		memset(m, 0, sizeof(*m));
	} else {
		m = vm_own_map(sizeof(*m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(m))
			return NULL;
	}
	m->position = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	m->file.fd = m->fd_before = -1;
	return m;
}

static void free_if_unused_locked(struct pol_file *m)
{
	struct pol_file **pp;

	if (m->refs || m->nending || m->nfds || m->busy || m->h)
		return;
	pol_file_drop_descriptors(m); /* it was never live, but it was tried */
	for (pp = &pol_files; *pp != m; pp = &(*pp)->next)
		;
	*pp = m->next;
	m->next = free_list;
	free_list = m;
	list_changed_locked();
}

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

static struct pol_file *add_locked(const struct stat *st, const char *path, const struct pol_rule *rule)
{
	struct pol_file *m = alloc_locked(), **pp;

	if (!m)
		return NULL;
	strcpy(m->path, path);
	m->file.path = m->path;
	m->file.dev = st->st_dev;
	m->file.ino = st->st_ino;
	m->rule = rule;
	m->busy = true;
	for (pp = &pol_files; *pp; pp = &(*pp)->next)
		;
	*pp = m;
	list_changed_locked();
	return m;
}

/* First descriptor of a file in this process. Lock held. */
static int discover_locked(int fd, const struct stat *st, struct pol_file **ret_m)
{
	const struct pol_rule *rule;
	char path[PATH_MAX + 1];
	const char *never;
	struct pol_file *m;
	int err;

	/* a file without a name goes with its last descriptor: there is nothing to recover, and no name for a journal */
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
	*ret_m = m = add_locked(st, path, rule);
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
	while ((m = find_locked(st.st_dev, st.st_ino)) && m->busy)
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
	while ((m = find_locked(st->st_dev, st->st_ino)) && m->busy)
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

/* The program's last use may just have gone. The release is done when its call returns: whoever is at work on the file,
 * as the helper thread with its timers, is waited for. */
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
	if (!m->nending && pol_file_is_due_locked(m))
		(void)pol_file_end_locked(m); /* logged; the file stays live when the commit failed */
	free_if_unused_locked(m);
	pol_unlock();
}
