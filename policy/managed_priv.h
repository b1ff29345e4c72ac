/* SPDX-License-Identifier: MIT */
/* One managed file, and what policy's files use of each other. */
#ifndef POL_MANAGED_PRIV_H
#define POL_MANAGED_PRIV_H

#include "managed.h"
#include "vm_backend.h"
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

/*
 * Life of a managed file:
 *
 *	known	its path matches a rule and a descriptor of it is open; nothing else is done
 *	live	it was mapped: there is a handle, and everything goes through it
 *	ended	no descriptor, no mapping, nobody at work: the release. A commit that fails keeps it live.
 *
 * Guard: pol_lock, unless said otherwise.
 */
struct pol_file {
	struct vm_bigfile file; /* what core gets; identity (fixed); fd, writable (pol_lock) */
	const struct pol_rule *rule; /* (fixed) */
	struct vm_fileh *h;	     /* NULL: not live (atomic) */
	bool share_late;	     /* others are to find us, and do not yet */
	struct vm_fileh *share_h;    /* what other processes are given when they ask, or NULL (share.c) */
	uint64_t join_usec;	     /* monotonic: not before, because it did not work (atomic enough: a hint) */
	bool unrecovered;	     /* others had it when it was found: its journal was left to them (going live) */
	const char *unfit;	     /* what it is that can never be managed, or NULL */
	int refused;		     /* -errno why it cannot be managed as long as it is open, or 0 */
	unsigned refs;		     /* callers at work */
	unsigned nending;	     /* callers that took away what may be the last use, and wait for refs and busy */
	unsigned nfds;		     /* the program's descriptors */
	bool told_change;	     /* that the change of the file by others could not be taken in */
	bool has_stream;	     /* a stdio stream of libc's own was opened on it */
	bool busy;		     /* going live or ending: others wait */
	uint64_t end_again_usec;     /* monotonic: its release failed; not tried again before, by whoever comes by */
	bool fd_writable;	     /* may file.fd be written, whoever uses it? */
	int fd_before;		     /* a descriptor of the file that was replaced: closing it would drop locks (home) */
	pthread_mutex_t position;    /* held while a descriptor's position is used and moved */
	uint32_t wanted;	     /* enum pol_wanted bits left for the helper thread (atomic) */
	uint64_t next_interval_usec; /* monotonic; 0: none */
	uint64_t checkpoint_usec;    /* monotonic: when the journal is emptied; 0: nothing in it */
	uint64_t nwritebacks;	     /* that were wanted since the journal was last emptied */
	uint64_t last_commit_usec;   /* realtime */
	uint64_t ncommits, nfailed;
	uint64_t order; /* number of the last order or event that was done for it, with its group (atomic enough) */
	char last_error[256];
	char path[PATH_MAX]; /* canonical; follows a rename by this process */
	struct pol_file *next;
};

enum pol_wanted {
	POL_WANT_COMMIT = 1,
	POL_WANT_WRITEBACK = 2, /* of what is in the file's page cache */
};

/* ---- managed_list.c: all of them, and the lock ---- */

extern struct pol_file *pol_files; /* in the order of first use (pol_lock) */

void pol_lock(void);
void pol_unlock(void);
void pol_lock_fork_child(void);
/* Wait for, and tell of, a change of some file's busy or h. Lock held. */
void pol_wait(void);
void pol_changed(void);
/* The class of an inode, a bit, and those of the files that this process knows. Lock-free. */
uint64_t pol_inode_class(ino_t ino);
uint64_t pol_known_classes(void);
struct pol_file *pol_list_find_locked(dev_t dev, ino_t ino);
/* One more, busy. NULL: no memory. */
struct pol_file *pol_list_add_locked(const struct stat *st, const char *path, const struct pol_rule *rule);
/* Nobody uses m any more: it is freed. */
void pol_list_remove_locked(struct pol_file *m);

/* ---- what the others use of each other ---- */

/* Is any file live in this process? Lock-free. */
bool pol_has_live(void);
/* Make the engine ready, once; says which. */
int pol_engine_start(void);

void pol_rename_fork_child(void);
uint64_t pol_now_usec(int clock);

/* pol_file_put by whoever took mappings away: the release that may be due is done on return. */
void pol_file_put_last(struct pol_file *m);
/* The canonical path behind fd, PATH_MAX + 1 bytes; " (deleted)" follows a name that is gone. false: it has
 * none. */
bool pol_path_of_fd(int fd, char *ret_path);
/* m has its path from now on: other live files of this process that had it, and their journals, make way. */
void pol_file_take_path(struct pol_file *m);
/* Why no rule applies to the file at path, in words, or NULL (never.c). */
const char *pol_never_managed(int fd, const struct stat *st, const char *path);
/* How far a file may go (limits.c). Beyond RLIMIT_FSIZE the program gets SIGXFSZ, as by the call itself. */
bool pol_is_beyond_fs(struct pol_file *m, uint64_t size);
int pol_may_have_size(struct pol_file *m, uint64_t size);
/* How many of len bytes can be written at off. */
int pol_room(struct pol_file *m, uint64_t off, uint64_t len, uint64_t *ret_room);
/* Make m live. fd: the program's descriptor. 0 or -errno; said in the log. No lock held. */
int pol_file_go_live(struct pol_file *m, int fd, bool for_writing);
/* The same for one that is live for reading, and may be ending: then it is not waited for. Is it writable? */
bool pol_file_make_writable(struct pol_file *m);
/* A private mapping of a file that is not live is left to the kernel; when the file goes live it becomes one
 * of ours. */
void pol_left_private(void);
/* Is nobody using it any more? Lock held. */
bool pol_file_is_due_locked(const struct pol_file *m);
/* The release: commit, and no longer live. On an error it stays live. Lock held, and again on return. */
int pol_file_end_locked(struct pol_file *m);
/* What a crash left in m's journal goes into the file. Logs. */
int pol_file_recover(const struct pol_file *m);
/* m is not live, and the program has no descriptor of it: ours go. */
void pol_file_drop_descriptors(struct pol_file *m);
/* In a forked child: files whose handle is lost are not live any more, as in a process that has not mapped them. */
void pol_files_lose(void);
/* If m's rule says that changes by others are seen: look for one now. Logs. */
void pol_see_change(struct pol_file *m);
/* The file of a handle, with a reference, or NULL. */
struct pol_file *pol_file_of_handle(struct vm_fileh *h);
/* The live file after prev (NULL: the first), with a reference; prev's is given back. NULL: there are no
 * more. */
struct pol_file *pol_file_next(struct pol_file *prev);
/* Note and log that what failed for m, by -errno. */
void pol_file_failed(struct pol_file *m, const char *what, int err);

/* ---- orders.c ---- */

/* Is it one of those that an order with this path (NULL: any) is about? */
bool pol_file_is_meant(const struct pol_file *m, const char *path);
/* Do op with every live file that path means. An op that does more files at once says so by their order. The
 * result is op's to fill but for err, usec, and one of nfiles for each call. */
typedef int pol_order_fn(struct pol_file *m, struct pol_result *ret, void *arg);
void pol_for_each_meant(const char *path, struct pol_result *ret, pol_order_fn *op, void *arg);

/* ---- commit.c ---- */

/* The files that commit together with m[0]: with scope=group the live ones of its rule, else that one alone. */
struct pol_set {
	unsigned n;
	struct pol_file **m;
	struct vm_fileh **h;
	struct vm_commit_result *res;
	uint64_t *before; /* txid */
	void *mem;	  /* where these are, or NULL: */
	size_t len;
	struct pol_file *one_m;
	struct vm_fileh *one_h;
	struct vm_commit_result one_res;
	uint64_t one_before;
};
/* The caller has a reference of m, or keeps it busy. No lock held. Until pol_set_put none of them ends, and no
 * other set of the process is made of them. */
int pol_set_get(struct pol_file *m, struct pol_set *ret);
void pol_set_put(struct pol_set *s);
void pol_set_fork_child(void);
/* What is done for many files is done once for those that commit together: it has a number, and they note it. */
uint64_t pol_next_order(void);
void pol_set_order(struct pol_file *m, uint64_t order);
/* Commit them now, in one transaction. durable: whatever the rule says. own_only: not when this process stored
 * nothing. Counts, logs. ret: txid of m[0], and the sum of their pages. */
int pol_set_commit(struct pol_set *s, bool durable, bool own_only, struct vm_commit_result *ret);
/* The same for those that commit with m. */
int pol_commit_file(struct pol_file *m, bool durable, bool own_only, struct vm_commit_result *ret);

#endif
