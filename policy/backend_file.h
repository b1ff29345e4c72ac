/* SPDX-License-Identifier: MIT */
/* Private to the file backend's files. */
#ifndef POL_BACKEND_FILE_H
#define POL_BACKEND_FILE_H

#include "backends.h"
#include "journal.h"
#include "recover.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

/* In struct vm_bigfile.shared: what parent and forked child must see alike. */
struct pol_file_shared {
	struct vm_journal_pos pos;
	uint64_t jdev, jino; /* the journal that pos speaks of, when pos has a tail */
	/* the file as we left it; backend_file_outside.c */
	int64_t mtime_nsec;		    /* its time when we last looked */
	int64_t own_from_nsec, own_to_nsec; /* what we wrote since has its time in between; 0: nothing */
	int64_t writing_nsec;		    /* a process writes since then, or died while it did; 0: none */
	uint64_t size;
	uint64_t looked_usec; /* monotonic */
	uint32_t mode, gid;   /* the file's, which its journal follows */
	bool foreign;	      /* somebody else changed it, and nobody accepted that */
	/* of a member of a group; then jdev, jino are its stub's, and pos is not used */
	uint32_t number;	  /* in the group; 0: nobody has made it a member */
	uint32_t nmoved;	  /* how often it had another name (atomic) */
	uint64_t gdev, gino;	  /* the group's journal */
	_Atomic uint64_t waiting; /* odd: the group's journal may hold what the file does not */
};
_Static_assert(sizeof(struct pol_file_shared) <= VM_BACKEND_SHARED, "fits");

/* A list of runs of blocks. */
struct pol_file_extent {
	uint64_t pgoff, npages;
};
struct pol_file_extents {
	struct pol_file_extent *e;
	size_t n, max;
};

/* A member of a group, as its process knows it. Guard: the group's lock, unless fixed while it is one. */
struct pol_member {
	struct vm_bigfile *file;    /* (fixed) */
	struct pol_file_priv *next; /* of the same group */
	uint32_t number;	    /* 0: of one file's journal (fixed) */
	uint32_t nmoved;	    /* the group knows its name as of this */
	uint32_t mode, gid;	    /* the group's journal is closed to whom the file is, as of these */
	_Atomic unsigned nloads;    /* threads that look at the group without its lock */
	bool has_begun;		    /* its part of the transaction being built */
	bool has_runs;		    /* something was stored that differs */
	bool takes_part;	    /* something changes in it */
	uint64_t next_size;
	bool is_own; /* own is under way */
	struct pol_file_own {
		int64_t from_nsec, real_nsec, mono_nsec;
	} own;
};

/* In struct vm_bigfile.priv. */
struct pol_file_priv {
	struct vm_journal j;   /* of a member of a group: its stub, in which nothing is ever committed */
	struct vm_journal *to; /* where commits go: j, or the group's */
	struct pol_file_shared *shared; /* what all who have the storage must see alike */
	uint8_t *scratch;		/* POL_FILE_BATCH blocks as they are committed */
	/* of this transaction: */
	struct pol_file_extents diffs;	 /* stored as differences */
	struct pol_file_extents changed; /* other than they were; only with a snapshot */
	struct pol_snapshot *snapshot;	 /* or NULL: backend_file_snapshot.c */
	struct pol_group *group;	 /* or NULL: backend_file_group.h */
	struct pol_member here;
	const char *arg;       /* the rule's journal directory, or NULL (fixed) */
	const char *group_arg; /* path of the group's journal (fixed) */
	char dir[PATH_MAX];    /* where the journal is */
	char jpath[PATH_MAX];  /* the journal */
};
#define POL_FILE_BATCH 64u

static inline struct pol_file_priv *pol_file_priv(const struct vm_bigfile *f)
{
	return f->priv;
}

static inline struct pol_file_shared *pol_file_shared(const struct vm_bigfile *f)
{
	return pol_file_priv(f)->shared;
}

/* ---- backend_file_journal.c: the journal as a file ---- */

/* Name of path's journal, and of the directory that holds it. dir: the rule's journal directory, or NULL. */
int pol_journal_path(const char *path, const char *dir, char *ret_dir, char *ret_jpath);
/* Who the data file is; fd may be -1 when only the path's identity is known. */
void pol_journal_id(const char *path, const struct stat *st, int fd, struct vm_journal_id *ret);
/* Open the journal, its lock ours: *fd is adopted. *ret_err_what says what failed. -EBUSY: a live process has
 * it. With create it is made with the data file's owner and mode. Waits while somebody else recovers it; that
 * lock against recoverers is kept until pol_journal_end_exclusive or the close. */
int pol_journal_open(const char *jpath, const struct stat *data, bool create, int *fd, bool *ret_created,
		     const char **ret_what);
void pol_journal_end_exclusive(int fd);
/* May nobody read or write the journal who may not do so with the file? Make it so. */
bool pol_journal_mode_fits(const struct stat *journal, const struct stat *data);
int pol_journal_give(int fd, const struct stat *data);
/* The same for who commits in turn with others (snapshots), whose journal it is: the lock is one of several. */
int pol_journal_open_shared(const char *jpath, const struct stat *data, int *fd, const char **ret_what);
/* From now on the journal is one of these. */
int pol_journal_keep_with_others(int fd);
/* Open it, the lock ours, if nobody has it: -EBUSY. */
int pol_journal_open_idle(const char *jpath, int *fd, const char **ret_what);
/* Open or make a group's, the lock against recoverers ours. first: nobody else has it; else, when shared, the lock
 * is one of several. */
int pol_journal_open_group(const char *jpath, const struct stat *data, bool shared, int *fd, bool *ret_first,
			   const char **ret_what);
/* Open to look at it only. -EBUSY: a live process has it. */
int pol_journal_open_check(const char *jpath, int *fd, const char **ret_what);
/* 1: the path still names what fd is. */
int pol_journal_is_at(const char *jpath, int fd);
/* Make names in dir durable. */
int pol_journal_sync_dir(const char *dir);
/* Nobody has it and it holds nothing: remove it. Was it? */
bool pol_journal_remove_idle(const char *jpath);
/* ---- backend_file_attach.c ---- */

/* f has a journal, which may have been moved together with its directory: jpath is its name now. */
void pol_journal_look_where_it_is(struct vm_bigfile *f);
/* f, or a directory above it, may have been renamed by somebody who did not tell us: the journal goes beside
 * it. */
void pol_journal_look_where_the_file_is(struct vm_bigfile *f);
/* The name that fd's file has now, PATH_MAX bytes. false: it has none that leads to it. */
bool pol_journal_name_of(int fd, char *ret_path);
/* What a crash left in f's own journal, which is open and locked, goes into f. */
int pol_journal_take_over(struct vm_bigfile *f, struct vm_scan *scan, const char **ret_what);
/* A journal, or a stub, for a file without a name, which is gone with its last descriptor, and nobody would find
 * its journal. */
int pol_journal_open_nameless(int *fd, const char **ret_what);
/* Make f ready to write; nothing to do when it is. Logs an error. */
int pol_journal_attach(struct vm_bigfile *f);

/* ---- backend_file_outside.c: what others do to the file ---- */

/* The present state is how we left it. */
int pol_file_leave(struct vm_bigfile *f);
/* Did somebody else change the file? 1 or 0. anyway: look, however short ago we looked. */
int pol_file_look(struct vm_bigfile *f, bool anyway);
/* What was written to it between these instants is not a stranger's: one of us did. */
void pol_file_wrote(struct pol_file_shared *s, int64_t from_nsec, int64_t to_nsec, uint64_t size);
/* The earliest time that the kernel gives to a file that is written now, and one that none is given before. */
int64_t pol_file_time_from(void);
int64_t pol_file_time_to(void);
/* Around what changes the file ourselves; looks before. */
int pol_file_own_begin(struct vm_bigfile *f, struct pol_file_own *own);
void pol_file_own_end(struct vm_bigfile *f, const struct pol_file_own *own);
/* Size and number of names; either may be NULL. */
int pol_file_basics(int fd, uint64_t *ret_size, unsigned *ret_nlink);

/* ---- backend_file_diff.c ---- */

/* Add to the transaction what differs between the committed and the new bytes at off; len a multiple of
 * VM_BLKSIZE. now may change meanwhile. number: of the file in the journal. */
int pol_file_add_changes(struct vm_journal *j, uint32_t number, uint64_t off, const uint8_t *committed,
			 const uint8_t *now, size_t len);

/* ---- backend_file.c ---- */

/* Zeroed memory of our own; NULL: none. */
void *pol_file_memory(size_t len);
/* All but what is in storage: f->priv, and its end. */
int pol_file_prepare(struct vm_bigfile *f, const char *arg);
void pol_file_free(struct vm_bigfile *f);
/* Run what writes to the file, without taking a change of somebody else's for ours. */
int pol_file_write(struct vm_bigfile *f,
		   int (*fn)(struct vm_journal *j, const struct vm_journal_files *files));
/* Operations that others are made of. */
int pol_file_size(struct vm_bigfile *f, uint64_t *ret_size);
int pol_file_load(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf);
int pol_file_open_write(struct vm_bigfile *f);
int pol_file_checkpoint(struct vm_bigfile *f);
int pol_file_idle(struct vm_bigfile *f);
int pol_file_reserve(struct vm_bigfile *f, uint64_t off, uint64_t len);
void pol_file_times(struct vm_bigfile *f, int done);
void pol_file_moved(struct vm_bigfile *f);
int pol_file_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop);

/* ---- backend_file_txn.c: the operations of a transaction ---- */

/* One more run at the end of the list. */
int pol_file_extents_add(struct pol_file_extents *l, uint64_t pgoff, uint64_t npages);
int pol_file_begin(struct vm_bigfile *f);
/* The size was smaller meanwhile: what lay in [cut, size) is taken away by the commit. Blocks stored there as
 * differences from it need it back, below these differences. */
int pol_file_add_base(struct vm_bigfile *f, uint64_t cut, uint64_t size);
int pol_file_store(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags);
int pol_file_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags);
void pol_file_abort(struct vm_bigfile *f);

#endif
