/* SPDX-License-Identifier: MIT */
/* The managed files of this process: known, live, ended. */
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
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
static unsigned nlive;					   /* (atomic) */

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
	for (struct pol_file *m = pol_files; m; m = m->next) {
		m->position = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		m->refs = 0; /* those at work are in the parent */
		m->busy = false;
	}
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
		m = vm_sys->mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

	if (m->refs || m->nfds || m->busy || m->h)
		return;
	for (pp = &pol_files; *pp != m; pp = &(*pp)->next)
		;
	*pp = m->next;
	m->next = free_list;
	free_list = m;
}

unsigned pol_nlive(void)
{
	return __atomic_load_n(&nlive, __ATOMIC_ACQUIRE);
}

bool pol_file_is_live(struct pol_file *m)
{
	return __atomic_load_n(&m->h, __ATOMIC_ACQUIRE);
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

struct pol_file *pol_file_next(struct pol_file *prev)
{
	struct pol_file *m;

	pol_lock();
	m = prev ? prev->next : pol_files;
	while (m && (m->busy || !m->h)) {
		if (m->busy) { /* coming or going: it counts once that is decided */
			m->refs++;
			while (m->busy)
				(void)pthread_cond_wait(&changed, &lock);
			m->refs--;
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

/* 0, or why the file behind fd can never be managed. */
static int refuse(int fd, const struct stat *st, const char *path)
{
	const char *what = NULL;
	struct statfs fs;
	int err = -EINVAL;

	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
		what = "a device";
		err = -ENODEV;
	} else if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) {
		what = "a pipe or socket";
		err = -ENODEV;
	} else if (S_ISREG(st->st_mode) && !fstatfs(fd, &fs) && (unsigned long)fs.f_type == HUGETLBFS_MAGIC) {
		what = "on hugetlbfs";
	}
	if (!what)
		return 0;
	pol_log(POL_LOG_ERROR, "%s: matches a rule but is %s; only regular files on ordinary file systems can be managed",
		path, what);
	return err;
}

static int recover(const char *path, const struct pol_rule *rule)
{
	struct pol_journal_report r;
	int err;

	if (strcmp(rule->backend, "file"))
		return 0;
	err = pol_journal_recover(path, rule->journal_dir, NULL, NULL, &r);
	if (err == -EBUSY) /* a live process has it: ours by fork, or a stranger, which mmap finds out */
		return 0;
	if (err)
		pol_log(POL_LOG_ERROR, "%s", r.text);
	else if (r.state == POL_JOURNAL_REPLAY || r.bytes_dropped)
		pol_log(POL_LOG_WARN, "%s", r.text);
	return err;
}

/* The canonical path behind fd. false: it has none. */
static bool path_of_fd(int fd, char *ret_path)
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = vm_sys->readlinkat(AT_FDCWD, link, ret_path, PATH_MAX);
	if (n <= 0 || n >= PATH_MAX || ret_path[0] != '/')
		return false;
	ret_path[n] = 0;
	return true;
}

static struct pol_file *add_locked(const struct stat *st, const char *path, const struct pol_rule *rule, int refused)
{
	struct pol_file *m = alloc_locked(), **pp;

	if (!m)
		return NULL;
	strcpy(m->path, path);
	m->file.path = m->path;
	m->file.dev = st->st_dev;
	m->file.ino = st->st_ino;
	m->rule = rule;
	m->refused = refused;
	m->busy = true;
	for (pp = &pol_files; *pp; pp = &(*pp)->next)
		;
	*pp = m;
	return m;
}

/* First descriptor of a file in this process. Lock held. */
static int discover_locked(int fd, const struct stat *st, struct pol_file **ret_m)
{
	const struct pol_rule *rule;
	char path[PATH_MAX + 1];
	int refused;

	if (S_ISDIR(st->st_mode) || !path_of_fd(fd, path))
		return 0;
	rule = pol_config_rule(pol_config_get(), path);
	if (!rule) {
		pol_log(POL_LOG_DEBUG, "%s: no rule matches", path);
		return 0;
	}
	refused = refuse(fd, st, path);
	*ret_m = add_locked(st, path, rule, refused);
	if (!*ret_m)
		return -ENOMEM;
	if (!refused) {
		pol_unlock();
		refused = recover(path, rule);
		pol_lock();
		(*ret_m)->refused = refused;
	}
	(*ret_m)->busy = false;
	(void)pthread_cond_broadcast(&changed);
	return 0;
}

int pol_fd_open(int fd, int flags, struct pol_file **ret_m)
{
	struct pol_file *m;
	struct stat st;
	int err = 0;

	(void)flags;
	*ret_m = NULL;
	if (vm_sys->fstat(fd, &st))
		return 0;
	pol_lock();
	while ((m = find_locked(st.st_dev, st.st_ino)) && m->busy)
		(void)pthread_cond_wait(&changed, &lock);
	if (!m)
		err = discover_locked(fd, &st, &m);
	if (m) {
		m->nfds++;
		if (m->refused && m->rule->on_error == POL_REFUSE)
			err = m->refused;
	}
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

struct pol_file *pol_file_of_path(int dirfd, const char *path, bool follow)
{
	struct pol_file *m = NULL;
	struct stat st;

	if (vm_sys->fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))
		return NULL;
	pol_lock();
	while ((m = find_locked(st.st_dev, st.st_ino)) && m->busy)
		(void)pthread_cond_wait(&changed, &lock);
	if (m && !m->h)
		m = NULL;
	if (m)
		m->nfds++;
	pol_unlock();
	return m;
}

int pol_rename_begin(int dirfd, const char *path, struct pol_file **ret_m)
{
	struct pol_file *m = pol_file_of_path(dirfd, path, false);
	int err = m ? vm_fileh_rename_begin(m->h) : 0;

	if (err) {
		pol_file_failed(m, "rename: what was committed could not be brought in place", err);
		(void)pol_fd_close(m); /* never the last one's release: the file is in use */
		m = NULL;
	}
	*ret_m = m;
	return err;
}

void pol_rename_end(struct pol_file *m, bool done)
{
	char path[PATH_MAX + 1];

	if (done && path_of_fd(m->file.fd, path)) {
		pol_lock();
		strcpy(m->path, path);
		pol_unlock();
	}
	vm_fileh_rename_end(m->h, done);
	(void)pol_fd_close(m); /* logged, when it was the last */
}

/* ---- live ---- */

/* A descriptor of the file with a position, flags and life of its own, at home; the program's cannot serve. */
static int reopen(int fd, bool for_writing, int *home)
{
	char link[32];
	int fl;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	*home = vm_sys->openat(AT_FDCWD, link, (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY, 0);
	if (*home < 0) { /* no /proc, or permissions that were dropped since: share the program's, unless it appends */
		fl = vm_sys->fcntl(fd, F_GETFL, 0);
		if (!for_writing || (fl >= 0 && !(fl & O_APPEND)))
			*home = vm_sys->fcntl(fd, F_DUPFD_CLOEXEC, 0);
	}
	if (*home < 0) {
		int err = *home;

		*home = -1;
		return err;
	}
	return vm_fd_adopt(home);
}

static int open_handle(struct pol_file *m, int fd, bool for_writing)
{
	char err_text[256] = "";
	struct vm_fileh *h;
	const char *arg;
	int err;

	err = pol_engine_start();
	if (err)
		return err;
	m->file.ops = pol_backend_get(m->rule->backend, m->rule->backend_arg, &arg, err_text, sizeof(err_text));
	if (!m->file.ops) {
		pol_log(POL_LOG_ERROR, "%s: %s", m->path, err_text);
		return -ELIBACC;
	}
	if (m->file.ops == &pol_backend_file)
		arg = m->rule->journal_dir;
	err = reopen(fd, for_writing, &m->file.fd);
	if (err)
		return err;
	m->file.writable = for_writing;
	err = vm_fileh_open(&m->file, arg, (enum vm_load)m->rule->load, &h);
	if (!err && for_writing && m->file.ops->open_write) {
		err = m->file.ops->open_write(&m->file);
		if (err)
			(void)vm_fileh_close(h); /* err is the one to report */
	}
	if (err) {
		vm_fd_drop(&m->file.fd);
		return err;
	}
	__atomic_store_n(&m->h, h, __ATOMIC_RELEASE);
	return 0;
}

/* A live file that was read only so far is about to be written. */
static int become_writable(struct pol_file *m, int fd)
{
	int err;

	if (m->file.writable)
		return 0;
	/* the old descriptor stays open: closing it would drop the program's fcntl locks on the file */
	m->fd_before = -1;
	err = reopen(fd, true, &m->fd_before);
	if (err)
		return err;
	vm_fd_swap(&m->file.fd, &m->fd_before);
	m->file.writable = 1;
	if (m->file.ops->open_write)
		err = m->file.ops->open_write(&m->file);
	if (err)
		m->file.writable = 0;
	return err;
}

static void first_live(void);

int pol_file_go_live(struct pol_file *m, int fd, bool for_writing)
{
	int err;

	pol_lock();
	while (m->busy)
		(void)pthread_cond_wait(&changed, &lock);
	err = m->refused;
	if (err || (m->h && (!for_writing || m->file.writable))) {
		pol_unlock();
		return err;
	}
	m->busy = true;
	pol_unlock();

	bool was_live = m->h;

	if (was_live)
		err = become_writable(m, fd);
	else
		err = open_handle(m, fd, for_writing);

	pol_lock();
	m->busy = false;
	if (!err && !was_live) {
		if (m->rule->interval_usec)
			m->next_interval_usec = pol_now_usec(CLOCK_MONOTONIC) + m->rule->interval_usec;
		__atomic_add_fetch(&nlive, 1, __ATOMIC_SEQ_CST);
	}
	(void)pthread_cond_broadcast(&changed);
	pol_unlock();
	if (!err && !was_live) {
		first_live();
		pol_log(POL_LOG_INFO, "%s: managed by rule '%s', backend %s", m->path, m->rule->name, m->file.ops->name);
	} else if (err) {
		pol_file_failed(m, "cannot be managed", err);
	}
	return err;
}

static void (*signals_changed)(void);

void pol_set_signals_hook(void (*hook)(void))
{
	signals_changed = hook;
}

/* The first live file of the process: handlers and the helper thread are needed from now on. */
static void first_live(void)
{
	int err;

	if (pol_nlive() == 1 && signals_changed)
		signals_changed();
	err = pol_control_start();
	if (err)
		pol_log(POL_LOG_WARN, "no helper thread: %s; timers, MS_ASYNC and the control socket do not work",
			pol_errno_name(err));
}

/* ---- ended ---- */

static bool is_due_locked(const struct pol_file *m)
{
	return m->h && !m->busy && !m->nfds && !m->refs && !vm_fileh_nvmas(m->h);
}

/* The release. Lock held, and again on return. */
static int end_locked(struct pol_file *m)
{
	struct vm_commit_result res;
	struct vm_fileh *h = m->h;
	int err = 0;

	m->busy = true;
	pol_unlock();
	if (m->rule->commit & (1u << POL_EV_RELEASE))
		err = pol_commit_file(m, !m->rule->lazy, true, &res);
	if (!err) {
		/* from here on descriptor calls go to libc; the file holds the commit already */
		__atomic_store_n(&m->h, NULL, __ATOMIC_RELEASE);
		err = vm_fileh_close(h);
		if (err)
			pol_file_failed(m, "end of use", err);
		vm_fd_drop(&m->file.fd);
		vm_fd_drop(&m->fd_before);
		__atomic_sub_fetch(&nlive, 1, __ATOMIC_SEQ_CST);
	} /* else: it stays live with its stores; the next event, or whoever opens it again, tries once more */
	pol_lock();
	m->busy = false;
	(void)pthread_cond_broadcast(&changed);
	return err;
}

int pol_fd_close(struct pol_file *m)
{
	int err = 0;

	pol_lock();
	m->nfds--;
	if (is_due_locked(m))
		err = end_locked(m);
	free_if_unused_locked(m);
	pol_unlock();
	return err;
}

void pol_file_put(struct pol_file *m)
{
	pol_lock();
	m->refs--;
	if (is_due_locked(m))
		(void)end_locked(m); /* logged; the file stays live when the commit failed */
	free_if_unused_locked(m);
	pol_unlock();
}
