/* SPDX-License-Identifier: MIT */
/*
 * The file backend for share=process: each process (with those it forked) has an overlay of its own, which
 * shows the file as it was at one instant. What is in storage (journal position, the file's times) is one for
 * all of them.
 *
 * They share RUNTIME_DIR/snapshots-DEV-INO:
 *
 *	[0, 4096)	struct pol_snapshots
 *	[4096, 1 MiB)	the runs of pages of the commit under way: struct pol_file_extent
 *	[1 MiB, ...)	for each page the number of the commit that changed it last, 8 bytes, sparse
 *
 * with three locks of its open file descriptions, which go when their holder dies:
 *
 *	byte 0	the hold: nobody else looks at, or changes, storage and what is shared
 *	byte 1	next in turn for the hold, so that one who commits all the time lets others in
 *	byte 2	shared: somebody who has a snapshot lives
 *
 * A page is in conflict when it is dirty here, and its commit's number is above that of the snapshot.
 */
#ifndef POL_BACKEND_FILE_SNAPSHOT_H
#define POL_BACKEND_FILE_SNAPSHOT_H

#include "backend_file.h"

#define POL_SNAPSHOTS_MAGIC    0x70616e73706d7874ull /* "txmpsnap" */
#define POL_SNAPSHOTS_VERSION  1u
#define POL_SNAPSHOTS_RUNS     4096u
#define POL_SNAPSHOTS_STAMPS   (1u << 20)
#define POL_SNAPSHOTS_MAX_RUNS ((POL_SNAPSHOTS_STAMPS - POL_SNAPSHOTS_RUNS) / sizeof(struct pol_file_extent))

/* Guard: the hold. */
struct pol_snapshots {
	uint64_t magic;
	uint32_t version, len;
	uint64_t dev, ino;
	uint64_t is_held;  /* by one who lives, or who died so */
	uint64_t seq;	   /* commits so far */
	uint64_t all_seq;  /* the last one with which any page, and the size, may have changed */
	uint64_t size_seq; /* ... that changed the size */
	/* the commit under way, so that another one can bring it to its end */
	uint64_t is_under_way;
	uint64_t nruns;
	uint64_t is_any; /* these are not all */
	uint64_t resizes;
	uint64_t is_tail_in_doubt; /* it was killed: its frames may be there, and are not to come back */
	struct pol_file_shared storage;
};
_Static_assert(sizeof(struct pol_snapshots) <= POL_SNAPSHOTS_RUNS, "fits");

/* In struct vm_bigfile.shared, for a process with those it forked. */
struct pol_snapshot_mark {
	uint64_t seq; /* of the last commit that the overlay shows */
};

/* In struct pol_file_priv.snapshot. */
struct pol_snapshot {
	struct pol_snapshots *all; /* mapped */
	int fd;			   /* of it, with this process's locks (home) */
	unsigned nholds;	   /* nested (busy) */
};

/* ---- backend_file_hold.c ---- */

enum pol_snapshot_byte { POL_SNAPSHOT_HOLD, POL_SNAPSHOT_TURN, POL_SNAPSHOT_LIFE };

/* Lock, or with F_UNLCK unlock, a byte at once: -EAGAIN. */
int pol_snapshot_lock(int fd, enum pol_snapshot_byte byte, short type);
/* Lock the hold. -ETIMEDOUT: its holder may be stopped. */
int pol_snapshot_lock_in_turn(int fd);
/* Does somebody live who has a snapshot, but for fd's? */
bool pol_snapshot_has_others(int fd);
/* The hold; nested calls count. An error is in the log. */
int pol_snapshot_hold(struct vm_bigfile *f);
/* The rest of it for one who has just joined. */
int pol_snapshot_begin_hold(struct vm_bigfile *f);
void pol_snapshot_let_go(struct vm_bigfile *f);

/* ---- backend_file_join.c ---- */

/* Become one of them. Afterwards the lock is held, and pol_snapshot_begin_hold is due, before which the first
 * one sees to the storage. */
int pol_snapshot_join(struct vm_bigfile *f, bool *ret_first);
/* f->priv is freed, and with it the lock. */
void pol_snapshot_leave(struct vm_bigfile *f);
/* The last one takes the file in the runtime directory away. Held. */
void pol_snapshot_remove_if_last(struct vm_bigfile *f);

/* ---- backend_file_news.c: which commit changed what; held ---- */

/* Any page, and the size, may have changed. */
void pol_news_all(struct vm_bigfile *f);
/* Tell of what was committed after seq. */
int pol_news_tell(struct vm_bigfile *f, uint64_t seq, struct vm_news *news);
/* What is about to be committed: p->changed, and the size. end: it happened, or not. */
int pol_news_begin(struct vm_bigfile *f, const struct vm_txn *txn);
void pol_news_end(struct vm_bigfile *f, bool happened);
/* One was killed in between: as if it had happened. */
void pol_news_mend(struct vm_bigfile *f);

#endif
