/* SPDX-License-Identifier: MIT */
/*
 * Was the file changed by somebody else? Told by its size and time of modification, against what we left.
 *
 * Asking for the time has a price: since Linux 6.13 a file whose time was asked for gets a new, fine one at
 * its next write, and so does every other file from then on; then each sync has an inode to write, which
 * doubles the cost of a small commit. So nobody asks after each write of ours. What is remembered instead is
 * between which instants our writes were made: a time in there is ours. And we look at most once a
 * millisecond. So a change from outside goes unnoticed when it is made within one tick of the kernel's clock
 * (1 to 10 ms) of a commit of ours, as it did on all kernels before.
 */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "vm.h"

#include <errno.h>
#include <time.h>

#define LOOK_USEC 1000u

static int64_t nsec(int64_t sec, int64_t ns)
{
	return sec * 1000000000 + ns;
}

static int64_t now_nsec(int clock)
{
	struct timespec ts = {0};

	(void)vm_sys->clock_gettime(clock, &ts); /* cannot fail for a clock that exists */
	return nsec(ts.tv_sec, ts.tv_nsec);
}

int pol_file_basics(int fd, uint64_t *ret_size, unsigned *ret_nlink)
{
	struct statx st;
	int err = vm_sys->statx(fd, STATX_SIZE | STATX_NLINK, &st);

	if (err)
		return err;
	if (ret_size)
		*ret_size = st.stx_size;
	if (ret_nlink)
		*ret_nlink = st.stx_nlink;
	return 0;
}

static bool is_as_left(const struct pol_file_shared *s, const struct stat *st)
{
	int64_t mtime = nsec(st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	bool own = s->own_to_nsec && s->own_from_nsec <= mtime && mtime <= s->own_to_nsec;

	return s->size == (uint64_t)st->st_size && (mtime == s->mtime_nsec || own);
}

static void leave_as(struct pol_file_shared *s, const struct stat *st)
{
	s->mtime_nsec = nsec(st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	s->own_from_nsec = s->own_to_nsec = 0;
	s->size = (uint64_t)st->st_size;
	s->foreign = false;
}

int pol_file_leave(struct vm_bigfile *f)
{
	struct stat st;
	int err = vm_sys->fstat(f->fd, &st);

	if (!err)
		leave_as(pol_file_shared(f), &st);
	return err;
}

/* The program, or somebody else, may have closed the file to others since. */
static int follow_mode(struct vm_bigfile *f, const struct stat *st)
{
	struct pol_file_shared *s = pol_file_shared(f);
	int err;

	if ((s->mode == st->st_mode && s->gid == st->st_gid) || pol_file_priv(f)->j.fd < 0)
		return 0;
	err = pol_journal_give(pol_file_priv(f)->j.fd, st);
	if (err)
		return err;
	s->mode = st->st_mode;
	s->gid = st->st_gid;
	return 0;
}

void pol_file_wrote(struct pol_file_shared *s, int64_t from, int64_t to, uint64_t size)
{
	if (s->foreign)
		return;
	if (!s->own_to_nsec || from < s->own_from_nsec)
		s->own_from_nsec = from;
	if (to > s->own_to_nsec)
		s->own_to_nsec = to;
	s->size = size;
}

int64_t pol_file_time_from(void)
{
	return now_nsec(CLOCK_REALTIME_COARSE);
}

int64_t pol_file_time_to(void)
{
	return now_nsec(CLOCK_REALTIME);
}

static void note_own(struct pol_file_shared *s, int64_t from, int64_t to, uint64_t size)
{
	pol_file_wrote(s, from, to, size);
	s->writing_nsec = 0;
}

int pol_file_look(struct vm_bigfile *f, bool anyway)
{
	struct pol_file_shared *s = pol_file_shared(f);
	uint64_t now = (uint64_t)now_nsec(CLOCK_MONOTONIC) / 1000;
	struct stat st;
	int err;

	if (!anyway && now - s->looked_usec < LOOK_USEC)
		return s->foreign;
	err = vm_sys->fstat(f->fd, &st);
	if (!err)
		err = follow_mode(f, &st);
	if (err)
		return err;
	s->looked_usec = now;
	if (!s->foreign &&
	    s->writing_nsec) /* it died, or it would be the one who is busy: what it wrote is ours */
		note_own(s, s->writing_nsec, now_nsec(CLOCK_REALTIME), (uint64_t)st.st_size);
	if (!s->foreign && is_as_left(s, &st))
		leave_as(s, &st);
	else
		s->foreign = true;
	return s->foreign;
}

int pol_file_own_begin(struct vm_bigfile *f, struct pol_file_own *own)
{
	int err = pol_file_look(f, false);

	own->mono_nsec = now_nsec(CLOCK_MONOTONIC);
	own->real_nsec = now_nsec(CLOCK_REALTIME);
	own->from_nsec = pol_file_time_from();
	if (!pol_file_shared(f)->writing_nsec) /* else one died while it wrote */
		pol_file_shared(f)->writing_nsec = own->from_nsec;
	return err < 0 ? err : 0;
}

void pol_file_own_end(struct vm_bigfile *f, const struct pol_file_own *own)
{
	struct pol_file_shared *s = pol_file_shared(f);
	int64_t to = now_nsec(CLOCK_REALTIME);
	/* somebody may set the clock meanwhile: a time from before that, and one from after it, is ours */
	int64_t to_unset = own->real_nsec + now_nsec(CLOCK_MONOTONIC) - own->mono_nsec;
	uint64_t size = s->size;

	if (s->foreign) { /* the time of it is gone, the fact stays */
		s->writing_nsec = 0;
		return;
	}
	(void)pol_file_basics(f->fd, &size, NULL); /* a size that is unknown is taken for a change: safe */
	note_own(s, s->writing_nsec < to ? s->writing_nsec : to, to > to_unset ? to : to_unset, size);
}
