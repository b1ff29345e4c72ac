/* SPDX-License-Identifier: MIT */
/*
 * The committed bytes of the file: its own, under the commits that are in the journal and not yet in the
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

static int read_runs(int fd, const struct vm_frame *fr, const struct vm_frame *commit, bool base,
		     const struct dest *d)
{
	uint64_t at = fr->offset + sizeof(*fr), end = at + fr->len;
	struct window w = {.fd = fd};

	while (at < end) {
		struct vm_run run;
		uint64_t start, stop;
		int err;

		if (end - at < sizeof(run))
			return -EUCLEAN;
		err = window_get(&w, at, &run, sizeof(run));
		if (err)
			return err;
		at += sizeof(run);
		if (run.len > end - at || run.off > (uint64_t)INT64_MAX - run.len)
			return -EUCLEAN;
		start = run.off > d->start ? run.off : d->start;
		stop = run.off + run.len;
		stop = stop < commit->size ? stop : commit->size;
		stop = stop < d->stop ? stop : d->stop;
		if (start < stop && !!(run.flags & VM_RUN_BASE) == base) {
			err = vm_sys_pread_full(fd, d->buf + (start - d->start), stop - start,
						(off_t)(at + (start - run.off)));
			if (err)
				return err;
		}
		at += run.len;
	}
	return 0;
}

static int read_pass(int fd, const struct vm_frame *commit, uint64_t from, uint64_t to, bool base,
		     const struct dest *d)
{
	while (from < to) {
		struct vm_frame fr;
		int err = vm_frame_load_header(fd, from, &fr);

		if (!err)
			err = read_runs(fd, &fr, commit, base, d);
		if (err)
			return err;
		from += vm_frame_space(&fr);
	}
	return 0;
}

static int read_pending(int fd, uint64_t from, uint64_t to, const struct dest *d)
{
	while (from < to) {
		struct vm_frame commit;
		uint64_t next;
		int err = vm_frame_find_commit(fd, from, &commit, &next);

		if (err)
			return err;
		if (commit.cut < d->stop) {
			uint64_t start = commit.cut > d->start ? commit.cut : d->start;

			memset(d->buf + (start - d->start), 0, d->stop - start);
		}
		if (commit.flags & VM_FRAME_BASE)
			err = read_pass(fd, &commit, from, next, true, d);
		if (!err)
			err = read_pass(fd, &commit, from, next, false, d);
		if (err)
			return err;
		from = next;
	}
	return 0;
}

int vm_journal_read(struct vm_journal *j, int data_fd, void *buf, size_t len, uint64_t off)
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
			err = read_pending(j->fd, m.applied, m.tail, &d);
	} while (turn != atomic_load(&j->pos->turn));
	return err;
}
