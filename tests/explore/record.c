/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "record.h"
#include "vm_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* A part of a file that is written through memory. */
struct window {
	const uint8_t *p;
	uint64_t off, len;
	int node;
};

static struct {
	char dir[256]; /* DIR/disk */
	dev_t dev;
	ino_t dir_ino[NDIRS];
	struct trace *t;
	struct disk now;
	ino_t ino[NNODES];
	struct window window; /* one is enough for what is recorded here */
	unsigned nth;	      /* call that fails ... */
	int err;	      /* ... with this */
	uint64_t room;	      /* bytes that files may still grow by */
	bool failed;
} rec;
static struct vm_sys table, unsynced;

static int node_of(int fd)
{
	struct stat st;

	if (vm_sys_linux.fstat(fd, &st) || st.st_dev != rec.dev)
		return NOBODY;
	for (unsigned i = rec.now.nnodes; i-- > 0;) /* the newest: numbers are used again */
		if (rec.ino[i] == st.st_ino)
			return (int)i;
	return NOBODY;
}

/* Which of the directories it is; NOBODY: none. */
static int dir_of(int fd)
{
	struct stat st;

	if (vm_sys_linux.fstat(fd, &st))
		return NOBODY;
	for (unsigned i = 0; i < NDIRS; i++)
		if (rec.dir_ino[i] == st.st_ino)
			return (int)i;
	return NOBODY;
}

static void add(struct event ev, const void *bytes)
{
	trace_add(rec.t, &ev, bytes);
	disk_do(&rec.now, rec.t, &rec.t->ev[rec.t->n - 1], 0, ev.len);
}

static void add_write(int node, const void *bytes, uint64_t len, uint64_t off)
{
	if (node != NOBODY && len)
		add((struct event){.kind = EV_WRITE, .node = node, .off = off, .len = len, .zero = !bytes},
		    bytes);
}

/* What was stored through the window since we looked. */
static void look_through_window(void)
{
	struct window w = rec.window;

	for (uint64_t at = 0; w.p && at < w.len; at += SECTOR) {
		const struct node *n = &rec.now.node[w.node];
		uint64_t off = w.off + at, len = SECTOR;

		if (off >= n->size)
			break; /* stores there reach no file */
		len = len < n->size - off ? len : n->size - off;
		if (memcmp(w.p + at, n->bytes + off, len))
			add_write(w.node, w.p + at, len, off);
	}
}

/* The name as the disk has it. */
static const char *name_in_dir(const char *path)
{
	size_t len = strlen(rec.dir);
	const char *name = path + len + 1;

	if (strncmp(path, rec.dir, len) || path[len] != '/')
		return NULL;
	return strchr(name + (disk_dir_of(name) ? strlen(OTHER) : 0), '/') ? NULL : name;
}

static void own(const char *name, int node)
{
	if (rec.now.owner[disk_name(&rec.now, name)] != node)
		add((struct event){.kind = EV_NAME, .node = node, .len = strlen(name) + 1}, name);
}

static int rec_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = vm_sys_linux.openat(dirfd, path, flags, mode);
	const char *name = name_in_dir(path);
	struct stat st;

	if (fd < 0 || !name || !(flags & O_CREAT) || rec.now.owner[disk_name(&rec.now, name)] != NOBODY)
		return fd;
	if (vm_sys_linux.fstat(fd, &st) || rec.now.nnodes == NNODES)
		abort();
	rec.ino[rec.now.nnodes] = st.st_ino;
	own(name, (int)rec.now.nnodes);
	return fd;
}

static int rec_unlinkat(int dirfd, const char *path, int flags)
{
	int err = vm_sys_linux.unlinkat(dirfd, path, flags);
	const char *name = name_in_dir(path);

	if (!err && name)
		own(name, NOBODY);
	return err;
}

static int rec_renameat(int olddirfd, const char *oldpath, int newdirfd, const char *newpath)
{
	int err = vm_sys_linux.renameat(olddirfd, oldpath, newdirfd, newpath);
	const char *from = name_in_dir(oldpath), *to = name_in_dir(newpath);

	if (!err && from && to) {
		own(to, rec.now.owner[disk_name(&rec.now, from)]);
		own(from, NOBODY);
	}
	return err;
}

/* Is it this call's turn to fail? */
static bool fails_here(int node)
{
	if (node == NOBODY || !rec.nth || --rec.nth)
		return false;
	return rec.failed = true;
}

/* How much of a write there is room for. */
static uint64_t what_fits(int node, uint64_t off, uint64_t len)
{
	uint64_t size = node == NOBODY ? UINT64_MAX : rec.now.node[node].size;
	uint64_t old = off < size ? size - off : 0; /* overwrites: takes no room */

	if (len <= old || len - old <= rec.room)
		return len;
	rec.failed = true;
	return old + rec.room;
}

static void take_room(int node, uint64_t off, uint64_t len)
{
	uint64_t size = node == NOBODY ? UINT64_MAX : rec.now.node[node].size;

	if (rec.room != UINT64_MAX && off + len > size)
		rec.room -= off + len - (off > size ? off : size);
}

static ssize_t rec_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	int node = node_of(fd);
	bool fails = fails_here(node);
	size_t fits = (size_t)what_fits(node, (uint64_t)off, len);
	ssize_t n;

	if (len && !fits)
		return -ENOSPC;
	take_room(node, (uint64_t)off, fits);
	n = vm_sys_linux.pwrite(fd, buf, fails ? fits / 2 : fits, off);

	if (n > 0)
		add_write(node, buf, (uint64_t)n, (uint64_t)off);
	return fails ? -rec.err : n;
}

static ssize_t rec_pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	int node = node_of(fd);
	uint64_t left = 0;
	ssize_t n;

	for (int i = 0; i < niov; i++)
		left += iov[i].iov_len;
	if (what_fits(node, (uint64_t)off, left) < left)
		return -ENOSPC;
	if (fails_here(node))
		return -rec.err;
	take_room(node, (uint64_t)off, left);
	n = vm_sys_linux.pwritev(fd, iov, niov, off);
	left = n > 0 ? (uint64_t)n : 0;
	for (int i = 0; left; i++) {
		uint64_t len = iov[i].iov_len < left ? iov[i].iov_len : left;

		add_write(node, iov[i].iov_base, len, (uint64_t)off);
		off += (off_t)len;
		left -= len;
	}
	return n;
}

static ssize_t rec_write(int fd, const void *buf, size_t len)
{
	(void)buf;
	if (node_of(fd) != NOBODY)
		abort(); /* nothing of ours writes to a place that is not named */
	return (ssize_t)
		len; /* the log: what it says of the failures that are made here is nobody's concern */
}

static int rec_ftruncate(int fd, off_t len)
{
	int err = vm_sys_linux.ftruncate(fd, len), node = node_of(fd);

	if (!err && node != NOBODY)
		add((struct event){.kind = EV_SIZE, .node = node, .off = (uint64_t)len}, NULL);
	return err;
}

static int rec_fallocate(int fd, int mode, off_t off, off_t len)
{
	int err = vm_sys_linux.fallocate(fd, mode, off, len), node = node_of(fd);

	if (err || node == NOBODY || mode == FALLOC_FL_KEEP_SIZE)
		return err;
	if (!mode && (uint64_t)(off + len) > rec.now.node[node].size)
		add((struct event){.kind = EV_SIZE, .node = node, .off = (uint64_t)(off + len)}, NULL);
	else if (mode)
		add_write(node, NULL, (uint64_t)len, (uint64_t)off);
	return err;
}

static int rec_sync(int fd)
{
	int node = node_of(fd);

	look_through_window();
	if (fails_here(node)) {
		add((struct event){.kind = EV_SYNC_FAILED, .node = node}, NULL);
		return -rec.err;
	}
	if (node != NOBODY)
		add((struct event){.kind = EV_SYNC, .node = node}, NULL);
	else if (dir_of(fd) != NOBODY)
		add((struct event){.kind = EV_SYNC_DIR, .off = (uint64_t)dir_of(fd)}, NULL);
	return 0; /* the disk is the trace */
}

static void *rec_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = vm_sys_linux.mmap(addr, len, prot, flags, fd, off);

	if (!vm_sys_err(p) && fd >= 0 && (prot & PROT_WRITE) && (flags & MAP_SHARED) &&
	    node_of(fd) != NOBODY) {
		if (rec.window.p)
			abort();
		rec.window = (struct window){p, (uint64_t)off, len, node_of(fd)};
	}
	return p;
}

static int rec_munmap(void *addr, size_t len)
{
	if (addr == rec.window.p) {
		look_through_window();
		rec.window.p = NULL;
	}
	return vm_sys_linux.munmap(addr, len);
}

static int no_sync(int fd)
{
	(void)fd;
	return 0;
}

void record_start(const char *dir, const struct disk *now, struct trace *ret)
{
	struct stat st;

	(void)snprintf(rec.dir, sizeof(rec.dir), "%s/disk", dir);
	for (unsigned i = 0; i < NDIRS; i++) {
		char path[512];

		(void)snprintf(path, sizeof(path), "%s/%s", rec.dir, i ? OTHER : "");
		if (stat(path, &st))
			abort();
		rec.dev = st.st_dev;
		rec.dir_ino[i] = st.st_ino;
	}
	rec.room = UINT64_MAX;
	rec.t = ret;
	rec.nth = 0;
	rec.failed = false;
	rec.window.p = NULL;
	disk_copy(&rec.now, now);
	for (unsigned i = 0; i < now->nnames; i++) {
		char path[512];

		(void)snprintf(path, sizeof(path), "%s/%s", rec.dir, now->name[i]);
		if (now->owner[i] != NOBODY && !stat(path, &st))
			rec.ino[now->owner[i]] = st.st_ino;
	}
	table = vm_sys_linux;
	table.openat = rec_openat;
	table.unlinkat = rec_unlinkat;
	table.renameat = rec_renameat;
	table.write = rec_write;
	table.pwrite = rec_pwrite;
	table.pwritev = rec_pwritev;
	table.ftruncate = rec_ftruncate;
	table.fallocate = rec_fallocate;
	table.fsync = table.fdatasync = rec_sync;
	table.mmap = rec_mmap;
	table.munmap = rec_munmap;
	vm_sys = &table;
}

void record_stop(void)
{
	rec.t = NULL;
	unsynced = vm_sys_linux;
	unsynced.fsync = unsynced.fdatasync = no_sync;
	vm_sys = &unsynced;
}

void record_mark(enum event_kind kind, uint64_t version)
{
	if (rec.t)
		add((struct event){.kind = kind, .off = version}, NULL);
}

void record_fail(unsigned nth, int err)
{
	rec.nth = nth;
	rec.err = err;
	rec.failed = false;
}

void record_room(uint64_t bytes)
{
	rec.room = bytes;
	rec.failed = false;
}

bool record_has_failed(void)
{
	return rec.failed;
}
