/* SPDX-License-Identifier: MIT */
/* Several who have one storage, each with a snapshot, driven through the backend's operations. */
#ifndef SNAPSHOT_RIG_H
#define SNAPSHOT_RIG_H

#include "backend_file_snapshot.h"
#include "box.h"
#include "faulty_sys.h"
#include "pol.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const struct vm_backend_ops *const ops = &pol_backend_file_snapshot;

enum { NPAGES = IMAGE_MAX / VM_BLKSIZE };

static struct box box;
static struct image now; /* committed */
static char run_dir[320];

/* One process, as far as the backend can see. */
struct member {
	struct vm_bigfile f;
	_Alignas(16) uint8_t shared[VM_BACKEND_SHARED];
	struct vm_news news;
	bool told[NPAGES], told_all;
};
static struct member one, two;

static inline int note(struct vm_news *news, uint64_t start, uint64_t stop)
{
	struct member *m = (struct member *)((char *)news - offsetof(struct member, news));

	m->told_all |= stop > NPAGES;
	for (uint64_t pg = start; pg < stop && pg < NPAGES; pg++)
		m->told[pg] = true;
	return 0;
}

static inline int try_open(struct member *m, int flags)
{
	struct stat st;

	memset(m, 0, sizeof(*m));
	m->f = (struct vm_bigfile){.ops = ops,
				   .path = box.data,
				   .fd = open(box.data, flags | O_CLOEXEC),
				   .writable = flags == O_RDWR,
				   .shared = m->shared,
				   .shared_len = VM_BACKEND_SHARED};
	m->news.pages = note;
	assert_int_equal(fstat(m->f.fd, &st), 0);
	m->f.dev = st.st_dev;
	m->f.ino = st.st_ino;
	return ops->open(&m->f, NULL);
}

static inline void hold(struct member *m)
{
	memset(m->told, 0, sizeof(m->told));
	m->told_all = false;
	assert_int_equal(ops->hold(&m->f, &m->news), 0);
}

static inline void come(struct member *m, int flags)
{
	assert_int_equal(try_open(m, flags), 0);
	hold(m);
	ops->let_go(&m->f, 1); /* as if it had been loaded */
}

static inline void go(struct member *m)
{
	while (m->f.priv && pol_file_priv(&m->f)->snapshot->nholds) /* the test ended early */
		ops->let_go(&m->f, 0);
	if (m->f.priv)
		assert_int_equal(ops->close(&m->f), 0);
	if (m->f.fd)
		close(m->f.fd);
	memset(m, 0, sizeof(*m));
}

static inline int setup(void **state)
{
	(void)state;
	memset(&now, 0, sizeof(now));
	now.size = 8 * VM_BLKSIZE;
	memset(now.bytes, 'x', now.size);
	image_put(box.data, &now);
	return 0;
}

static inline int teardown(void **state)
{
	char name[400];

	(void)state;
	(void)faulty_disarm(); /* when the test ended early */
	go(&one);
	go(&two);
	(void)snprintf(name, sizeof(name), "exec test -z \"$(ls %s)\"", run_dir);
	return box_has(box.journal) || system(name);
}

static inline int store(struct member *m, const struct image *next)
{
	int err = ops->begin(&m->f);

	for (uint64_t pg = 0; !err && pg * VM_BLKSIZE < next->size; pg++)
		if (memcmp(next->bytes + pg * VM_BLKSIZE, now.bytes + pg * VM_BLKSIZE, VM_BLKSIZE))
			err = ops->storeblk(&m->f, pg, 1, next->bytes + pg * VM_BLKSIZE, 0);
	return err;
}

static inline int try_commit(struct member *m, const struct image *next, uint64_t low)
{
	struct vm_txn txn = {.txid = m->news.txid + 1, .size = next->size, .size_low = low};
	int err = store(m, next);

	if (!err)
		err = ops->commit(&m->f, &txn, VM_COMMIT_DURABLE);
	if (err < 0)
		ops->abort(&m->f);
	return err;
}

static inline void commit_low(struct member *m, const struct image *next, uint64_t low)
{
	hold(m);
	assert_int_equal(try_commit(m, next, low), 0);
	ops->let_go(&m->f, 1);
	now = *next;
}

static inline void commit_byte(struct member *m, uint64_t pgoff, uint8_t byte)
{
	struct image next = now;

	next.bytes[pgoff * VM_BLKSIZE + 7] = byte;
	commit_low(m, &next, now.size);
}

static inline unsigned ntold(const struct member *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NPAGES; i++)
		n += m->told[i];
	return n;
}

static inline void assert_loads(struct member *m, const struct image *im)
{
	static uint8_t buf[IMAGE_MAX];
	uint64_t size;

	assert_int_equal(ops->getsize(&m->f, &size), 0);
	assert_int_equal(size, im->size);
	assert_int_equal(ops->loadblk(&m->f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, im->bytes, IMAGE_MAX);
}

static inline int make_dirs(void **state)
{
	(void)state;
	box_make(&box);
	(void)snprintf(run_dir, sizeof(run_dir), "%s/run", box.dir);
	setenv("TXMAP_PATHS", box.data, 1);
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
