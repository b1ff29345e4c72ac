/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
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

static const struct vm_backend_ops *ops = &pol_backend_file;

/* A managed file in a box, with the image that was committed last. */
struct rig {
	struct box box;
	struct vm_bigfile f;
	struct image now; /* committed */
	uint64_t txid;
};

static void rig_attach(struct rig *r)
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
static void rig_crash(struct rig *r)
{
	struct pol_file_priv *p = r->f.priv;

	if (p->j.fd >= 0)
		vm_fd_drop(&p->j.fd);
	vm_journal_fini(&p->j);
	munmap(p->scratch, POL_FILE_BATCH * VM_BLKSIZE);
	if (p->extents)
		munmap(p->extents, p->max_extents * sizeof(*p->extents));
	munmap(p, sizeof(*p));
	r->f.priv = NULL;
	close(r->f.fd);
	munmap(r->f.shared, VM_BACKEND_SHARED);
}

static void rig_detach(struct rig *r)
{
	assert_int_equal(ops->close(&r->f), 0);
	close(r->f.fd);
	munmap(r->f.shared, VM_BACKEND_SHARED);
}

static int setup(void **state)
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

static int teardown(void **state)
{
	struct rig *r = *state;

	if (r->f.priv)
		rig_detach(r);
	box_remove(&r->box);
	free(r);
	return 0;
}

/* Store the blocks that differ from the committed image, and some that do not. */
static int store(struct rig *r, const struct image *next, uint64_t *rnd)
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

static int commit(struct rig *r, const struct image *next, uint64_t low, unsigned flags, uint64_t *rnd)
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

static void assert_loads(struct rig *r, const struct image *im)
{
	static uint8_t buf[IMAGE_MAX];
	uint64_t size;

	assert_int_equal(ops->getsize(&r->f, &size), 0);
	assert_int_equal(size, im->size);
	assert_int_equal(ops->loadblk(&r->f, 0, IMAGE_MAX / VM_BLKSIZE, buf), 0);
	assert_memory_equal(buf, im->bytes, IMAGE_MAX);
}

static void set_byte(struct image *im, uint64_t off, uint8_t value)
{
	im->bytes[off] = value;
}

static uint64_t journal_tail(struct rig *r)
{
	struct vm_journal_mark m;

	vm_journal_mark(&pol_file_priv(&r->f)->j, &m);
	return m.tail;
}

/* Crash now and recover: the file must be the image. */
static void assert_recovers_to(struct rig *r, const struct image *im)
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

/* ---- committing ---- */

static void committed_bytes_are_in_the_file_and_loaded(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_true(image_is_in(&next, r->box.data));
	assert_loads(r, &next);
}

static void nothing_of_a_transaction_is_seen_before_its_commit(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(store(r, &next, &rnd), 0);
	assert_true(image_is_in(&r->now, r->box.data));
	assert_loads(r, &r->now);
	ops->abort(&r->f);
	assert_true(image_is_in(&r->now, r->box.data));
}

static void a_small_change_costs_a_small_frame(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2, before;

	assert_int_equal(ops->open_write(&r->f), 0);
	before = journal_tail(r);
	set_byte(&next, 5000, 77);
	set_byte(&next, 9000, 78);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(journal_tail(r) - before, VM_JOURNAL_ALIGN);
}

static void a_commit_of_nothing_writes_nothing(void **state)
{
	struct rig *r = *state;
	struct vm_txn txn = {.txid = 1, .size = r->now.size, .size_low = r->now.size};

	assert_int_equal(ops->begin(&r->f), 0);
	assert_int_equal(ops->storeblk(&r->f, 0, 2, r->now.bytes, 0), 0);
	faulty_arm(FAULTY_BIT(pwrite) | FAULTY_BIT(pwritev) | FAULTY_BIT(fdatasync), 0, 0, 0);
	assert_int_equal(ops->commit(&r->f, &txn, VM_COMMIT_DURABLE), 1);
	assert_int_equal(faulty_disarm(), 0);
}

static void a_random_workload_is_what_it_should_be_after_each_commit(void **state)
{
	struct rig *r = *state;
	uint64_t rnd = 3;

	assert_int_equal(ops->open_write(&r->f), 0);
	pol_file_priv(&r->f)->j.limit = 128 << 10; /* many start-overs */
	for (int i = 0; i < 1500; i++) {
		struct image next = r->now;
		uint64_t low;

		image_change(&next, &rnd, &low);
		assert_int_equal(commit(r, &next, low, box_random(&rnd) % 2 ? VM_COMMIT_DURABLE : 0, &rnd),
				 0);
		if (box_random(&rnd) % 4 == 0)
			assert_loads(r, &next);
		if (box_random(&rnd) % 32 == 0) {
			assert_int_equal(ops->checkpoint(&r->f), 0);
			assert_true(image_is_in(&next, r->box.data));
		}
	}
	rig_detach(r);
	assert_true(image_is_in(&r->now, r->box.data));
	assert_false(box_has(r->box.journal));
}

static void bytes_equal_to_what_a_cut_took_away_are_committed(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	memset(next.bytes, 9, next.size);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	/* cut to nothing, back to the old size, and some old bytes written again */
	memset(next.bytes, 0, next.size);
	memset(next.bytes + 6000, 9, 1500);
	assert_int_equal(commit(r, &next, 0, VM_COMMIT_DURABLE, &rnd), 0);
	assert_true(image_is_in(&next, r->box.data));
}

static void a_commit_larger_than_a_frame_is_streamed(void **state)
{
	struct rig *r = *state;
	size_t len = 5 << 20;
	uint8_t *big = malloc(len), *back = malloc(len);
	struct vm_txn txn = {.txid = 1, .size = len, .size_low = r->now.size};

	for (size_t i = 0; i < len; i++)
		big[i] = (uint8_t)(i * 7 + i / 4096);
	assert_int_equal(ops->begin(&r->f), 0);
	assert_int_equal(ops->storeblk(&r->f, 0, len / VM_BLKSIZE, big, 0), 0);
	assert_true(image_is_in(&r->now, r->box.data));
	assert_int_equal(ops->commit(&r->f, &txn, VM_COMMIT_DURABLE), 0);
	assert_int_equal(box_get(r->box.data, back, len), len);
	assert_memory_equal(big, back, len);
	free(big);
	free(back);
}

/* ---- outside changes ---- */

static void a_change_by_somebody_else_is_seen_until_accepted(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 1, 99);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(ops->changed(&r->f, 0), 0);
	image_put(r->box.data, &next);
	assert_int_equal(ops->changed(&r->f, 0), 1);
	assert_int_equal(ops->changed(&r->f, 1), 1);
	assert_int_equal(ops->changed(&r->f, 0), 0);
}

static void a_file_shortened_by_somebody_else_loads_zeros(void **state)
{
	struct rig *r = *state;
	struct image shorter = r->now;

	memset(shorter.bytes + 50, 0, IMAGE_MAX - 50);
	shorter.size = 50;
	assert_int_equal(truncate(r->box.data, 50), 0);
	assert_loads(r, &shorter);
}

static void holes_are_skipped(void **state)
{
	struct rig *r = *state;
	uint64_t start, stop;

	assert_int_equal(truncate(r->box.data, 1 << 30), 0);
	assert_int_equal(pwrite(r->f.fd, "x", 1, 512 << 20), 1);
	assert_int_equal(ops->nextdata(&r->f, 64 << 10, &start, &stop), 0);
	assert_int_equal(start, 512 << 20);
	assert_true(stop > start && stop <= (512 << 20) + (64 << 10));
	assert_int_equal(ops->nextdata(&r->f, 600 << 20, &start, &stop), -ENXIO);
	assert_int_equal(ops->nextdata(&r->f, 2ull << 30, &start, &stop), -ENXIO);
}

static void a_removed_journal_is_replaced(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 1, 99);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(unlink(r->box.journal), 0);
	set_byte(&next, 2, 99);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_true(box_has(r->box.journal));
	assert_true(image_is_in(&next, r->box.data));
}

/* ---- the journal's file ---- */

static void the_journal_has_the_files_mode_and_goes_at_close(void **state)
{
	struct rig *r = *state;
	struct stat st;

	assert_int_equal(chmod(r->box.data, 0640), 0);
	assert_int_equal(ops->open_write(&r->f), 0);
	assert_int_equal(stat(r->box.journal, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	rig_detach(r);
	assert_false(box_has(r->box.journal));
}

static void a_second_process_cannot_have_the_journal(void **state)
{
	struct rig *r = *state;
	struct rig other = *r;

	assert_int_equal(ops->open_write(&r->f), 0);
	rig_attach(&other);
	assert_int_equal(ops->open_write(&other.f), -EBUSY);
	rig_detach(&other);
	assert_true(box_has(r->box.journal));
}

static void a_journal_that_is_a_link_is_not_followed(void **state)
{
	struct rig *r = *state;

	assert_int_equal(symlink("elsewhere", r->box.journal), 0);
	assert_int_equal(ops->open_write(&r->f), -ELOOP);
}

static void a_missing_journal_directory_is_an_error(void **state)
{
	struct rig *r = *state;

	rig_detach(r);
	rig_attach(r);
	assert_int_equal(ops->close(&r->f), 0);
	assert_int_equal(ops->open(&r->f, "/var/tmp/no/such/dir"), 0);
	assert_int_equal(ops->open_write(&r->f), -ENOENT);
}

static void journals_of_equal_names_do_not_meet_in_a_directory(void **state)
{
	char dir[PATH_MAX], a[PATH_MAX], b[PATH_MAX], beside[PATH_MAX];

	(void)state;
	assert_int_equal(pol_journal_path("/x/data", "/j", dir, a), 0);
	assert_int_equal(pol_journal_path("/y/data", "/j", dir, b), 0);
	assert_string_not_equal(a, b);
	assert_string_equal(dir, "/j");
	assert_int_equal(pol_journal_path("/x/data", NULL, dir, beside), 0);
	assert_string_equal(beside, "/x/.data.txmap");
	assert_int_equal(pol_journal_path("/data", NULL, dir, beside), 0);
	assert_string_equal(beside, "/.data.txmap");
}

static void a_name_of_full_length_has_a_journal(void **state)
{
	char path[300] = "/x/", dir[PATH_MAX], j[PATH_MAX];

	(void)state;
	memset(path + 3, 'n', NAME_MAX);
	assert_int_equal(pol_journal_path(path, NULL, dir, j), 0);
	assert_int_equal(strlen(strrchr(j, '/') + 1), NAME_MAX);
}

static void an_idle_file_has_no_journal_until_the_next_commit(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	for (int i = 0; i < 3; i++) {
		set_byte(&next, 5000, (uint8_t)(77 + i));
		assert_int_equal(commit(r, &next, next.size, 0, &rnd), 0);
		assert_true(box_has(r->box.journal));
		assert_int_equal(ops->idle(&r->f), 0);
		assert_false(box_has(r->box.journal));
		assert_true(image_is_in(&next, r->box.data));
		assert_loads(r, &next);
	}
}

static void reserved_space_is_there_and_no_outside_change(void **state)
{
	struct rig *r = *state;
	struct stat before, after;

	assert_int_equal(stat(r->box.data, &before), 0);
	assert_int_equal(ops->reserve(&r->f, 0, 1 << 20), 0);
	assert_int_equal(stat(r->box.data, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_true(after.st_blocks >= (1 << 20) / 512);
	assert_int_equal(ops->changed(&r->f, 0), 0);
}

/* ---- processes ---- */

static void an_idle_child_leaves_the_journal_to_its_parent(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;
	int status;
	pid_t pid;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	pid = fork();
	if (!pid)
		_exit(ops->idle(&r->f) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(box_has(r->box.journal));
	set_byte(&next, 5001, 78);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_recovers_to(r, &next);
}

static void parent_and_child_commit_in_turns_through_one_journal(void **state)
{
	struct rig *r = *state;
	int up[2], down[2], status;
	uint64_t rnd = 2;
	char c;
	pid_t pid;

	assert_int_equal(ops->open_write(&r->f), 0);
	pol_file_priv(&r->f)->j.limit = 32 << 10;
	assert_int_equal(pipe(up) | pipe(down), 0);
	pid = fork();
	for (int i = 0; i < 200; i++) {
		struct image next = r->now;

		/* both know what the other does: the same sequence */
		set_byte(&next, (uint64_t)i * 20, (uint8_t)(i + 10));
		if ((i & 1) == !pid) {
			int err = commit(r, &next, next.size, i % 3 ? VM_COMMIT_DURABLE : 0, &rnd);

			if (pid)
				assert_int_equal(err, 0);
			if (write(pid ? down[1] : up[1], err ? "e" : "k", 1) != 1 || err)
				break;
		} else {
			if (read(pid ? up[0] : down[0], &c, 1) != 1 || c != 'k')
				break;
			r->now = next;
			r->txid++;
		}
	}
	if (!pid)
		_exit(ops->close(&r->f) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* the child's close left the journal to the parent */
	assert_true(box_has(r->box.journal));
	assert_int_equal(r->txid, 200);
	assert_loads(r, &r->now);
	assert_int_equal(ops->changed(&r->f, 0), 0);
	rig_crash(r);
	{
		struct pol_journal_report rep;

		assert_int_equal(pol_journal_recover(r->box.data, NULL, NULL, NULL, &rep), 0);
	}
	assert_true(image_is_in(&r->now, r->box.data));
	close(up[0]), close(up[1]), close(down[0]), close(down[1]);
}

/* ---- failing host calls ---- */

#define COMMIT_CALLS                                                                                         \
	(FAULTY_BIT(pwrite) | FAULTY_BIT(pwritev) | FAULTY_BIT(pread) | FAULTY_BIT(fdatasync) |              \
	 FAULTY_BIT(fsync) | FAULTY_BIT(ftruncate) | FAULTY_BIT(fstat) | FAULTY_BIT(openat) |                \
	 FAULTY_BIT(flock) | FAULTY_BIT(mmap) | FAULTY_BIT(getrandom) | FAULTY_BIT(fchmod) |                 \
	 FAULTY_BIT(fstatat))

static void each_call_of_a_commit_fails_once(struct rig *r, unsigned how, int errn, bool cold)
{
	uint64_t rnd = 4;
	unsigned n = 1, nfailed = 0, ncommitted = 0;

	for (bool more = true; more; n++) {
		struct image old = r->now, next = r->now;
		uint64_t low = next.size;
		int err;

		next.size = 2 * VM_BLKSIZE + 50 + n % 5 * 1000;
		low = next.size < low ? next.size : low;
		memset(next.bytes + low, 0, IMAGE_MAX - low);
		set_byte(&next, n * 3, (uint8_t)(n | 1));
		set_byte(&next, 5000 + n, (uint8_t)(n | 1));
		if (!cold)
			assert_int_equal(ops->open_write(&r->f), 0);
		faulty_arm(COMMIT_CALLS, n, errn, how);
		err = commit(r, &next, low, VM_COMMIT_DURABLE, &rnd);
		more = n <= faulty_disarm();
		if (err) {
			nfailed++;
			assert_true(err == -errn || err == -ENOMEM); /* memory has one error only */
			assert_true(image_is_in(&old, r->box.data));
			assert_loads(r, &old);
			if (n & 1) {
				/* a crash does not bring it back, except where nothing could be written any
				 * more */
				if (!(how & FAULTY_FOR_EVER))
					assert_recovers_to(r, &old);
			}
			assert_int_equal(commit(r, &next, low, VM_COMMIT_DURABLE, &rnd), 0);
		} else {
			ncommitted++;
		}
		assert_loads(r, &next);
		if (n & 2)
			assert_int_equal(ops->checkpoint(&r->f), 0);
		assert_recovers_to(r, &next);
	}
	assert_true(nfailed > 3);
	assert_true(ncommitted > 1);
}

static void a_commit_whose_call_fails_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, 0, EIO, false);
}

static void a_first_commit_whose_call_fails_is_no_commit(void **state)
{
	each_call_of_a_commit_fails_once(*state, 0, ENOSPC, true);
}

static void a_commit_whose_write_is_torn_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, FAULTY_TORN, EIO, false);
}

static void a_commit_after_whose_call_all_fail_is_the_commit_before(void **state)
{
	each_call_of_a_commit_fails_once(*state, FAULTY_FOR_EVER, EIO, false);
}

static void short_writes_are_gone_on_with(void **state)
{
	struct rig *r = *state;
	uint64_t rnd = 5, low;

	for (int i = 0; i < 50; i++) {
		struct image next = r->now;

		image_change(&next, &rnd, &low);
		faulty_arm(FAULTY_BIT(pwrite), 1, 0, FAULTY_SHORT | FAULTY_FOR_EVER);
		assert_int_equal(commit(r, &next, low, VM_COMMIT_DURABLE, &rnd), 0);
		faulty_disarm();
		assert_true(image_is_in(&next, r->box.data));
	}
}

static void a_failed_apply_keeps_the_commit_and_says_so(void **state)
{
	struct rig *r = *state;
	struct image next = r->now, more;
	uint64_t rnd = 2;
	int fd = r->f.fd;

	assert_int_equal(ops->open_write(&r->f), 0);
	set_byte(&next, 5000, 77);
	assert_int_equal(store(r, &next, &rnd), 0);
	/* the file can be read only from now on, the journal still be written */
	r->f.fd = open(r->box.data, O_RDONLY | O_CLOEXEC);
	{
		struct vm_txn txn = {.txid = 1, .size = next.size, .size_low = next.size};

		assert_int_equal(ops->commit(&r->f, &txn, VM_COMMIT_DURABLE), 0);
	}
	assert_true(pol_backend_file_needs_recovery(&r->f));
	assert_true(image_is_in(&r->now, r->box.data));
	assert_loads(r, &next);
	r->now = next;
	/* no further commit before that is mended */
	more = next;
	set_byte(&more, 5001, 78);
	assert_int_equal(commit(r, &more, more.size, VM_COMMIT_DURABLE, &rnd), -EBADF);
	assert_int_equal(ops->checkpoint(&r->f), -EBADF);
	close(r->f.fd);
	r->f.fd = fd;
	assert_int_equal(commit(r, &more, more.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_false(pol_backend_file_needs_recovery(&r->f));
	assert_true(image_is_in(&more, r->box.data));
}

static void a_failed_checkpoint_replays_into_the_file(void **state)
{
	struct rig *r = *state;
	struct image next = r->now, old = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(ops->checkpoint(&r->f), -EIO);
	faulty_disarm();
	assert_true(pol_backend_file_needs_recovery(&r->f));
	/* the kernel may have thrown the dirty pages away */
	image_put(r->box.data, &old);
	assert_loads(r, &next);
	assert_int_equal(ops->checkpoint(&r->f), 0);
	assert_true(image_is_in(&next, r->box.data));
}

static void a_failed_sync_is_followed_by_a_whole_rewrite(void **state)
{
	struct rig *r = *state;
	struct image first = r->now, next;
	static const uint8_t zeros[4096];
	uint64_t rnd = 2, tail;
	int fd;

	set_byte(&first, 5000, 77);
	assert_int_equal(commit(r, &first, first.size, VM_COMMIT_DURABLE, &rnd), 0);
	next = first;
	set_byte(&next, 6000, 78);
	tail = journal_tail(r);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), -EIO);
	faulty_disarm();
	/* what was written is lost, though the kernel calls it clean */
	fd = open(r->box.journal, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)tail), sizeof(zeros));
	close(fd);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	image_put(r->box.data, &first);
	assert_recovers_to(r, &next);
}

static void a_commit_whose_sync_failed_does_not_come_back(void **state)
{
	struct rig *r = *state;
	struct image old = r->now, next = r->now;
	uint64_t rnd = 2;

	assert_int_equal(ops->open_write(&r->f), 0);
	set_byte(&next, 6000, 78);
	faulty_arm(FAULTY_BIT(fdatasync), 1, EIO, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), -EIO);
	faulty_disarm();
	assert_recovers_to(r, &old);
}

static void a_full_disk_first_uses_the_journals_own_space_again(void **state)
{
	struct rig *r = *state;
	struct image next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	set_byte(&next, 5001, 78);
	faulty_arm(FAULTY_BIT(pwrite), 1, ENOSPC, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_true(faulty_has_failed());
	faulty_disarm();
	assert_int_equal(journal_tail(r), VM_JOURNAL_START + VM_JOURNAL_ALIGN);
	assert_recovers_to(r, &next);
}

static void lazy_commits_are_seen_at_once_and_reach_the_file_when_synced(void **state)
{
	struct rig *r = *state;
	struct image old = r->now, next = r->now;
	uint64_t rnd = 2;

	set_byte(&next, 5000, 77);
	assert_int_equal(ops->open_write(&r->f), 0);
	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync), 0, 0, 0);
	assert_int_equal(commit(r, &next, next.size, 0, &rnd), 0);
	set_byte(&next, 5001, 78);
	assert_int_equal(commit(r, &next, next.size, 0, &rnd), 0);
	assert_int_equal(faulty_disarm(), 0);
	assert_true(image_is_in(&old, r->box.data));
	assert_loads(r, &next);
	/* a durable commit of nothing makes them durable */
	faulty_arm(FAULTY_BIT(fdatasync), 0, 0, 0);
	assert_int_equal(commit(r, &next, next.size, VM_COMMIT_DURABLE, &rnd), 0);
	assert_int_equal(faulty_disarm(), 1);
	assert_true(image_is_in(&next, r->box.data));
	assert_recovers_to(r, &next);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(committed_bytes_are_in_the_file_and_loaded),
		T(nothing_of_a_transaction_is_seen_before_its_commit),
		T(a_small_change_costs_a_small_frame),
		T(a_commit_of_nothing_writes_nothing),
		T(a_random_workload_is_what_it_should_be_after_each_commit),
		T(bytes_equal_to_what_a_cut_took_away_are_committed),
		T(a_commit_larger_than_a_frame_is_streamed),
		T(a_change_by_somebody_else_is_seen_until_accepted),
		T(a_file_shortened_by_somebody_else_loads_zeros),
		T(holes_are_skipped),
		T(a_removed_journal_is_replaced),
		T(the_journal_has_the_files_mode_and_goes_at_close),
		T(a_second_process_cannot_have_the_journal),
		T(a_journal_that_is_a_link_is_not_followed),
		T(a_missing_journal_directory_is_an_error),
		T(journals_of_equal_names_do_not_meet_in_a_directory),
		T(a_name_of_full_length_has_a_journal),
		T(an_idle_file_has_no_journal_until_the_next_commit),
		T(reserved_space_is_there_and_no_outside_change),
		T(an_idle_child_leaves_the_journal_to_its_parent),
		T(parent_and_child_commit_in_turns_through_one_journal),
		T(a_commit_whose_call_fails_is_the_commit_before),
		T(a_first_commit_whose_call_fails_is_no_commit),
		T(a_commit_whose_write_is_torn_is_the_commit_before),
		T(a_commit_after_whose_call_all_fail_is_the_commit_before),
		T(short_writes_are_gone_on_with),
		T(a_failed_apply_keeps_the_commit_and_says_so),
		T(a_failed_checkpoint_replays_into_the_file),
		T(a_failed_sync_is_followed_by_a_whole_rewrite),
		T(a_commit_whose_sync_failed_does_not_come_back),
		T(a_full_disk_first_uses_the_journals_own_space_again),
		T(lazy_commits_are_seen_at_once_and_reach_the_file_when_synced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
