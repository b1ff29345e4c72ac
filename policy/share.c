/* SPDX-License-Identifier: MIT */
/*
 * One overlay per file for all processes of a user.
 *
 *	lock the registry of the file
 *	somebody has it?   ask: descriptors, attach           (all who live are asked; a refusal is better than a second overlay)
 *	nobody?		   recover what a crash left, open
 *	enter ourselves, unlock
 *
 * and at the end, under the same lock: nobody is given it any more, close, take ourselves out. So whoever
 * gets descriptors attaches before we can be the last one who closes.
 */
#include "share.h"
#include "backends.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_MSEC 5000
#define CHILD_MSEC 20  /* a fork is to be quick, and who leaves brings it in */
#define CHILD_COMES_MSEC 1000
#define TRY_MSEC  5
#define BUSY_MSEC 5000 /* for somebody's commit */
#define ASK_MSEC  4000 /* all in all, for answers */

/* ---- who has it ---- */

static void drop_fds(int *fds)
{
	for (unsigned i = 0; i < VM_SHARE_NFDS; i++)
		(void)vm_sys->close(fds[i]); /* copies */
}

static void tell_refused(const struct pol_file *m, int32_t pid, int err)
{
	const char *why = err == -EPROTO       ? "is of another version of txmap, or answers nonsense"
			  : err == -EMEDIUMTYPE ? "has it managed with another backend or scope"
			  : err == -EOPNOTSUPP	? "has it managed, and this backend cannot be shared"
			  : err == -EBUSY	? "has it managed, and is in the middle of a commit that does not end"
						: "has it managed, and does not answer";

	pol_log(POL_LOG_ERROR, "%s: process %d %s (%s)", m->path, pid, why, pol_errno_name(err));
}

static bool is_gone(int32_t pid)
{
	char path[32];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	return vm_sys->fstatat(AT_FDCWD, path, &st, 0) == -ENOENT;
}

/* It does not have the file. false: it may, in another PID namespace. */
static bool take_out(struct pol_registry *r, int32_t pid)
{
	if (is_gone(pid))
		return pol_registry_forget(r, pid);
	pol_registry_remove(r, pid); /* its sockets are another program's */
	return true;
}

/* As pol_share_ask. A child that its parent entered is about to listen. */
static int ask(const struct pol_file *m, const struct pol_registry *r, int32_t entry, int *ret_fds)
{
	int32_t pid = entry < 0 ? -entry : entry;
	int got = 0;

	if (pid == vm_sys->getpid())
		return 0;
	for (unsigned msec = 0; msec < CHILD_COMES_MSEC; msec += TRY_MSEC) {
		got = pol_share_ask(r->dirfd, pid, m->file.dev, m->file.ino, POL_SHARE_HANDLE, ret_fds);
		if (got || entry > 0 || is_gone(pid))
			break;
		(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* nothing tells when somebody listens */
	}
	return got;
}

/* A handle from one of them. 1: *ret_h; 0: nobody has it; -errno: somebody has, and it cannot be shared.
 * Those that are gone are taken out. */
static int attach(struct pol_file *m, const char *arg, struct pol_registry *r, struct vm_fileh **ret_h)
{
	uint64_t until = pol_now_usec(CLOCK_MONOTONIC) + ASK_MSEC * UINT64_C(1000);
	int fds[POL_SHARE_NFDS], err, refused = 0;
	int32_t pid, who = 0;

	for (unsigned i = 0; i < r->n;) {
		pid = r->pids[i] < 0 ? -r->pids[i] : r->pids[i];
		if (pol_now_usec(CLOCK_MONOTONIC) > until) { /* many that hang */
			refused = -ETIMEDOUT;
			who = pid;
			break;
		}
		err = ask(m, r, r->pids[i], fds);
		if (!err) {
			m->unrecovered = true;
			i += !take_out(r, pid);
			continue;
		}
		if (err > 0) {
			err = vm_fileh_attach(&m->file, arg, fds, BUSY_MSEC, ret_h);
			drop_fds(fds);
			if (!err)
				return 1;
		}
		refused = err;
		who = pid;
		i++;
	}
	if (refused)
		tell_refused(m, who, refused);
	return refused ? -EBUSY : 0;
}

static int open_first(struct pol_file *m, const char *arg, struct vm_fileh **ret_h)
{
	int err = m->unrecovered ? pol_file_recover(m) : 0;

	m->unrecovered = false;
	return err ? err : vm_fileh_open(&m->file, arg, (enum vm_load)m->rule->load, ret_h);
}

static void set_given(struct pol_file *m, struct vm_fileh *h)
{
	pol_lock();
	m->share_h = h;
	m->share_late = false;
	pol_unlock();
}

/* Others find us. When they cannot, they are refused: the journal is ours. */
static void enter(struct pol_file *m, struct vm_fileh *h, struct pol_registry *r)
{
	int err;

	if (!m->file.ops->attach)
		return;
	set_given(m, h);
	err = pol_share_listen();
	if (err) {
		pol_log(POL_LOG_WARN, "%s: other processes cannot share it: %s", m->path, pol_errno_name(err));
		return;
	}
	pol_registry_add(r, vm_sys->getpid());
	err = pol_registry_write(r);
	if (err)
		pol_log(POL_LOG_WARN, "%s: other processes cannot share it: %s: %s", m->path, r->name, pol_errno_name(err));
}

int pol_share_open(struct pol_file *m, const char *arg, struct vm_fileh **ret_h)
{
	struct pol_registry r;
	int err;

	pol_hint_open();
	err = pol_registry_lock(m->file.dev, m->file.ino, LOCK_MSEC, &r);
	if (err == -EBUSY) {
		pol_log(POL_LOG_ERROR, "%s: another process is about to use it, and does not get through", m->path);
		return err;
	}
	if (err) /* no place for it: alone, or refused by the journal's lock */
		return open_first(m, arg, ret_h);
	err = attach(m, arg, &r, ret_h);
	if (!err)
		err = open_first(m, arg, ret_h);
	if (err >= 0)
		enter(m, *ret_h, &r);
	else if (!r.n)
		(void)pol_registry_write(&r); /* litter, at worst */
	pol_registry_unlock(&r);
	return err < 0 ? err : 0;
}

/* ---- who is given what ---- */

static struct pol_file *find_given_locked(dev_t dev, ino_t ino)
{
	struct pol_file *m;

	for (m = pol_files; m; m = m->next)
		if (m->share_h && m->file.ino == ino && m->file.dev == dev)
			return m;
	return NULL;
}

int pol_share_give(dev_t dev, ino_t ino, enum pol_share_what what, int *ret_fds, unsigned *ret_n)
{
	struct pol_file *m = find_given_locked(dev, ino);

	if (!m)
		return -ENOENT;
	if (what == POL_SHARE_HANDLE) {
		*ret_n = VM_SHARE_NFDS;
		return vm_fileh_share(m->share_h, ret_fds);
	}
	*ret_n = 1;
	ret_fds[0] = m->file.ops != &pol_backend_file_snapshot && pol_backend_is_file(&m->file) ? pol_backend_file_journal(&m->file) : -1;
	return ret_fds[0] < 0 ? -ENOENT : 0;
}

static struct vm_fileh *handle_of(const struct vm_bigfile *f)
{
	struct vm_fileh *h = NULL;

	pol_lock();
	for (struct pol_file *m = pol_files; m; m = m->next)
		if (&m->file == f)
			h = m->share_h;
	pol_unlock();
	return h;
}

int pol_share_fetch_journal(const struct vm_bigfile *f, int *home)
{
	int32_t pids[VM_MAX_OTHERS];
	struct vm_fileh *h = handle_of(f);
	struct pol_registry r;
	unsigned n = h ? vm_fileh_others(h, false, pids, VM_MAX_OTHERS) : 0;
	int got, err = -ENOENT;

	if (!n || pol_registry_read(f->dev, f->ino, &r))
		return -ENOENT;
	for (unsigned i = 0; i < n && err; i++) {
		if (pol_share_ask(r.dirfd, pids[i], f->dev, f->ino, POL_SHARE_JOURNAL, &got) != 1)
			continue;
		if (pol_backend_file_is_journal(f, got))
			err = vm_fd_adopt_copy(got, home);
		(void)vm_sys->close(got); /* a copy */
	}
	pol_registry_close(&r);
	return err;
}

bool pol_share_has_somebody(dev_t dev, ino_t ino)
{
	struct pol_registry r;
	bool has = false;

	pol_hint_open();
	if (!pol_hint_maybe(dev, ino) || pol_registry_read(dev, ino, &r))
		return false;
	for (unsigned i = 0; i < r.n && !has; i++)
		has = r.pids[i] < 0 ? !is_gone(-r.pids[i])
				    : r.pids[i] != vm_sys->getpid() &&
					      pol_share_ask(r.dirfd, r.pids[i], dev, ino, POL_SHARE_NOTHING, NULL);
	pol_registry_close(&r);
	if (!has)
		pol_registry_sweep(dev, ino); /* the next call need not ask */
	return has;
}

/* ---- a descriptor of what another process has live ---- */

#define AGAIN_USEC 1000000u /* who did not answer is not asked for each call */

bool pol_share_join(struct pol_file *m, int fd)
{
	uint64_t now;
	int fl;

	if (m->unfit || m->refused || !pol_share_has_somebody(m->file.dev, m->file.ino))
		return false;
	now = pol_now_usec(CLOCK_MONOTONIC);
	fl = vm_sys->fcntl(fd, F_GETFL, 0);
	if (now < m->join_usec || fl < 0)
		return false;
	if (!pol_file_go_live(m, fd, (fl & O_ACCMODE) != O_RDONLY))
		return true;
	m->join_usec = pol_now_usec(CLOCK_MONOTONIC) + AGAIN_USEC;
	return false;
}

/* ---- ends, and forks ---- */

static bool has_entry(const struct pol_registry *r, int32_t pid)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->pids[i] == pid)
			return true;
	return false;
}

/* Out of the registry; others who have the handle stay in it, or come in: a child may not have got to it. */
static void leave(struct pol_registry *r, const int32_t *others, unsigned n)
{
	pol_registry_remove(r, vm_sys->getpid());
	for (unsigned i = 0; i < n; i++)
		if (!has_entry(r, others[i]))
			pol_registry_add(r, -others[i]);
	(void)pol_registry_write(r); /* then a stale entry, which the next one finds out */
}

int pol_share_close(struct pol_file *m, struct vm_fileh *h)
{
	int32_t others[VM_MAX_OTHERS];
	struct pol_registry r;
	unsigned n;
	int err;

	if (!m->share_h)
		return vm_fileh_close(h);
	err = pol_registry_lock(m->file.dev, m->file.ino, LOCK_MSEC, &r);
	set_given(m, NULL);
	if (err)
		return vm_fileh_close(h);
	n = vm_fileh_others(h, true, others, VM_MAX_OTHERS);
	err = vm_fileh_close(h);
	leave(&r, others, n);
	pol_registry_unlock(&r);
	return err;
}

static void for_each_given(void (*fn)(struct pol_file *m))
{
	for (struct pol_file *m = pol_file_next(NULL); m; m = pol_file_next(m))
		if (m->share_h)
			fn(m);
}

static void leave_at_end(struct pol_file *m)
{
	int32_t others[VM_MAX_OTHERS];
	struct pol_registry r;

	pol_lock();
	m->share_late = false;
	pol_unlock();
	if (pol_registry_lock(m->file.dev, m->file.ino, LOCK_MSEC, &r))
		return;
	leave(&r, others, vm_fileh_others(m->share_h, true, others, VM_MAX_OTHERS));
	pol_registry_unlock(&r);
}

void pol_share_stop(void)
{
	if (!pol_share_listens())
		return;
	for_each_given(leave_at_end);
	pol_share_listen_end();
}

/* A stale entry, of a file that is closed meanwhile, is found out by the next one who asks. */
static int enter_one(dev_t dev, ino_t ino, unsigned msec)
{
	struct pol_registry r;
	int err = pol_registry_lock(dev, ino, msec, &r);

	if (err)
		return err;
	pol_registry_add(&r, vm_sys->getpid());
	(void)pol_registry_write(&r); /* found by those who are in there */
	pol_registry_unlock(&r);
	return 0;
}

static void enter_child(struct pol_file *m)
{
	m->share_late = enter_one(m->file.dev, m->file.ino, CHILD_MSEC) == -EBUSY;
}

static struct pol_file *find_late_locked(void)
{
	struct pol_file *m;

	for (m = pol_files; m && !(m->share_h && m->share_late); m = m->next)
		;
	return m;
}

bool pol_share_enter_late(void)
{
	struct pol_file *m;
	bool busy = false;
	dev_t dev;
	ino_t ino;

	pol_lock();
	while (!busy && (m = find_late_locked())) {
		dev = m->file.dev;
		ino = m->file.ino;
		pol_unlock();
		busy = enter_one(dev, ino, 0) == -EBUSY; /* who holds that may wait for our answer */
		pol_lock();
		m = find_given_locked(dev, ino);
		if (m)
			m->share_late = busy;
	}
	pol_unlock();
	return !busy;
}

void pol_share_fork_child(void)
{
	struct pol_file *m;

	pol_registry_fork_child();
	pol_share_listen_fork_child();
	for (m = pol_files; m && !m->share_h; m = m->next)
		;
	if (!m || pol_share_bind())
		return;
	for_each_given(enter_child);
	(void)pol_share_listen(); /* then who asks finds nobody */
}
