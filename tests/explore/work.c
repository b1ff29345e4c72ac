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

static const struct vm_backend_ops *const ops = &pol_backend_file;

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

static void open_file(struct work_run *w)
{
	struct stat st;

	memset(&w->f, 0, sizeof(w->f));
	w->f.path = w->path;
	w->f.writable = 1;
	w->f.shared_len = VM_BACKEND_SHARED;
	w->f.shared =
		mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w->f.fd = open(w->path, O_RDWR | O_CLOEXEC);
	must(w->f.shared != MAP_FAILED && w->f.fd >= 0 && !fstat(w->f.fd, &st), w->path);
	w->f.dev = st.st_dev;
	w->f.ino = st.st_ino;
	must(!ops->open(&w->f, NULL), "open");
}

static void shut(struct work_run *w)
{
	int err = ops->close(&w->f);

	if (!err)
		record_mark(EV_DURABLE, w->newest);
	close(w->f.fd);
	munmap(w->f.shared, VM_BACKEND_SHARED);
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
	int err = ops->begin(&w->f);

	set_size(&old, low,
		 &low); /* what was cut off is zeros, and is only stored where it became something else */
	for (uint64_t off = 0; !err && off < next->size; off += VM_BLKSIZE)
		if (memcmp(next->bytes + off, old.bytes + off, VM_BLKSIZE))
			err = ops->storeblk(&w->f, off / VM_BLKSIZE, 1, next->bytes + off, 0);
	if (!err)
		err = ops->commit(&w->f, &txn, flags);
	if (err < 0)
		ops->abort(&w->f);
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
	if (!ops->checkpoint(&w->f))
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
	shut(w);
}

static void run_lazy(struct work_run *w)
{
	open_file(w);
	commit_some(w, 8, true);
	shut(w);
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
	shut(w);
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
	shut(w);
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
	shut(w);
}

/* A journal so small that it starts over again and again, and checkpoints in between. */
static void run_start_over(struct work_run *w)
{
	open_file(w);
	pol_file_priv(&w->f)->j.limit = 32 << 10;
	for (unsigned i = 0; i < 12; i++) {
		commit_some(w, 1, true);
		if (below(w, 5) == 0)
			checkpoint(w);
	}
	shut(w);
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
	shut(w);
}

/* Journals are made and removed. */
static void run_lives(struct work_run *w)
{
	for (unsigned i = 0; i < 4; i++) {
		open_file(w);
		commit_some(w, 1 + (unsigned)below(w, 2), true);
		shut(w);
	}
}

const struct work works[] = {
	{"durable", 300, run_durable},	   {"lazy", 300, run_lazy},   {"growing", 300, run_growing},
	{"shrinking", 300, run_shrinking}, {"bulk", 20, run_bulk},    {"start over", 300, run_start_over},
	{"failing", 300, run_failing},	   {"lives", 300, run_lives},
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
	ok = !ops->begin(&w->f) && !ops->storeblk(&w->f, 0, 1, next.bytes, 0) &&
	     !ops->storeblk(&w->f, 1, 1, next.bytes + VM_BLKSIZE, 0) &&
	     ops->commit(&w->f, &txn, VM_COMMIT_DURABLE) >= 0 && !ops->close(&w->f);
	close(w->f.fd);
	munmap(w->f.shared, VM_BACKEND_SHARED);
	is.size = box_get(w->path, is.bytes, WORK_SIZE_MAX);
	ok = ok && is.size == next.size && !memcmp(is.bytes, next.bytes, is.size);
	free(next.bytes);
	return ok;
}
