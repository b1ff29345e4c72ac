/* SPDX-License-Identifier: MIT */
/* Workloads: what is done to managed files while the disk is recorded. */
#ifndef WORK_H
#define WORK_H

#include "disk.h"
#include "vm_backend.h"

#define WORK_SIZE_MAX (512u << 10)
#define WORK_VERSIONS 64u /* of one run */
#define WORK_FILES    3u

/* What a file held after a commit. */
struct content {
	bool is_there; /* else it may also be there, and empty: made, and not yet committed to */
	uint64_t size;
	uint8_t *bytes; /* WORK_SIZE_MAX */
};
struct version {
	struct content f[WORK_FILES];
};

struct work_run {
	const char *dir;
	uint64_t rnd;
	char path[WORK_FILES][256];
	unsigned npaths; /* files that are there, or will be */
	char group[256]; /* path of the group's journal; "": each file has its own */
	struct vm_bigfile file[WORK_FILES];
	bool is_open[WORK_FILES];
	struct vm_bigfile *f; /* of one file: who is at work */
	uint64_t txid;
	struct version version[WORK_VERSIONS];
	unsigned nversions; /* version[0] is there before the first event; some have failed */
	unsigned newest;    /* that has not */
};

struct work {
	const char *name;
	unsigned npoints; /* that are explored of one run, about: the others are left out by lot */
	void (*run)(struct work_run *w);
	bool is_group;
};
extern const struct work works[];
extern const unsigned nworks;

/* Runs it in a directory with nothing but those of disk_begin, recorded: ret_start is what was there, ret what
 * happened. */
void work_run(struct work_run *w, const struct work *work, const char *dir, uint64_t seed,
	      struct disk *ret_start, struct trace *ret);
void work_clear(struct work_run *w);
/* Open the files as they lie in dir, commit a version of their own, and close. Are they just that? */
bool work_goes_on(struct work_run *w);
/* Is the file what it was in the version? */
bool work_is_content(const struct content *c, const char *path);

#endif
