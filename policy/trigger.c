/* SPDX-License-Identifier: MIT */
/* When a commit happens by itself: event × rule → action. And when a change by others is taken in. */
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A commit of its own waits for the disk where the program asked for that; the others may be lazy. An end of
 * use publishes only what this process stored itself: a reader's exit must not publish a writer's half-done
 * update. */
static const struct trigger {
	enum pol_event setting; /* the rule must list this one */
	bool asked;		/* the program waits for the disk, also with durability=lazy */
	bool own_only;		/* only when this process stored something */
	bool later;		/* by the helper thread */
} triggers[POL_EV_N] = {
	/*			 setting	   asked  own    later */
	[POL_EV_MSYNC]	     = { POL_EV_MSYNC,	   true,  false, false },
	[POL_EV_MSYNC_ASYNC] = { POL_EV_MSYNC,	   false, false, true  },
	[POL_EV_FSYNC]	     = { POL_EV_FSYNC,	   true,  false, false },
	[POL_EV_RELEASE]     = { POL_EV_RELEASE,   false, true,	 false },
	[POL_EV_EXIT]	     = { POL_EV_EXIT,	   false, true,	 false },
	[POL_EV_TERM]	     = { POL_EV_TERM,	   false, true,	 false },
	[POL_EV_EXEC]	     = { POL_EV_EXEC,	   false, true,	 false },
	[POL_EV_MUNMAP]	     = { POL_EV_MUNMAP,	   false, true,	 false },
	[POL_EV_UNLOCK]	     = { POL_EV_UNLOCK,	   false, true,	 false },
	[POL_EV_INTERVAL]    = { POL_EV_INTERVAL,  false, false, false },
	[POL_EV_DIRTY]	     = { POL_EV_DIRTY,	   false, false, false },
};

/* ---- changes by others ---- */

/* anyway: clean pages are loaded again also when size and time do not tell of a change. */
static void refresh(struct pol_file *m, bool anyway)
{
	struct vm_dropped d;
	int err = vm_fileh_refresh(m->h, anyway, (enum vm_on_dirty)m->rule->on_invalid_dirty, &d);

	if (err < 0 && !__atomic_exchange_n(&m->told_change, true, __ATOMIC_RELAXED))
		pol_file_failed(m, "invalidate: what somebody else changed is not taken in", err);
	if (err >= 0)
		__atomic_store_n(&m->told_change, false, __ATOMIC_RELAXED);
	if (err > 0 && d.ndirty)
		pol_log(POL_LOG_WARN,
			"%s: changed by somebody else; %llu pages with stores that were not committed are "
			"dropped",
			m->path, (unsigned long long)d.ndirty);
	else if (err > 0)
		pol_log(POL_LOG_INFO, "%s: changed by somebody else: invalidated", m->path);
}

void pol_see_change(struct pol_file *m)
{
	if (m->h && m->rule->invalidate == POL_INV_CHANGE)
		refresh(m, false);
}

/* Whoever had the lock before may have stored within one tick of the clock that dates our last commit: size
 * and time do not tell. */
static void lock_taken(struct pol_file *m)
{
	if (m->rule->invalidate == POL_INV_LOCK)
		refresh(m, true);
	else
		pol_see_change(m);
}

/* Hosts that take turns by locks: a journal that is replayed after a crash here must not undo what the next
 * owner stores. */
static int unlocking(struct pol_file *m, int err)
{
	if (err || m->rule->invalidate != POL_INV_LOCK)
		return err;
	err = vm_fileh_checkpoint(m->h);
	if (err)
		pol_file_failed(m, "checkpoint before the lock is given up", err);
	return err;
}

/* Has the program a lock that goes with fd? The kernel tells by lines in fdinfo; who cannot know believes so. */
static bool is_locked(int fd)
{
	char name[40], text[1024];
	ssize_t n;
	int from;

	(void)snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	from = vm_sys->openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
	if (from < 0)
		return true;
	n = vm_sys->read(from, text, sizeof(text) - 1);
	(void)vm_sys->close(from); /* was only read */
	text[n > 0 ? n : 0] = 0;
	return n < 0 || strstr(text, "\nlock:");
}

int pol_fd_close_locked(struct pol_file *m, int fd)
{
	bool unlocks = m->h && (m->rule->commit & (1u << POL_EV_UNLOCK)) && is_locked(fd);
	int err = unlocks ? pol_event(m, POL_EV_UNLOCK) : 0, e = pol_fd_close(m);

	return err ? err : e;
}

/* ---- events ---- */

int pol_event(struct pol_file *m, enum pol_event ev)
{
	const struct trigger *t = &triggers[ev];
	struct vm_commit_result res;
	int err;

	if (!m->h)
		return 0;
	if (ev == POL_EV_LOCK) {
		lock_taken(m);
		return 0;
	}
	if (!(m->rule->commit & (1u << t->setting)))
		return 0;
	if (t->later) {
		__atomic_or_fetch(&m->wanted, POL_WANT_COMMIT, __ATOMIC_SEQ_CST);
		pol_control_kick();
		return 0;
	}
	/* a timer is no reason to show the program another snapshot */
	err = pol_commit_file(m, t->asked || !m->rule->lazy, t->own_only || (m->rule->snapshot && !t->asked), &res);
	if (ev == POL_EV_UNLOCK)
		return unlocking(m, err);
	if (!err && t->asked)
		pol_see_change(m);
	return err;
}

/* The last one with a snapshot leaves nothing behind; the helper thread may be at work yet. */
static void end_snapshot(struct pol_file *m)
{
	/* until it is there a child on its way has its parent's locks only */
	(void)vm_fileh_others(m->h, true, NULL, 0);
	if (vm_fileh_is_shared(m->h) || vm_fileh_rename_begin(m->h))
		return;
	pol_snapshot_end(&m->file);
	vm_fileh_rename_end(m->h, false);
}

/* Those that commit with m, and did, are not asked again: an error is said once. */
static int event_once(struct pol_file *m, enum pol_event ev, uint64_t order)
{
	m->end_again_usec = 0; /* it may be the last time */
	if (m->order == order)
		return 0;
	pol_set_order(m, order);
	return pol_event(m, ev);
}

int pol_event_all(enum pol_event ev)
{
	bool is_end = ev == POL_EV_EXIT || ev == POL_EV_TERM;
	bool is_exec = ev == POL_EV_EXEC;
	uint64_t order = pol_next_order();
	struct pol_file *m;
	int err = 0, e;

	for (m = pol_file_next(NULL); m; m = pol_file_next(m)) {
		e = event_once(m, ev, order);
		err = err ? err : e;
	}
	/* Only now: threads may go on storing, and the next file's commit would be the last one's, too. */
	for (m = is_end || is_exec ? pol_file_next(NULL) : NULL; m; m = pol_file_next(m)) {
		(void)vm_fileh_idle(m->h); /* at worst the journal stays: the next open replays it */
		if (is_end && m->rule->snapshot)
			end_snapshot(m);
	}
	if (is_end)
		pol_control_stop(); /* the sockets; what is left to do is done by whoever calls */
	return err;
}
