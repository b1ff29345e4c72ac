/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the memory manager stand on: a bigfile whose committed bytes are in memory, a backend
 * over it that checks what core promises to it, counts, fails when told, and calls a hook inside an
 * operation; signal handlers that give touches to vm_fault; and a main that runs every test once with each
 * engine.
 *
 * All of a file is shared with forked children, so that they see and make one state.
 */
#ifndef RIG_H
#define RIG_H

#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum rig_op {
	RIG_OPEN,
	RIG_ATTACH,
	RIG_CLOSE,
	RIG_DETACH,
	RIG_GETSIZE,
	RIG_LOADBLK,
	RIG_NEXTDATA,
	RIG_BEGIN,
	RIG_STOREBLK,
	RIG_COMMIT,
	RIG_ABORT,
	RIG_MEND,
	RIG_CHECKPOINT,
	RIG_RESERVE,
	RIG_IDLE,
	RIG_NOPS
};

struct rig_file;
/* Called in the operation, before it does anything; pgoff of the blocks, or 0. */
typedef void rig_hook(struct rig_file *f, uint64_t pgoff);

struct rig_file {
	struct vm_bigfile file;
	int fd;			/* memfd of the committed bytes */
	int staged, base;	/* memfds by page: stored in this transaction; the committed page when it was stored */
	uint8_t *how;		/* by page, what was stored in this transaction */
	uint64_t *order;	/* pages stored in this transaction */
	size_t norder;
	bool in_txn;
	bool txn_is_never_needless; /* commit says 0 even when nothing changed */
	uint64_t version, seen_version;
	unsigned ncalls[RIG_NOPS]; /* (atomic) */
	uint64_t npages_loaded;	   /* (atomic) */
	unsigned fail_nth[RIG_NOPS]; /* 1: the next call; 0: none (atomic) */
	int fail_err[RIG_NOPS];
	uint64_t bad_pgoff; /* loads of this page fail ... (atomic) */
	int bad_err;	    /* ... with this; 0: none (atomic) */
	rig_hook *hook[RIG_NOPS]; /* (atomic) */
	void *hook_arg;
	uint64_t txid; /* of the last commit */
	struct rig_group *group; /* rig_group.h; or NULL */
	struct vm_txn txn;	 /* of a part that waits for the last one ... */
	bool is_part;		 /* ... if it does */
	bool busy;     /* in an operation of which only one may run (atomic) */
};

/* One test. It opens what it needs; whatever is left is closed after it. */
struct rig {
	enum vm_load load;
	struct rig_file *f; /* of rig_open */
	struct vm_fileh *h;
};

/* ---- files and handles ---- */

/* A file of size bytes, each page filled with its pattern (rig_byte). */
struct rig_file *rig_file_make(uint64_t size);
/* A file that is one hole. */
struct rig_file *rig_file_make_sparse(uint64_t size);
/* The byte that every page of rig_file_make holds. */
static inline uint8_t rig_byte(uint64_t pgoff)
{
	return (uint8_t)(pgoff % 251 + 1);
}
struct vm_fileh *rig_handle(struct rig_file *f, enum vm_load load);
/* r->f and r->h: a file of size bytes and a handle on it. */
void rig_open(struct rig *r, uint64_t size);
void rig_open_sparse(struct rig *r, uint64_t size);
/* Closes h and forgets it. */
int rig_close(struct vm_fileh *h);
/* r->h cannot be used any more, not even closed: leave it behind. */
void rig_abandon(struct rig *r);
/* f's memory is given back before the test ends. */
void rig_forget(struct rig_file *f);
/* Map npages pages from pgoff on, shared, for reading and writing. */
char *rig_map(struct vm_fileh *h, uint64_t pgoff, uint64_t npages);
char *rig_map_with(struct vm_fileh *h, uint64_t pgoff, uint64_t npages, int prot, int flags);
void rig_unmap(void *p, uint64_t npages);

/* ---- committed bytes ---- */

uint64_t rig_size(struct rig_file *f);
void rig_get(struct rig_file *f, uint64_t off, void *buf, size_t len);
uint8_t rig_get_byte(struct rig_file *f, uint64_t off);
/* Change the storage behind the handle's back. */
void rig_put(struct rig_file *f, uint64_t off, const void *buf, size_t len);
void rig_put_byte(struct rig_file *f, uint64_t off, uint8_t byte);
void rig_put_size(struct rig_file *f, uint64_t size);

/* ---- faults and hooks ---- */

/* The nth call of op from now on fails. */
void rig_fail(struct rig_file *f, enum rig_op op, unsigned nth, int err);
/* Loads of a page fail. */
void rig_fail_page(struct rig_file *f, uint64_t pgoff, int err);
void rig_fail_none(struct rig_file *f);
void rig_hook_at(struct rig_file *f, enum rig_op op, rig_hook *hook, void *arg);
unsigned rig_ncalls(struct rig_file *f, enum rig_op op);

/* ---- short forms ---- */

/* Commit, must work; returns the number of pages written. */
uint64_t rig_commit(struct vm_fileh *h);
int rig_try_commit(struct vm_fileh *h);
uint64_t rig_ndirty(struct vm_fileh *h);
uint64_t rig_nresident(struct vm_fileh *h);
void rig_invalidate(struct vm_fileh *h, uint64_t pgoff, uint64_t npages);
void rig_discard(struct vm_fileh *h);
void rig_resize(struct vm_fileh *h, uint64_t size);
ssize_t rig_read(struct vm_fileh *h, void *buf, size_t len, uint64_t off);
ssize_t rig_write(struct vm_fileh *h, const void *buf, size_t len, uint64_t off);

/* Touch one byte: 0, or the signal that it raised, which is caught. */
int rig_touch(volatile char *p);
int rig_store(volatile char *p, char byte);
/* Loads and stores that a thread sanitizer knows to be meant so. */
static inline uint64_t rig_load64(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
}
static inline void rig_store64(void *p, uint64_t value)
{
	__atomic_store_n((uint64_t *)p, value, __ATOMIC_RELAXED);
}
static inline char rig_load8(const void *p)
{
	return __atomic_load_n((const char *)p, __ATOMIC_RELAXED);
}
static inline void rig_store8(void *p, char value)
{
	__atomic_store_n((char *)p, value, __ATOMIC_RELAXED);
}

/* fork with the handlers around it, as an embedder does. */
pid_t rig_fork(void);
/* before runs in the child before it takes part in anything. */
pid_t rig_fork_late(void (*before)(void));
/* Wait for the child: its exit status, or -signal. */
int rig_reap(pid_t pid);

bool rig_is_uffd(void);
bool rig_is_lazy(struct rig *r); /* will r's handles be lazy? */
bool rig_is_tsan(void);
bool rig_is_asan(void);
/* Ends the test as skipped where lazy loading does not work with this engine here. */
void rig_need_lazy(void);
/* A figure from /proc/self/status in KiB, as "VmPTE:". */
uint64_t rig_status_kib(const char *key);

/* ---- running ---- */

typedef void rig_test(struct rig *r);
struct rig_case {
	const char *name;
	rig_test *fn;
	enum vm_load load;
};
#define RIG_EAGER(fn) {#fn, fn, VM_LOAD_EAGER}
#define RIG_LAZY(fn) {#fn, fn, VM_LOAD_LAZY}
#define RIG_BOTH(fn) {#fn "/eager", fn, VM_LOAD_EAGER}, {#fn "/lazy", fn, VM_LOAD_LAZY}

/* Runs the cases once with each engine, in processes of their own. argv[1], if given, selects by name
 * pattern. */
int rig_main(int argc, char **argv, const struct rig_case *cases, size_t n);
#define RIG_MAIN(cases)                                                                                      \
	int main(int argc, char **argv)                                                                      \
	{                                                                                                    \
		return rig_main(argc, argv, cases, sizeof(cases) / sizeof((cases)[0]));                      \
	}

#endif
