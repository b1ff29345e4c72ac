/* SPDX-License-Identifier: MIT */
/* Between those who look at what a crash left in a group's journal, and those who recover it. */
#ifndef POL_BACKEND_FILE_GROUP_WORK_H
#define POL_BACKEND_FILE_GROUP_WORK_H

#include "backend_file_group.h"

struct pol_group_file {
	uint64_t dev, ino, igen;
	bool is_named, is_unlinked, has_commits;
	int fd; /* (home), 0: none */
	char path[PATH_MAX];
};

struct pol_group_work {
	const char *jpath;
	const char *name; /* of what was asked about: a file, or the journal itself */
	char dir[PATH_MAX];
	int jfd;
	struct stat st; /* of the journal */
	struct vm_scan scan;
	struct vm_journal_files files;
	struct pol_group_file *file; /* by number, or NULL: there is none */
	uint32_t nnumbers;	     /* below */
	bool more;		     /* POL_GROUP_MORE */
	unsigned nfiles;	     /* with commits */
	bool is_commit;		     /* has the one that is read a size? */
	uint64_t ncommits, first_txid;
	struct pol_journal_report *ret;
};

/* Open journal fd, which is locked, and see what it holds. An error is in ret->text, here and below. To be
 * finished in any case. */
int pol_group_work_prepare(struct pol_group_work *w, const char *jpath, int fd,
			   struct pol_journal_report *ret);
void pol_group_work_finish(struct pol_group_work *w);
/* How it is; a text for every state but REPLAY. id: the group that it should be of, or 0. */
int pol_group_work_report(struct pol_group_work *w, uint64_t id);
/* The files that have commits: all of them are there, or it is refused. */
int pol_group_work_open_all(struct pol_group_work *w, int flags);
/* The text for REPLAY. name: of whom it was asked. */
void pol_group_work_tell_replay(struct pol_group_work *w, const char *name, const char *what);
int pol_group_work_failed(struct pol_group_work *w, const char *what, int err);

#endif
