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
	VM_SCAN_FOREIGN, /* not this file's, not this version's, or no journal at all */
};

enum vm_scan_why {
	VM_SCAN_OK,
	VM_SCAN_SHORT,	    /* EMPTY: ends before its first frame */
	VM_SCAN_UNSTARTED,  /* EMPTY: no header was ever completed */
	VM_SCAN_BAD_FRAME,  /* DAMAGED: the commit at bad_off; the frame at proof_off says that it was durable
			     */
	VM_SCAN_BAD_RUN,    /* DAMAGED: the frame at bad_off verifies and makes no sense */
	VM_SCAN_BAD_HEADER, /* DAMAGED: frames, but no header of theirs */
	VM_SCAN_NO_JOURNAL, /* FOREIGN */
	VM_SCAN_VERSION,    /* FOREIGN */
	VM_SCAN_IDENTITY,   /* FOREIGN */
};

struct vm_scan {
	enum vm_scan_state state;
	enum vm_scan_why why;
	struct vm_journal_header header; /* the one in force, when there is one */
	uint32_t slot;			 /* where it is */
	uint64_t ncommits, first_txid, last_txid;
	uint64_t end;	  /* offset after the last complete commit */
	uint64_t dropped; /* bytes of an incomplete commit that begins there; 0: nothing to be seen of one */
	uint64_t size;	  /* file size after the last complete commit */
	uint64_t bad_off, bad_seq, proof_off;
	uint64_t chain; /* sum of the last complete commit's frame */
};

/* 0: the question is answered. -errno: the journal could not be read. id may be NULL: any file. */
int vm_journal_scan(int fd, const struct vm_journal_id *id, struct vm_scan *ret);

/* Replay frames [from, to), which are whole commits, in order: size, then bytes. No sync. Each frame is
 * verified again before any of it is used: -EUCLEAN. It may be repeated after any failure, from the same
 * from. */
typedef void vm_replay_fn(uint64_t done, uint64_t total, void *arg);
int vm_journal_replay(int fd, int data_fd, uint64_t from, uint64_t to, vm_replay_fn *progress, void *arg);

/* Is the name's file the one that the header speaks of? Device numbers may change over a boot, so the inode's
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
/* Give the file the size of a commit. */
int vm_apply_size(int data_fd, const struct vm_frame *commit);
/* Give it the bytes of one frame, which was verified, with its payload behind it, and is in journal fd, too.
 * base: the VM_RUN_BASE runs or the others. */
int vm_apply_frame(int fd, int data_fd, const struct vm_frame *commit, const struct vm_frame *fr, bool base);
/* Read the frame at off into buf (VM_JOURNAL_FRAME_MAX bytes), or its header only, and verify it. -EUCLEAN. */
int vm_frame_load_header(int fd, uint64_t off, struct vm_frame *ret);
int vm_frame_load(int fd, uint64_t off, void *buf);
/* Find the commit frame of the commit that begins at off; *ret_next is the offset after it. */
int vm_frame_find_commit(int fd, uint64_t off, struct vm_frame *ret_commit, uint64_t *ret_next);
/* Memory for one frame; NULL: none. */
void *vm_frame_alloc(void);
void vm_frame_free(void *frame);

#endif
