/* SPDX-License-Identifier: MIT */
/* Commits into the files, in order. */
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>

/* A commit's frames, of which the one in buf is loaded. */
struct frames {
	uint64_t from, to;
	struct vm_frame *buf;
	uint64_t loaded; /* offset of what is in buf, 0: nothing */
};

typedef int pass_fn(const struct vm_apply *a, const struct vm_frame *fr);

static int apply_base(const struct vm_apply *a, const struct vm_frame *fr)
{
	return vm_apply_frame(a, fr, VM_RUN_BASE);
}

static int apply_bytes(const struct vm_apply *a, const struct vm_frame *fr)
{
	return vm_apply_frame(a, fr, 0);
}

static int replay_pass(const struct vm_apply *a, struct frames *f, pass_fn *pass)
{
	uint64_t at = f->from;
	int err = 0;

	while (!err && at < f->to) {
		if (f->loaded != at) { /* a commit of one frame is loaded once */
			f->loaded = 0;
			err = vm_frame_load(a->fd, at, f->buf);
			if (err)
				return err;
			f->loaded = at;
		}
		err = pass(a, f->buf);
		at += vm_frame_space(f->buf);
	}
	return err;
}

static int replay_commit(const struct vm_apply *a, struct frames *f)
{
	int err = a->table ? replay_pass(a, f, vm_apply_sizes) : vm_apply_sizes(a, &a->commit);

	if (!err && a->commit.flags & VM_FRAME_BASE)
		err = replay_pass(a, f, apply_base);
	return err ? err : replay_pass(a, f, apply_bytes);
}

int vm_replay(int fd, const struct vm_journal_files *files, struct vm_journal_file *table, uint64_t from,
	      uint64_t to, vm_replay_fn *progress, void *arg)
{
	struct vm_apply a = {.fd = fd, .files = files, .table = table};
	uint64_t total = to - from, done = 0;
	struct frames f = {.buf = vm_frame_alloc()};
	int err = f.buf ? 0 : -ENOMEM;

	while (!err && done < total) {
		f.from = from + done;
		err = vm_frame_find_commit(fd, f.from, &a.commit, &f.to);
		if (!err && f.to > to)
			err = -EUCLEAN;
		if (!err)
			err = replay_commit(&a, &f);
		if (err)
			break;
		done = f.to - from;
		if (progress)
			progress(done, total, arg);
	}
	vm_frame_free(f.buf);
	return err;
}

int vm_journal_replay(int fd, const struct vm_journal_files *files, uint64_t from, uint64_t to,
		      vm_replay_fn *progress, void *arg)
{
	struct vm_journal_file *table = files->get ? vm_files_alloc(sizeof(*table)) : NULL;
	int err = files->get && !table ? -ENOMEM : vm_replay(fd, files, table, from, to, progress, arg);

	vm_files_free(table, sizeof(*table));
	return err;
}
