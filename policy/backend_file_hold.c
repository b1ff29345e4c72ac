/* SPDX-License-Identifier: MIT */
/* Those who have a snapshot of a file take turns: the hold of what is shared, and what its holder finds. */
#define _GNU_SOURCE 1
#include "backend_file_snapshot.h"
#include "log.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define HOLD_MSEC 10000
#define TRY_MSEC  1

/* ---- locks ---- */

int pol_snapshot_lock(int fd, enum pol_snapshot_byte byte, short type)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int err = vm_sys->fcntl(fd, F_OFD_SETLK, (long)&fl);

	return err == -EACCES ? -EAGAIN : err;
}

static void unlock(int fd, enum pol_snapshot_byte byte)
{
	(void)pol_snapshot_lock(fd, byte, F_UNLCK); /* unlocking cannot fail */
}

bool pol_snapshot_has_others(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = POL_SNAPSHOT_LIFE, .l_len = 1};

	return vm_sys->fcntl(fd, F_OFD_GETLK, (long)&fl) || fl.l_type != F_UNLCK;
}

static int lock_until(int fd, enum pol_snapshot_byte byte, uint64_t until)
{
	int err;

	/* tried again and again: a wait in the kernel would have no end when the holder is stopped */
	while ((err = pol_snapshot_lock(fd, byte, F_WRLCK)) == -EAGAIN &&
	       pol_now_usec(CLOCK_MONOTONIC) < until)
		(void)vm_sys->poll(NULL, 0, TRY_MSEC);
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

int pol_snapshot_lock_in_turn(int fd)
{
	uint64_t until = pol_now_usec(CLOCK_MONOTONIC) + HOLD_MSEC * UINT64_C(1000);
	int err = lock_until(fd, POL_SNAPSHOT_TURN, until);

	if (err)
		return err;
	err = lock_until(fd, POL_SNAPSHOT_HOLD, until);
	unlock(fd, POL_SNAPSHOT_TURN);
	return err;
}

/* ---- the hold ---- */

/* Whose writes these are nobody can tell any more, but that it was one of us. */
static void after_a_death(struct vm_bigfile *f)
{
	pol_log(POL_LOG_INFO,
		"%s: a process was killed in the middle of a commit or the like, which is brought to its end",
		f->path);
	(void)pol_file_leave(f); /* then a stranger's change: a conflict too many */
	pol_news_mend(f);
	pol_file_priv(f)->snapshot->all->is_tail_in_doubt = 1;
}

/* The first one who can. */
static void forget_tail(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);

	if (p->j.fd < 0 || !pol_backend_file_is_journal(f, p->j.fd))
		return;
	vm_journal_forget(&p->j);
	p->snapshot->all->is_tail_in_doubt = 0;
}

/* Somebody changed the file without us: as if one of us had committed all of it. */
static int meet_strangers(struct vm_bigfile *f)
{
	/* in any case: what an invalidation has taken in must be no conflict at the commit after it */
	int changed = pol_file_look(f, true), err;

	if (changed <= 0)
		return changed;
	pol_log(POL_LOG_WARN,
		"%s: was changed by somebody who does not share=process: all of its pages count as changed",
		f->path);
	err = pol_file_leave(f);
	if (err)
		return err;
	pol_news_all(f);
	return pol_file_checkpoint(f); /* replaying what was committed before must not undo it */
}

int pol_snapshot_begin_hold(struct vm_bigfile *f)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;

	if (s->all->is_held)
		after_a_death(f);
	s->all->is_held = 1;
	if (s->all->is_tail_in_doubt)
		forget_tail(f);
	return meet_strangers(f);
}

int pol_snapshot_hold(struct vm_bigfile *f)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;
	int err = s->nholds ? 0 : pol_snapshot_lock_in_turn(s->fd);

	if (err) {
		pol_log(POL_LOG_ERROR,
			"%s: another process, which may be stopped, is in the middle of a commit: %s",
			f->path, pol_errno_name(err));
		return err;
	}
	if (s->nholds++)
		return 0;
	err = pol_snapshot_begin_hold(f);
	if (err)
		pol_snapshot_let_go(f);
	return err;
}

void pol_snapshot_let_go(struct vm_bigfile *f)
{
	struct pol_snapshot *s = pol_file_priv(f)->snapshot;

	if (--s->nholds)
		return;
	s->all->is_held = 0;
	unlock(s->fd, POL_SNAPSHOT_HOLD);
}
