/* SPDX-License-Identifier: MIT */
/* The workloads of a group: two files that are there, and one in another directory that is made on the way. */
#include "backend_file.h"
#include "record.h"
#include "vm_sys.h"
#include "work_priv.h"

#include <errno.h>
#include <fcntl.h>

enum { A, B, C };

/* As the program does it. */
static void make_c(struct work_run *w)
{
	int fd = vm_sys->openat(AT_FDCWD, w->path[C], O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	work_must(fd >= 0, w->path[C]);
	(void)vm_sys->close(fd);
}

static unsigned lazily(struct work_run *w, unsigned chance)
{
	return work_below(w, chance) ? VM_COMMIT_DURABLE : 0;
}

/* a grows, b shrinks, and c, if it is open, becomes something else. */
static void commit_all_ways(struct work_run *w, unsigned flags)
{
	struct version v = work_draft(w);
	uint64_t low[WORK_FILES], at = v.f[A].size;

	for (unsigned i = 0; i < WORK_FILES; i++)
		low[i] = v.f[i].size;
	work_set_size(&v.f[A], at + 1 + work_below(w, 2 * VM_BLKSIZE), &low[A]);
	work_store(w, &v.f[A], at, 300);
	work_set_size(&v.f[B], work_below(w, v.f[B].size + 1), &low[B]);
	if (work_below(w, 2)) /* nothing of what was cut may come back */
		work_set_size(&v.f[B], v.f[B].size + work_below(w, VM_BLKSIZE), &low[B]);
	if (w->is_open[C]) {
		v.f[C].is_there = true;
		work_change(w, &v.f[C], &low[C]);
	}
	work_commit(w, v, low, flags, 0);
}

/* Any of the files that are open. */
static void commit_any(struct work_run *w, unsigned flags)
{
	struct version v = work_draft(w);
	uint64_t low[WORK_FILES];

	for (unsigned i = 0; i < WORK_FILES; i++) {
		low[i] = v.f[i].size;
		if (!w->is_open[i] || work_below(w, 3) == 0)
			continue;
		v.f[i].is_there = true;
		work_change(w, &v.f[i], &low[i]);
	}
	work_commit(w, v, low, flags, 0);
}

static void shut_all(struct work_run *w)
{
	unsigned left = 0;

	for (unsigned i = 0; i < WORK_FILES; i++)
		left += w->is_open[i];
	for (unsigned i = 0; i < WORK_FILES; i++)
		if (w->is_open[i])
			(void)work_shut(w, i, !--left);
}

void work_run_group(struct work_run *w)
{
	work_open(w, A);
	work_open(w, B);
	commit_all_ways(w, VM_COMMIT_DURABLE);
	make_c(w);
	work_open(w, C);
	commit_all_ways(w, VM_COMMIT_DURABLE);
	for (unsigned i = 0; i < 4; i++)
		commit_any(w, lazily(w, 2));
	shut_all(w);
}

/* Members come and go, the journal starts over, and some end of use is none. */
void work_run_group_lives(struct work_run *w)
{
	make_c(w);
	work_open(w, C);
	commit_any(w, VM_COMMIT_DURABLE);
	for (unsigned i = 0; i < 6; i++) {
		unsigned which = (unsigned)work_below(w, WORK_FILES);

		if (!w->is_open[which])
			work_open(w, which);
		else if (work_below(w, 3))
			work_checkpoint(w);
		else if (!work_below(w, 3))
			(void)w->f->ops->idle(w->f);
		else
			(void)work_shut(w, which, false);
		for (unsigned f = 0; f < WORK_FILES; f++)
			if (w->is_open[f])
				w->f = &w->file[f];
		if (w->is_open[w->f - w->file])
			commit_any(w, lazily(w, 3));
	}
	shut_all(w);
}

/* Commits of several frames, in which the files' runs are mixed. */
void work_run_group_frames(struct work_run *w)
{
	make_c(w);
	for (unsigned i = 0; i < WORK_FILES; i++)
		work_open(w, i);
	for (unsigned n = 0; n < 2; n++) {
		struct version v = work_draft(w);
		uint64_t low[WORK_FILES];

		for (unsigned i = 0; i < WORK_FILES; i++) {
			low[i] = v.f[i].size;
			v.f[i].is_there = true;
			work_set_size(&v.f[i], WORK_SIZE_MAX / 4 + work_below(w, 9000), &low[i]);
			work_store(w, &v.f[i], work_below(w, 9000), WORK_SIZE_MAX);
		}
		work_commit(w, v, low, n ? 0 : VM_COMMIT_DURABLE, 3);
	}
	shut_all(w);
}

/* A journal so small that it wraps, on a disk that is full for a time. */
void work_run_group_wrap(struct work_run *w)
{
	for (unsigned i = A; i <= B; i++)
		work_open(w, i);
	commit_any(w, VM_COMMIT_DURABLE);
	pol_file_priv(w->f)->to->limit = 16 << 10;
	make_c(w);
	work_open(w, C);
	for (unsigned i = 0; i < 4; i++) {
		commit_any(w, lazily(w, 2));
		record_room(work_below(w, 6 << 10));
		commit_any(w, lazily(w, 3));
		if (work_below(w, 2))
			work_checkpoint(w);
		record_room(UINT64_MAX);
		commit_any(w, lazily(w, 2));
	}
	shut_all(w);
}

/* Writes and syncs that fail in the middle of it all. */
void work_run_group_failing(struct work_run *w)
{
	for (unsigned i = A; i <= B; i++)
		work_open(w, i);
	commit_any(w, VM_COMMIT_DURABLE);
	make_c(w);
	work_open(w, C);
	for (unsigned i = 0; i < 4; i++) {
		record_fail(1 + (unsigned)work_below(w, 8), work_below(w, 2) ? ENOSPC : EIO);
		commit_any(w, lazily(w, 4));
		record_fail(0, 0);
		commit_any(w, lazily(w, 2));
	}
	shut_all(w);
}
