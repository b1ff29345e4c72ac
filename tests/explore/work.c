/* SPDX-License-Identifier: MIT */
#include "work.h"
#include "backend_file.h"
#include "box.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static uint64_t below(struct work_run *w, uint64_t n)
{
	return box_random(&w->rnd) % n;
}

/* ---- the file ---- */

static void open_with(struct work_run *w, struct vm_bigfile *f, const struct vm_backend_ops *ops)
{
	struct stat st;

	w->f = f;
	memset(f, 0, sizeof(*f));
	f->ops = ops;
	f->path = w->path;
	f->writable = 1;
	f->shared_len = VM_BACKEND_SHARED;
	f->shared = mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	f->fd = open(w->path, O_RDWR | O_CLOEXEC);
	must(f->shared != MAP_FAILED && f->fd >= 0 && !fstat(f->fd, &st), w->path);
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	must(!ops->open(f, NULL), "open");
}

static void open_file(struct work_run *w)
{
	open_with(w, &w->file[0], &pol_backend_file);
}

static int shut(struct work_run *w)
{
	struct vm_bigfile *f = w->f;
	int err = f->ops->close(f);

	if (!err)
		record_mark(EV_DURABLE, w->newest);
	close(f->fd);
	munmap(f->shared, VM_BACKEND_SHARED);
	return err;
}

/* A version to change: what the last one was. */
static struct version draft(const struct work_run *w)
{
	const struct version *last = &w->version[w->newest];
	struct version v = {last->size, calloc(1, WORK_SIZE_MAX)};

	must(v.bytes != NULL, "calloc");
	memcpy(v.bytes, last->bytes, v.size);
	return v;
}

static void set_size(struct version *v, uint64_t size, uint64_t *low)
{
	must(size <= WORK_SIZE_MAX && v->size <= WORK_SIZE_MAX, "too large a file");
	if (size < v->size)
		memset(v->bytes + size, 0, v->size - size);
	v->size = size;
	*low = size < *low ? size : *low;
}

/* Few values: so that old bytes often equal new ones. */
static void store(struct work_run *w, struct version *v, uint64_t off, uint64_t len)
{
	for (uint64_t i = off; i < off + len && i < v->size; i++)
		v->bytes[i] = (uint8_t)below(w, 3);
}

static int try_commit(struct work_run *w, const struct version *next, uint64_t low, unsigned flags)
{
	struct version old = draft(w);
	struct vm_txn txn = {.txid = w->txid + 1, .size = next->size, .size_low = low};
	int err = w->f->ops->begin(w->f);

	/* what was cut off is zeros, and is only stored where it became something else */
	set_size(&old, low, &low);
	for (uint64_t off = 0; !err && off < next->size; off += VM_BLKSIZE)
		if (memcmp(next->bytes + off, old.bytes + off, VM_BLKSIZE))
			err = w->f->ops->storeblk(w->f, off / VM_BLKSIZE, 1, next->bytes + off, 0);
	if (!err)
		err = w->f->ops->commit(w->f, &txn, flags);
	if (err < 0)
		w->f->ops->abort(w->f);
	free(old.bytes);
	return err;
}

/* The draft is a version, which is the newest one then, or has failed. */
static void commit(struct work_run *w, struct version next, uint64_t low, unsigned flags)
{
	unsigned v = w->nversions++;
	int err;

	must(v < WORK_VERSIONS, "too many versions");
	w->version[v] = next;
	record_mark(EV_STARTED, v);
	err = try_commit(w, &next, low, flags);
	must(err >= 0 || record_has_failed(), "commit");
	if (err < 0) {
		record_mark(EV_FAILED, v);
		return;
	}
	w->newest = v;
	w->txid += !err;
	if (flags & VM_COMMIT_DURABLE)
		record_mark(EV_DURABLE, v);
}

static void checkpoint(struct work_run *w)
{
	if (!w->f->ops->checkpoint(w->f))
		record_mark(EV_DURABLE, w->newest);
}

/* Some stores, now and then another size. */
static void change(struct work_run *w, struct version *v, uint64_t *low)
{
	*low = v->size;
	for (unsigned n = below(w, 3) ? 0 : 1 + (unsigned)below(w, 2); n--;)
		set_size(v, below(w, 12 * VM_BLKSIZE), low);
	for (unsigned n = 1 + (unsigned)below(w, 4); n-- && v->size;)
		store(w, v, below(w, v->size), 1 + below(w, below(w, 8) ? 200 : 9000));
}

static void commit_some(struct work_run *w, unsigned n, bool may_be_lazy)
{
	while (n--) {
		struct version v = draft(w);
		uint64_t low;

		change(w, &v, &low);
		commit(w, v, low, may_be_lazy && below(w, 3) ? 0 : VM_COMMIT_DURABLE);
	}
}

/* ---- the workloads ---- */

static void run_durable(struct work_run *w)
{
	open_file(w);
	commit_some(w, 5, false);
	(void)shut(w);
}

static void run_lazy(struct work_run *w)
{
	open_file(w);
	commit_some(w, 8, true);
	(void)shut(w);
}

static void run_growing(struct work_run *w)
{
	open_file(w);
	for (unsigned i = 0; i < 5; i++) {
		struct version v = draft(w);
		uint64_t low = v.size, at = v.size;

		set_size(&v, at + 1 + below(w, 3 * VM_BLKSIZE), &low);
		store(w, &v, at + below(w, v.size - at), 700);
		store(w, &v, below(w, v.size), 20);
		commit(w, v, low, VM_COMMIT_DURABLE);
	}
	(void)shut(w);
}

static void run_shrinking(struct work_run *w)
{
	open_file(w);
	for (unsigned i = 0; i < 8; i++) {
		struct version v = draft(w);
		uint64_t low = v.size, cut = below(w, v.size + 1);

		set_size(&v, cut, &low);
		if (below(w, 4)) /* nothing of what was cut may come back */
			set_size(&v, cut + below(w, 6 * VM_BLKSIZE), &low);
		if (below(w, 2)) /* often what it was before */
			store(w, &v, cut, below(w, 3 * VM_BLKSIZE));
		if (v.size)
			store(w, &v, below(w, v.size), 300);
		commit(w, v, low, below(w, 2) ? VM_COMMIT_DURABLE : 0);
	}
	(void)shut(w);
}

/* So many runs that they are applied through a mapping. */
static void run_bulk(struct work_run *w)
{
	open_file(w);
	for (unsigned i = 0; i < 2; i++) {
		struct version v = draft(w);
		uint64_t low = v.size;

		set_size(&v, WORK_SIZE_MAX - below(w, 9000), &low);
		for (uint64_t off = below(w, 200); off < v.size; off += 128 + below(w, 200))
			v.bytes[off] = (uint8_t)(v.bytes[off] + 1 + i);
		commit(w, v, low, VM_COMMIT_DURABLE);
	}
	(void)shut(w);
}

/* A journal so small that it starts over again and again, and checkpoints in between. */
static void run_start_over(struct work_run *w)
{
	open_file(w);
	pol_file_priv(w->f)->j.limit = 32 << 10;
	for (unsigned i = 0; i < 12; i++) {
		commit_some(w, 1, true);
		if (below(w, 5) == 0)
			checkpoint(w);
	}
	(void)shut(w);
}

/* Writes and syncs that fail, in the middle of commits and checkpoints. */
static void run_failing(struct work_run *w)
{
	open_file(w);
	for (unsigned i = 0; i < 4; i++) {
		record_fail(1 + (unsigned)below(w, 4), below(w, 2) ? ENOSPC : EIO);
		commit_some(w, 1, below(w, 4) == 0);
		record_fail(0, 0);
		commit_some(w, 1, true);
	}
	(void)shut(w);
}

/* Journals are made and removed. */
static void run_lives(struct work_run *w)
{
	for (unsigned i = 0; i < 4; i++) {
		open_file(w);
		commit_some(w, 1 + (unsigned)below(w, 2), true);
		(void)shut(w);
	}
}

static int ignore(struct vm_news *news, uint64_t start, uint64_t stop)
{
	(void)news, (void)start, (void)stop;
	return 0;
}

/* Two processes, as far as the backend can see, each with a snapshot, which commit in turn. */
static void run_snapshots(struct work_run *w)
{
	for (unsigned i = 0; i < 2; i++)
		open_with(w, &w->file[i], &pol_backend_file_snapshot);
	for (unsigned i = 0; i < 8; i++) {
		struct vm_news news = {.pages = ignore};

		w->f = &w->file[below(w, 2)];
		must(!w->f->ops->hold(w->f, &news), "hold");
		commit_some(w, 1, true);
		w->f->ops->let_go(w->f, 1);
	}
	for (unsigned i = 0; i < 2; i++) {
		w->f = &w->file[i];
		(void)shut(w);
	}
}

const struct work works[] = {
	{"durable", 300, run_durable},	   {"lazy", 300, run_lazy},   {"growing", 300, run_growing},
	{"shrinking", 300, run_shrinking}, {"bulk", 20, run_bulk},    {"start over", 300, run_start_over},
	{"failing", 300, run_failing},	   {"lives", 300, run_lives}, {"snapshots", 300, run_snapshots},
};
const unsigned nworks = sizeof(works) / sizeof(*works);

void work_run(struct work_run *w, const struct work *work, const char *dir, uint64_t seed,
	      struct disk *ret_start, struct trace *ret)
{
	struct version first = {3 * VM_BLKSIZE + 100, calloc(1, WORK_SIZE_MAX)};

	memset(w, 0, sizeof(*w));
	w->dir = dir;
	w->rnd = seed;
	(void)snprintf(w->path, sizeof(w->path), "%s/data", dir);
	must(first.bytes != NULL, "calloc");
	store(w, &first, 0, first.size);
	box_put(w->path, first.bytes, first.size);
	w->version[w->nversions++] = first;
	disk_get(ret_start, dir);
	record_start(dir, ret_start, ret);
	work->run(w);
	record_stop();
}

void work_clear(struct work_run *w)
{
	while (w->nversions)
		free(w->version[--w->nversions].bytes);
}

bool work_goes_on(struct work_run *w)
{
	static struct version is;
	struct version next = {VM_BLKSIZE + 77, calloc(1, WORK_SIZE_MAX)};
	struct vm_txn txn = {.txid = 1000, .size = next.size};
	bool ok;

	must(next.bytes != NULL, "calloc");
	store(w, &next, 0, next.size);
	if (!is.bytes)
		is.bytes = calloc(1, WORK_SIZE_MAX);
	open_file(w);
	ok = !w->f->ops->begin(w->f) && !w->f->ops->storeblk(w->f, 0, 1, next.bytes, 0) &&
	     !w->f->ops->storeblk(w->f, 1, 1, next.bytes + VM_BLKSIZE, 0) &&
	     w->f->ops->commit(w->f, &txn, VM_COMMIT_DURABLE) >= 0;
	ok = !shut(w) && ok;
	is.size = box_get(w->path, is.bytes, WORK_SIZE_MAX);
	ok = ok && is.size == next.size && !memcmp(is.bytes, next.bytes, is.size);
	free(next.bytes);
	return ok;
}
