/* SPDX-License-Identifier: MIT */
/* Files whose backend commits them together. */
#ifndef RIG_GROUP_H
#define RIG_GROUP_H

#include "rig.h"

#define RIG_MAX_GROUP 8u
struct rig_set {
	unsigned n;
	struct rig_file *f[RIG_MAX_GROUP];
	struct vm_fileh *h[RIG_MAX_GROUP];
	struct vm_commit_result res[RIG_MAX_GROUP]; /* of the last commit */
};

/* Files of one group and a handle on each; r has the first. */
void rig_open_set(struct rig *r, struct rig_set *s, unsigned n, struct rig_file *(*make)(uint64_t size),
		  uint64_t size);
int rig_try_commit_set(struct rig_set *s);
void rig_commit_set(struct rig_set *s);
/* Transactions that have happened. */
uint64_t rig_ntxns(struct rig_set *s);

/* The backend's part of it, called by the file's operations. */
void rig_group_begin(struct rig_file *f);
void rig_group_end(struct rig_file *f);
/* 1: nothing has changed. */
int rig_group_commit(struct rig_file *f, const struct vm_txn *txn, unsigned flags);

#endif
