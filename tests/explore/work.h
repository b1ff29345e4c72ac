/* SPDX-License-Identifier: MIT */
/* Workloads: what is done to a managed file while the disk is recorded. */
#ifndef WORK_H
#define WORK_H

#include "disk.h"
#include "vm_backend.h"

#define WORK_SIZE_MAX (512u << 10)
#define WORK_VERSIONS 64u /* of one run */

/* What the file held after a commit. */
struct version {
	uint64_t size;
	uint8_t *bytes;
};

struct work_run {
	const char *dir;
	char path[256]; /* DIR/data */
	uint64_t rnd;
	struct vm_bigfile file[2], *f; /* f: who is at work */
	uint64_t txid;
	struct version version[WORK_VERSIONS];
	unsigned nversions; /* version[0] is there before the first event; some have failed */
	unsigned newest;    /* that has not */
};

struct work {
	const char *name;
	unsigned npoints; /* that are explored of one run, about: the others are left out by lot */
	void (*run)(struct work_run *w);
};
extern const struct work works[];
extern const unsigned nworks;

/* Runs it in an empty directory, recorded: ret_start is what was there, ret what happened. */
void work_run(struct work_run *w, const struct work *work, const char *dir, uint64_t seed,
	      struct disk *ret_start, struct trace *ret);
void work_clear(struct work_run *w);
/* Open the file as it lies in dir, commit a version of its own, and close. Is the file just that? */
bool work_goes_on(struct work_run *w);

#endif
