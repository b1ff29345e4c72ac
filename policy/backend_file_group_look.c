/* SPDX-License-Identifier: MIT */
/* What a crash left in the journal of a group: what it says of its files, and whether they are there. */
#define _GNU_SOURCE 1
#include "backend_file_group_work.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(struct pol_group_work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct pol_group_work *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(w->ret->text, sizeof(w->ret->text), fmt, ap);
	va_end(ap);
}

int pol_group_work_failed(struct pol_group_work *w, const char *what, int err)
{
	say(w, "%s: journal of a group: %s: %s", w->jpath, what, pol_errno_name(err));
	return err;
}

/* ---- what it says of its files ---- */

static int count_numbers(const struct vm_journal_note *n, void *arg)
{
	struct pol_group_work *w = arg;

	if (n->file == POL_GROUP_MORE)
		w->more = true;
	else if (n->file >= w->nnumbers)
		w->nnumbers = n->file + 1;
	return 0;
}

static int note(const struct vm_journal_note *n, void *arg)
{
	struct pol_group_work *w = arg;
	const struct vm_journal_name *name = n->name;
	struct pol_group_file *f;
	int len;

	if (n->file >= w->nnumbers) /* POL_GROUP_MORE */
		return 0;
	f = &w->file[n->file];
	if (!name) {
		w->nfiles += !f->has_commits;
		f->has_commits = w->is_commit = true;
		return 0;
	}
	f->dev = name->dev;
	f->ino = name->ino;
	f->igen = name->igen;
	f->is_named = true;
	f->is_unlinked = name->is_unlinked;
	len = name->path[0] == '/'
		      ? snprintf(f->path, PATH_MAX, "%s", name->path)
		      : snprintf(f->path, PATH_MAX, "%s/%s", strcmp(w->dir, "/") ? w->dir : "", name->path);
	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int is_commit(const struct vm_journal_note *n, void *arg)
{
	(void)arg;
	return !n->name;
}

bool pol_group_holds_commits(int fd)
{
	struct vm_scan scan;

	if (vm_journal_scan(fd, NULL, &scan))
		return true;
	return scan.state != VM_SCAN_EMPTY &&
	       (scan.state != VM_SCAN_COMMITS || scan.header.kind != VM_JOURNAL_GROUP ||
		vm_journal_notes(fd, VM_JOURNAL_START, scan.end, is_commit, NULL));
}

bool pol_group_is_journal(const char *path)
{
	struct vm_journal_header h[2] = {0};
	int fd = vm_sys->openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0);

	if (fd < 0)
		return false;
	for (int i = 0; i < 2; i++)
		if (vm_sys_pread_full(fd, &h[i], sizeof(h[i]), (off_t)i * VM_JOURNAL_SLOT))
			h[i].magic = 0;
	(void)vm_sys->close(fd); /* only looked at */
	return (h[0].magic == VM_JOURNAL_MAGIC && h[0].kind == VM_JOURNAL_GROUP) ||
	       (h[1].magic == VM_JOURNAL_MAGIC && h[1].kind == VM_JOURNAL_GROUP);
}

/* ---- the files ---- */

static int refuse(struct pol_group_work *w, const struct pol_group_file *f, const char *what, int err)
{
	say(w, "%s: %s: its commits are in %s, with those of %u file%s: nothing was changed%s", f->path, what,
	    w->jpath, w->nfiles, w->nfiles == 1 ? "" : "s",
	    err == -EUCLEAN ? "; remove that journal if they are not wanted" : "");
	return err;
}

static int open_one(struct pol_group_work *w, struct pol_group_file *f, int flags)
{
	struct vm_journal_id id;
	struct stat st;
	int err, fd = vm_sys->openat(AT_FDCWD, f->path,
				     flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0);

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return refuse(w, f, "is missing", -EUCLEAN);
	if (fd == -EROFS)
		return refuse(w, f, "is on a file system that is read-only, and recovery needs to write", fd);
	if (fd < 0)
		return refuse(w, f, pol_errno_name(fd), fd);
	f->fd = fd;
	err = vm_fd_adopt(&f->fd);
	if (err) {
		f->fd = 0;
		return refuse(w, f, pol_errno_name(err), err);
	}
	err = vm_sys->fstat(f->fd, &st);
	if (err)
		return refuse(w, f, pol_errno_name(err), err);
	pol_journal_id(f->path, &st, f->fd, &id);
	if (!S_ISREG(st.st_mode) || id.ino != f->ino ||
	    (f->igen && id.igen ? f->igen != id.igen : f->dev != id.dev))
		return refuse(w, f, "was replaced or copied since", -EUCLEAN);
	/* whoever could make this journal could write to the file */
	if (w->st.st_uid && w->st.st_uid != geteuid() && w->st.st_uid != st.st_uid)
		return refuse(w, f, "belongs to another user than its group's journal", -EPERM);
	return 0;
}

int pol_group_work_open_all(struct pol_group_work *w, int flags)
{
	int err = 0;

	for (uint32_t n = 1; !err && n < w->nnumbers; n++)
		if (w->file[n].has_commits && !w->file[n].is_unlinked)
			err = open_one(w, &w->file[n], flags);
	return err;
}

static int get(const struct vm_journal_files *files, uint32_t number)
{
	const struct pol_group_work *w =
		(const struct pol_group_work *)((const char *)files - offsetof(struct pol_group_work, files));

	if (number >= w->nnumbers || w->file[number].is_unlinked || !w->file[number].fd)
		return VM_FILE_GONE;
	return w->file[number].fd;
}

static void close_all(struct pol_group_work *w)
{
	for (uint32_t n = 1; n < w->nnumbers; n++)
		if (w->file[n].fd > 0)
			vm_fd_drop(&w->file[n].fd);
}

/* ---- the journal ---- */

/* A commit of names only is none. */
static int read_commits(struct pol_group_work *w)
{
	struct vm_frame commit;
	uint64_t next;
	int err = vm_journal_notes(w->jfd, VM_JOURNAL_START, w->scan.end, count_numbers, w);

	if (!err && w->nnumbers) {
		w->file = pol_file_memory(w->nnumbers * sizeof(*w->file));
		err = w->file ? 0 : -ENOMEM;
	}
	for (uint64_t off = VM_JOURNAL_START; !err && off < w->scan.end; off = next) {
		err = vm_frame_find_commit(w->jfd, off, &commit, &next);
		w->is_commit = false;
		if (!err)
			err = vm_journal_notes(w->jfd, off, next, note, w);
		if (err || !w->is_commit)
			continue;
		if (!w->ncommits++)
			w->first_txid = commit.txid;
	}
	return err;
}

int pol_group_work_prepare(struct pol_group_work *w, const char *jpath, int fd,
			   struct pol_journal_report *ret)
{
	const char *slash = strrchr(jpath, '/');
	int err;

	memset(w, 0, sizeof(*w));
	memset(ret, 0, sizeof(*ret));
	w->jpath = w->name = jpath;
	w->jfd = fd;
	w->ret = ret;
	w->files = (struct vm_journal_files){.fd = -1, .get = get};
	(void)snprintf(w->dir, sizeof(w->dir), "%.*s", slash > jpath ? (int)(slash - jpath) : 1,
		       slash ? jpath : ".");
	err = vm_sys->fstat(fd, &w->st);
	if (!err)
		err = vm_journal_scan(fd, NULL, &w->scan);
	if (!err && w->scan.state == VM_SCAN_COMMITS && w->scan.header.kind == VM_JOURNAL_GROUP)
		err = read_commits(w);
	return err ? pol_group_work_failed(w, "read", err) : 0;
}

void pol_group_work_finish(struct pol_group_work *w)
{
	if (!w->file)
		return;
	close_all(w);
	(void)vm_sys->munmap(w->file, w->nnumbers * sizeof(*w->file)); /* whole: cannot fail */
}

static bool is_group(const struct vm_scan *s)
{
	return !s->header.magic || s->header.kind == VM_JOURNAL_GROUP;
}

int pol_group_work_report(struct pol_group_work *w, uint64_t id)
{
	const struct vm_scan *s = &w->scan;
	struct pol_journal_report *r = w->ret;

	r->bytes_dropped = s->dropped;
	if (s->state == VM_SCAN_FOREIGN || !is_group(s)) {
		r->state = POL_JOURNAL_FOREIGN;
		say(w, "%s: is %s; nothing was changed", w->jpath,
		    s->why == VM_SCAN_VERSION ? "a journal of another version" : "no journal of a group");
		return -EUCLEAN;
	}
	if (s->state == VM_SCAN_DAMAGED) {
		r->state = POL_JOURNAL_DAMAGED;
		say(w,
		    "%s: the journal of a group is damaged at offset %llu: %llu commits before it verify; "
		    "nothing was changed",
		    w->jpath, (unsigned long long)s->bad_off, (unsigned long long)s->ncommits);
		return -EUCLEAN;
	}
	if (id && s->header.group != id) {
		r->state = POL_JOURNAL_FOREIGN;
		say(w,
		    "%s: is the journal of another group than the stub's: that one's is lost, with what it "
		    "held; nothing was "
		    "changed",
		    w->jpath);
		return -EUCLEAN;
	}
	r->state = w->nfiles ? POL_JOURNAL_REPLAY : POL_JOURNAL_CLEAN;
	if (!w->nfiles) {
		say(w, "%s: clean; the journal of its group, %s, holds no commit%s", w->name, w->jpath,
		    s->dropped ? "; an incomplete one does not count" : "");
		return 0;
	}
	r->ncommits = w->ncommits;
	r->first_txid = w->first_txid;
	r->last_txid = s->last_txid;
	r->bytes_kept = s->end - VM_JOURNAL_START;
	return 0;
}

void pol_group_work_tell_replay(struct pol_group_work *w, const char *name, const char *what)
{
	const struct vm_scan *s = &w->scan;

	say(w,
	    "%s: %s %llu commit%s of its group (txid %llu to %llu, %llu journal bytes), %u file%s, from %s%s",
	    name, what, (unsigned long long)w->ncommits, w->ncommits == 1 ? "" : "s",
	    (unsigned long long)w->first_txid, (unsigned long long)s->last_txid,
	    (unsigned long long)w->ret->bytes_kept, w->nfiles, w->nfiles == 1 ? "" : "s", w->jpath,
	    s->dropped ? "; an incomplete one at its end does not count" : "");
}
