/* SPDX-License-Identifier: MIT */
/* The storage backends there are. To add one: one file, one line in backends.c. */
#ifndef POL_BACKENDS_H
#define POL_BACKENDS_H

#include "vm_backend.h"
#include <stdbool.h>
#include <stddef.h>

/* The operations named by a rule's backend ("file", "plugin"), or NULL. For plugin, arg is "SO[:ARG]": the
 * object is loaded (RTLD_LOCAL) and *ret_arg becomes its own argument; NULL with a line in err when it cannot
 * be. */
const struct vm_backend_ops *pol_backend_get(const char *name, const char *arg, const char **ret_arg, char *err,
					     size_t errlen);

/* The file backend: blocks in the program's file itself, committed through a journal (core/journal.h).
 * arg: the journal's directory, or NULL for beside the file. */
extern const struct vm_backend_ops pol_backend_file;

/* The same where each process has a snapshot of its own (share=process). */
extern const struct vm_backend_ops pol_backend_file_snapshot;
/* Does a live process have one of the file? */
bool pol_snapshot_has_somebody(dev_t dev, ino_t ino);
/* What those who were killed left in the runtime directory goes. */
void pol_snapshot_sweep(dev_t dev, ino_t ino);
/* The process is about to end: as the last one it leaves nothing in the runtime directory. What it may yet
 * commit meets the journal's lock. */
void pol_snapshot_end(struct vm_bigfile *f);
/* In a forked child: it has its parent's, and locks of its own. is_open: else another thread of the parent
 * was about to open it, and here nobody is. */
void pol_snapshot_fork_child(struct vm_bigfile *f, bool is_open);

/* The same for a file that commits together with others (scope=group): all of them that this process has live,
 * or none. arg: the path of the group's journal. */
extern const struct vm_backend_ops pol_backend_file_group;

/* What those who were killed left in the runtime directory goes. */
void pol_group_sweep(dev_t dev, ino_t ino);
/* In a forked child. */
void pol_group_fork_child(void);

/* Is it one of these three? */
bool pol_backend_is_file(const struct vm_bigfile *f);
/* Did an apply fail, so that the journal holds what the file does not? */
bool pol_backend_file_needs_recovery(const struct vm_bigfile *f);

/* Does the file itself, as others see it, hold all that was committed? */
bool pol_backend_file_is_in_place(const struct vm_bigfile *f);
/* Is that on the disk, too, so that nothing is left in the journal? */
bool pol_backend_file_is_on_disk(const struct vm_bigfile *f);
/* Bytes of journal that commits have taken since it was last emptied. */
uint64_t pol_backend_file_journal_fill(const struct vm_bigfile *f);
/* The first extent of data in [*start, *stop), or -ENXIO. */
int pol_file_next_extent(int fd, uint64_t *start, uint64_t *stop);

/* The journal's descriptor, which stays the backend's, or -1; and is fd the journal that all who share f
 * have? */
int pol_backend_file_journal(const struct vm_bigfile *f);
bool pol_backend_file_is_journal(const struct vm_bigfile *f, int fd);

/* What recovery or check found; for the log and for people. */
enum pol_journal_state {
	POL_JOURNAL_NONE,    /* no journal: the file is what was committed */
	POL_JOURNAL_CLEAN,   /* a journal with nothing to replay */
	POL_JOURNAL_IN_USE,  /* a live process has it */
	POL_JOURNAL_REPLAY,  /* complete commits wait to be (check) or were (recover) replayed */
	POL_JOURNAL_DAMAGED, /* a commit that was durable does not verify; nothing was changed */
	POL_JOURNAL_FOREIGN, /* belongs to another file, or is of another version, or is no journal */
};
struct pol_journal_report {
	enum pol_journal_state state;
	uint64_t ncommits;    /* complete commits found */
	uint64_t first_txid, last_txid;
	uint64_t bytes_kept;  /* journal bytes of complete commits */
	uint64_t bytes_dropped; /* of an incomplete commit at the end */
	uint64_t size;	      /* file size after the last complete commit */
	char text[400];	      /* the whole story in one line */
};
/* path: canonical path of the data file. dir: the rule's journal directory or NULL. progress may be NULL.
 * check changes nothing. recover replays, syncs the file, removes the journal. 0 when the question was
 * answered (state says how), -errno when it could not be (report->text has the context); recover: -EUCLEAN
 * for DAMAGED and FOREIGN, -EBUSY for IN_USE. */
struct pol_copy_out;
typedef void pol_progress_fn(uint64_t done, uint64_t total, void *arg);
int pol_journal_check(const char *path, const char *dir, struct pol_journal_report *ret);
int pol_journal_recover(const char *path, const char *dir, pol_progress_fn *progress, void *arg,
			struct pol_journal_report *ret);
/* Has a live process the journal of the file at path? The file is not opened: closing it would drop locks. */
bool pol_journal_is_in_use(const char *path, const char *dir);
/* Copy the file to out (as pol_copy_out_begin) as recovery would make it, and change nothing. -EUCLEAN and -EBUSY as
 * recover. c->what says what failed, when ret->text does not. */
int pol_journal_copy(const char *path, const char *dir, struct pol_copy_out *c, const char *out, bool must_be_dir,
		     struct pol_journal_report *ret);

#endif
