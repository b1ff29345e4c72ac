/* SPDX-License-Identifier: MIT */
/* What workloads are made of. */
#ifndef WORK_PRIV_H
#define WORK_PRIV_H

#include "work.h"

void work_must(bool ok, const char *what);
uint64_t work_below(struct work_run *w, uint64_t n);

/* Open a path as w->file[i]; w->f is it then. */
void work_open_with(struct work_run *w, unsigned i, const char *path, const struct vm_backend_ops *ops);
void work_open(struct work_run *w, unsigned i);
/* The end of use. last: what was committed is durable then. */
int work_shut(struct work_run *w, unsigned i, bool last);

/* A version to change: what the last one was. It is given to work_commit. */
struct version work_draft(const struct work_run *w);
void work_set_size(struct content *c, uint64_t size, uint64_t *low);
void work_store(struct work_run *w, struct content *c, uint64_t off, uint64_t len);
/* Some stores, now and then another size. */
void work_change(struct work_run *w, struct content *c, uint64_t *low);
/* The draft is a version, which is the newest one then, or has failed. low: of each file. again: so often
 * everything is stored again before it is committed. */
void work_commit(struct work_run *w, struct version next, const uint64_t *low, unsigned flags,
		 unsigned again);
void work_checkpoint(struct work_run *w);

/* works_group.c */
void work_run_group(struct work_run *w);
void work_run_group_lives(struct work_run *w);
void work_run_group_frames(struct work_run *w);
void work_run_group_wrap(struct work_run *w);
void work_run_group_failing(struct work_run *w);

#endif
