/* SPDX-License-Identifier: MIT */
/*
 * The journal: commits, written ahead of the file they change. docs/journal.md is the format for strangers.
 *
 *	[0, 4096) [4096, 8192)	two header slots, equal but for the moment of a start-over
 *	[8192, ...)		frames of one generation, in order, each aligned to 512
 *
 * A journal is of one file, or of a group of files, which then have numbers from 1 on, and each of them a stub
 * where its own journal would be: the headers, and one record that says where the group's journal is.
 *
 * Invariants, cited by the code:
 *
 *	J1  A commit counts when its commit frame and all before it in the generation verify, in chain order.
 *	J2  No frame is written before a header of its generation is durable.
 *	J3  Nothing of a commit reaches the file before its frames are durable.
 *	J4  A generation ends only after the file durably holds all its commits.
 *	J5  durable_seq of a frame never names a commit that was not durable when the frame was written; so a
 *	    readable frame proves that everything up to its durable_seq was once good.
 *	J6  The position changes by one store (turn): a process killed anywhere leaves a whole one behind.
 *	J7  A generation of a group names a file no later than in the first commit that has runs of it, and that
 *	    commit, as each that has some, its size.
 *
 * One writer at a time, which the caller sees to; it may be another process after a fork: all that must not
 * fork is in struct vm_journal_pos. vm_journal_read may run beside the writer, in a signal handler.
 */
#ifndef VM_JOURNAL_H
#define VM_JOURNAL_H

#include "vm_backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the journal's structs are its little endian format"
#endif

#define VM_JOURNAL_MAGIC	 0x314c4e524a58540aull /* "\nTXJRNL1" */
#define VM_JOURNAL_FRAME_MAGIC	 0x454d415246585404ull /* "\4TXFRAME" */
#define VM_JOURNAL_STUB_MAGIC	 0x50554f5247585404ull /* "\4TXGROUP" */
#define VM_JOURNAL_VERSION	 1u
#define VM_JOURNAL_VERSION_GROUP 2u /* of groups and stubs: who knows only version 1 must not touch them */
#define VM_JOURNAL_SLOT		 4096u
#define VM_JOURNAL_START	 8192u /* offset of the first frame */
#define VM_JOURNAL_ALIGN	 512u
#define VM_JOURNAL_PAYLOAD_MAX	 (1u << 20)
#define VM_JOURNAL_FRAME_MAX	 (VM_JOURNAL_PAYLOAD_MAX + 2 * VM_JOURNAL_ALIGN)
#define VM_JOURNAL_LIMIT	 (64ull << 20)

/* One header slot. Zero up to VM_JOURNAL_SLOT. magic, version, sum stay where they are in all versions. */
struct vm_journal_header {
	uint64_t magic;
	uint32_t version;
	uint32_t len; /* of this struct */
	uint64_t sum; /* XXH3-64 of the struct with sum = 0 */
	uint64_t generation;
	uint64_t salt;	    /* random, anew in each generation */
	uint64_t base_txid; /* last transaction before this generation */
	uint64_t dev;	    /* the data file: */
	uint64_t ino;
	uint64_t igen;	/* its inode's generation number, 0 when the file system tells none */
	uint64_t size;	/* its size when the generation began */
	char name[256]; /* its last path component, cut to 255 bytes; or the group's name */
	uint32_t kind;	/* VM_JOURNAL_ONE ... */
	uint32_t reserved0;
	uint64_t group; /* random; the same in a group's journal and the stubs of its members */
	uint8_t reserved[160];
};
_Static_assert(sizeof(struct vm_journal_header) == 512, "one sector");

#define VM_JOURNAL_ONE	 0u /* of one file */
#define VM_JOURNAL_GROUP 1u /* dev, ino, igen, size are 0 */
#define VM_JOURNAL_STUB	 2u

#define VM_FRAME_COMMIT 1u /* the last frame of a commit */
#define VM_FRAME_BASE	2u /* with VM_FRAME_COMMIT: some run of the commit is a VM_RUN_BASE */

struct vm_frame {
	uint64_t magic;
	uint64_t generation;
	uint64_t salt;
	uint64_t offset;      /* of this frame in the journal */
	uint64_t prev;	      /* sum of the frame before; the salt for the first of a generation */
	uint64_t seq;	      /* number of the commit, from 1 in each generation */
	uint64_t durable_seq; /* J5 */
	uint64_t attempt;     /* different each time a commit is tried */
	uint64_t txid;	      /* commit frame: the transaction's number for people */
	uint64_t size;	      /* commit frame: the file's new size; 0 in a group's journal, as is cut */
	uint64_t cut;	      /* commit frame: the file is cut to this size before it gets the new one */
	uint32_t len;	      /* of the payload that follows */
	uint32_t flags;
	uint64_t payload_sum; /* XXH3-64 of the payload */
	uint64_t reserved[2];
	uint64_t sum; /* XXH3-64 of all fields above */
};
_Static_assert(sizeof(struct vm_frame) == 128, "frame header");

/* Flags of a run: its kind, and the file's number from VM_RUN_FILE_SHIFT on. The number is 0 when the journal is
 * of one file, which has no SIZE and NAME runs. Kind 0: bytes of the file. */
/* What lay at a place before the commit's cut takes it away and storing there found it unchanged: such runs
 * of a commit come before all its others. */
#define VM_RUN_BASE 1u
/* off is the file's new size; the bytes: the size that it is cut to before (8 bytes). These come first of all. */
#define VM_RUN_SIZE	  2u
#define VM_RUN_NAME	  4u /* the bytes: struct vm_name_record, path */
#define VM_RUN_KINDS	  0xffu
#define VM_RUN_FILE_SHIFT 8
#define VM_JOURNAL_NFILES 65536u /* file numbers are below it */

/* One run of the payload; len bytes follow, then at once the next run. */
struct vm_run {
	uint64_t off;
	uint32_t len;
	uint32_t flags;
};

/* The path follows, with its 0; relative to the journal's directory when it is below that, else absolute. */
struct vm_name_record {
	uint64_t dev, ino, igen;
	uint32_t flags;
	uint32_t reserved;
};
#define VM_NAME_UNLINKED 1u /* the file has no name left: nobody will ask for it after a crash */

/* Which file a journal belongs to. */
struct vm_journal_id {
	uint64_t dev, ino, igen;
	char name[256];
};

/* A file of a group, as a generation names it. */
struct vm_journal_name {
	uint64_t dev, ino, igen;
	bool is_unlinked;
	const char *path; /* relative to the journal's directory when it is below that, else absolute */
};

/* The files of a journal, for those who write to them. */
struct vm_journal_files {
	int fd; /* when the journal is of one file */
	/* A descriptor of the group's file with this number, open for writing, the caller's; -errno: it cannot
	 * be had, and what needed it fails with that; VM_FILE_GONE: its commits are nobody's concern any more. */
	int (*get)(const struct vm_journal_files *files, uint32_t file);
};
#define VM_FILE_GONE (-0x7fffffff)

#define VM_MARK_START	1u /* headers are in doubt: start over before the next frame */
#define VM_MARK_REWRITE 2u /* an fdatasync failed over [synced, tail): write these frames again first */

/* A position. START <= applied <= synced <= tail <= alloc; all 0: no journal yet. */
struct vm_journal_mark {
	uint64_t generation, salt;
	uint64_t tail;	  /* where the next frame goes */
	uint64_t synced;  /* frames before it are durable */
	uint64_t applied; /* frames before it are in the file (maybe only in its page cache) */
	uint64_t alloc;	  /* blocks before it were written once: overwriting them allocates nothing */
	uint64_t chain;	  /* sum of the last frame */
	uint64_t seq, durable_seq;
	uint64_t txid;
	uint64_t size; /* committed size of the file, as of tail */
	uint32_t flags;
	uint32_t good_slot; /* the header slot that is known to be durable */
};

/* Shared by forked processes. */
struct vm_journal_pos {
	_Atomic uint64_t turn; /* mark[turn & 1] is the one that counts */
	_Atomic uint64_t attempt;
	struct vm_journal_mark mark[2];
};

struct vm_journal {
	int fd;			    /* of the journal, or -1 */
	struct vm_journal_pos *pos; /* (fixed) */
	struct vm_journal_id id;    /* (fixed) */
	uint64_t limit;		    /* start over when half of it is used (fixed) */
	uint64_t group;		    /* random number of the group, 0: of one file (fixed) */

	/* the transaction being built; private to the process that builds it */
	uint8_t *frame; /* VM_JOURNAL_FRAME_MAX bytes: header, then fill bytes of payload */
	uint32_t fill;
	uint32_t flags;	  /* VM_FRAME_BASE */
	bool is_open;	  /* begun, and not committed */
	uint64_t nframes; /* already written */
	uint64_t attempt;
	uint64_t tail, chain, alloc;
	uint64_t nsyncs;	      /* checkpoints that synced the files of a group */
	struct vm_journal_file *file; /* VM_JOURNAL_NFILES of them, or NULL when it is of one file */
};

/* Needs fd, pos, id, limit, group set. id of a group: only its name counts. 0 or -errno. */
int vm_journal_init(struct vm_journal *j);
void vm_journal_fini(struct vm_journal *j);
/* A random number that is not 0: for a new group. */
int vm_journal_random(uint64_t *ret);

/* The position now; returns its turn. */
uint64_t vm_journal_mark(struct vm_journal *j, struct vm_journal_mark *ret);
void vm_journal_set_mark(struct vm_journal *j, const struct vm_journal_mark *m);

/* A new generation, also the first. size: of the file. It is an error to call it while the file does not
 * durably hold all commits (J4). On an error VM_MARK_START stays set: the old generation is over too, and
 * this must be tried again. */
int vm_journal_start_over(struct vm_journal *j, uint64_t size);

/* Build a transaction. It is an error to begin while VM_MARK_START is set. add: bytes at an offset of the
 * file; of overlapping runs the later counts. flags: VM_RUN_BASE, and the file's number << VM_RUN_FILE_SHIFT. An
 * error of add ends the transaction; the journal stands as before begin. */
void vm_journal_begin(struct vm_journal *j);
int vm_journal_add(struct vm_journal *j, uint64_t off, const void *data, size_t len, uint32_t flags);
/* In a group: exactly once for each file that takes part, anywhere in the transaction. cut <= size. */
int vm_journal_add_size(struct vm_journal *j, uint32_t file, uint64_t size, uint64_t cut);
/* In a group: anywhere in the first transaction of a generation that has runs of the file, at the latest. A later
 * one replaces it. A number is one file's until the generation ends. -ENAMETOOLONG: PATH_MAX and more. */
int vm_journal_add_name(struct vm_journal *j, uint32_t file, const struct vm_journal_name *name);
/* Is one being built, and anything in it? */
bool vm_journal_has_runs(const struct vm_journal *j);
/* Write the commit frame; sync: and make it durable, with all before it. Of txn a group's journal takes txid only.
 * On an error the commit has not
 * happened, and care was taken that a crash does not bring it back. After -ENOSPC with nothing streamed yet
 * (nframes == 0) the same transaction may be committed again, also in a new generation (vm_journal_rebase).
 */
int vm_journal_commit(struct vm_journal *j, const struct vm_txn *txn, bool sync);
/* The journal started over since begin: go on there. It is an error when nframes != 0. */
void vm_journal_rebase(struct vm_journal *j);

/* Another writer was killed in the middle of a commit: what it may have written behind the tail does not come
 * back with a crash. Nothing more could be done on an error. */
void vm_journal_forget(struct vm_journal *j);

/* Make all commits durable. */
int vm_journal_sync(struct vm_journal *j);
/* Bring durable commits that are not yet there into the files. */
int vm_journal_apply(struct vm_journal *j, const struct vm_journal_files *files);
/* sync, apply, fdatasync of all files that this generation has a size of, start over. When a file's fdatasync
 * fails, everything since the last start-over counts as not applied. */
int vm_journal_checkpoint(struct vm_journal *j, const struct vm_journal_files *files);
/* The committed bytes [off, off + len) of a file: what it holds, under what is not yet applied. Zeros past
 * the end. Any thread, any context; only fd and pos of j are looked at. */
int vm_journal_read(struct vm_journal *j, uint32_t file, int data_fd, void *buf, size_t len, uint64_t off);

/* Make fd a member's stub, durably; what it held is gone. It is an error to do so while that may count. path: of
 * the group's journal. */
int vm_journal_write_stub(int fd, const struct vm_journal_id *id, uint64_t group, const char *path);

#endif
