/* SPDX-License-Identifier: MIT */
/*
 * The workload: a process that manages one file, or a group of two, goes from version to version, ends the use, and
 * opens a file that a crash left behind. Versions are of all its files together.
 */
#ifndef WORK_H
#define WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op {
	OP_OPEN,   /* the file goes live */
	OP_COMMIT, /* msync */
	OP_LAZY,   /* a commit that does not wait */
	OP_GROW,   /* ftruncate, stores, msync */
	OP_CHECKPOINT,
	OP_SHRINK,
	OP_END,	    /* munmap, close: the release commits */
	OP_RECOVER, /* another file, with a journal */
	OP_N
};
extern const char *const op_names[OP_N];

/* Which version an operation makes; 0: none. Is it durable when it returns 0? */
extern const int op_version[OP_N];
bool op_is_durable(enum op op);

struct work {
	char dir[128], run[128]; /* of the files; of the processes, and RUN.conf, the settings */
	unsigned nfiles;	 /* that are managed together */
};

/* Files of version 0, one that needs recovery, nothing else in the directory. */
void work_prepare(const struct work *w);
/* In a process of its own: the settings, before anything that may fail. */
void work_begin(const struct work *w);
/* Do it, or go on where it failed. 0 or -errno. */
int work_do(const struct work *w, enum op op);
/* After a failure: does the program see all it stored, and is it still to be committed? */
bool work_keeps_stores(const struct work *w, enum op op);

/* In the parent: recover what there is, without failures. Which version the files are, -1: none; and whether the
 * file that needed recovery is what it should be. */
int work_version(const struct work *w, char *ret_why, size_t len);
bool work_is_recovered(const struct work *w);

#endif
