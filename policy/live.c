/* SPDX-License-Identifier: MIT */
/* A managed file goes live, and ends. */
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
#include "share.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static unsigned nlive; /* (atomic) */

unsigned pol_nlive(void)
{
	return __atomic_load_n(&nlive, __ATOMIC_ACQUIRE) + (pol_known_classes() & pol_hint_mask() ? 1 : 0);
}

bool pol_has_live(void)
{
	return __atomic_load_n(&nlive, __ATOMIC_ACQUIRE);
}

/* A descriptor of the file for us, at home. A duplicate of the program's does: we use offsets of our own, and
 * do not heed O_APPEND. Nothing is closed on the way, since any close of the file would drop the program's
 * fcntl locks on it. */
static int get_descriptor(int fd, bool for_writing, int *home)
{
	int fl = vm_sys->fcntl(fd, F_GETFL, 0);
	char link[32];

	if (fl >= 0 && !(fl & O_DIRECT) && ((fl & O_ACCMODE) == O_RDWR || (!for_writing && (fl & O_ACCMODE) == O_RDONLY)) &&
	    vm_sys_ignores_append())
		return vm_fd_adopt_copy(fd, home);
	/* one with flags of its own has the lowest free number, and must keep it */
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	*home = vm_sys->openat(AT_FDCWD, link, (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY, 0);
	if (*home < 0) {
		int err = *home;

		*home = -1;
		return err;
	}
	return vm_fd_adopt_in_place(home);
}

/* A descriptor of m that will do. Once there it stays as long as the program has one, also when m cannot be
 * managed after all: closing it would drop the program's fcntl locks on the file. */
static int need_descriptor(struct pol_file *m, int fd, bool for_writing)
{
	int err;

	if (m->file.fd >= 0 && (m->fd_writable || !for_writing))
		return 0;
	err = get_descriptor(fd, for_writing, m->file.fd < 0 ? &m->file.fd : &m->fd_before);
	if (err)
		return err;
	if (m->fd_before >= 0)
		vm_fd_swap(&m->file.fd, &m->fd_before);
	m->fd_writable = for_writing;
	return 0;
}

/* The processes that have m by the other kind of share; said in the log. */
static bool is_mixed(const struct pol_file *m)
{
	bool mixed = m->rule->snapshot ? pol_share_has_somebody(m->file.dev, m->file.ino)
				       : pol_snapshot_has_somebody(m->file.dev, m->file.ino);

	if (mixed)
		pol_log(POL_LOG_ERROR, "%s: another process has it managed with share=%s, and this one has share=%s", m->path,
			m->rule->snapshot ? "user" : "process", m->rule->text[POL_OPT_share]);
	return mixed;
}

/* Both kinds let others know of them before they look for the other kind: of two that come at once one at
 * least sees it. */
static int open_by_share(struct pol_file *m, const char *arg, struct vm_fileh **ret_h)
{
	int err;

	if (m->rule->snapshot && is_mixed(m)) /* else the journal's lock refuses it, and does not know why */
		return -EBUSY;
	err = m->rule->snapshot ? vm_fileh_open(&m->file, arg, VM_LOAD_EAGER, ret_h) : pol_share_open(m, arg, ret_h);
	if (err || !is_mixed(m))
		return err;
	(void)pol_share_close(m, *ret_h); /* nothing was stored */
	return -EBUSY;
}

#define LATE_TRIES 5u

static int open_for(struct pol_file *m, const char *arg, bool for_writing, struct vm_fileh **ret_h)
{
	/* with a child that could not enter itself before its parent was killed, or after one that is about to end */
	unsigned tries = m->rule->snapshot ? 1 : LATE_TRIES;
	int err;

	for (;;) {
		err = open_by_share(m, arg, ret_h);
		if (err || !for_writing)
			return err;
		err = vm_fileh_open_write(*ret_h);
		if (!err)
			return 0;
		(void)pol_share_close(m, *ret_h); /* err is the one to report */
		if (err != -EBUSY || !--tries || !pol_share_comes_late(m, LATE_TRIES - tries))
			return err;
	}
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
	if (m->rule->snapshot)
		m->file.ops = &pol_backend_file_snapshot;
	if (m->rule->group)
		m->file.ops = &pol_backend_file_group;
	if (pol_backend_is_file(&m->file))
		arg = m->rule->group ? m->rule->group_journal : m->rule->journal_dir;
	err = need_descriptor(m, fd, for_writing);
	if (err)
		return err;
	m->file.writable = for_writing;
	if (for_writing)
		pol_file_take_path(m);
	err = open_for(m, arg, for_writing, &h);
	if (!err)
		__atomic_store_n(&m->h, h, __ATOMIC_RELEASE);
	return err;
}

/* A live file that was read only so far is about to be written. */
static int become_writable(struct pol_file *m, int fd)
{
	int err;

	if (m->file.writable)
		return 0;
	err = need_descriptor(m, fd, true);
	if (err)
		return err;
	m->file.writable = 1;
	pol_file_take_path(m);
	err = vm_fileh_open_write(m->h);
	if (err)
		m->file.writable = 0;
	return err;
}

/* Is one of the three descriptors that libc has streams on this file? */
static bool is_standard(const struct pol_file *m)
{
	struct stat st;

	for (int fd = 0; fd < 3; fd++)
		if (!vm_sys->fstat(fd, &st) && st.st_ino == m->file.ino && st.st_dev == m->file.dev)
			return true;
	return false;
}

int pol_file_has_stream(struct pol_file *m)
{
	pol_lock();
	m->has_stream = true;
	pol_unlock();
	if (!m->h)
		return 0;
	pol_log(POL_LOG_ERROR, "%s: freopen: the file is mapped, and a stream that is not of it cannot be made so", m->path);
	return -EOPNOTSUPP;
}

static void first_live(void);

static bool is_private_left; /* of any file, at any time (atomic) */
static void (*range_added)(const void *addr, size_t len);

void pol_set_range_hook(void (*added)(const void *addr, size_t len))
{
	range_added = added;
}

void pol_left_private(void)
{
	__atomic_store_n(&is_private_left, true, __ATOMIC_RELAXED);
}

static void adopt_private(struct pol_file *m)
{
	int err;

	if (!__atomic_load_n(&is_private_left, __ATOMIC_RELAXED) || !range_added)
		return;
	err = vm_adopt_private(m->h, m->file.fd, range_added);
	if (err)
		pol_log(POL_LOG_WARN, "%s: private mappings made before may not show what is stored and not committed: %s",
			m->path, pol_errno_name(err));
}

/* Calls that found m not live, and went to the file, may have been on their way: nothing is stored yet, what
 * they did counts. Where others have it, a change is one from outside, which is theirs to find. */
static void take_in_late_calls(struct pol_file *m)
{
	struct vm_dropped d;

	if (!vm_fileh_is_shared(m->h))
		(void)vm_fileh_refresh(m->h, false, VM_DIRTY_KEEP, &d); /* if not: the commit says so */
}

static int go_live(struct pol_file *m, int fd, bool for_writing, bool waits)
{
	int err;

	pol_lock();
	while (m->busy && waits)
		pol_wait();
	err = m->busy ? -EBUSY : m->refused;
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
	pol_changed();
	pol_unlock();
	if (!err && !was_live) {
		first_live();
		take_in_late_calls(m);
		adopt_private(m);
		if (m->has_stream || is_standard(m))
			pol_log(POL_LOG_WARN, "%s: is mapped, and standard input or output, or freopen'd: what goes through such a "
				"stream passes the mapping by", m->path);
		pol_log(POL_LOG_INFO, "%s: managed by rule '%s', backend %s", m->path, m->rule->name, m->file.ops->name);
	} else if (err) {
		pol_file_failed(m, "cannot be managed", err);
	}
	return err;
}

int pol_file_go_live(struct pol_file *m, int fd, bool for_writing)
{
	return go_live(m, fd, for_writing, true);
}

bool pol_file_make_writable(struct pol_file *m)
{
	return !go_live(m, m->file.fd, true, false);
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

	if (__atomic_load_n(&nlive, __ATOMIC_ACQUIRE) == 1 && signals_changed)
		signals_changed();
	pol_sweep(); /* here, not by a thread: its descriptors would take low numbers from under the program */
	err = pol_control_start();
	if (err)
		pol_log(POL_LOG_WARN, "no helper thread: %s; timers, MS_ASYNC and the control socket do not work",
			pol_errno_name(err));
}

/* ---- ended ---- */

#define END_AGAIN_USEC 1000000u

bool pol_file_is_due_locked(const struct pol_file *m)
{
	return m->h && !m->busy && !m->nfds && !m->refs && !vm_fileh_nvmas(m->h);
}

void pol_file_drop_descriptors(struct pol_file *m)
{
	vm_fd_drop(&m->file.fd);
	vm_fd_drop(&m->fd_before);
	m->fd_writable = false;
}

void pol_files_lose(void)
{
	struct vm_fileh *h;

	for (struct pol_file *m = pol_files; m; m = m->next) {
		h = m->h;
		if (!h || !vm_fileh_is_lost(h))
			continue;
		m->h = m->share_h = NULL;
		m->share_late = false;
		__atomic_sub_fetch(&nlive, 1, __ATOMIC_SEQ_CST);
		(void)vm_fileh_close(h); /* others have it */
	}
}

int pol_file_end_locked(struct pol_file *m)
{
	struct vm_commit_result res;
	struct vm_fileh *h = m->h;
	struct pol_set set;
	bool gathered;
	int err;

	m->busy = true;
	pol_unlock();
	err = pol_set_get(m, &set);
	gathered = !err;
	if (!err && m->rule->commit & (1u << POL_EV_RELEASE))
		err = pol_set_commit(&set, !m->rule->lazy, true, &res);
	if (!err) {
		/* from here on descriptor calls go to libc; the file holds the commit already */
		__atomic_store_n(&m->h, NULL, __ATOMIC_RELEASE);
		err = pol_share_close(m, h);
		if (err)
			pol_file_failed(m, "end of use", err);
		pol_file_drop_descriptors(m);
		__atomic_sub_fetch(&nlive, 1, __ATOMIC_SEQ_CST);
	} /* else: it stays live with its stores; the next event, or whoever opens it again, tries once more */
	if (gathered)
		pol_set_put(&set);
	pol_lock();
	m->busy = false;
	m->end_again_usec = err ? pol_now_usec(CLOCK_MONOTONIC) + END_AGAIN_USEC : 0;
	pol_changed();
	return err;
}
