/* SPDX-License-Identifier: MIT */
/*
 * A disk with two directories, the second in the first, as crashes see it: what was done to it, call by call, and
 * what it holds when only some of that arrived.
 */
#ifndef DISK_H
#define DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SECTOR	 512u
#define NNODES	 64u /* files of one trace: each journal that is made is one */
#define NNAMES	 16u
#define NAME_LEN 64u
#define NOBODY	 (-1) /* no file */
#define NDIRS	 2u
#define OTHER	 "other/" /* names in the second directory begin with it */

enum event_kind {
	EV_WRITE,	/* len bytes at off; zero: zeros, which make the file no longer */
	EV_SIZE,	/* off is the new one */
	EV_SYNC,	/* what was done to the file before is on the disk */
	EV_NAME,	/* the name, len bytes with its 0, is the file's, or nobody's */
	EV_SYNC_FAILED, /* ... is there or lost: no later sync brings it */
	EV_SYNC_DIR,	/* off is its number */
	EV_STARTED,	/* a version, off, may be seen from here on */
	EV_DURABLE,	/* ... no older one than off */
	EV_FAILED,	/* ... and off is none of them any more */
};

struct event {
	enum event_kind kind;
	int node;
	bool zero;
	uint64_t off, len;
	size_t at; /* of the bytes in the trace's */
};

/* What was done, in order. */
struct trace {
	struct event *ev;
	size_t n, max;
	uint8_t *bytes;
	size_t nbytes, max_bytes;
};

struct node {
	uint64_t size, max;
	uint8_t *bytes; /* zeros from size to max */
};

struct disk {
	struct node node[NNODES];
	unsigned nnodes;
	char name[NNAMES][NAME_LEN];
	unsigned nnames;
	int owner[NNAMES]; /* the node that has the name, or NOBODY */
};

void trace_add(struct trace *t, const struct event *ev, const void *bytes);
void trace_clear(struct trace *t);

/* The number of the directory that the name is in. */
unsigned disk_dir_of(const char *name);
/* The name's number; it is given one when it is new. */
int disk_name(struct disk *d, const char *name);
/* Bring [from, to) of the event's bytes, or the whole change, to the disk. Those without an effect do
 * nothing. */
void disk_do(struct disk *d, const struct trace *t, const struct event *ev, uint64_t from, uint64_t to);
void disk_copy(struct disk *to, const struct disk *from);
void disk_clear(struct disk *d);
/* Make the directories that disk_put and disk_get are given; disk_end: remove them, and all in them. */
void disk_begin(const char *dir);
void disk_end(const char *dir);
/* Make dir what the disk holds. A name without a dot for its first keeps its inode, also when it is away
 * meanwhile: journals are bound to it. */
void disk_put(const struct disk *d, const char *dir);
/* What dir holds, as a disk. */
void disk_get(struct disk *d, const char *dir);

#endif
