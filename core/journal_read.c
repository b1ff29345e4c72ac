/* SPDX-License-Identifier: MIT */
/*
 * The committed bytes of a file: its own, under the commits that are in the journal and not yet in the
 * file. Such are there after commits that did not wait for the disk (J3), and after a failed apply.
 *
 * No lock, no memory: this may run in a fault handler. It looks at one position, and again when that changed.
 */
#define _GNU_SOURCE 1
#include "journal.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>

/* The buffer that is read into. */
struct dest {
	uint8_t *buf;
	uint64_t start, stop; /* what it holds of the file */
};

/* A look at run headers: few system calls, little stack. */
struct window {
	int fd;
	uint64_t start, stop;
	uint8_t data[1024];
};

static int window_get(struct window *w, uint64_t off, void *to, size_t len)
{
	if (off < w->start || off + len > w->stop) {
		int err = vm_sys_pread_full(w->fd, w->data, sizeof(w->data), (off_t)off);

		if (err)
			return err;
		w->start = off;
		w->stop = off + sizeof(w->data);
	}
	memcpy(to, w->data + (off - w->start), len);
	return 0;
}

/* The runs of one frame, one after the other. */
struct walk {
	struct window w;
	uint64_t at, end; /* in the journal */
};

static struct walk walk_of(int fd, const struct vm_frame *fr)
{
	return (struct walk){
		.w.fd = fd, .at = fr->offset + sizeof(*fr), .end = fr->offset + sizeof(*fr) + fr->len};
}

/* 1, 0 at the end, or -errno. *ret_bytes: where the run's bytes are. */
static int next_run(struct walk *k, struct vm_run *ret, uint64_t *ret_bytes)
{
	int err;

	*ret_bytes = k->at;
	if (k->at == k->end)
		return 0;
	if (k->end - k->at < sizeof(*ret))
		return -EUCLEAN;
	err = window_get(&k->w, k->at, ret, sizeof(*ret));
	if (err)
		return err;
	*ret_bytes += sizeof(*ret);
	if (ret->len > k->end - *ret_bytes || ret->off > (uint64_t)INT64_MAX - ret->len)
		return -EUCLEAN;
	k->at = *ret_bytes + ret->len;
	return 1;
}

/* What a commit is to one file. */
struct view {
	int fd;
	uint32_t flags; /* the file's number, where runs have it */
	uint64_t size, cut;
	uint64_t from, to; /* its frames */
};

static int read_runs(const struct view *v, const struct vm_frame *fr, uint32_t kind, const struct dest *d)
{
	struct walk k = walk_of(v->fd, fr);
	struct vm_run run;
	uint64_t bytes;
	int more;

	while ((more = next_run(&k, &run, &bytes)) > 0) {
		uint64_t start = run.off > d->start ? run.off : d->start;
		uint64_t stop = run.off + run.len;

		stop = stop < v->size ? stop : v->size;
		stop = stop < d->stop ? stop : d->stop;
		if (start < stop && run.flags == (v->flags | kind)) {
			int err = vm_sys_pread_full(v->fd, d->buf + (start - d->start), stop - start,
						    (off_t)(bytes + (start - run.off)));

			if (err)
				return err;
		}
	}
	return more;
}

static int read_pass(const struct view *v, uint32_t kind, const struct dest *d)
{
	uint64_t at = v->from;

	while (at < v->to) {
		struct vm_frame fr;
		int err = vm_frame_load_header(v->fd, at, &fr);

		if (!err)
			err = read_runs(v, &fr, kind, d);
		if (err)
			return err;
		at += vm_frame_space(&fr);
	}
	return 0;
}

/* The size that a group's commit gives to the file of v. 1; 0: it has no part in it; or -errno. */
static int find_size(struct view *v)
{
	uint64_t at = v->from;

	while (at < v->to) {
		struct vm_frame fr;
		struct vm_run run;
		uint64_t bytes;
		struct walk k;
		int more = vm_frame_load_header(v->fd, at, &fr);

		if (more)
			return more;
		k = walk_of(v->fd, &fr);
		while ((more = next_run(&k, &run, &bytes)) > 0)
			if (run.flags == (v->flags | VM_RUN_SIZE) && run.len == sizeof(v->cut)) {
				v->size = run.off;
				return window_get(&k.w, bytes, &v->cut, sizeof(v->cut)) ?: 1;
			}
		if (more)
			return more;
		at += vm_frame_space(&fr);
	}
	return 0;
}

static int read_commit(const struct view *v, bool has_base, const struct dest *d)
{
	int err = 0;

	if (v->cut < d->stop) {
		uint64_t start = v->cut > d->start ? v->cut : d->start;

		memset(d->buf + (start - d->start), 0, d->stop - start);
	}
	if (has_base)
		err = read_pass(v, VM_RUN_BASE, d);
	return err ? err : read_pass(v, 0, d);
}

static int read_pending(int fd, uint32_t file, uint64_t from, uint64_t to, const struct dest *d)
{
	while (from < to) {
		struct view v = {.fd = fd, .flags = file << VM_RUN_FILE_SHIFT, .from = from};
		struct vm_frame commit;
		int more = vm_frame_find_commit(fd, from, &commit, &v.to);

		if (more)
			return more;
		v.size = commit.size;
		v.cut = commit.cut;
		more = file ? find_size(&v) : 1;
		if (more > 0)
			more = read_commit(&v, commit.flags & VM_FRAME_BASE, d);
		if (more)
			return more;
		from = v.to;
	}
	return 0;
}

int vm_journal_read(struct vm_journal *j, uint32_t file, int data_fd, void *buf, size_t len, uint64_t off)
{
	struct dest d = {.buf = buf, .start = off, .stop = off + len};
	struct vm_journal_mark m;
	uint64_t turn;
	int err;

	/* what is committed meanwhile moves the position before it touches the file */
	do {
		turn = vm_journal_mark(j, &m);
		err = vm_sys_pread_full(data_fd, buf, len, (off_t)off);
		if (!err && m.applied != m.tail)
			err = read_pending(j->fd, file, m.applied, m.tail, &d);
	} while (turn != atomic_load(&j->pos->turn));
	return err;
}
