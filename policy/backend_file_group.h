/* SPDX-License-Identifier: MIT */
/*
 * The file backend for scope=group: files that commit together, in one journal.
 *
 * A process has one struct pol_group for each group's journal that it has files of, its *members*. In place of
 * a journal of its own each member has a stub, whose lock keeps others away from the file, and which tells
 * recovery where the group's journal is.
 *
 * Several processes may have members of one group. They share RUNTIME_DIR/group-DEV-INO, of the journal:
 *
 *	[0, 4096)	struct pol_group_shared
 *	[4096, ...)	struct pol_group_member of each file
 *
 * or, without a runtime directory, such memory with those that they fork only.
 *
 * Invariants, cited by the code:
 *
 *	G1  Who builds a transaction, applies, or changes what is shared, has the group's lock: from the begin of the
 *	    first part to the commit of the last one, or its abort.
 *	G2  A stub is there only while its file's name is in the journal, durably; and the journal is removed only when
 *	    no such stub is left. So a stub without its group's journal means that commits may be lost.
 *	G3  A stub is removed only while the journal durably holds no commit of its file.
 *	G4  A journal starts over only when all its files durably hold their commits. One that cannot be had is
 *	    *stuck*: then it does not start over any more.
 */
#ifndef POL_BACKEND_FILE_GROUP_H
#define POL_BACKEND_FILE_GROUP_H

#include "backend_file.h"
#include "robust.h"

#define POL_GROUP_MAGIC	   0x707267706d7874ull /* "txmpgrp" */
#define POL_GROUP_VERSION  1u
#define POL_GROUP_START	   4096u
#define POL_GROUP_NMEMBERS 4096u
/* Named in a journal by this number: there may be stubs of members that it does not name, since a crash took their
 * names away. So it stays. */
#define POL_GROUP_MORE (POL_GROUP_NMEMBERS + 1)

/* A file of the group. Guard: the group's lock; size and what follows it are read without. */
struct pol_group_member {
	uint64_t dev, ino, igen;
	uint32_t is_used;
	uint32_t is_unlinked; /* it has no name left */
	uint32_t is_stuck;    /* some process could not bring its commits in place */
	uint32_t reserved;
	uint64_t named; /* the generation that names it as it is here */
	/* committed, unless the commit next_seq of next_generation has happened: then next_size is */
	uint64_t size;
	uint64_t next_size, next_generation, next_seq;
	/* others wrote to it, who do not have it live: its time in between is none of a stranger's; 0: none */
	int64_t wrote_from_nsec, wrote_to_nsec;
	uint64_t wrote_size;
	char path[PATH_MAX]; /* canonical */
};

struct pol_group_shared {
	uint64_t magic;
	uint32_t version, len;
	uint64_t dev, ino; /* of the journal (fixed) */
	uint64_t id;	   /* the group's random number (fixed) */
	struct vm_robust
		turn; /* next in turn for the lock, so that one who commits all the time lets others in */
	struct vm_robust lock;
	uint64_t is_in_doubt;	/* a holder died: its frames may be there, and are not to come back */
	uint64_t nmembers;	/* numbers are at most this */
	uint64_t may_have_more; /* POL_GROUP_MORE (fixed) */
	uint64_t more_named;	/* the generation that says so */
	/* where the journal ends when the generation holds only names */
	uint64_t names_generation, names_tail;
	struct vm_journal_pos pos;
};
_Static_assert(sizeof(struct pol_group_shared) <= POL_GROUP_START, "fits");
#define POL_GROUP_LEN (POL_GROUP_START + POL_GROUP_NMEMBERS * sizeof(struct pol_group_member))

/* One in a process. Guard: the list's lock for arg, nusers, next; the group's lock for the rest. */
struct pol_group {
	struct vm_journal j;
	struct pol_group_shared *all; /* mapped (fixed) */
	int life;	 /* the file in the runtime directory, with a lock that says that we live; or -1 */
	unsigned nusers; /* members here, and those on their way */
	struct pol_file_priv *members;
	int holder;	 /* thread of this process that has the group's lock, or 0 (atomic) */
	unsigned nholds; /* nested */
	unsigned nparts; /* of the transaction being built */
	struct pol_group *next;
	char dir[PATH_MAX], jpath[PATH_MAX]; /* where the journal is */
	char arg[PATH_MAX];		     /* where the settings have it */
};

static inline struct pol_group_member *pol_group_member(const struct pol_group_shared *all, uint32_t number)
{
	return (struct pol_group_member *)((char *)all + POL_GROUP_START) + (number - 1);
}

/* ---- backend_file_group_shared.c: what processes share ---- */

/* Memory for a new group, whose journal is fd's; it is the only one. dirfd: the runtime directory, or -1. */
int pol_group_shared_make(struct pol_group *g, int dirfd, uint64_t id);
/* That of a living one. -ENOENT, -EPROTO: it is not there, or another version's. */
int pol_group_shared_join(struct pol_group *g, int dirfd);
/* last: nobody else has it. */
void pol_group_shared_leave(struct pol_group *g, bool last);
/* Look at one, for somebody who is no member. *ret is to be given to pol_group_shared_forget. */
int pol_group_shared_look(uint64_t jdev, uint64_t jino, struct pol_group_shared **ret);
void pol_group_shared_forget(struct pol_group_shared *all);
/* Room for one more member. */
int pol_group_shared_grow(struct pol_group *g, uint32_t number);

/* ---- backend_file_group_hold.c ---- */

/* Take the group's lock; nested calls of the thread count. -ETIMEDOUT, said in the log: its holder may be
 * stopped. */
int pol_group_hold(struct pol_group *g);
void pol_group_let_go(struct pol_group *g);
/* Does this thread have it? */
bool pol_group_is_held(const struct pol_group *g);
/* What was noted of a commit counts, or not, as it happened, or not. */
void pol_group_settle(struct pol_group *g);

/* ---- backend_file_group_list.c: the groups of this process ---- */

/* The group with its journal at path (arg), counted; the first one of all opens or makes the journal with who may
 * use it from data, and recovers what a crash left. An error is in the log. */
int pol_group_get(const struct vm_bigfile *f, const char *path, const struct stat *data,
		  struct pol_group **ret);
/* The last one of all leaves nothing behind. Not held. */
void pol_group_put(struct pol_group *g);

/* Who may use f's file may use the group's journal, nobody else. */
int pol_group_follow_mode(struct pol_group *g, const struct stat *data);

/* ---- backend_file_group_apply.c: into the files ---- */

/* Durable commits into all files. */
int pol_group_apply(struct pol_group *g);
/* The same, and the journal starts over. -EUCLEAN: it cannot (G4). A transaction that is being built is to be
 * rebased, and names are due. */
int pol_group_start_over(struct pol_group *g);
/* All commits durably into all files, and the journal starts over, unless it cannot. No transaction is built. */
int pol_group_checkpoint(struct pol_group *g);
/* Does the journal, of which this is the position, hold nothing but names? */
bool pol_group_has_only_names(const struct pol_group *g, const struct vm_journal_mark *m);
/* Can it not be emptied? */
bool pol_group_is_stuck(const struct pol_group *g);
/* What others wrote to f is no stranger's. */
void pol_group_take_in(struct vm_bigfile *f);

/* ---- backend_file_group_names.c: the files by name ---- */

/* A number for the file, which has none. */
int pol_group_add_member(struct pol_group *g, struct vm_bigfile *f, const struct stat *st,
			 uint32_t *ret_number);
uint32_t pol_group_find_member(const struct pol_group *g, const struct vm_journal_id *id);
/* Name POL_GROUP_MORE. */
int pol_group_add_more(struct vm_journal *j);
/* Name those of the transaction being built that the generation does not name yet: all, not only those that take
 * part (G2). named: it has happened. */
int pol_group_add_names(struct pol_group *g);
void pol_group_named(struct pol_group *g);
/* The same as a transaction of its own, durably. */
int pol_group_write_names(struct pol_group *g);
/* Path for who reads it at the directory dir: relative to it when it is below. */
const char *pol_group_relative(const char *dir, const char *path);

/* ---- backend_file_group_join.c: a file becomes a member, and ends being one ---- */

int pol_group_enroll(struct vm_bigfile *f);
/* The names of the file at path and of its stub are durable before it commits: a power cut that took one away would
 * keep the whole group from being recovered. */
int pol_group_sync_names(const struct vm_bigfile *f, const char *path);
/* Its stub goes, when nobody else has it, and everything is in its place (G3). */
int pol_group_leave(struct vm_bigfile *f);
/* The same when others go on. */
void pol_group_detach(struct vm_bigfile *f);

/* The file at path is no member any more because its process was killed, and others of the group live. */
int pol_group_bring_in_place(const char *path, const char *stub, const char *jpath, const struct stat *data);

/* ---- backend_file_stub.c ---- */

/* Make fd the stub of the member whose journal it would be. */
int pol_stub_write(int fd, const char *stub_dir, const struct vm_journal_id *id, const struct pol_group *g);
/* The same again, after it, or its directory, was renamed; jpath: what it is called now. */
int pol_stub_write_again(int fd, const char *jpath, const struct vm_journal_id *id,
			 const struct pol_group *g);
/* The path of the group's journal that a stub in stub_dir speaks of. */
int pol_stub_read(int fd, const char *stub_dir, char *ret_jpath);
/* Remove it if it is one of this group and nobody has it. 1: there is none any more; 0: somebody has it. */
int pol_stub_remove(const char *path, uint64_t id);
/* The same for the file at path, wherever its stub may be. */
int pol_stub_remove_of(const char *path, const char *group_dir, uint64_t id);
/* Whoever has it: does it say in which group's journal? */
bool pol_stub_peek(const char *path, const char *stub_dir, char *ret_jpath);
/* Has somebody the stub of that file? */
bool pol_stub_is_kept(const char *path, const char *group_dir);

/* ---- backend_file_group_txn.c ---- */

int pol_group_begin(struct vm_bigfile *f);
int pol_group_store(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags);
int pol_group_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags);
void pol_group_abort(struct vm_bigfile *f);
/* Committed size of a member, as of a position. */
uint64_t pol_group_size(const struct pol_group_member *e, const struct vm_journal_mark *m);

/* ---- backend_file_group_load.c ---- */

int pol_group_file_size(struct vm_bigfile *f, uint64_t *ret_size);
int pol_group_load(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf);
int pol_group_nextdata(struct vm_bigfile *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop);

/* ---- backend_file_group_recover.c ---- */

/* Bring what is in the journal fd, which nobody else has, into its files; empty it, and remove the stubs. scan:
 * how it is then. more: there may be other members, which it does not name. report->text is the story. */
int pol_group_recover_locked(int fd, const char *jpath, pol_progress_fn *progress, void *arg,
			     struct pol_journal_report *ret, struct vm_scan *scan, bool *ret_more);
/* By a path of the group's journal. id: what it should be, or 0; name: of whom it is asked. */
int pol_group_recover(const char *jpath, uint64_t id, const char *name, pol_progress_fn *progress, void *arg,
		      struct pol_journal_report *ret);
int pol_group_check(const char *jpath, uint64_t id, const char *name, struct pol_journal_report *ret);
/* Is there a commit in it, or something that cannot be read? */
bool pol_group_holds_commits(int fd);
/* Is that the journal of a group? */
bool pol_group_is_journal(const char *path);

#endif
