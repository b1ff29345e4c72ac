/* SPDX-License-Identifier: MIT */
/* The managed files of this process, and what can be done to them from outside (control socket, signals,
 * timers). */
#ifndef POL_MANAGED_H
#define POL_MANAGED_H

#include "pol.h"
#include "config.h"
#include "vm.h"

struct pol_result {
	uint64_t txid;	 /* of the last commit */
	uint64_t nfiles; /* files the request applied to */
	uint64_t npages;
	uint64_t nbytes;
	uint64_t usec;
	uint64_t order;	 /* number of the request */
	uint64_t ninstants;  /* snapshot: files of one are of one instant */
	uint64_t nreflinked; /* snapshot: files whose copy shares their blocks */
	int err;	  /* 0 or the first -errno */
	char error[256]; /* one line, when err */
};

struct pol_file_status {
	const char *path;
	const char *rule;
	const char *backend;
	uint64_t size, npages_resident, npages_dirty, txid;
	uint64_t last_commit_usec; /* CLOCK_REALTIME, 0: none in this process */
	uint64_t ncommits, nfailed;
	unsigned nvmas, nfds;
	bool size_dirty;
	bool on_disk;	     /* nothing that was committed is in the journal only */
	bool snapshot;	     /* share=process */
	bool needs_recovery; /* an apply failed: the journal holds what the file does not */
	char last_error[256];
};

/* path: a canonical path, a glob, or NULL for all. -ENOENT in ret->err: nothing managed matches. */
void pol_managed_commit(const char *path, struct pol_result *ret);
void pol_managed_discard(const char *path, struct pol_result *ret);
void pol_managed_invalidate(const char *path, uint64_t off, uint64_t len, struct pol_result *ret);
/* Copy what the program sees to out, absolute: a file, or a directory, which it must be for several files. replace:
 * what is there. */
void pol_managed_snapshot(const char *path, const char *out, bool replace, struct pol_result *ret);
/* Calls fn for each managed file, in the order of first use. */
void pol_managed_status(void (*fn)(const struct pol_file_status *st, void *arg), void *arg);
/* Timers (interval, checkpoint at idle, dirty limit). Returns microseconds until it wants to be called again,
 * or -1. */
int64_t pol_managed_tick(void);
/* Work that a signal or MS_ASYNC left for the helper thread. */
void pol_managed_deferred(void);

/* The settings of the process. */
const struct pol_config *pol_config_get(void);

/* ---- control.c: the helper thread, with the control socket ---- */

/* Start the helper thread (idempotent). Any thread. 0 or -errno. */
int pol_control_start(void);
/* Make it look at deferred work. Signal handler context. */
void pol_control_kick(void);
/* In a forked child: the parent's thread and socket are not ours; start anew if it ran. */
void pol_control_fork_child(void);
/* Before the process ends: remove the socket files, and say that it has no file any more. */
void pol_control_stop(void);

#endif
