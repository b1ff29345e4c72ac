/* SPDX-License-Identifier: MIT */
/* A managed file in a box, driven through the file backend's operations. */
#ifndef FILE_RIG_H
#define FILE_RIG_H

#include "backend_file.h"
#include "box.h"
#include "faulty_sys.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const struct vm_backend_ops *const ops = &pol_backend_file;

/* With the image that was committed last. */
struct rig {
	struct box box;
	struct vm_bigfile f;
	struct image now; /* committed */
	uint64_t txid;
};

static inline void rig_attach(struct rig *r)
{
	struct stat st;

	memset(&r->f, 0, sizeof(r->f));
	r->f.path = r->box.data;
	r->f.writable = 1;
	r->f.shared_len = VM_BACKEND_SHARED;
	r->f.shared =
		mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(r->f.shared, MAP_FAILED);
	r->f.fd = open(r->box.data, O_RDWR | O_CLOEXEC);
	assert_true(r->f.fd >= 0);
	assert_int_equal(fstat(r->f.fd, &st), 0);
	r->f.dev = st.st_dev;
	r->f.ino = st.st_ino;
	assert_int_equal(ops->open(&r->f, NULL), 0);
}

/* As a crash leaves it: descriptors and locks are gone, nothing was put in order. */
static inline void rig_crash(struct rig *r)
{
	struct pol_file_priv *p = r->f.priv;

	if (p->j.fd >= 0)
		vm_fd_drop(&p->j.fd);
	vm_journal_fini(&p->j);
	munmap(p->scratch, POL_FILE_BATCH * VM_BLKSIZE);
	if (p->diffs.e)
		munmap(p->diffs.e, p->diffs.max * sizeof(*p->diffs.e));
	munmap(p, sizeof(*p));
	r->f.priv = NULL;
	close(r->f.fd);
	munmap(r->f.shared, VM_BACKEND_SHARED);
}

static inline void rig_detach(struct rig *r)
{
	assert_int_equal(ops->close(&r->f), 0);
	close(r->f.fd);
	munmap(r->f.shared, VM_BACKEND_SHARED);
}

static inline int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	uint64_t rnd = 1;

	box_make(&r->box);
	r->now.size = 3 * VM_BLKSIZE + 100;
	for (uint64_t i = 0; i < r->now.size; i++)
		r->now.bytes[i] = (uint8_t)(box_random(&rnd) % 3);
	image_put(r->box.data, &r->now);
	rig_attach(r);
	*state = r;
	return 0;
}

static inline int teardown(void **state)
{
	struct rig *r = *state;

	(void)faulty_disarm(); /* when the test ended early */
	if (r->f.priv)
		rig_detach(r);
	box_remove(&r->box);
	free(r);
	return 0;
}

/* Store the blocks that differ from the committed image, and some that do not. */
static inline int store(struct rig *r, const struct image *next, uint64_t *rnd)
{
	int err = ops->begin(&r->f);

	for (uint64_t blk = 0; !err && blk * VM_BLKSIZE < next->size; blk++) {
		const uint8_t *to = next->bytes + blk * VM_BLKSIZE;

		if (memcmp(to, r->now.bytes + blk * VM_BLKSIZE, VM_BLKSIZE) || box_random(rnd) % 8 == 0)
			err = ops->storeblk(&r->f, blk, 1, to, 0);
		if (!err && box_random(rnd) % 16 == 0)
			err = ops->storeblk(&r->f, blk, 1, to, VM_STORE_AGAIN);
	}
	return err;
}

static inline int commit(struct rig *r, const struct image *next, uint64_t low, unsigned flags, uint64_t *rnd)
{
	struct vm_txn txn = {.txid = r->txid + 1, .size = next->size, .size_low = low};
	int err = store(r, next, rnd);

	if (!err)
		err = ops->commit(&r->f, &txn, flags);
	if (err < 0) {
		ops->abort(&r->f);
		return err;
	}
	r->txid += !err; /* 1: it was none */
	r->now = *next;
	return 0;
}

static inline void assert_loads(struct rig *r, const struct image *im)
{
	static uint8_t buf[IMAGE_MAX];
	uint64_t size;

	assert_int_equal(ops->getsize(&r->f, &size), 0);
	assert_int_equal(size, im->size);
	assert_int_equal(ops->loadblk(&r->f, 0, IMAGE_MAX / VM_BLKSIZE, buf), 0);
	assert_memory_equal(buf, im->bytes, IMAGE_MAX);
}

static inline void set_byte(struct image *im, uint64_t off, uint8_t value)
{
	im->bytes[off] = value;
}

static inline uint64_t journal_tail(struct rig *r)
{
	struct vm_journal_mark m;

	vm_journal_mark(&pol_file_priv(&r->f)->j, &m);
	return m.tail;
}

/* Crash now and recover: the file must be the image. */
static inline void assert_recovers_to(struct rig *r, const struct image *im)
{
	struct pol_journal_report rep;
	int err;

	rig_crash(r);
	err = pol_journal_recover(r->box.data, NULL, NULL, NULL, &rep);
	if (err)
		print_error("%s\n", rep.text);
	assert_int_equal(err, 0);
	assert_true(image_is_in(im, r->box.data));
	assert_false(box_has(r->box.journal));
	rig_attach(r);
}

#endif
