/* SPDX-License-Identifier: MIT */
/* Commits into the file, in order. */
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>

static int replay_pass(int fd, int data_fd, const struct vm_frame *commit, uint64_t from, uint64_t to,
		       bool base, void *buf)
{
	struct vm_frame *fr = buf;
	int err;

	while (from < to) {
		err = vm_frame_load(fd, from, buf);
		if (err)
			return err;
		err = vm_apply_frame(fd, data_fd, commit, fr, base);
		if (err)
			return err;
		from += vm_frame_space(fr);
	}
	return 0;
}

int vm_journal_replay(int fd, int data_fd, uint64_t from, uint64_t to, vm_replay_fn *progress, void *arg)
{
	uint64_t total = to - from, done = 0;
	void *buf = vm_frame_alloc();
	int err = buf ? 0 : -ENOMEM;

	while (!err && done < total) {
		struct vm_frame commit;
		uint64_t at = from + done, next;

		err = vm_frame_find_commit(fd, at, &commit, &next);
		if (!err && next > to)
			err = -EUCLEAN;
		if (!err)
			err = vm_apply_size(data_fd, &commit);
		if (!err && commit.flags & VM_FRAME_BASE)
			err = replay_pass(fd, data_fd, &commit, at, next, true, buf);
		if (!err)
			err = replay_pass(fd, data_fd, &commit, at, next, false, buf);
		if (err)
			break;
		done = next - from;
		if (progress)
			progress(done, total, arg);
	}
	vm_frame_free(buf);
	return err;
}
