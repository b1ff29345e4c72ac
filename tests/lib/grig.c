/* SPDX-License-Identifier: MIT */
#include "grig.h"
#include "jrig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int ok)
{
	if (!ok)
		abort();
}

static int get(const struct vm_journal_files *files, uint32_t file)
{
	const struct grig *g = (const struct grig *)((const char *)files - offsetof(struct grig, files));

	must(file >= 1 && file <= GRIG_N);
	return g->fd[file - 1];
}

void grig_make(struct grig *g)
{
	memset(g, 0, sizeof(*g));
	box_make(&g->box);
	for (unsigned i = 0; i < GRIG_N; i++) {
		(void)snprintf(g->path[i], sizeof(g->path[i]), "%s/f%u", g->box.dir, i);
		g->fd[i] = open(g->path[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		must(g->fd[i] >= 0);
	}
	g->files.fd = -1;
	g->files.get = get;
	g->j.fd = open(g->box.journal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(g->j.fd >= 0);
	g->j.pos = &g->pos;
	g->j.limit = VM_JOURNAL_LIMIT;
	strcpy(g->j.id.name, "three");
	must(!vm_journal_random(&g->j.group));
	must(!vm_journal_init(&g->j));
	must(!vm_journal_start_over(&g->j, 0));
}

void grig_remove(struct grig *g)
{
	vm_journal_fini(&g->j);
	close(g->j.fd);
	for (unsigned i = 0; i < GRIG_N; i++)
		if (g->fd[i] >= 0)
			close(g->fd[i]);
	box_remove(&g->box);
}

void grig_name(const struct grig *g, unsigned i, struct vm_journal_name *ret)
{
	struct stat st;

	must(!stat(g->path[i], &st));
	*ret = (struct vm_journal_name){
		.dev = st.st_dev, .ino = st.st_ino, .path = strrchr(g->path[i], '/') + 1};
}

static int add_name(struct grig *g, unsigned i)
{
	struct vm_journal_mark m;
	struct vm_journal_name name;

	vm_journal_mark(&g->j, &m);
	if (g->named[i] == m.generation)
		return 0;
	g->named[i] = m.generation;
	grig_name(g, i, &name);
	return vm_journal_add_name(&g->j, i + 1, &name);
}

int grig_add(struct grig *g, unsigned i, const struct image *from, const struct image *to, uint64_t low)
{
	int err = jrig_add_changes(&g->j, (i + 1) << VM_RUN_FILE_SHIFT, from, to, low);

	if (!err)
		err = add_name(g, i);
	return err ? err : vm_journal_add_size(&g->j, i + 1, to->size, low < to->size ? low : to->size);
}

static bool is_same(const struct image *a, const struct image *b)
{
	return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

int grig_commit(struct grig *g, const struct group_image *from, const struct group_image *to,
		const uint64_t low[GRIG_N], bool sync)
{
	struct vm_txn txn = {.txid = g->txid + 1};
	int err = 0;

	vm_journal_begin(&g->j);
	for (unsigned i = 0; !err && i < GRIG_N; i++)
		if (!is_same(&from->f[i], &to->f[i]))
			err = grig_add(g, i, &from->f[i], &to->f[i], low ? low[i] : from->f[i].size);
	if (!err)
		err = vm_journal_commit(&g->j, &txn, sync);
	if (!err)
		g->txid++;
	return err;
}

void group_change(struct group_image *im, uint64_t *rnd, uint64_t low[GRIG_N])
{
	unsigned which = (unsigned)(1 + box_random(rnd) % 7);

	for (unsigned i = 0; i < GRIG_N; i++) {
		struct image *f = &im->f[i];

		low[i] = f->size;
		if (!(which & 1u << i))
			continue;
		image_change(f, rnd, &low[i]);
		f->size += f->size < IMAGE_MAX;
		f->bytes[f->size - 1] = (uint8_t)(1 + box_random(rnd) % 255);
	}
}

void group_put(const struct grig *g, const struct group_image *im)
{
	for (unsigned i = 0; i < GRIG_N; i++)
		image_put(g->path[i], &im->f[i]);
}

int group_is_in(const struct group_image *im, const struct grig *g)
{
	for (unsigned i = 0; i < GRIG_N; i++)
		if (!image_is_in(&im->f[i], g->path[i]))
			return 0;
	return 1;
}
