/* SPDX-License-Identifier: MIT */
/*
 * What a storage backend must do. This is also the ABI of plugins: a shared object that exports
 *
 *	const struct vm_backend_ops txmap_backend = { .abi = VM_BACKEND_ABI, .name = "mine", ... };
 *
 * and is named by the setting backend=plugin:/path/mine.so[:ARG].
 *
 * Context. No operation is called with a lock of ours held. Operations of one bigfile are called by one
 * thread at a time, except loadblk, which may run in several threads and beside a transaction. loadblk may be
 * called in a helper thread with all signals blocked or, with engine=segv, in a signal handler of the
 * program's thread: it must not call malloc or take locks that the program can hold if it wants to serve that
 * engine. No operation may touch managed memory, or wait for an invalidation or for somebody who touches that
 * memory: the thread that would serve them may be the one that is in the operation. Errors are returned as
 * -errno and reach whoever asked (msync's errno, SIGBUS for a load, the command).
 *
 * A block is one page of VM_BLKSIZE bytes at pgoff * VM_BLKSIZE. The last block of a file whose size is no
 * multiple of it is stored and loaded whole, the bytes past the size being zero.
 */
#ifndef VM_BACKEND_H
#define VM_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VM_BACKEND_ABI 1
#define VM_BLKSIZE 4096u

/* One file of blocks behind a backend. Owned by whoever opened it; core only calls ops. */
struct vm_bigfile {
	const struct vm_backend_ops *ops; /* (fixed) */
	const char *path;		  /* canonical path of the program's file, for names and messages (fixed) */
	int fd;				  /* a descriptor of the program's file, ours, or -1 */
	int writable;			  /* may fd be written? */
	dev_t dev;			  /* identity of the program's file (fixed) */
	ino_t ino;
	void *shared;	   /* zeroed memory shared with forked processes, for state that must not fork (fixed) */
	size_t shared_len; /* bytes, VM_BACKEND_SHARED (fixed) */
	void *priv;	   /* the backend's own */
};
#define VM_BACKEND_SHARED 1024u

/* What a transaction changes beside blocks. */
struct vm_txn {
	uint64_t txid;	   /* number of this transaction: the last one's of its file, or the highest of its files', and one */
	uint64_t size;	   /* new size in bytes */
	uint64_t size_low; /* smallest size since the last commit: what lay beyond it is gone (reads as zero) */
};

/* What others committed since the snapshot that f shows. */
struct vm_news {
	int (*pages)(struct vm_news *news, uint64_t start, uint64_t stop); /* the caller's; told of each run of pages */
	uint64_t size; /* committed, in bytes */
	int resized;   /* did others change it? */
	uint64_t txid; /* of the last transaction, by whomever */
};

/* storeblk flags */
#define VM_STORE_AGAIN 1u /* this block was stored before in this transaction: it replaces that one whole */

/* commit flags */
#define VM_COMMIT_DURABLE 1u /* return only when it survives power loss */
#define VM_COMMIT_PART	  2u /* more files of the same transaction follow: it happens, or not, with the last */

struct vm_backend_ops {
	uint32_t abi;	  /* VM_BACKEND_ABI */
	uint32_t reserved; /* 0 */
	const char *name;

	/* Prepare f. arg is what followed in the setting, or NULL. */
	int (*open)(struct vm_bigfile *f, const char *arg);
	/* The same for a file that other processes have open: f->shared is in use already. Optional: without
	 * it the storage cannot be shared but by fork. */
	int (*attach)(struct vm_bigfile *f, const char *arg);
	/* The end of use. Everything committed must be in its place afterwards, or stay recoverable. */
	int (*close)(struct vm_bigfile *f);
	/* This process is done with f, others (forked from it, or its parents) go on: let go of private
	 * things, leave everything in storage as it is; optional. */
	void (*detach)(struct vm_bigfile *f);
	/* Called before the first transaction and when writing becomes possible; optional. */
	int (*open_write)(struct vm_bigfile *f);

	/* Committed size in bytes. */
	int (*getsize)(struct vm_bigfile *f, uint64_t *ret_size);
	/* Read npages committed blocks from pgoff on; blocks beyond the end are zeros. */
	int (*loadblk)(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf);
	/* First byte at or after off that may be other than zero, and the end of that extent; -ENXIO: none.
	 * Optional: without it every block counts as data. */
	int (*nextdata)(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop);

	/* A transaction: begin, storeblk ..., then commit or abort. Nothing of it may be seen by loadblk or
	 * by anyone else before commit, and after a crash all of it is there or nothing.
	 * storeblk: buf may change while it is being read; then the block is stored again (VM_STORE_AGAIN)
	 * before commit. commit returns 0 only when the transaction has happened, 1 when all that was stored
	 * equals what was there, so that no transaction was needed; on an error it has not happened, and
	 * abort follows.
	 * A transaction over several files (of a backend made for that): begin and storeblk of each, in any
	 * order and mixed; then a commit for each, with VM_COMMIT_PART for all but the last, whose result is
	 * that of the whole. After an error abort follows for each that has begun, also where a part's commit
	 * returned 0. */
	int (*begin)(struct vm_bigfile *f);
	int (*storeblk)(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags);
	int (*commit)(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags);
	void (*abort)(struct vm_bigfile *f);
	/* Another process that has f was killed in one of these calls. A transaction that it had not finished
	 * must not happen later: who lives goes on from the one before. An error: it is tried again, maybe by
	 * another one. Optional. */
	int (*mend)(struct vm_bigfile *f);

	/* Bring committed data to its final place and shorten what recovery would have to do; optional. */
	int (*checkpoint)(struct vm_bigfile *f);
	/* Really reserve space for [off, off + len); the size stays; optional. */
	int (*reserve)(struct vm_bigfile *f, uint64_t off, uint64_t len);
	/* Like close, but f stays usable: checkpoint, and leave nothing behind that only a later begin needs,
	 * here or in another process that has f; optional. */
	int (*idle)(struct vm_bigfile *f);
	/* f->path is another now; nothing is held by the old one (idle), except by others who have f, too;
	 * optional. */
	void (*moved)(struct vm_bigfile *f);
	/* Was the storage changed by somebody else since the last commit, or accept? Returns 1 or 0. With
	 * accept != 0 the present state becomes the one to compare with. Optional. */
	int (*changed)(struct vm_bigfile *f, int accept);
	/* The program is about to set, or (done) has set, the storage's times: that is no change. Optional. */
	void (*times)(struct vm_bigfile *f, int done);
	/* The storage has several handles, each of which shows a snapshot of it, and is loaded whole when it
	 * is opened. Optional, both or neither. hold: until let_go no other one commits; news: what they
	 * committed since the snapshot. -ETIMEDOUT: one of them does not let go. let_go: seen: f shows what
	 * the storage is now, and that is its snapshot from here on. */
	int (*hold)(struct vm_bigfile *f, struct vm_news *news);
	void (*let_go)(struct vm_bigfile *f, int seen);
};

#endif
