/* SPDX-License-Identifier: MIT */
/* A copy of a file that nobody has managed: its content, and what a crash left in its journal. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "copy_out.h"
#include "recover.h"

#include <errno.h>
#include <fcntl.h>

#define TRIES 3

/* Where commits that were not replayed come to: into the copy, and what is another file's nowhere. */
struct replay {
	struct vm_journal_files files; /* the first */
	struct vm_journal_id id;       /* of the file */
	uint32_t number;	       /* in a group's journal; 0: it has none */
	int fd;
};

static int get(const struct vm_journal_files *files, uint32_t number)
{
	const struct replay *r = (const struct replay *)files;

	return number == r->number ? r->fd : VM_FILE_GONE;
}

static int find_number(const struct vm_journal_note *n, void *arg)
{
	struct replay *r = arg;

	if (n->name && n->name->ino == r->id.ino && n->name->dev == r->id.dev)
		r->number = n->file;
	return 0;
}

/* The journal of the group instead of the stub that *jfd is. */
static int open_group(struct pol_copy_out *c, const char *dir, int *jfd)
{
	char group[PATH_MAX];
	int err = pol_stub_read(*jfd, dir, group);

	vm_fd_drop(jfd);
	return err ? err : pol_journal_open_check(group, jfd, &c->what);
}

static int replay(struct pol_copy_out *c, const char *path, const char *dir)
{
	struct replay r = {.files.fd = c->fd, .fd = c->fd};
	char jdir[PATH_MAX], jpath[PATH_MAX];
	struct vm_scan scan;
	struct stat st;
	int jfd, err = pol_journal_path(path, dir, jdir, jpath);

	if (!err)
		err = pol_journal_open_check(jpath, &jfd, &c->what);
	if (err)
		return err;
	c->what = "read its journal";
	err = vm_journal_scan(jfd, NULL, &scan);
	if (!err && scan.state == VM_SCAN_MEMBER) {
		r.files.get = get;
		err = open_group(c, jdir, &jfd);
		if (!err)
			err = vm_journal_scan(jfd, NULL, &scan);
		if (!err)
			err = vm_sys->fstat(*c->from, &st);
		if (!err)
			pol_journal_id(path, &st, *c->from, &r.id);
		if (!err && scan.state == VM_SCAN_COMMITS)
			err = vm_journal_notes(jfd, VM_JOURNAL_START, scan.end, find_number, &r);
	}
	c->what = "replay into the copy";
	if (!err && scan.state == VM_SCAN_COMMITS)
		err = vm_journal_replay(jfd, &r.files, VM_JOURNAL_START, scan.end, c->progress, c->arg);
	if (jfd >= 0)
		vm_fd_drop(&jfd);
	return err;
}

/* -EAGAIN: it was changed meanwhile. */
static int copy_once(struct pol_copy_out *c, const char *path, const char *dir,
		     struct pol_journal_report *ret)
{
	struct pol_journal_report after;
	struct stat st, now;
	int err = pol_journal_check(path, dir, ret);

	if (!err && ret->state == POL_JOURNAL_IN_USE)
		err = -EBUSY;
	if (!err && (ret->state == POL_JOURNAL_DAMAGED || ret->state == POL_JOURNAL_FOREIGN))
		err = -EUCLEAN;
	if (err)
		return err;
	ret->text[0] = 0;
	c->what = "look at the file";
	err = vm_sys->fstat(*c->from, &st);
	if (!err)
		err = pol_copy_out_base(c, (uint64_t)st.st_size);
	if (!err && ret->state == POL_JOURNAL_REPLAY)
		err = replay(c, path, dir);
	if (!err)
		err = pol_journal_check(path, dir, &after);
	if (!err)
		err = vm_sys->fstat(*c->from, &now);
	if (err)
		return err;
	c->what = "it is changed all the time";
	return after.state != ret->state || after.last_txid != ret->last_txid || now.st_size != st.st_size ||
			       now.st_mtim.tv_sec != st.st_mtim.tv_sec ||
			       now.st_mtim.tv_nsec != st.st_mtim.tv_nsec
		       ? -EAGAIN
		       : 0;
}

static int copy(struct pol_copy_out *c, const char *path, const char *dir, struct pol_journal_report *ret)
{
	struct stat st;
	int err = -EAGAIN;

	for (unsigned i = 0; err == -EAGAIN && i < TRIES; i++)
		err = copy_once(c, path, dir, ret);
	if (err)
		return err == -EAGAIN ? -EBUSY : err;
	err = vm_sys->fstat(c->fd, &st);
	if (err)
		return err;
	c->copy.size = (uint64_t)st.st_size;
	return pol_copy_out_place(c, c->copy.size);
}

int pol_journal_copy(const char *path, const char *dir, struct pol_copy_out *c, const char *out,
		     bool must_be_dir, struct pol_journal_report *ret)
{
	int err, fd = vm_sys->openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);

	ret->text[0] = 0;
	c->what = "open the file";
	if (fd < 0)
		return fd;
	err = vm_fd_adopt(&fd);
	if (err)
		return err;
	c->from = &fd;
	err = pol_copy_out_begin(c, path, out, must_be_dir);
	if (!err) {
		err = copy(c, path, dir, ret);
		pol_copy_out_end(c);
	}
	vm_fd_drop(&fd);
	return err;
}
