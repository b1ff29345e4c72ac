/* SPDX-License-Identifier: MIT */
/* A copy of a file that nobody has managed: its content, and what a crash left in its journal. */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "copy_out.h"
#include "recover.h"

#include <errno.h>
#include <fcntl.h>

#define TRIES 3

/* Commits that were not replayed come into the copy. */
static int replay(struct pol_copy_out *c, const char *path, const char *dir)
{
	char jdir[PATH_MAX], jpath[PATH_MAX];
	struct vm_journal_files one = {.fd = c->fd};
	struct vm_scan scan;
	int jfd, err = pol_journal_path(path, dir, jdir, jpath);

	if (!err)
		err = pol_journal_open_check(jpath, &jfd, &c->what);
	if (err)
		return err;
	c->what = "replay into the copy";
	err = vm_journal_scan(jfd, NULL, &scan);
	if (!err && scan.state == VM_SCAN_MEMBER) {
		c->what = "it needs recovery, together with its group";
		err = -EUCLEAN;
	} else if (!err && scan.state == VM_SCAN_COMMITS)
		err = vm_journal_replay(jfd, &one, VM_JOURNAL_START, scan.end, c->progress, c->arg);
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
