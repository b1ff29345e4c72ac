/* SPDX-License-Identifier: MIT */
/* What a crash left: look at it, bring it into the file, and tell the story in one line. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "managed.h"
#include "log.h"
#include "recover.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What a question or a recovery works on. */
struct work {
	const char *path;
	char dir[PATH_MAX], jpath[PATH_MAX];
	int jfd, data_fd;
	struct stat st; /* of the data file */
	struct vm_scan scan;
	struct pol_journal_report *ret;
};

static void say(struct work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct work *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(w->ret->text, sizeof(w->ret->text), fmt, ap);
	va_end(ap);
}

static int failed(struct work *w, const char *what, int err)
{
	say(w, "%s: journal %s: %s: %s", w->path, w->jpath, what, pol_errno_name(err));
	return err;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* One line about the tail, empty when there is nothing to say. */
static const char *tail_story(const struct vm_scan *s, char *buf, size_t len)
{
	*buf = 0;
	if (s->dropped)
		(void)snprintf(buf, len, "; an incomplete commit of %llu bytes at journal offset %llu %s",
			       (unsigned long long)s->dropped, (unsigned long long)s->end, "does not count");
	return buf;
}

static void tell_refusal(struct work *w)
{
	const struct vm_scan *s = &w->scan;
	const struct vm_journal_header *h = &s->header;

	switch (s->why) {
	case VM_SCAN_VERSION:
		say(w, "%s: journal %s is of format version %u, this program knows %u; nothing was changed",
		    w->path, w->jpath, h->version, VM_JOURNAL_VERSION);
		break;
	case VM_SCAN_IDENTITY:
		if (h->kind == VM_JOURNAL_STUB) {
			say(w,
			    "%s: journal %s is of another file (%.60s, inode %llu; this is inode %llu), and its group's "
			    "may hold commits: the file was replaced or copied since; nothing was changed; remove the "
			    "journal if these are not wanted",
			    w->path, w->jpath, h->name, (unsigned long long)h->ino, (unsigned long long)w->st.st_ino);
			break;
		}
		say(w,
		    "%s: journal %s holds %llu commit%s of another file (%.60s, inode %llu; this is inode "
		    "%llu): the "
		    "file was replaced or copied since; nothing was changed; remove the journal if these are "
		    "not "
		    "wanted",
		    w->path, w->jpath, (unsigned long long)s->ncommits, plural(s->ncommits), h->name,
		    (unsigned long long)h->ino, (unsigned long long)w->st.st_ino);
		break;
	case VM_SCAN_NO_JOURNAL:
		say(w, "%s: %s is no journal of ours; nothing was changed", w->path, w->jpath);
		break;
	case VM_SCAN_BAD_HEADER:
		say(w,
		    "%s: journal %s is damaged: its headers do not verify, the frame at offset %llu does; "
		    "nothing was "
		    "changed",
		    w->path, w->jpath, (unsigned long long)s->proof_off);
		break;
	case VM_SCAN_BAD_RUN:
		say(w,
		    "%s: journal %s is damaged: the frame at offset %llu verifies, but makes no sense; "
		    "nothing was "
		    "changed",
		    w->path, w->jpath, (unsigned long long)s->bad_off);
		break;
	case VM_SCAN_BAD_STUB:
		say(w,
		    "%s: %s says that the file is a member of a group, and is damaged; nothing was changed",
		    w->path, w->jpath);
		break;
	case VM_SCAN_OK:
		say(w, "%s: %s says that the file is a member of a group; nothing was changed", w->path,
		    w->jpath);
		break;
	default:
		say(w,
		    "%s: journal %s is damaged: the commit after txid %llu, at offset %llu, does not verify, "
		    "but was "
		    "durable (by the frame at %llu); %llu commit%s before it verif%s; nothing was changed",
		    w->path, w->jpath, (unsigned long long)s->last_txid, (unsigned long long)s->bad_off,
		    (unsigned long long)s->proof_off, (unsigned long long)s->ncommits, plural(s->ncommits),
		    s->ncommits == 1 ? "ies" : "y");
	}
}

/* The scan as a report; a text for every state but REPLAY. */
static void report(struct work *w)
{
	const struct vm_scan *s = &w->scan;
	struct pol_journal_report *r = w->ret;
	char tail[120];

	r->ncommits = s->ncommits;
	r->first_txid = s->first_txid;
	r->last_txid = s->last_txid;
	r->bytes_kept = s->ncommits ? s->end - VM_JOURNAL_START : 0;
	r->bytes_dropped = s->dropped;
	r->size = s->ncommits ? s->size : (uint64_t)w->st.st_size;
	switch (s->state) {
	case VM_SCAN_EMPTY:
		r->state = POL_JOURNAL_CLEAN;
		say(w, "%s: clean; journal %s holds no commit%s%s", w->path, w->jpath,
		    s->why == VM_SCAN_SHORT ? " (it ends before its first)" : "",
		    tail_story(s, tail, sizeof(tail)));
		break;
	case VM_SCAN_COMMITS:
		r->state = POL_JOURNAL_REPLAY;
		break;
	case VM_SCAN_DAMAGED:
		r->state = POL_JOURNAL_DAMAGED;
		tell_refusal(w);
		break;
	case VM_SCAN_MEMBER:
	case VM_SCAN_FOREIGN:
		r->state = POL_JOURNAL_FOREIGN;
		tell_refusal(w);
		break;
	}
}

static void tell_replay(struct work *w, const char *what)
{
	const struct vm_scan *s = &w->scan;
	char tail[120];

	say(w, "%s: %s %llu commit%s (txid %llu to %llu, %llu journal bytes), size %llu%s", w->path, what,
	    (unsigned long long)s->ncommits, plural(s->ncommits), (unsigned long long)s->first_txid,
	    (unsigned long long)s->last_txid, (unsigned long long)w->ret->bytes_kept,
	    (unsigned long long)s->size, tail_story(s, tail, sizeof(tail)));
}

static int tell_none(struct work *w)
{
	w->ret->state = POL_JOURNAL_NONE;
	say(w, "%s: clean; no journal", w->path);
	return 0;
}

/* Names, and the data file. 1: there is a journal; 0: there is none. */
static int prepare(struct work *w, const char *path, const char *dir, int flags,
		   struct pol_journal_report *ret)
{
	int err;

	memset(ret, 0, sizeof(*ret));
	w->path = path;
	w->ret = ret;
	w->jfd = w->data_fd = -1;
	w->jpath[0] = 0;
	err = pol_journal_path(path, dir, w->dir, w->jpath);
	if (err)
		return failed(w, "name", err);
	err = vm_sys->fstatat(AT_FDCWD, w->jpath, &w->st, AT_SYMLINK_NOFOLLOW);
	if (err == -ENOENT)
		return tell_none(w);
	if (err)
		return failed(w, "stat", err);
	w->data_fd = vm_sys->openat(AT_FDCWD, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (w->data_fd < 0) {
		err = w->data_fd;
		w->data_fd = -1;
	} else {
		err = vm_fd_adopt(&w->data_fd);
	}
	if (!err)
		err = vm_sys->fstat(w->data_fd, &w->st);
	if (err)
		say(w, "%s: has a journal, %s, and cannot be opened: %s%s", path, w->jpath,
		    pol_errno_name(err), err == -EROFS ? "; recovery needs to write" : "");
	return err ? err : 1;
}

static void finish(struct work *w)
{
	if (w->jfd >= 0)
		vm_fd_drop(&w->jfd);
	if (w->data_fd >= 0)
		vm_fd_drop(&w->data_fd);
}

/* The journal could not be opened: 0 when it went meanwhile, because somebody else recovered it or its user
 * is done. */
static int tell_not_open(struct work *w, const char *what, int err)
{
	if (err == -ENOENT)
		return tell_none(w);
	if (err == -EBUSY) {
		w->ret->state = POL_JOURNAL_IN_USE;
		say(w, "%s: in use by a live process, which has journal %s", w->path, w->jpath);
	} else if (err == -ELOOP) {
		say(w, "%s: journal %s is a symbolic link, which is not followed", w->path, w->jpath);
	} else {
		(void)failed(w, what, err);
	}
	return err;
}

/* Another file's stub: does it lead to a journal of its group that nobody has, and that holds nothing? */
static bool leads_to_nothing(struct work *w)
{
	char group[PATH_MAX];
	struct vm_scan scan;
	const char *what;
	bool nothing;
	int fd;

	if (w->scan.why != VM_SCAN_IDENTITY || w->scan.header.kind != VM_JOURNAL_STUB ||
	    pol_stub_read(w->jfd, w->dir, group) || pol_journal_open_check(group, &fd, &what))
		return false;
	nothing = !vm_journal_scan(fd, NULL, &scan) && scan.header.group == w->scan.header.group &&
		  !pol_group_holds_commits(fd);
	vm_fd_drop(&fd);
	return nothing;
}

static int scan(struct work *w)
{
	struct vm_journal_id id;
	int err;

	pol_journal_id(w->path, &w->st, w->data_fd, &id);
	err = vm_journal_scan(w->jfd, &id, &w->scan);
	if (err)
		return failed(w, "read", err);
	if (leads_to_nothing(w)) {
		w->scan.state = VM_SCAN_EMPTY;
		w->scan.why = VM_SCAN_OK;
	}
	report(w);
	return 0;
}

/* A member of a group? Then where its journal is, and the stub is closed. */
static int is_member(struct work *w, char *ret_jpath, int *err)
{
	if (*err || w->jfd < 0 || w->scan.state != VM_SCAN_MEMBER)
		return 0;
	*err = pol_stub_read(w->jfd, w->dir, ret_jpath);
	if (*err)
		*err = failed(w, "says not where the journal of its group is", *err);
	vm_fd_drop(&w->jfd);
	return !*err;
}

/* The stub goes before the journal: without both, somebody else recovered them meanwhile. */
static bool is_stub_gone(const struct work *w)
{
	struct stat st;

	return vm_sys->fstatat(AT_FDCWD, w->jpath, &st, AT_SYMLINK_NOFOLLOW) == -ENOENT;
}

static bool is_of_group(const char *path)
{
	return pol_is_journal(path) && pol_group_is_journal(path);
}

int pol_journal_check(const char *path, const char *dir, struct pol_journal_report *ret)
{
	char group[PATH_MAX];
	struct work w;
	const char *what = "";
	int err;

	if (is_of_group(path))
		return pol_group_check(path, 0, path, ret);
	err = prepare(&w, path, dir, O_RDONLY, ret);
	if (err > 0) {
		err = pol_journal_open_check(w.jpath, &w.jfd, &what);
		err = err ? tell_not_open(&w, what, err) : scan(&w);
	}
	if (is_member(&w, group, &err)) {
		err = pol_group_check(group, w.scan.header.group, path, ret);
		if (ret->state == POL_JOURNAL_DAMAGED && is_stub_gone(&w))
			err = tell_none(&w);
	} else if (!err && ret->state == POL_JOURNAL_REPLAY)
		tell_replay(&w, "needs recovery:");
	finish(&w);
	return err == -EBUSY ? 0 : err; /* which is an answer */
}

/* The group's recovery did not know of it when the journal names nobody. */
static int recover_member(struct work *w, const char *group, pol_progress_fn *progress, void *arg)
{
	int err = pol_group_recover(group, w->scan.header.group, w->path, progress, arg, w->ret);

	if (err == -EUCLEAN && is_stub_gone(w))
		return tell_none(w);
	if (err == -EBUSY && pol_config_get() && !pol_group_bring_in_place(w->path, w->jpath, group, &w->st)) {
		w->ret->state = POL_JOURNAL_CLEAN;
		say(w, "%s: clean; the processes of its group live, and brought it in place", w->path);
		return 0;
	}
	if (err)
		return err;
	err = pol_stub_remove(w->jpath, w->scan.header.group);
	return err < 0 ? failed(w, "recovered, but it cannot be removed", err) : 0;
}

/* Replay, and only when the file durably holds it all, remove the journal. */
static int recover_locked(struct work *w, pol_progress_fn *progress, void *arg)
{
	int err;

	if (w->scan.state == VM_SCAN_DAMAGED || w->scan.state == VM_SCAN_FOREIGN ||
	    w->scan.state == VM_SCAN_MEMBER)
		return -EUCLEAN;
	if (w->scan.state == VM_SCAN_COMMITS) {
		struct vm_journal_files one = {.fd = w->data_fd};

		err = vm_journal_replay(w->jfd, &one, VM_JOURNAL_START, w->scan.end, progress, arg);
		if (err)
			return failed(w, "replay into the file failed, the journal stays", err);
		err = vm_sys->fsync(w->data_fd);
		if (err)
			return failed(w, "fsync of the file failed, the journal stays", err);
		tell_replay(w, "recovered");
	}
	err = vm_sys->unlinkat(AT_FDCWD, w->jpath, 0);
	if (err)
		return failed(w, "recovered, but it cannot be removed", err);
	err = pol_journal_sync_dir(w->dir);
	/* the journal may come back after a crash: replaying it again would change nothing */
	return err ? failed(w, "recovered; its removal cannot be made durable", err) : 0;
}

int pol_journal_recover(const char *path, const char *dir, pol_progress_fn *progress, void *arg,
			struct pol_journal_report *ret)
{
	struct work w;
	char group[PATH_MAX];
	const char *what = "";
	bool created;
	int err;

	if (is_of_group(path))
		return pol_group_recover(path, 0, path, progress, arg, ret);
	err = prepare(&w, path, dir, O_RDWR, ret);
	if (err > 0) {
		err = pol_journal_open(w.jpath, &w.st, false, &w.jfd, &created, &what);
		err = err ? tell_not_open(&w, what, err) : scan(&w);
		if (is_member(&w, group, &err))
			err = recover_member(&w, group, progress, arg);
		else if (!err && w.jfd >= 0)
			err = recover_locked(&w, progress, arg);
	}
	finish(&w);
	return err;
}
