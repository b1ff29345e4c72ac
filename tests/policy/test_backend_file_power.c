/* SPDX-License-Identifier: MIT */
/*
 * Power cuts. What was written since a file's last sync may reach the disk in any order, in sectors, or not
 * at all; what was synced stays. At random host calls of a random workload the disk is cut off like that,
 * recovered, and must be one version: no older than the last durable commit, no newer than the one being
 * made.
 */
#define _GNU_SOURCE 1
#include "backend_file.h"
#include "box.h"
#include "recover.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

#define SECTOR	    512u
#define DISK_MAX    (512u << 10)
#define MAX_PENDING 4096
#define LIMIT	    (96u << 10)

/* A change that may or may not have reached the disk. */
struct pending {
	bool is_size;
	uint64_t off, len; /* is_size: off is the new size */
	uint8_t bytes[SECTOR];
};

/* A file as the disk has it. */
struct disk {
	ino_t ino;
	uint64_t size;
	uint8_t bytes[DISK_MAX];
	struct pending pending[MAX_PENDING];
	unsigned npending;
};

static struct disk data, journal;
static struct vm_sys table;
static uint64_t rnd;

/* Versions: every commit that was asked for. */
#define MAX_VERSIONS 3000
static struct image *version[MAX_VERSIONS];
static int newest, durable;
static unsigned ncuts;
static char cut_data[300], cut_journal[300];

static struct disk *disk_of(int fd)
{
	struct stat st;

	if (vm_sys_linux.fstat(fd, &st))
		return NULL;
	return st.st_ino == data.ino ? &data : st.st_ino == journal.ino ? &journal : NULL;
}

static void change(struct disk *d, const struct pending *p)
{
	if (p->is_size) {
		if (p->off < d->size)
			memset(d->bytes + p->off, 0, d->size - p->off);
		d->size = p->off;
		return;
	}
	memcpy(d->bytes + p->off, p->bytes, p->len);
	if (d->size < p->off + p->len)
		d->size = p->off + p->len;
}

static void pend(struct disk *d, const struct pending *p)
{
	assert_true(d->npending < MAX_PENDING);
	assert_true(p->off + p->len <= DISK_MAX);
	d->pending[d->npending++] = *p;
}

static void pend_write(struct disk *d, const uint8_t *buf, uint64_t len, uint64_t off)
{
	while (len) {
		struct pending p = {.off = off};
		uint64_t room = SECTOR - off % SECTOR;

		p.len = len < room ? len : room;
		memcpy(p.bytes, buf, p.len);
		pend(d, &p);
		buf += p.len;
		off += p.len;
		len -= p.len;
	}
}

static void cut_disk(const struct disk *d, const char *path)
{
	static struct disk copy;
	unsigned mode = (unsigned)(box_random(&rnd) % 4);

	copy = *d;
	for (unsigned i = 0; i < d->npending; i++)
		if (mode == 0 || (mode != 1 && box_random(&rnd) % mode))
			change(&copy, &d->pending[i]);
	box_put(path, copy.bytes, copy.size);
}

static void cut_and_recover(void)
{
	const struct vm_sys *saved = vm_sys;
	struct vm_scan scan;
	int jfd, fd, v, got = -1;

	vm_sys = &vm_sys_linux;
	cut_disk(&data, cut_data);
	cut_disk(&journal, cut_journal);
	jfd = open(cut_journal, O_RDONLY | O_CLOEXEC);
	fd = open(cut_data, O_RDWR | O_CLOEXEC);
	assert_int_equal(vm_journal_scan(jfd, NULL, &scan), 0);
	assert_true(scan.state == VM_SCAN_EMPTY || scan.state == VM_SCAN_COMMITS);
	if (scan.state == VM_SCAN_COMMITS)
		assert_int_equal(vm_journal_replay(jfd, &(struct vm_journal_files){.fd = fd}, VM_JOURNAL_START, scan.end, NULL, NULL), 0);
	close(jfd);
	close(fd);
	for (v = newest; v >= durable && got < 0; v--)
		if (image_is_in(version[v], cut_data))
			got = v;
	if (got < 0) {
		for (v = 0; v < durable; v++)
			if (image_is_in(version[v], cut_data))
				print_error("is version %d\n", v);
		print_error("no version of [%d, %d]; %llu commits\n", durable, newest,
			    (unsigned long long)scan.ncommits);
	}
	assert_true(got >= 0);
	ncuts++;
	vm_sys = saved;
}

static void maybe_cut(void)
{
	if (box_random(&rnd) % 2 == 0)
		cut_and_recover();
}

static ssize_t power_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	struct disk *d = disk_of(fd);

	if (d) {
		pend_write(d, buf, len, (uint64_t)off);
		maybe_cut();
	}
	return vm_sys_linux.pwrite(fd, buf, len, off);
}

static ssize_t power_pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	struct disk *d = disk_of(fd);
	off_t at = off;

	for (int i = 0; d && i < niov; i++) {
		pend_write(d, iov[i].iov_base, iov[i].iov_len, (uint64_t)at);
		at += (off_t)iov[i].iov_len;
	}
	return vm_sys_linux.pwritev(fd, iov, niov, off);
}

/* No writing through a mapping, which would not be seen here. */
static ssize_t power_preadv(int fd, const struct iovec *iov, int niov, off_t off)
{
	(void)fd, (void)iov, (void)niov, (void)off;
	return -EFAULT;
}

static int power_ftruncate(int fd, off_t len)
{
	struct disk *d = disk_of(fd);

	if (d) {
		pend(d, &(struct pending){.is_size = true, .off = (uint64_t)len});
		maybe_cut();
	}
	return vm_sys_linux.ftruncate(fd, len);
}

static int power_sync(int fd)
{
	struct disk *d = disk_of(fd);

	if (d) {
		maybe_cut(); /* just before, */
		for (unsigned i = 0; i < d->npending; i++)
			change(d, &d->pending[i]);
		d->npending = 0;
		maybe_cut(); /* just after */
	}
	return 0;
}

static void add_version(const struct image *im)
{
	assert_true(newest + 1 < MAX_VERSIONS);
	version[++newest] = malloc(sizeof(*im));
	*version[newest] = *im;
}

static void power_off(struct vm_bigfile *f, int ncommits)
{
	const struct vm_backend_ops *ops = &pol_backend_file;

	for (int i = 0; i < ncommits; i++) {
		struct image next = *version[newest];
		const struct image *old = version[newest];
		struct vm_txn txn = {.txid = (uint64_t)i + 1};
		unsigned flags = box_random(&rnd) % 2 ? VM_COMMIT_DURABLE : 0;

		image_change(&next, &rnd, &txn.size_low);
		txn.size = next.size;
		assert_int_equal(ops->begin(f), 0);
		for (uint64_t blk = 0; blk * VM_BLKSIZE < next.size; blk++)
			if (memcmp(next.bytes + blk * VM_BLKSIZE, old->bytes + blk * VM_BLKSIZE, VM_BLKSIZE))
				assert_int_equal(ops->storeblk(f, blk, 1, next.bytes + blk * VM_BLKSIZE, 0),
						 0);
		if (box_random(&rnd) % 16 == 0) {
			ops->abort(f);
			continue;
		}
		add_version(&next);
		assert_true(ops->commit(f, &txn, flags) >= 0);
		if (flags & VM_COMMIT_DURABLE)
			durable = newest;
		maybe_cut();
		if (box_random(&rnd) % 8 == 0) {
			assert_int_equal(ops->checkpoint(f), 0);
			durable = newest;
		}
	}
}

static void a_power_cut_leaves_one_whole_version_that_is_new_enough(void **state)
{
	struct vm_bigfile f = {.writable = 1, .shared_len = VM_BACKEND_SHARED};
	struct image empty = {0};
	struct stat st;
	struct box box;

	(void)state;
	rnd = 1234;
	newest = -1;
	box_make(&box);
	strcat(strcpy(cut_data, box.dir), "/cut");
	strcat(strcpy(cut_journal, box.dir), "/.cut.txmap");
	image_put(box.data, &empty);
	add_version(&empty);
	f.path = box.data;
	f.fd = open(box.data, O_RDWR | O_CLOEXEC);
	f.shared = mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(pol_backend_file.open(&f, NULL), 0);
	pol_file_priv(&f)->j.limit = LIMIT;
	assert_int_equal(pol_backend_file.open_write(&f), 0);
	assert_int_equal(stat(box.data, &st), 0);
	data.ino = st.st_ino;
	assert_int_equal(stat(box.journal, &st), 0);
	journal.ino = st.st_ino;
	journal.size = box_get(box.journal, journal.bytes, sizeof(journal.bytes));

	table = vm_sys_linux;
	table.pwrite = power_pwrite;
	table.pwritev = power_pwritev;
	table.preadv = power_preadv;
	table.ftruncate = power_ftruncate;
	table.fsync = table.fdatasync = power_sync;
	vm_sys = &table;
	power_off(&f, 2000);
	vm_sys = &vm_sys_linux;

	assert_int_equal(pol_backend_file.close(&f), 0);
	assert_true(image_is_in(version[newest], box.data));
	close(f.fd);
	munmap(f.shared, VM_BACKEND_SHARED);
	for (int v = 0; v <= newest; v++)
		free(version[v]);
	box_remove(&box);
	assert_true(ncuts > 5000);
	print_message("%u power cuts over %d commits\n", ncuts, newest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_cut_leaves_one_whole_version_that_is_new_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
