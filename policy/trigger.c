/* SPDX-License-Identifier: MIT */
/* When a commit happens by itself: event × rule → action. */
#include "managed_priv.h"
#include "log.h"
#include <errno.h>
#include <time.h>

/* A commit of its own waits for the disk where the program asked for that; the others may be lazy. An end of use
 * publishes only what this process stored itself: a reader's exit must not publish a writer's half-done update. */
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
	[POL_EV_INTERVAL]    = { POL_EV_INTERVAL,  false, false, false },
	[POL_EV_DIRTY]	     = { POL_EV_DIRTY,	   false, false, false },
};

/* How long the journal is kept when nothing happens: a lazy commit reaches the disk soon, a durable one only
 * has to leave the journal. */
#define LAZY_USEC 50000u
#define IDLE_USEC 3000000u

int pol_commit_file(struct pol_file *m, bool durable, bool own_only, struct vm_commit_result *ret)
{
	struct vm_fileh *h = m->h;
	struct vm_fileh_stat st;
	bool was_idle = false;
	uint64_t before;
	int err;

	vm_fileh_stat(h, own_only, &st);
	before = st.txid;
	*ret = (struct vm_commit_result){.txid = before};
	if (own_only && !st.stored_here)
		return 0;
	err = vm_fileh_commit(h, durable, m->rule->overwrite, ret);
	/* a forked child wrote, and was killed: this process, that only reads the file, has to bring it home */
	if (err == -EBADF && !own_only && !m->file.writable && !pol_file_go_live(m, m->file.fd, true))
		err = vm_fileh_commit(h, durable, m->rule->overwrite, ret);
	/* the journal may be full of what is in the file by now: from its beginning there is more room */
	if ((err == -ENOSPC || err == -EDQUOT) && !vm_fileh_checkpoint(h))
		err = vm_fileh_commit(h, durable, m->rule->overwrite, ret);
	pol_lock();
	if (err) {
		m->nfailed++;
	} else if (ret->txid != before) {
		m->ncommits++;
		m->last_commit_usec = pol_now_usec(CLOCK_REALTIME);
		was_idle = !m->checkpoint_usec;
		m->checkpoint_usec = pol_now_usec(CLOCK_MONOTONIC) + (durable ? IDLE_USEC : LAZY_USEC);
	}
	pol_unlock();
	if (err == -EBUSY)
		pol_file_failed(m, "commit: the file was changed by somebody else; invalidate it, or set conflict=overwrite",
				err);
	else if (err)
		pol_file_failed(m, "commit: nothing was written, the stores are kept", err);
	else if (was_idle)
		pol_control_kick(); /* the helper thread has a time to wait for now; a later one it finds by itself */
	return err;
}

int pol_event(struct pol_file *m, enum pol_event ev)
{
	const struct trigger *t = &triggers[ev];
	struct vm_commit_result res;

	if (!m->h || !(m->rule->commit & (1u << t->setting)))
		return 0;
	if (t->later) {
		__atomic_or_fetch(&m->wanted, POL_WANT_COMMIT, __ATOMIC_SEQ_CST);
		pol_control_kick();
		return 0;
	}
	return pol_commit_file(m, t->asked || !m->rule->lazy, t->own_only, &res);
}

int pol_event_all(enum pol_event ev)
{
	bool is_end = ev == POL_EV_EXIT || ev == POL_EV_TERM;
	bool is_exec = ev == POL_EV_EXEC;
	struct pol_file *m;
	int err = 0, e;

	for (m = pol_file_next(NULL); m; m = pol_file_next(m)) {
		e = pol_event(m, ev);
		err = err ? err : e;
		if (is_end || is_exec)
			(void)vm_fileh_idle(m->h); /* at worst the journal stays: the next open replays it */
	}
	if (is_end)
		pol_control_stop(); /* the sockets; what is left to do is done by whoever calls */
	return err;
}
