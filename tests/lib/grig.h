/* SPDX-License-Identifier: MIT */
/* The journal of a group of three files in a box, driven without a backend. Files are counted from 0 here; their
 * numbers in the journal are one more. */
#ifndef GRIG_H
#define GRIG_H

#include "box.h"
#include "journal.h"

#define GRIG_N 3u

/* A state of them all. */
struct group_image {
	struct image f[GRIG_N];
};

struct grig {
	struct box box; /* box.journal is the group's */
	char path[GRIG_N][300];
	int fd[GRIG_N]; /* what files gives: a descriptor, -errno, or VM_FILE_GONE */
	struct vm_journal_files files;
	struct vm_journal_pos pos;
	struct vm_journal j;
	uint64_t txid;
	uint64_t named[GRIG_N]; /* the generation that has the file's name */
};

/* Empty files, and a journal started over. */
void grig_make(struct grig *g);
void grig_remove(struct grig *g);
void grig_name(const struct grig *g, unsigned i, struct vm_journal_name *ret);
/* Add the way of one file, with its name where that is needed; its size comes last. */
int grig_add(struct grig *g, unsigned i, const struct image *from, const struct image *to, uint64_t low);
/* Commit the way from one state to another, of the files that differ. low: of each, or NULL: nothing was cut. */
int grig_commit(struct grig *g, const struct group_image *from, const struct group_image *to,
		const uint64_t low[GRIG_N], bool sync);
/* A random change of one file at least; no two states in a row are alike. */
void group_change(struct group_image *im, uint64_t *rnd, uint64_t low[GRIG_N]);
void group_put(const struct grig *g, const struct group_image *im);
/* Are the files exactly this? */
int group_is_in(const struct group_image *im, const struct grig *g);

#endif
