/* SPDX-License-Identifier: MIT */
#include "work_priv.h"
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

void work_must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static void must_not_fail(const char *what, int err)
{
	if (err >= 0)
		return;
	printf("VIOLATION: %s fails with %d, and nothing was made to fail\n", what, err);
	exit(1);
}

uint64_t work_below(struct work_run *w, uint64_t n)
{
	return box_random(&w->rnd) % n;
}

/* ---- the files ---- */

void work_open_with(struct work_run *w, unsigned i, const char *path, const struct vm_backend_ops *ops)
{
	struct vm_bigfile *f = &w->file[i];
	struct stat st;

	w->f = f;
	w->is_open[i] = true;
	memset(f, 0, sizeof(*f));
	f->ops = ops;
	f->path = path;
	f->writable = 1;
	f->shared_len = VM_BACKEND_SHARED;
	f->shared = mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	work_must(f->shared != MAP_FAILED && f->fd >= 0 && !fstat(f->fd, &st), path);
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	must_not_fail("an open", ops->open(f, *w->group ? w->group : NULL));
}

void work_open(struct work_run *w, unsigned i)
{
	work_open_with(w, i, w->path[i], *w->group ? &pol_backend_file_group : &pol_backend_file);
}

int work_shut(struct work_run *w, unsigned i, bool last)
{
	struct vm_bigfile *f = &w->file[i];
	int err = f->ops->close(f);

	w->is_open[i] = false;
	if (!err && last)
		record_mark(EV_DURABLE, w->newest);
	close(f->fd);
	munmap(f->shared, VM_BACKEND_SHARED);
	return err;
}

void work_checkpoint(struct work_run *w)
{
	if (!w->f->ops->checkpoint(w->f))
		record_mark(EV_DURABLE, w->newest);
}

/* ---- versions ---- */

static struct content copy_of(const struct content *from)
{
	struct content c = {from->is_there, from->size, calloc(1, WORK_SIZE_MAX)};

	work_must(c.bytes != NULL, "calloc");
	memcpy(c.bytes, from->bytes, c.size);
	return c;
}

struct version work_draft(const struct work_run *w)
{
	struct version v = {0};

	for (unsigned i = 0; i < w->npaths; i++)
		v.f[i] = copy_of(&w->version[w->newest].f[i]);
	return v;
}

void work_set_size(struct content *c, uint64_t size, uint64_t *low)
{
	work_must(size <= WORK_SIZE_MAX && c->size <= WORK_SIZE_MAX, "too large a file");
	if (size < c->size)
		memset(c->bytes + size, 0, c->size - size);
	c->size = size;
	*low = size < *low ? size : *low;
}

/* Few values: so that old bytes often equal new ones. */
void work_store(struct work_run *w, struct content *c, uint64_t off, uint64_t len)
{
	for (uint64_t i = off; i < off + len && i < c->size; i++)
		c->bytes[i] = (uint8_t)work_below(w, 3);
}

void work_change(struct work_run *w, struct content *c, uint64_t *low)
{
	*low = c->size;
	for (unsigned n = work_below(w, 3) ? 0 : 1 + (unsigned)work_below(w, 2); n--;)
		work_set_size(c, work_below(w, 12 * VM_BLKSIZE), low);
	for (unsigned n = 1 + (unsigned)work_below(w, 4); n-- && c->size;)
		work_store(w, c, work_below(w, c->size), 1 + work_below(w, work_below(w, 8) ? 200 : 9000));
}

bool work_is_content(const struct content *c, const char *path)
{
	static uint8_t is[2 * WORK_SIZE_MAX];
	size_t len;

	if (!box_has(path))
		return !c->is_there;
	len = box_get(path, is, sizeof(is));
	return len == c->size && !memcmp(is, c->bytes, len);
}

/* ---- a commit ---- */

/* A file that takes part. */
struct part {
	struct vm_bigfile *f;
	struct content old; /* what storing is compared with */
	const struct content *next;
	uint64_t low;
	bool has_begun;
};

static struct part part_of(struct work_run *w, unsigned i, const struct content *next, uint64_t low)
{
	struct part p = {.f = *w->group ? &w->file[i] : w->f,
			 .old = copy_of(&w->version[w->newest].f[i]),
			 .next = next,
			 .low = low < next->size ? low : next->size};

	/* what was cut off is zeros, and is only stored where it became something else */
	work_set_size(&p.old, p.low < p.old.size ? p.low : p.old.size, &p.low);
	return p;
}

static bool is_same(const struct content *a, const struct content *b)
{
	return a->is_there == b->is_there && a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

static int store_block(const struct part *p, uint64_t off, unsigned flags)
{
	if (off >= p->next->size || (!flags && !memcmp(p->next->bytes + off, p->old.bytes + off, VM_BLKSIZE)))
		return 0;
	return p->f->ops->storeblk(p->f, off / VM_BLKSIZE, 1, p->next->bytes + off, flags);
}

/* Block by block, of one file and the next. */
static int store_all(const struct part *p, unsigned n, unsigned flags)
{
	int err = 0;

	for (uint64_t off = 0; !err && off < WORK_SIZE_MAX; off += VM_BLKSIZE)
		for (unsigned i = 0; !err && i < n; i++)
			err = store_block(&p[i], off, flags);
	return err;
}

static int commit_parts(struct part *p, unsigned n, uint64_t txid, unsigned flags, unsigned again)
{
	int err = 0;

	for (unsigned i = 0; !err && i < n; i++) {
		err = p[i].f->ops->begin(p[i].f);
		p[i].has_begun = !err;
	}
	if (!err)
		err = store_all(p, n, 0);
	while (!err && again--)
		err = store_all(p, n, VM_STORE_AGAIN);
	for (unsigned i = 0; err >= 0 && i < n; i++) {
		struct vm_txn txn = {.txid = txid, .size = p[i].next->size, .size_low = p[i].low};

		err = p[i].f->ops->commit(p[i].f, &txn, flags | (i + 1 < n ? VM_COMMIT_PART : 0));
	}
	for (unsigned i = 0; err < 0 && i < n; i++)
		if (p[i].has_begun)
			p[i].f->ops->abort(p[i].f);
	return err;
}

static int try_commit(struct work_run *w, const struct version *next, const uint64_t *low, unsigned flags,
		      unsigned again)
{
	const struct version *last = &w->version[w->newest];
	unsigned n = 0, only = *w->group ? (unsigned)(w->f - w->file) : 0;
	struct part part[WORK_FILES];
	int err;

	for (unsigned i = 0; i < w->npaths; i++)
		if (!*w->group || !is_same(&next->f[i], &last->f[i]) || low[i] < last->f[i].size)
			part[n++] = part_of(w, i, &next->f[i], low[i]);
	if (!n)
		part[n++] = part_of(w, only, &next->f[only], low[only]);
	err = commit_parts(part, n, w->txid + 1, flags, again);
	while (n)
		free(part[--n].old.bytes);
	return err;
}

void work_commit(struct work_run *w, struct version next, const uint64_t *low, unsigned flags, unsigned again)
{
	unsigned v = w->nversions++;
	int err;

	work_must(v < WORK_VERSIONS, "too many versions");
	w->version[v] = next;
	record_mark(EV_STARTED, v);
	err = try_commit(w, &next, low, flags, again);
	if (!record_has_failed())
		must_not_fail("a commit", err);
	if (err < 0) {
		record_mark(EV_FAILED, v);
		return;
	}
	w->newest = v;
	w->txid += !err;
	if (flags & VM_COMMIT_DURABLE)
		record_mark(EV_DURABLE, v);
}

/* ---- runs ---- */

static void begin_file(struct work_run *w, const char *name, bool is_there)
{
	unsigned i = w->npaths++;
	struct content *c = &w->version[0].f[i];

	(void)snprintf(w->path[i], sizeof(w->path[i]), "%s/disk/%s", w->dir, name);
	*c = (struct content){is_there, is_there ? 3 * VM_BLKSIZE + 100 + i : 0, calloc(1, WORK_SIZE_MAX)};
	work_must(c->bytes != NULL, "calloc");
	work_store(w, c, 0, c->size);
	if (is_there)
		box_put(w->path[i], c->bytes, c->size);
}

void work_run(struct work_run *w, const struct work *work, const char *dir, uint64_t seed,
	      struct disk *ret_start, struct trace *ret)
{
	memset(w, 0, sizeof(*w));
	w->dir = dir;
	w->rnd = seed;
	w->nversions = 1;
	if (work->is_group) {
		(void)snprintf(w->group, sizeof(w->group), "%s/disk/.three.txmap", dir);
		begin_file(w, "a", true);
		begin_file(w, "b", true);
		begin_file(w, OTHER "c", false);
	} else {
		begin_file(w, "data", true);
	}
	disk_get(ret_start, dir);
	record_start(dir, ret_start, ret);
	work->run(w);
	record_stop();
}

static void free_version(struct version *v)
{
	for (unsigned i = 0; i < WORK_FILES; i++)
		free(v->f[i].bytes);
}

void work_clear(struct work_run *w)
{
	while (w->nversions)
		free_version(&w->version[--w->nversions]);
}

bool work_goes_on(struct work_run *w)
{
	struct part part[WORK_FILES];
	struct version next = {0};
	bool ok;

	for (unsigned i = 0; i < w->npaths; i++)
		if (!box_has(w->path[i]))
			return true; /* whoever made it must make it again */
	for (unsigned i = 0; i < w->npaths; i++) {
		next.f[i] = (struct content){true, VM_BLKSIZE + 77, calloc(1, WORK_SIZE_MAX)};
		work_must(next.f[i].bytes != NULL, "calloc");
		work_store(w, &next.f[i], 0, next.f[i].size);
		work_open(w, i);
		/* all of it is stored: as if it had been cut to nothing */
		part[i] = (struct part){w->f, {true, 0, calloc(1, WORK_SIZE_MAX)}, &next.f[i], 0, false};
	}
	ok = commit_parts(part, w->npaths, 1000, VM_COMMIT_DURABLE, 0) >= 0;
	for (unsigned i = 0; i < w->npaths; i++) {
		ok = !work_shut(w, i, false) && ok;
		free(part[i].old.bytes);
	}
	for (unsigned i = 0; i < w->npaths; i++)
		ok = work_is_content(&next.f[i], w->path[i]) && ok;
	free_version(&next);
	return ok;
}
