/* SPDX-License-Identifier: MIT */
/*
 * What a crash left in the journal of a group goes into all its files, or, when one of them cannot be had, into
 * none.
 *
 *	look	every file that has commits is there, is the one that is meant, and can be written
 *	replay, sync the files
 *	empty	a new generation, which names the files (G2): from here on nothing is replayed again (G3)
 *	remove the stubs
 */
#define _GNU_SOURCE 1
#include "backend_file_group_work.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int replay(struct pol_group_work *w, pol_progress_fn *progress, void *arg)
{
	int err = pol_group_work_open_all(w, O_RDWR);

	if (err)
		return err;
	err = vm_journal_replay(w->jfd, &w->files, VM_JOURNAL_START, w->scan.end, progress, arg);
	if (err)
		return pol_group_work_failed(w, "replay into the files failed, it stays", err);
	for (uint32_t n = 1; !err && n < w->nnumbers; n++)
		if (w->file[n].fd > 0)
			err = vm_sys->fsync(w->file[n].fd);
	return err ? pol_group_work_failed(w, "fsync of the files failed, it stays", err) : 0;
}

/* A generation that holds their names only. */
static int start_over(struct pol_group_work *w, struct vm_journal *j)
{
	struct vm_journal_mark m = {.generation = w->scan.header.generation,
				    .good_slot = w->scan.slot,
				    .alloc = (uint64_t)w->st.st_size & ~(uint64_t)(VM_JOURNAL_ALIGN - 1),
				    .txid = w->scan.last_txid,
				    .flags = VM_MARK_START};
	struct vm_txn txn = {.txid = m.txid};
	int err;

	memcpy(j->id.name, w->scan.header.name, sizeof(j->id.name));
	vm_journal_set_mark(j, &m);
	err = vm_journal_start_over(j, 0);
	if (err)
		return err;
	vm_journal_begin(j);
	for (uint32_t n = 1; !err && n < w->nnumbers; n++) {
		struct pol_group_file *f = &w->file[n];
		struct vm_journal_name name = {.dev = f->dev,
					       .ino = f->ino,
					       .igen = f->igen,
					       .is_unlinked = f->is_unlinked,
					       .path = pol_group_relative(w->dir, f->path)};

		if (f->is_named)
			err = vm_journal_add_name(j, n, &name);
	}
	if (!err && w->more)
		err = pol_group_add_more(j);
	return err ? err : vm_journal_commit(j, &txn, true);
}

static int empty(struct pol_group_work *w)
{
	struct vm_journal_pos pos = {0};
	struct vm_journal j = {
		.fd = w->jfd, .pos = &pos, .limit = VM_JOURNAL_LIMIT, .group = w->scan.header.group};
	int err = vm_journal_init(&j);

	if (!err)
		err = start_over(w, &j);
	vm_journal_fini(&j);
	return err ? pol_group_work_failed(w, "recovered, but it cannot be emptied", err) : 0;
}

static int remove_stubs(struct pol_group_work *w, bool *ret_all)
{
	int err;

	for (uint32_t n = 1; n < w->nnumbers; n++) {
		if (!w->file[n].is_named)
			continue;
		err = pol_stub_remove_of(w->file[n].path, w->dir, w->scan.header.group);
		if (err < 0)
			return pol_group_work_failed(w, "recovered, but the stub of a file cannot be removed",
						     err);
		*ret_all &= err == 1;
	}
	return 0;
}

static int recover(struct pol_group_work *w, pol_progress_fn *progress, void *arg, bool *ret_more)
{
	bool all = true;
	int err = 0;

	if (w->nfiles) {
		err = replay(w, progress, arg);
		if (!err)
			err = empty(w);
	}
	if (!err)
		err = remove_stubs(w, &all);
	/* One that names nobody: the crash came just before it did. But the first of all came before any stub. */
	*ret_more = !all || w->more || (!w->nnumbers && w->scan.header.generation > 1);
	return err;
}

int pol_group_recover_locked(int fd, const char *jpath, pol_progress_fn *progress, void *arg,
			     struct pol_journal_report *ret, struct vm_scan *scan, bool *ret_more)
{
	struct pol_group_work w;
	int err = pol_group_work_prepare(&w, jpath, fd, ret);

	if (!err)
		err = pol_group_work_report(&w, 0);
	if (!err)
		err = recover(&w, progress, arg, ret_more);
	if (!err && ret->state == POL_JOURNAL_REPLAY)
		pol_group_work_tell_replay(&w, jpath, "recovered");
	if (!err)
		err = vm_journal_scan(fd, NULL, scan);
	pol_group_work_finish(&w);
	return err;
}

/* ---- by name ---- */

static int not_open(const char *jpath, const char *name, const char *what, int err,
		    struct pol_journal_report *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (err == -EBUSY) {
		ret->state = POL_JOURNAL_IN_USE;
		(void)snprintf(ret->text, sizeof(ret->text),
			       "%s: in use by a live process, which has the journal of its group, %s", name,
			       jpath);
	} else if (err == -ENOENT) {
		ret->state = POL_JOURNAL_DAMAGED;
		(void)snprintf(ret->text, sizeof(ret->text),
			       "%s: the journal of its group, %s, is missing: commits may be lost; "
			       "nothing was changed; remove its own journal to go on without",
			       name, jpath);
		err = -EUCLEAN;
	} else {
		(void)snprintf(ret->text, sizeof(ret->text), "%s: journal of its group, %s: %s: %s", name,
			       jpath, what, pol_errno_name(err));
	}
	return err;
}

int pol_group_check(const char *jpath, uint64_t id, const char *name, struct pol_journal_report *ret)
{
	const char *what = "";
	struct pol_group_work w;
	int fd, err = pol_journal_open_check(jpath, &fd, &what);

	if (err) {
		err = not_open(jpath, name, what, err, ret);
		return ret->state == POL_JOURNAL_IN_USE || ret->state == POL_JOURNAL_DAMAGED
			       ? 0
			       : err; /* an answer */
	}
	err = pol_group_work_prepare(&w, jpath, fd, ret);
	w.name = name;
	if (!err && pol_group_work_report(&w, id))
		goto out;
	if (!err && ret->state == POL_JOURNAL_REPLAY) {
		err = pol_group_work_open_all(&w, O_RDONLY);
		if (!err)
			pol_group_work_tell_replay(&w, name, "needs recovery:");
		else if (err == -EUCLEAN)
			ret->state = POL_JOURNAL_FOREIGN;
		err = err == -EUCLEAN ? 0 : err;
	}
out:
	pol_group_work_finish(&w);
	vm_fd_drop(&fd);
	return err;
}

int pol_group_recover(const char *jpath, uint64_t id, const char *name, pol_progress_fn *progress, void *arg,
		      struct pol_journal_report *ret)
{
	const char *what = "";
	bool more = true;
	struct pol_group_work w;
	int fd, err = pol_journal_open_idle(jpath, &fd, &what);

	if (err)
		return not_open(jpath, name, what, err, ret);
	err = pol_group_work_prepare(&w, jpath, fd, ret);
	w.name = name;
	if (!err)
		err = pol_group_work_report(&w, id);
	if (!err)
		err = recover(&w, progress, arg, &more);
	if (!err && ret->state == POL_JOURNAL_REPLAY)
		pol_group_work_tell_replay(&w, name, "recovered");
	if (!err && !more) { /* it may come back after a crash: it holds nothing */
		err = vm_sys->unlinkat(AT_FDCWD, jpath, 0);
		if (!err)
			(void)pol_journal_sync_dir(w.dir);
		if (err)
			err = pol_group_work_failed(&w, "recovered, but it cannot be removed", err);
	}
	pol_group_work_finish(&w);
	vm_fd_drop(&fd);
	return err;
}
