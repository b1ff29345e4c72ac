/* SPDX-License-Identifier: MIT */
/* The workloads of one file. */
#include "backend_file.h"
#include "record.h"
#include "work_priv.h"

#include <errno.h>
#include <stdlib.h>

static void commit_one(struct work_run *w, struct version v, uint64_t low, unsigned flags)
{
	work_commit(w, v, &low, flags, 0);
}

static void commit_some(struct work_run *w, unsigned n, bool may_be_lazy)
{
	while (n--) {
		struct version v = work_draft(w);
		uint64_t low;

		work_change(w, &v.f[0], &low);
		commit_one(w, v, low, may_be_lazy && work_below(w, 3) ? 0 : VM_COMMIT_DURABLE);
	}
}

static void shut(struct work_run *w)
{
	(void)work_shut(w, 0, true);
}

static void run_durable(struct work_run *w)
{
	work_open(w, 0);
	commit_some(w, 5, false);
	shut(w);
}

static void run_lazy(struct work_run *w)
{
	work_open(w, 0);
	commit_some(w, 8, true);
	shut(w);
}

static void run_growing(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 5; i++) {
		struct version v = work_draft(w);
		struct content *c = &v.f[0];
		uint64_t low = c->size, at = c->size;

		work_set_size(c, at + 1 + work_below(w, 3 * VM_BLKSIZE), &low);
		work_store(w, c, at + work_below(w, c->size - at), 700);
		work_store(w, c, work_below(w, c->size), 20);
		commit_one(w, v, low, VM_COMMIT_DURABLE);
	}
	shut(w);
}

static void run_shrinking(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 8; i++) {
		struct version v = work_draft(w);
		struct content *c = &v.f[0];
		uint64_t low = c->size, cut = work_below(w, c->size + 1);

		work_set_size(c, cut, &low);
		if (work_below(w, 4)) /* nothing of what was cut may come back */
			work_set_size(c, cut + work_below(w, 6 * VM_BLKSIZE), &low);
		if (work_below(w, 2)) /* often what it was before */
			work_store(w, c, cut, work_below(w, 3 * VM_BLKSIZE));
		if (c->size)
			work_store(w, c, work_below(w, c->size), 300);
		commit_one(w, v, low, work_below(w, 2) ? VM_COMMIT_DURABLE : 0);
	}
	shut(w);
}

/* So many runs that they are applied through a mapping. */
static void run_bulk(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct version v = work_draft(w);
		struct content *c = &v.f[0];
		uint64_t low = c->size;

		work_set_size(c, WORK_SIZE_MAX - work_below(w, 9000), &low);
		for (uint64_t off = work_below(w, 200); off < c->size; off += 128 + work_below(w, 200))
			c->bytes[off] = (uint8_t)(c->bytes[off] + 1 + i);
		commit_one(w, v, low, VM_COMMIT_DURABLE);
	}
	shut(w);
}

/* Commits of several frames. */
static void run_frames(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct version v = work_draft(w);
		uint64_t low = v.f[0].size;

		work_set_size(&v.f[0], WORK_SIZE_MAX, &low);
		work_store(w, &v.f[0], work_below(w, 9000), WORK_SIZE_MAX);
		work_commit(w, v, &low, i ? 0 : VM_COMMIT_DURABLE, 2 + i);
	}
	shut(w);
}

static void limit_journal(struct work_run *w, uint64_t limit)
{
	pol_file_priv(w->f)->j.limit = limit;
}

/* A journal so small that it wraps again and again. */
static void run_wrap(struct work_run *w)
{
	work_open(w, 0);
	limit_journal(w, 32 << 10);
	commit_some(w, 14, true);
	shut(w);
}

/* Checkpoints between commits, with and without something to do for them, and ends of use that are none. */
static void run_checkpoint(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 8; i++) {
		commit_some(w, (unsigned)work_below(w, 3), true);
		if (work_below(w, 3))
			work_checkpoint(w);
		else if (!w->f->ops->idle(w->f))
			record_mark(EV_DURABLE, w->newest);
	}
	shut(w);
}

/* Writes and syncs that fail, in the middle of commits and checkpoints. */
static void run_failing(struct work_run *w)
{
	work_open(w, 0);
	for (unsigned i = 0; i < 4; i++) {
		record_fail(1 + (unsigned)work_below(w, 4), work_below(w, 2) ? ENOSPC : EIO);
		commit_some(w, 1, work_below(w, 4) == 0);
		record_fail(0, 0);
		commit_some(w, 1, true);
	}
	shut(w);
}

/* The disk is full for a time: in the middle of a frame, of a checkpoint, or of writing to the file. */
static void run_no_space(struct work_run *w)
{
	work_open(w, 0);
	limit_journal(w, 16 << 10); /* so much space it has in any case */
	for (unsigned i = 0; i < 3; i++) {
		commit_some(w, 1, true);
		record_room(work_below(w, 6 << 10));
		commit_some(w, 3, work_below(w, 3) == 0);
		if (work_below(w, 2))
			work_checkpoint(w);
		record_room(UINT64_MAX);
	}
	commit_some(w, 1, false);
	shut(w);
}

/* Journals are made and removed. */
static void run_lives(struct work_run *w)
{
	for (unsigned i = 0; i < 4; i++) {
		work_open(w, 0);
		commit_some(w, 1 + (unsigned)work_below(w, 2), true);
		shut(w);
	}
}

static int ignore(struct vm_news *news, uint64_t start, uint64_t stop)
{
	(void)news, (void)start, (void)stop;
	return 0;
}

/* Two processes, as far as the backend can see, each with a snapshot, which commit in turn. */
static void run_snapshots(struct work_run *w)
{
	for (unsigned i = 0; i < 2; i++)
		work_open_with(w, i, w->path[0], &pol_backend_file_snapshot);
	for (unsigned i = 0; i < 8; i++) {
		struct vm_news news = {.pages = ignore};

		w->f = &w->file[work_below(w, 2)];
		work_must(!w->f->ops->hold(w->f, &news), "hold");
		commit_some(w, 1, true);
		w->f->ops->let_go(w->f, 1);
	}
	for (unsigned i = 0; i < 2; i++)
		(void)work_shut(w, i, true);
}

/* clang-format off: a line for each */
const struct work works[] = {
	{"durable", 90, run_durable, false},
	{"lazy", 90, run_lazy, false},
	{"growing", 90, run_growing, false},
	{"shrinking", 90, run_shrinking, false},
	{"bulk", 12, run_bulk, false},
	{"frames", 12, run_frames, false},
	{"wrap", 90, run_wrap, false},
	{"checkpoint", 90, run_checkpoint, false},
	{"failing", 90, run_failing, false},
	{"no space", 90, run_no_space, false},
	{"lives", 90, run_lives, false},
	{"snapshots", 90, run_snapshots, false},
	{"group", 90, work_run_group, true},
	{"group lives", 90, work_run_group_lives, true},
	{"group frames", 12, work_run_group_frames, true},
	{"group wrap", 90, work_run_group_wrap, true},
	{"group failing", 90, work_run_group_failing, true},
};
const unsigned nworks = sizeof(works) / sizeof(*works);
