/* SPDX-License-Identifier: MIT */
#include "disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static void *grown(void *p, size_t len)
{
	p = realloc(p, len);
	must(p != NULL, "realloc");
	return p;
}

void trace_add(struct trace *t, const struct event *ev, const void *bytes)
{
	if (t->n == t->max)
		t->ev = grown(t->ev, (t->max = t->max * 2 + 1024) * sizeof(*t->ev));
	t->ev[t->n] = *ev;
	if (bytes) {
		while (t->nbytes + ev->len > t->max_bytes)
			t->bytes = grown(t->bytes, t->max_bytes = t->max_bytes * 2 + (1u << 20));
		memcpy(t->bytes + t->nbytes, bytes, ev->len);
		t->ev[t->n].at = t->nbytes;
		t->nbytes += ev->len;
	}
	t->n++;
}

void trace_clear(struct trace *t)
{
	free(t->ev);
	free(t->bytes);
	memset(t, 0, sizeof(*t));
}

int disk_name(struct disk *d, const char *name)
{
	for (unsigned i = 0; i < d->nnames; i++)
		if (!strcmp(d->name[i], name))
			return (int)i;
	must(d->nnames < NNAMES && strlen(name) < NAME_LEN, "too many names, or too long");
	strcpy(d->name[d->nnames], name);
	d->owner[d->nnames] = NOBODY;
	return (int)d->nnames++;
}

static void resize(struct node *n, uint64_t size)
{
	if (size > n->max) {
		uint64_t max = size * 2 + 65536;

		n->bytes = grown(n->bytes, max);
		memset(n->bytes + n->max, 0, max - n->max);
		n->max = max;
	}
	if (size < n->size)
		memset(n->bytes + size, 0, n->size - size);
	n->size = size;
}

void disk_do(struct disk *d, const struct trace *t, const struct event *ev, uint64_t from, uint64_t to)
{
	struct node *n = &d->node[ev->node < 0 ? 0 : ev->node];

	if (ev->node >= (int)d->nnodes)
		d->nnodes = (unsigned)ev->node + 1;
	switch (ev->kind) {
	case EV_WRITE:
		if (ev->zero && ev->off + to > n->size)
			to = n->size > ev->off ? n->size - ev->off : 0;
		if (from >= to)
			return;
		if (ev->off + to > n->size)
			resize(n, ev->off + to);
		if (ev->zero)
			memset(n->bytes + ev->off + from, 0, to - from);
		else
			memcpy(n->bytes + ev->off + from, t->bytes + ev->at + from, to - from);
		return;
	case EV_SIZE:
		resize(n, ev->off);
		return;
	case EV_NAME:
		d->owner[disk_name(d, (const char *)t->bytes + ev->at)] = ev->node;
		return;
	default:
		return;
	}
}

void disk_copy(struct disk *to, const struct disk *from)
{
	for (unsigned i = 0; i < from->nnodes; i++) {
		resize(&to->node[i], 0);
		resize(&to->node[i], from->node[i].size);
		memcpy(to->node[i].bytes, from->node[i].bytes, from->node[i].size);
	}
	for (unsigned i = from->nnodes; i < NNODES; i++) /* what an earlier disk left there */
		resize(&to->node[i], 0);
	to->nnodes = from->nnodes;
	memcpy(to->name, from->name, sizeof(to->name));
	to->nnames = from->nnames;
	memcpy(to->owner, from->owner, sizeof(to->owner));
}

void disk_clear(struct disk *d)
{
	for (unsigned i = 0; i < NNODES; i++)
		free(d->node[i].bytes);
	memset(d, 0, sizeof(*d));
}

static bool is_journal(const char *name)
{
	return name[disk_dir_of(name) ? strlen(OTHER) : 0] == '.';
}

unsigned disk_dir_of(const char *name)
{
	return !strncmp(name, OTHER, strlen(OTHER));
}

/* ---- real directories ---- */

/* DIR/disk is the disk, DIR/away has files that the disk has not and may have again. */
static const char *const dirs[] = {"disk", "disk/" OTHER, "away", "away/" OTHER};
#define NREAL (sizeof(dirs) / sizeof(*dirs))

static const char *path_in(const char *dir, const char *sub, const char *name)
{
	static char path[2][512];
	static unsigned n;
	char *p = path[n++ % 2];

	(void)snprintf(p, sizeof(path[0]), "%s/%s/%s", dir, sub, name);
	return p;
}

void disk_begin(const char *dir)
{
	for (size_t i = 0; i < NREAL; i++)
		must(!mkdir(path_in(dir, dirs[i], ""), 0700), dir);
}

void disk_end(const char *dir)
{
	for (size_t i = NREAL; i-- > 0;) {
		DIR *stream = opendir(path_in(dir, dirs[i], ""));
		struct dirent *e;

		must(stream != NULL, dir);
		while ((e = readdir(stream)))
			if (e->d_type == DT_REG)
				must(!unlinkat(dirfd(stream), e->d_name, 0), e->d_name);
		closedir(stream);
		must(!rmdir(path_in(dir, dirs[i], "")), dir);
	}
}

static void put_node(const struct node *n, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	uint64_t len = n->size;

	must(fd >= 0, path);
	must(!ftruncate(fd, 0) && !ftruncate(fd, (off_t)n->size), path);
	while (len && !n->bytes[len - 1]) /* most of a journal is zeros */
		len--;
	must(pwrite(fd, n->bytes, len, 0) == (ssize_t)len, path);
	close(fd);
}

void disk_put(const struct disk *d, const char *dir)
{
	for (unsigned i = 0; i < d->nnames; i++) {
		const char *path = path_in(dir, "disk", d->name[i]), *away = path_in(dir, "away", d->name[i]);

		if (d->owner[i] >= 0) {
			if (!is_journal(d->name[i]))
				(void)rename(away, path); /* need not be there */
			put_node(&d->node[d->owner[i]], path);
		} else if (is_journal(d->name[i])) {
			(void)unlink(path); /* the same */
		} else {
			(void)rename(path, away);
		}
	}
}

static void get_dir(struct disk *d, const char *dir, const char *prefix)
{
	DIR *stream = opendir(path_in(dir, "disk", prefix));
	struct dirent *e;

	must(stream != NULL, dir);
	while ((e = readdir(stream))) {
		char name[sizeof(OTHER) + sizeof(e->d_name)];
		struct stat st;
		struct node *n;
		int fd;

		if (e->d_type != DT_REG)
			continue;
		fd = openat(dirfd(stream), e->d_name, O_RDONLY | O_CLOEXEC);
		must(fd >= 0 && !fstat(fd, &st) && d->nnodes < NNODES, e->d_name);
		n = &d->node[d->nnodes];
		(void)snprintf(name, sizeof(name), "%s%s", prefix, e->d_name);
		d->owner[disk_name(d, name)] = (int)d->nnodes++;
		resize(n, (uint64_t)st.st_size);
		must(pread(fd, n->bytes, n->size, 0) == (ssize_t)n->size, e->d_name);
		close(fd);
	}
	closedir(stream);
}

void disk_get(struct disk *d, const char *dir)
{
	get_dir(d, dir, "");
	get_dir(d, dir, OTHER);
}
