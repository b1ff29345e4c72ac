/* SPDX-License-Identifier: MIT */
/* Files that commit together, driven through the backend's operations, by several processes as far as the backend
 * can see. */
#ifndef GROUP_RIG_H
#define GROUP_RIG_H

#include "backend_file_group.h"
#include "box.h"
#include "faulty_sys.h"
#include "pol.h"
#include "vm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const struct vm_backend_ops *const ops = &pol_backend_file_group;

enum { NFILES = 3, NPAGES = 4, SIZE = NPAGES * VM_BLKSIZE };

static struct box box;
static char run_dir[320], group_journal[320];

/* One file, live in this process. */
struct live {
	struct vm_bigfile f;
	char path[320], stub[320];
	uint8_t now[SIZE]; /* committed */
	uint64_t txid;
};
static struct live file[NFILES];

static inline void name_file(unsigned i, const char *dir)
{
	(void)snprintf(file[i].path, sizeof(file[i].path), "%s/%c.dat", dir, 'a' + (int)i);
	(void)snprintf(file[i].stub, sizeof(file[i].stub), "%s/.%c.dat.txmap", dir, 'a' + (int)i);
}

static inline void make_file(unsigned i)
{
	memset(file[i].now, 'a' + (int)i, SIZE);
	box_put(file[i].path, file[i].now, SIZE);
	file[i].txid = 0;
}

static inline int try_live(unsigned i)
{
	struct live *l = &file[i];
	struct stat st;
	int err;

	l->f = (struct vm_bigfile){.ops = ops,
				   .path = l->path,
				   .fd = open(l->path, O_RDWR | O_CLOEXEC),
				   .writable = 1,
				   .shared_len = VM_BACKEND_SHARED};
	assert_true(l->f.fd >= 0);
	l->f.shared =
		mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(fstat(l->f.fd, &st), 0);
	l->f.dev = st.st_dev;
	l->f.ino = st.st_ino;
	err = ops->open(&l->f, group_journal);
	if (!err) {
		err = ops->open_write(&l->f);
		if (err)
			(void)ops->close(&l->f);
	}
	if (err) {
		close(l->f.fd);
		munmap(l->f.shared, VM_BACKEND_SHARED);
		memset(&l->f, 0, sizeof(l->f));
	}
	return err;
}

static inline void go_live(unsigned i)
{
	assert_int_equal(try_live(i), 0);
}

static inline void end(unsigned i)
{
	struct live *l = &file[i];

	if (!l->f.ops)
		return;
	assert_int_equal(ops->close(&l->f), 0);
	close(l->f.fd);
	munmap(l->f.shared, VM_BACKEND_SHARED);
	memset(&l->f, 0, sizeof(l->f));
}

/* The whole process dies, as far as files and locks tell. */
static inline void crash_all(void)
{
	struct pol_group *g = NULL;

	for (unsigned i = 0; i < NFILES; i++) {
		struct pol_file_priv *p = file[i].f.priv;

		if (!file[i].f.ops)
			continue;
		g = p->group ? p->group : g;
		if (p->j.fd >= 0)
			vm_fd_drop(&p->j.fd);
		close(file[i].f.fd);
		memset(&file[i].f, 0, sizeof(file[i].f));
	}
	if (!g)
		return;
	vm_fd_drop(&g->j.fd);
	if (g->life >= 0)
		vm_fd_drop(&g->life);
	(void)snprintf(g->arg, sizeof(g->arg), "(dead)"); /* nobody finds it */
}

/* One commit of those in the mask: every page of them becomes this byte. */
static inline int try_commit(unsigned mask, uint8_t byte, unsigned flags)
{
	uint8_t page[VM_BLKSIZE];
	unsigned last = 0;
	int err = 0;

	memset(page, byte, sizeof(page));
	for (unsigned i = 0; !err && i < NFILES; i++) {
		if (!(mask & 1u << i))
			continue;
		last = i;
		err = ops->begin(&file[i].f);
		if (err)
			mask &= (1u << i) - 1;
	}
	for (unsigned pg = 0; !err && pg < NPAGES; pg++)
		for (unsigned i = 0; !err && i < NFILES; i++)
			if (mask & 1u << i)
				err = ops->storeblk(&file[i].f, pg, 1, page, 0);
	for (unsigned i = 0; !err && i < NFILES; i++)
		if (mask & 1u << i) {
			struct vm_txn txn = {.txid = file[i].txid + 1, .size = SIZE, .size_low = SIZE};

			err = ops->commit(&file[i].f, &txn, flags | (i == last ? 0 : VM_COMMIT_PART));
		}
	if (err < 0)
		for (unsigned i = 0; i < NFILES; i++)
			if (mask & 1u << i)
				ops->abort(&file[i].f);
	for (unsigned i = 0; !err && i < NFILES; i++)
		if (mask & 1u << i) {
			memset(file[i].now, byte, SIZE);
			file[i].txid++;
		}
	return err;
}

static inline void commit(unsigned mask, uint8_t byte)
{
	assert_true(try_commit(mask, byte, VM_COMMIT_DURABLE) >= 0); /* 1: they were so */
}

static inline void assert_loads(unsigned i)
{
	static uint8_t buf[SIZE];
	uint64_t size;

	assert_int_equal(ops->getsize(&file[i].f, &size), 0);
	assert_int_equal(size, SIZE);
	assert_int_equal(ops->loadblk(&file[i].f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, file[i].now, SIZE);
}

/* The byte that all of the file is; 0: it is not one. */
static inline uint8_t byte_of(const char *path)
{
	static uint8_t buf[SIZE + 1];

	if (box_get(path, buf, sizeof(buf)) != SIZE || memcmp(buf, buf + 1, SIZE - 1))
		return 0;
	return buf[0];
}

static inline unsigned nentries(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* Nothing of ours is left. */
static inline void assert_clean(void)
{
	for (unsigned i = 0; i < NFILES; i++)
		assert_false(box_has(file[i].stub));
	assert_false(box_has(group_journal));
	assert_int_equal(nentries(run_dir), 0);
}

static inline int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++) {
		name_file(i, box.dir);
		make_file(i);
	}
	return 0;
}

static inline int teardown(void **state)
{
	char cmd[1200];

	(void)state;
	(void)faulty_disarm(); /* when the test ended early */
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s/* %s/.*.txmap", box.dir, box.dir);
	return system(cmd) || mkdir(run_dir, 0700);
}

static inline int make_dirs(void **state)
{
	char paths[400];

	(void)state;
	box_make(&box);
	(void)snprintf(run_dir, sizeof(run_dir), "%s/run", box.dir);
	(void)snprintf(group_journal, sizeof(group_journal), "%s/.group.txmap", box.dir);
	(void)snprintf(paths, sizeof(paths), "%s/**.dat", box.dir);
	setenv("TXMAP_PATHS", paths, 1);
	setenv("TXMAP_RUNTIME_DIR", run_dir, 1);
	setenv("TXMAP_LOG", getenv("SHOW") ?: "off", 1);
	return mkdir(run_dir, 0700) || pol_start() != 1;
}

static inline int remove_dirs(void **state)
{
	(void)state;
	(void)rmdir(run_dir);
	box_remove(&box);
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
