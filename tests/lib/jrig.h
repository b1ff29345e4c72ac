/* SPDX-License-Identifier: MIT */
/* A journal beside a file in a box, driven without a backend: core's tests of the journal itself. */
#ifndef JRIG_H
#define JRIG_H

#include "box.h"
#include "journal.h"

struct jrig {
	struct box box;
	int data_fd;
	struct vm_journal_files files; /* data_fd */
	struct vm_journal_pos pos;
	struct vm_journal j;
	uint64_t txid;
};

/* An empty data file, and a journal started over. */
void jrig_make(struct jrig *r);
void jrig_remove(struct jrig *r);
/* Every byte that differs, or lies beyond low, as runs. */
int jrig_add_changes(struct vm_journal *j, uint32_t flags, const struct image *from, const struct image *to,
		     uint64_t low);
/* Commit the way from one image to another. */
int jrig_commit(struct jrig *r, const struct image *from, const struct image *to, uint64_t low, bool sync);

#endif
