/* SPDX-License-Identifier: MIT */
/* Commits into the file, in order. */
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

const uint8_t *vm_run_at(const uint8_t *p, const uint8_t *stop, struct vm_run *ret)
{
	if ((size_t)(stop - p) < sizeof(*ret))
		return NULL;
	memcpy(ret, p, sizeof(*ret));
	p += sizeof(*ret);
	if (ret->len > (size_t)(stop - p) || ret->off > (uint64_t)INT64_MAX - ret->len)
		return NULL;
	return p;
}

int vm_apply_size(int data_fd, const struct vm_frame *commit)
{
	struct stat st;
	uint64_t size;
	int err = vm_sys->fstat(data_fd, &st);

	if (err)
		return err;
	size = (uint64_t)st.st_size;
	if (size > commit->cut) {
		err = vm_sys->ftruncate(data_fd, (off_t)commit->cut);
		if (err)
			return err;
		size = commit->cut;
	}
	return size == commit->size ? 0 : vm_sys->ftruncate(data_fd, (off_t)commit->size);
}

int vm_apply_runs(int data_fd, const struct vm_frame *commit, const void *payload, size_t len, bool base)
{
	const uint8_t *p = payload, *stop = p + len;
	struct vm_run run;
	int err;

	while (p < stop) {
		p = vm_run_at(p, stop, &run);
		if (!p)
			return -EUCLEAN;
		if (!!(run.flags & VM_RUN_BASE) == base && run.off < commit->size) {
			uint64_t left = commit->size - run.off;

			err = vm_sys_pwrite_full(data_fd, p, run.len < left ? run.len : left, (off_t)run.off);
			if (err)
				return err;
		}
		p += run.len;
	}
	return 0;
}

static int replay_pass(int fd, int data_fd, const struct vm_frame *commit, uint64_t from, uint64_t to,
		       bool base, void *buf)
{
	struct vm_frame *fr = buf;
	int err;

	while (from < to) {
		err = vm_frame_load(fd, from, buf);
		if (err)
			return err;
		err = vm_apply_runs(data_fd, commit, fr + 1, fr->len, base);
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
