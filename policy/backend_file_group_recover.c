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
#include "backend_file_group.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct file {
	uint64_t dev, ino, igen;
	bool is_named, is_unlinked, has_commits;
	int fd; /* (home), 0: none */
	char path[PATH_MAX];
};

struct work {
	const char *jpath;
	char dir[PATH_MAX];
	int jfd;
	struct stat st; /* of the journal */
	struct vm_scan scan;
	struct vm_journal_files files;
	struct file *file; /* by number */
	uint32_t nnumbers; /* below */
	bool more;	   /* POL_GROUP_MORE */
	unsigned nfiles;   /* with commits */
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
	say(w, "%s: journal of a group: %s: %s", w->jpath, what, pol_errno_name(err));
	return err;
}

/* ---- what it says of its files ---- */

static int note(const struct vm_journal_note *n, void *arg)
{
	struct work *w = arg;
	struct file *f = &w->file[n->file];
	const struct vm_journal_name *name = n->name;
	int len;

	if (n->file == POL_GROUP_MORE) {
		w->more = true;
		return 0;
	}
	if (n->file >= w->nnumbers)
		w->nnumbers = n->file + 1;
	if (!name) {
		w->nfiles += !f->has_commits;
		f->has_commits = true;
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

static int refuse(struct work *w, const struct file *f, const char *what, int err)
{
	say(w, "%s: %s: its commits are in %s, with those of %u file%s: nothing was changed%s", f->path, what,
	    w->jpath, w->nfiles, w->nfiles == 1 ? "" : "s",
	    err == -EUCLEAN ? "; remove that journal if they are not wanted" : "");
	return err;
}

static int open_one(struct work *w, struct file *f, int flags)
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

static int open_all(struct work *w, int flags)
{
	int err = 0;

	for (uint32_t n = 1; !err && n < w->nnumbers; n++)
		if (w->file[n].has_commits && !w->file[n].is_unlinked)
			err = open_one(w, &w->file[n], flags);
	return err;
}

static int get(const struct vm_journal_files *files, uint32_t number)
{
	const struct work *w = (const struct work *)((const char *)files - offsetof(struct work, files));

	if (number >= w->nnumbers || w->file[number].is_unlinked || !w->file[number].fd)
		return VM_FILE_GONE;
	return w->file[number].fd;
}

static void close_all(struct work *w)
{
	for (uint32_t n = 1; n < w->nnumbers; n++)
		if (w->file[n].fd > 0)
			vm_fd_drop(&w->file[n].fd);
}

/* ---- the journal ---- */

static int prepare(struct work *w, const char *jpath, int fd, struct pol_journal_report *ret)
{
	const char *slash = strrchr(jpath, '/');
	int err;

	memset(w, 0, sizeof(*w));
	memset(ret, 0, sizeof(*ret));
	w->jpath = jpath;
	w->jfd = fd;
	w->ret = ret;
	w->files = (struct vm_journal_files){.fd = -1, .get = get};
	(void)snprintf(w->dir, sizeof(w->dir), "%.*s", slash > jpath ? (int)(slash - jpath) : 1,
		       slash ? jpath : ".");
	w->file = vm_files_alloc(sizeof(*w->file));
	err = w->file ? vm_sys->fstat(fd, &w->st) : -ENOMEM;
	if (!err)
		err = vm_journal_scan(fd, NULL, &w->scan);
	if (!err && w->scan.state == VM_SCAN_COMMITS && w->scan.header.kind == VM_JOURNAL_GROUP)
		err = vm_journal_notes(fd, VM_JOURNAL_START, w->scan.end, note, w);
	return err ? failed(w, "read", err) : 0;
}

static void finish(struct work *w)
{
	close_all(w);
	vm_files_free(w->file, sizeof(*w->file));
}

static bool is_group(const struct vm_scan *s)
{
	return !s->header.magic || s->header.kind == VM_JOURNAL_GROUP;
}

/* How it is; a text for every state but REPLAY. id: the group that it should be of, or 0. */
static int report(struct work *w, uint64_t id)
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
		say(w, "%s: clean; the journal of its group holds no commit%s", w->jpath,
		    s->dropped ? "; an incomplete one does not count" : "");
		return 0;
	}
	r->ncommits = s->ncommits;
	r->first_txid = s->first_txid;
	r->last_txid = s->last_txid;
	r->bytes_kept = s->end - VM_JOURNAL_START;
	return 0;
}

static void tell_replay(struct work *w, const char *name, const char *what)
{
	const struct vm_scan *s = &w->scan;

	say(w, "%s: %s commits up to txid %llu of its group, %u file%s, from %s (%llu journal bytes)%s", name,
	    what, (unsigned long long)s->last_txid, w->nfiles, w->nfiles == 1 ? "" : "s", w->jpath,
	    (unsigned long long)w->ret->bytes_kept,
	    s->dropped ? "; an incomplete one at its end does not count" : "");
}

static int replay(struct work *w, pol_progress_fn *progress, void *arg)
{
	int err = open_all(w, O_RDWR);

	if (err)
		return err;
	err = vm_journal_replay(w->jfd, &w->files, VM_JOURNAL_START, w->scan.end, progress, arg);
	if (err)
		return failed(w, "replay into the files failed, it stays", err);
	for (uint32_t n = 1; !err && n < w->nnumbers; n++)
		if (w->file[n].fd > 0)
			err = vm_sys->fsync(w->file[n].fd);
	return err ? failed(w, "fsync of the files failed, it stays", err) : 0;
}

/* A generation that holds their names only. */
static int start_over(struct work *w, struct vm_journal *j)
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
		struct file *f = &w->file[n];
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

static int empty(struct work *w)
{
	struct vm_journal_pos pos = {0};
	struct vm_journal j = {
		.fd = w->jfd, .pos = &pos, .limit = VM_JOURNAL_LIMIT, .group = w->scan.header.group};
	int err = vm_journal_init(&j);

	if (!err)
		err = start_over(w, &j);
	vm_journal_fini(&j);
	return err ? failed(w, "recovered, but it cannot be emptied", err) : 0;
}

static int remove_stubs(struct work *w, bool *ret_all)
{
	int err;

	for (uint32_t n = 1; n < w->nnumbers; n++) {
		if (!w->file[n].is_named)
			continue;
		err = pol_stub_remove_of(w->file[n].path, w->dir, w->scan.header.group);
		if (err < 0)
			return failed(w, "recovered, but the stub of a file cannot be removed", err);
		*ret_all &= err == 1;
	}
	return 0;
}

static int recover(struct work *w, pol_progress_fn *progress, void *arg, bool *ret_more)
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
	struct work w;
	int err = prepare(&w, jpath, fd, ret);

	if (!err)
		err = report(&w, 0);
	if (!err)
		err = recover(&w, progress, arg, ret_more);
	if (!err && ret->state == POL_JOURNAL_REPLAY)
		tell_replay(&w, jpath, "recovered");
	if (!err)
		err = vm_journal_scan(fd, NULL, scan);
	finish(&w);
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
	struct work w;
	int fd, err = pol_journal_open_check(jpath, &fd, &what);

	if (err) {
		err = not_open(jpath, name, what, err, ret);
		return ret->state == POL_JOURNAL_IN_USE || ret->state == POL_JOURNAL_DAMAGED
			       ? 0
			       : err; /* an answer */
	}
	err = prepare(&w, jpath, fd, ret);
	if (!err && report(&w, id))
		goto out;
	if (!err && ret->state == POL_JOURNAL_REPLAY) {
		err = open_all(&w, O_RDONLY);
		if (!err)
			tell_replay(&w, name, "needs recovery:");
		else if (err == -EUCLEAN)
			ret->state = POL_JOURNAL_FOREIGN;
		err = err == -EUCLEAN ? 0 : err;
	}
out:
	finish(&w);
	vm_fd_drop(&fd);
	return err;
}

int pol_group_recover(const char *jpath, uint64_t id, const char *name, pol_progress_fn *progress, void *arg,
		      struct pol_journal_report *ret)
{
	const char *what = "";
	bool more = true;
	struct work w;
	int fd, err = pol_journal_open_idle(jpath, &fd, &what);

	if (err)
		return not_open(jpath, name, what, err, ret);
	err = prepare(&w, jpath, fd, ret);
	if (!err)
		err = report(&w, id);
	if (!err)
		err = recover(&w, progress, arg, &more);
	if (!err && ret->state == POL_JOURNAL_REPLAY)
		tell_replay(&w, name, "recovered");
	if (!err && !more) { /* it may come back after a crash: it holds nothing */
		err = vm_sys->unlinkat(AT_FDCWD, jpath, 0);
		if (!err)
			(void)pol_journal_sync_dir(w.dir);
		if (err)
			err = failed(&w, "recovered, but it cannot be removed", err);
	}
	finish(&w);
	vm_fd_drop(&fd);
	return err;
}
