/* SPDX-License-Identifier: MIT */
/*
 * All structures of core. Read this first.
 *
 *	bigfile ──loadblk──▶ overlay: ram (memfd) + pagemap + ctl ◀──stores── vma, vma, ...
 *	        ◀─storeblk──
 *
 * Page states. Only page.c writes them, under fileh->ctl->lock; each arrow is one function.
 *
 *	EMPTY   -> LOADING   vm_page_begin_load	  first touch
 *	LOADING -> LOADED    vm_page_end_load	  data arrived, and nobody invalidated it meanwhile
 *	LOADING -> EMPTY     vm_page_end_load	  load failed, or invalidated meanwhile
 *	EMPTY   -> DIRTY     vm_page_mark_dirty	  a store into a page that is all zeros without a load (not lazy)
 *	LOADED  -> DIRTY     vm_page_mark_dirty	  a store was seen
 *	DIRTY   -> STORING   vm_page_begin_store  a commit took it into its transaction
 *	STORING -> DIRTY     vm_page_mark_dirty	  stored into again after the cut, or the commit failed
 *	STORING -> LOADED    vm_page_mark_stored  the commit has happened
 *	LOADED  -> EMPTY     vm_page_drop	  invalidate, shrink
 *	DIRTY   -> EMPTY     vm_page_drop	  discard, invalidate, shrink
 *
 * With the uffd engine stores are first known to the page tables only: a LOADED page may have been stored
 * into since the last harvest. With the segv engine the fault handler marks them at once.
 */
#ifndef VM_TYPES_H
#define VM_TYPES_H

#include "lock.h"
#include "vm.h"

#define VM_PAGE_SHIFT 12
#define VM_PAGE ((size_t)VM_BLKSIZE)
#define VM_REGION_NPAGES 512u	    /* pages under one page table: 2 MiB */
#define VM_BATCH_NPAGES 256u	    /* most pages moved in one go: 1 MiB */
#define VM_MAX_PGOFF (1ull << 42)   /* 16 PiB */

enum vm_page_state { VM_EMPTY, VM_LOADING, VM_LOADED, VM_DIRTY, VM_STORING, VM_NSTATES };

/* {} pgoff -> page state, one byte a page, sparse, O(1). The bytes lie in the control memfd, so that all
 * processes see one map; each process maps windows of it as it goes. */
#define VM_WINDOW_NPAGES (1u << 20) /* 4 GiB of file, 1 MiB of map */
#define VM_PAGEMAP_FANOUT 2048u
struct vm_pagemap {
	int *fd;				/* home of the control memfd (fixed) */
	uint64_t base;				/* where in it the bytes start (fixed) */
	uint8_t **dir[VM_PAGEMAP_FANOUT];	/* -> VM_PAGEMAP_FANOUT windows (fileh lock) */
};

/* One process that has the handle. */
#define VM_MAX_PEERS 192u /* VM_MAX_OTHERS */
struct vm_peer {
	int32_t pid;	    /* 0: free */
	int32_t ctl_fd;	    /* its descriptor of the control memfd: proves that it is still the one that attached ... */
	uint64_t started;   /* ... and so does this, where the descriptors may not be looked at */
	uint64_t image;	    /* another one in each program that a process is, one after the other */
	uint32_t nreaders;  /* vm_fileh_read calls inside */
	uint32_t nwriters;  /* vm_fileh_write calls inside */
	uint32_t may_store; /* it had a mapping for writing, or wrote */
	uint32_t harvested; /* its page tables hold no store that the page map does not know */
	uint32_t nprivate;  /* its MAP_PRIVATE mappings (atomic) */
	uint32_t nforks;    /* children of it that have not got here yet, if they ever do */
	uint32_t wake;	    /* its server waits for a change (atomic, futex) */
	uint32_t answered;  /* the last ctl->ask_seq that it carried out (atomic) ... */
	int32_t answer;	    /* ... and the result; 1: it stored something since the last time */
	uint64_t nfaults;   /* page faults of it, before its last harvest; 0: unknown (its map lock) ... */
	uint32_t nthreads;  /* ... and threads that it had */
	uint8_t serves;	    /* enum vm_serves */
	bool leaves;	    /* it ends: it is not to be found any more */
	bool protects;	    /* its engine is one that has to take access away to see the next store: segv */
};

enum vm_serves {
	VM_SERVES_NOT_YET, /* it is being forked, or attaches: no program runs in it */
	VM_SERVES,
	VM_SERVES_NEVER, /* its thread could not be started */
};

/* What the busy one asks of the others (ask.c). Each says all that is to be so afterwards. */
enum vm_ask {
	VM_ASK_THAW,	   /* touches go on */
	VM_ASK_HARVEST,	   /* touches go on, and every store is known */
	VM_ASK_FREEZE,	   /* stores wait, and every one before is known */
	VM_ASK_FREEZE_ALL, /* and loads wait, too */
};

enum vm_gate {
	VM_GATE_OPEN,
	VM_GATE_READERS, /* a cut is taken: writers wait */
	VM_GATE_CLOSED,	 /* pages are dropped: readers wait, too */
};

/* A robust mutex of the program that a thread holds where the kernel cannot store (owners.c). */
#define VM_MAX_OWNERS 256u
struct vm_owner {
	uint64_t off; /* of its word in the file */
	int32_t tid;  /* of the thread; 0: free */
	uint32_t peer; /* whose thread it is, index in ctl->peers */
};

/* What all processes of a handle share. At offset 0 of the control memfd; the pagemap's bytes follow at
 * VM_CTL_LEN. Everything below lock is guarded by it. */
#define VM_CTL_MAGIC 0x6c7463706d786174ull /* "taxmpctl" */
#define VM_CTL_VERSION 12u
#define VM_CTL_LEN 32768u
struct vm_ctl {
	uint64_t magic;
	uint32_t version;
	uint32_t len;	  /* bytes of this struct (fixed) */
	uint64_t dev, ino; /* the program's file (fixed) */
	char ops[32];	  /* name of its backend, cut (fixed) */
	bool lazy;	  /* of each handle on it (fixed) */
	uint32_t seq; /* rises, with a wake, when something changed that others wait for (atomic) */
	struct vm_lock lock;
	int32_t busy_pid; /* the process that commits, discards, invalidates or resizes now, or 0 */
	bool owed;	  /* somebody cannot know whether it stored something: the last one commits */
	bool abandoned;	  /* one died while it was busy: what it had not finished must not happen later */
	uint64_t comes_until; /* until then (monotonic msec) nobody but a newcomer becomes busy */
	uint32_t gate;	  /* enum vm_gate, set by the busy one */
	uint32_t ask;	  /* enum vm_ask: what the busy one asked last */
	uint32_t ask_seq; /* rises when something was asked (atomic) */
	bool joined;	  /* a process got the handle since the cut began */
	uint64_t size;		 /* bytes, as the programs see it */
	uint64_t size_committed; /* bytes, in the storage */
	uint64_t size_low;	 /* smallest size since the last commit: beyond it the storage's bytes are gone */
	uint64_t txid;		 /* last transaction */
	bool lazy_pending;	 /* a commit happened that the disk may not hold yet */
	bool was_shared;	 /* another process had or has the handle, too */
	bool suspect;		 /* a process died with stores that only its page tables knew: any page may be dirty */
	bool doubtful;		 /* so all in ram were made dirty: not all of them need have been stored into */
	bool torn;		 /* a discard stopped half way: nothing may be committed before one succeeds */
	uint64_t gen;		 /* rises with every invalidation: a load that began before is thrown away */
	uint64_t npages[VM_NSTATES]; /* pages per state, exact; [VM_EMPTY] is not counted */
	struct vm_peer peers[VM_MAX_PEERS];
	struct vm_owner owner[VM_MAX_OWNERS];
	_Alignas(16) unsigned char backend[VM_BACKEND_SHARED];
};
_Static_assert(sizeof(struct vm_ctl) <= VM_CTL_LEN, "the pagemap starts at VM_CTL_LEN");

/* A growing list of page runs. Memory from the host, not malloc. */
struct vm_pgrun {
	uint64_t start, stop; /* [start, stop) pgoff */
};
struct vm_runs {
	struct vm_pgrun *run;
	size_t n, cap;
};

/* Aliasable memory: the pages of the overlay. Its file size is the handle's size, so that the kernel itself
 * gives SIGBUS beyond it and zeros the tail of the last page. */
struct vm_ram {
	int fd; /* memfd (home) */
};

enum vm_frozen {
	VM_THAWED,
	VM_FROZEN,	     /* by what the engine protects anyway */
	VM_FROZEN_PROTECTED, /* by protections that the thaw gives back */
};

enum vm_server {
	VM_SERVER_NONE,
	VM_SERVER_RUNS,
	VM_SERVER_ENDS, /* it has to end */
};

enum vm_unsettled {
	VM_SETTLED,
	VM_UNSETTLED_SOON, /* when nobody did it before: a child that begins another program, or ends, or stores nothing */
	VM_UNSETTLED,
};

/* Storage that others commit to, too, while nobody does; of any other it says nothing. */
struct vm_held {
	struct vm_news news;
	struct vm_runs changed; /* pages that others committed since the snapshot */
	bool is_held;
};

/* A file's part in a commit. */
struct vm_part {
	struct vm_txn txn;
	struct vm_held held;
	bool seen;	   /* what others committed is taken in */
	bool has_others;   /* other processes have the file */
	bool asks;	   /* they were asked to look */
	bool changed;	   /* there is something to commit */
	bool begun;	   /* it takes part: the backend has begun */
	bool conflict;	   /* the storage was changed by somebody else */
	struct vm_copy *copy; /* it is none: pages go there instead of the storage, or NULL */
	uint64_t npages;   /* given to the backend */
	uint64_t valid;	   /* pages of the storage at the cut: beyond size_low its bytes will be gone */
	uint64_t stopped;  /* vm_ask_stopped when the round began */
};

/* What of a handle's pages is to go, and what the handle is afterwards. */
struct vm_plan {
	uint64_t start, stop;  /* [start, stop) pgoff */
	bool clean, dirty;     /* pages in these states go */
	bool empty;	       /* and what may be where none was loaded: the mark of a load that failed */
	bool fail_on_dirty;    /* -EBUSY when a page of the range is dirty */
	bool fail_on_doubt;    /* or, at least, when nothing tells which are */
	uint64_t clean_from;   /* pages from here on go, clean as they may be */
	uint64_t size;	       /* new size */
	uint64_t storage_size; /* the storage's, when whole */
	bool whole;	       /* storage and handle agree on the size afterwards */
	const struct vm_held *held;    /* what others committed goes, too, when it is clean; or NULL */
	bool overwrite;		       /* what is not clean of that stays, else -EBUSY ... */
	struct vm_commit_result *kept; /* ... and is told here */
	bool own_size_stays; /* it is not the storage's afterwards, and beyond ctl->size_low that is gone */
	/* how it turned out */
	uint64_t npages; /* that went */
	uint64_t ndirty; /* dirty ones that went, when whole */
	uint64_t size_was;
	uint64_t stopped; /* vm_ask_stopped before anything went */
	bool was_torn;
	bool in_place; /* new content is put in place of the old */
};

/* /proc/PID/stat of another process that has the handle (idle.c). */
struct vm_watched {
	int32_t pid; /* 0: free */
	int fd;	     /* (home) */
};
#define VM_MAX_WATCHED 4u

/* An open handle in this process. */
struct vm_fileh {
	struct vm_bigfile *file; /* (fixed) */
	struct vm_ctl *ctl;	 /* (fixed) */
	int ctl_fd;		 /* control memfd (home) */
	struct vm_ram ram;
	struct vm_pagemap pagemap;
	unsigned peer;	       /* index of our entry in ctl->peers; VM_MAX_PEERS: this process is lost to it (fixed until fork) */
	struct vm_peer nobody; /* instead of that entry */
	bool lazy;	       /* pages are loaded on first touch; else EMPTY pages are zeros by definition (fixed) */
	int poison;	       /* uffd: pages that could not be loaded are marked in page tables; -errno of the last (map lock) */
	bool noted;	       /* uffd: a harvest found something (map lock) ... */
	bool blind;	       /* ... or could not look, and what is stored next is no page fault (map lock) */
	bool asked;	       /* the others were asked last time (busy) */
	bool others_touch;     /* others may have stored something since the commit before (busy) */
	bool stored_here;      /* this process stored something since its last commit (ctl->lock) */
	bool committed_here;   /* this process committed, and what it committed may be in a journal yet (busy) */
	uint32_t server;       /* enum vm_server: the thread that carries out what others ask (atomic, futex) */
	uint32_t unsettled;    /* enum vm_unsettled: the server has to settle mappings (atomic) */
	unsigned nvmas;	       /* mappings in this process (map lock) */
	unsigned nusers;       /* threads at work for a fault: close waits for them (map lock) */
	unsigned nprivate;     /* of them MAP_PRIVATE (map lock) */
	uint64_t forked_gen;   /* ctl->gen at the last fork (map lock) */
	uint64_t look_msec;    /* when a waiter here looks again who died (ctl->lock) */
	uint32_t frozen;       /* enum vm_frozen: touches of this process's mappings wait (atomic, futex) */
	uint64_t ra_next;      /* where a sequential reader touches next (map lock) */
	unsigned ra_npages;    /* and how much it gets (map lock) */
	struct vm_runs round;  /* pages of the cut's present round (busy) */
	struct vm_part part;   /* in the present commit (busy) */
	struct vm_plan plan;   /* of what is being dropped (busy) */
	struct vm_watched watched[VM_MAX_WATCHED]; /* (ctl->lock) */
	void *scratch;	       /* VM_BATCH_NPAGES pages (busy) */
	struct vm_fileh *next; /* handles of the process (map lock) */
};

/* One mapping. Guarded by the map lock. */
struct vma {
	uintptr_t start, stop; /* [start, stop), page aligned */
	uint64_t pgoff;	       /* of start */
	struct vm_fileh *fileh;
	int prot;	   /* what the program asked for */
	bool shared;	   /* MAP_SHARED */
	bool writable;	   /* may become PROT_WRITE */
	bool dontfork;	   /* the kernel must not give it to a forked child: unloaded pages would read as zeros */
	bool nofork;	   /* the program said so, too (MADV_DONTFORK): the child has none */
	uint64_t *armed;   /* uffd: bit per 2 MiB region from pgoff's on: its page table is write-protected */
	uint64_t armed_few; /* armed of a small mapping */
	uint64_t settled;  /* uffd: up to this page it is armed, if others have the handle */
	bool fresh;	   /* uffd: nobody could store through it yet, and cannot before it is settled */
	struct vm_runs rw; /* segv: pages that are writable now */
};

/* How faults arrive and stores are seen. One of engine_uffd.c, engine_segv.c. Every operation is called with
 * the map lock and, except attach's caller on a fresh vma, the handle's lock held. Ranges are pgoff, clipped
 * to the vma. */
struct vm_engine_ops {
	const char *name;
	/* Try it for real, once. 0, or -errno with *ret_why a static string. */
	int (*start)(const char **ret_why);
	/* Let go of what start opened. */
	void (*stop)(void);
	/* A mapping appeared (mmap, mremap, fork): see its stores from now on. All its pages count as clean. */
	int (*attach)(struct vma *v);
	/* The vma is gone, or about to: free what attach made. */
	void (*detach)(struct vma *v);
	/* Do a piece of what attach left for later (fileh->unsettled); 1: there is more. Map lock held only.
	 * Optional. */
	int (*settle)(struct vma *v);
	/* tail was cut off the end of v: give it its share of what attach made. */
	int (*split)(struct vma *v, struct vma *tail);
	/* Put npages, which are missing there, into ram; on an error they still are. Optional. */
	int (*fill)(struct vm_fileh *h, uint64_t pgoff, size_t npages, const void *buf);
	/* Pages of the range are about to be put into ram / were put there / are about to be dropped from
	 * there / were dropped. All but emptied are optional. */
	int (*will_fill)(struct vma *v, uint64_t start, uint64_t stop);
	int (*filled)(struct vma *v, uint64_t start, uint64_t stop);
	int (*will_empty)(struct vma *v, uint64_t start, uint64_t stop);
	int (*emptied)(struct vma *v, uint64_t start, uint64_t stop);
	/* A touch of pgoff arrived as a signal; the program may do it. 1: resolved, 0: nothing was missing,
	 * -EAGAIN: load it first. */
	int (*touched)(struct vma *v, uint64_t pgoff, bool write);
	/* Report the pages stored into since the last time (vm_page_note_stored) and watch them again. */
	int (*harvest)(struct vma *v, uint64_t start, uint64_t stop);
	/* The effective protection of the range: the program's, less what the engine must see. */
	int (*protect)(struct vma *v, uint64_t start, uint64_t stop);
	/* Nobody touches it, and nothing tells it from a mapping that nobody watches: ready for mremap.
	 * Everything stored is known. attach comes next. */
	int (*flatten)(struct vma *v);
	/* Aborts when what it promises of v does not hold; optional. */
	void (*check)(struct vma *v);
	/* In a forked child, before attach is called for every vma again. 0, or as start: it does not work
	 * there. */
	int (*fork_child)(const char **ret_why);
};

#endif
