/* SPDX-License-Identifier: MIT */
/* Reading a journal: what it holds, and bringing that into the file. Memory use does not grow with the
 * journal. */
#ifndef VM_RECOVER_H
#define VM_RECOVER_H

#include "journal.h"

enum vm_scan_state {
	VM_SCAN_EMPTY,	 /* nothing to replay */
	VM_SCAN_COMMITS, /* complete commits */
	VM_SCAN_DAMAGED, /* something that was durable does not verify */
	VM_SCAN_MEMBER,	 /* a stub: the commits are in the group's journal */
	VM_SCAN_FOREIGN, /* not this file's, not this version's, or no journal at all */
};

enum vm_scan_why {
	VM_SCAN_OK,
	VM_SCAN_SHORT,	    /* EMPTY: ends before its first frame */
	VM_SCAN_UNSTARTED,  /* EMPTY: no header was ever completed */
	VM_SCAN_BAD_FRAME,  /* DAMAGED: the commit at bad_off; the frame at proof_off says that it was durable
			     */
	VM_SCAN_BAD_RUN,    /* DAMAGED: the frame at bad_off verifies and makes no sense */
	VM_SCAN_BAD_STUB,   /* DAMAGED: the path of the group's journal does not verify */
	VM_SCAN_BAD_HEADER, /* DAMAGED: frames, but no header of theirs */
	VM_SCAN_NO_JOURNAL, /* FOREIGN */
	VM_SCAN_VERSION,    /* FOREIGN */
	VM_SCAN_IDENTITY,   /* FOREIGN: of another file, or of a group where a file's was asked for */
};

struct vm_scan {
	enum vm_scan_state state;
	enum vm_scan_why why;
	struct vm_journal_header header; /* the one in force, when there is one */
	uint32_t slot;			 /* where it is */
	uint64_t ncommits, first_txid, last_txid;
	uint64_t end;	  /* offset after the last complete commit */
	uint64_t dropped; /* bytes of an incomplete commit that begins there; 0: nothing to be seen of one */
	uint64_t size;	  /* file size after the last complete commit; 0 in a group */
	uint64_t bad_off, bad_seq, proof_off;
	uint64_t chain; /* sum of the last complete commit's frame */
};

/* 0: the question is answered. -errno: the journal could not be read. id may be NULL: any file, or a group. */
int vm_journal_scan(int fd, const struct vm_journal_id *id, struct vm_scan *ret);
/* Where a stub (VM_SCAN_MEMBER) says that the group's journal is; at most PATH_MAX bytes. */
int vm_journal_read_stub(int fd, char *ret_path);

/* Of a group: the names and sizes in frames [from, to), in order; each counts until the next one of the file. A
 * result other than 0 ends it and is returned. */
struct vm_journal_note {
	uint32_t file;
	const struct vm_journal_name *name; /* NULL: it is a size */
	uint64_t size, cut;
};
typedef int vm_journal_note_fn(const struct vm_journal_note *note, void *arg);
int vm_journal_notes(int fd, uint64_t from, uint64_t to, vm_journal_note_fn *fn, void *arg);

/* Replay frames [from, to), which are whole commits, in order: sizes, then bytes. No sync. Each frame is
 * verified again before any of it is used: -EUCLEAN. It may be repeated after any failure, from the same
 * from. A group's has files->get. */
typedef void vm_replay_fn(uint64_t done, uint64_t total, void *arg);
int vm_journal_replay(int fd, const struct vm_journal_files *files, uint64_t from, uint64_t to,
		      vm_replay_fn *progress, void *arg);

/* Is the id's file the one that the header speaks of? Device numbers may change over a boot, so the inode's
 * generation number counts more where there is one. */
bool vm_journal_is_of(const struct vm_journal_header *h, const struct vm_journal_id *id);

/* Pieces shared with the writer. */
uint64_t vm_journal_header_sum(const struct vm_journal_header *h);
uint64_t vm_frame_sum(const struct vm_frame *fr);
uint64_t vm_frame_payload_sum(const void *payload, size_t len);
static inline uint64_t vm_frame_space(const struct vm_frame *fr)
{
	return (sizeof(*fr) + (uint64_t)fr->len + VM_JOURNAL_ALIGN - 1) & ~(uint64_t)(VM_JOURNAL_ALIGN - 1);
}
/* The run at p, and where its bytes are; NULL when it does not fit. */
const uint8_t *vm_run_at(const uint8_t *p, const uint8_t *stop, struct vm_run *ret);
static inline uint32_t vm_run_file(const struct vm_run *run)
{
	return run->flags >> VM_RUN_FILE_SHIFT;
}
static inline uint32_t vm_run_kind(const struct vm_run *run)
{
	return run->flags & VM_RUN_KINDS;
}

/* What the writer of a group knows of each file. */
struct vm_journal_file {
	uint64_t size;
	uint64_t commit;  /* sum of the commit frame that size is of */
	uint64_t attempt; /* at a transaction that has its size */
	uint64_t synced;  /* by the checkpoint with this number */
};
/* Zeroed memory for an entry of each file that a group can have; NULL: none. */
void *vm_files_alloc(size_t entry_size);
void vm_files_free(void *table, size_t entry_size);
/* The descriptor, -errno, or VM_FILE_GONE. */
static inline int vm_file_get(const struct vm_journal_files *files, uint32_t file)
{
	return file ? files->get(files, file) : files->fd;
}

/* One commit on its way into the files. */
struct vm_apply {
	int fd; /* of the journal */
	const struct vm_journal_files *files;
	struct vm_journal_file *table; /* NULL: of one file */
	struct vm_frame commit;
};
/* Give the files the sizes of a commit of which this is a frame. */
int vm_apply_sizes(const struct vm_apply *a, const struct vm_frame *fr);
/* Give them the bytes of one frame, which was verified, with its payload behind it, and is in the journal, too.
 * kind: the VM_RUN_BASE runs, or (0) the others. After all sizes of the commit. */
int vm_apply_frame(const struct vm_apply *a, const struct vm_frame *fr, uint32_t kind);
/* As vm_journal_replay. */
int vm_replay(int fd, const struct vm_journal_files *files, struct vm_journal_file *table, uint64_t from,
	      uint64_t to, vm_replay_fn *progress, void *arg);

/* Do the frames of a generation, one after the other, make sense? */
struct vm_sense {
	struct vm_sense_file *file; /* VM_JOURNAL_NFILES of them, or NULL when it is of one file */
	uint64_t seq;		    /* of the commit that they are in */
	unsigned nlacking;	    /* names and sizes that files with a part in it have not yet */
};
int vm_sense_init(struct vm_sense *s, bool is_group);
void vm_sense_fini(struct vm_sense *s);
/* fr has its payload behind it. */
bool vm_sense_frame(struct vm_sense *s, const struct vm_frame *fr);

/* Read the frame at off into buf (VM_JOURNAL_FRAME_MAX bytes), or its header only, and verify it. -EUCLEAN. */
int vm_frame_load_header(int fd, uint64_t off, struct vm_frame *ret);
int vm_frame_load(int fd, uint64_t off, void *buf);
/* Find the commit frame of the commit that begins at off; *ret_next is the offset after it. */
int vm_frame_find_commit(int fd, uint64_t off, struct vm_frame *ret_commit, uint64_t *ret_next);
/* Memory for one frame; NULL: none. */
void *vm_frame_alloc(void);
void vm_frame_free(void *frame);

#endif
