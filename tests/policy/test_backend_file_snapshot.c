/* SPDX-License-Identifier: MIT */
/* Several who have the storage, each with a snapshot: what they are told of each other's commits, and one
 * that is killed. */
#define _GNU_SOURCE 1
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
#include <sys/file.h>
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

static int note(struct vm_news *news, uint64_t start, uint64_t stop)
{
	struct member *m = (struct member *)((char *)news - offsetof(struct member, news));

	m->told_all |= stop > NPAGES;
	for (uint64_t pg = start; pg < stop && pg < NPAGES; pg++)
		m->told[pg] = true;
	return 0;
}

static int try_open(struct member *m, int flags)
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

static void hold(struct member *m)
{
	memset(m->told, 0, sizeof(m->told));
	m->told_all = false;
	assert_int_equal(ops->hold(&m->f, &m->news), 0);
}

static void come(struct member *m, int flags)
{
	assert_int_equal(try_open(m, flags), 0);
	hold(m);
	ops->let_go(&m->f, 1); /* as if it had been loaded */
}

static void go(struct member *m)
{
	while (m->f.priv && pol_file_priv(&m->f)->snapshot->nholds) /* the test ended early */
		ops->let_go(&m->f, 0);
	if (m->f.priv)
		assert_int_equal(ops->close(&m->f), 0);
	if (m->f.fd)
		close(m->f.fd);
	memset(m, 0, sizeof(*m));
}

static int setup(void **state)
{
	(void)state;
	memset(&now, 0, sizeof(now));
	now.size = 8 * VM_BLKSIZE;
	memset(now.bytes, 'x', now.size);
	image_put(box.data, &now);
	return 0;
}

static int teardown(void **state)
{
	char name[400];

	(void)state;
	(void)faulty_disarm(); /* when the test ended early */
	go(&one);
	go(&two);
	(void)snprintf(name, sizeof(name), "exec test -z \"$(ls %s)\"", run_dir);
	return box_has(box.journal) || system(name);
}

static int store(struct member *m, const struct image *next)
{
	int err = ops->begin(&m->f);

	for (uint64_t pg = 0; !err && pg * VM_BLKSIZE < next->size; pg++)
		if (memcmp(next->bytes + pg * VM_BLKSIZE, now.bytes + pg * VM_BLKSIZE, VM_BLKSIZE))
			err = ops->storeblk(&m->f, pg, 1, next->bytes + pg * VM_BLKSIZE, 0);
	return err;
}

static int try_commit(struct member *m, const struct image *next, uint64_t low)
{
	struct vm_txn txn = {.txid = m->news.txid + 1, .size = next->size, .size_low = low};
	int err = store(m, next);

	if (!err)
		err = ops->commit(&m->f, &txn, VM_COMMIT_DURABLE);
	if (err < 0)
		ops->abort(&m->f);
	return err;
}

static void commit_low(struct member *m, const struct image *next, uint64_t low)
{
	hold(m);
	assert_int_equal(try_commit(m, next, low), 0);
	ops->let_go(&m->f, 1);
	now = *next;
}

static void commit_byte(struct member *m, uint64_t pgoff, uint8_t byte)
{
	struct image next = now;

	next.bytes[pgoff * VM_BLKSIZE + 7] = byte;
	commit_low(m, &next, now.size);
}

static unsigned ntold(const struct member *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NPAGES; i++)
		n += m->told[i];
	return n;
}

static void assert_loads(struct member *m, const struct image *im)
{
	static uint8_t buf[IMAGE_MAX];
	uint64_t size;

	assert_int_equal(ops->getsize(&m->f, &size), 0);
	assert_int_equal(size, im->size);
	assert_int_equal(ops->loadblk(&m->f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, im->bytes, IMAGE_MAX);
}

/* ---- news ---- */

static void each_is_told_of_the_pages_that_others_committed_and_no_others(void **state)
{
	(void)state;
	come(&one, O_RDWR);
	come(&two, O_RDWR);
	commit_byte(&one, 2, 'a');
	commit_byte(&one, 5, 'b');
	hold(&one);
	assert_int_equal(ntold(&one), 0);
	ops->let_go(&one.f, 0);
	hold(&two);
	assert_true(two.told[2] && two.told[5] && ntold(&two) == 2 && !two.news.resized);
	assert_int_equal(two.news.txid, 2);
	assert_loads(&two, &now);
	ops->let_go(&two.f, 0);
	/* it did not take that in */
	commit_byte(&one, 3, 'c');
	hold(&two);
	assert_true(two.told[2] && two.told[3] && two.told[5] && ntold(&two) == 3);
	ops->let_go(&two.f, 1);
	hold(&two);
	assert_int_equal(ntold(&two), 0);
	ops->let_go(&two.f, 1);
	commit_byte(&two, 2, 'd');
	hold(&one);
	assert_true(one.told[2] && ntold(&one) == 1);
	ops->let_go(&one.f, 1);
}

static void a_page_that_is_stored_as_it_was_is_no_news(void **state)
{
	struct vm_txn txn = {.txid = 1, .size = now.size, .size_low = now.size};

	(void)state;
	come(&one, O_RDWR);
	come(&two, O_RDWR);
	hold(&one);
	assert_int_equal(ops->begin(&one.f), 0);
	assert_int_equal(ops->storeblk(&one.f, 0, 3, now.bytes, 0), 0);
	assert_int_equal(ops->commit(&one.f, &txn, VM_COMMIT_DURABLE), 1);
	ops->let_go(&one.f, 1);
	hold(&two);
	assert_int_equal(ntold(&two), 0);
	ops->let_go(&two.f, 1);
}

static void a_growth_is_told_and_a_cut_with_all_it_took_away(void **state)
{
	struct image next = now;

	(void)state;
	come(&one, O_RDWR);
	come(&two, O_RDWR);
	next.size = 9 * VM_BLKSIZE + 10;
	commit_low(&one, &next, now.size);
	hold(&two);
	assert_true(two.news.resized && two.news.size == next.size && !ntold(&two));
	ops->let_go(&two.f, 1);
	/* down to the middle of page 5, and back */
	memset(next.bytes + 5 * VM_BLKSIZE + 100, 0, IMAGE_MAX - 5 * VM_BLKSIZE - 100);
	commit_low(&one, &next, 5 * VM_BLKSIZE + 100);
	hold(&two);
	assert_true(two.news.resized && two.news.size == next.size);
	for (unsigned pg = 0; pg < 10; pg++)
		assert_int_equal(two.told[pg], pg >= 5);
	assert_loads(&two, &now);
	ops->let_go(&two.f, 1);
	hold(&two);
	assert_false(two.news.resized);
	ops->let_go(&two.f, 1);
}

static void a_cut_too_large_to_be_noted_page_by_page_changes_everything(void **state)
{
	struct vm_txn txn = {.txid = 1, .size = 1ull << 40, .size_low = now.size};

	(void)state;
	come(&one, O_RDWR);
	hold(&one);
	assert_int_equal(ops->begin(&one.f), 0);
	assert_int_equal(ops->commit(&one.f, &txn, VM_COMMIT_DURABLE), 0);
	ops->let_go(&one.f, 1);
	come(&two, O_RDWR);
	txn = (struct vm_txn){.txid = 2, .size = now.size, .size_low = now.size};
	hold(&one);
	assert_int_equal(ops->begin(&one.f), 0);
	assert_int_equal(ops->commit(&one.f, &txn, VM_COMMIT_DURABLE), 0);
	ops->let_go(&one.f, 1);
	hold(&two);
	assert_true(two.told_all && two.news.resized && ntold(&two) == NPAGES);
	ops->let_go(&two.f, 1);
}

static void a_commit_that_fails_is_no_news(void **state)
{
	const uint64_t kinds = FAULTY_BIT(pwrite) | FAULTY_BIT(fdatasync);
	struct image next = now;
	unsigned n = 1;
	int err;

	(void)state;
	come(&one, O_RDWR);
	come(&two, O_RDWR);
	next.bytes[4 * VM_BLKSIZE] = 'n';
	do {
		hold(&one);
		faulty_arm(kinds, n++, ENOSPC, FAULTY_FOR_EVER);
		err = try_commit(&one, &next, now.size);
		(void)faulty_disarm();
		ops->let_go(&one.f, 1);
		hold(&two);
		if (err) {
			assert_int_equal(err, -ENOSPC);
			assert_int_equal(ntold(&two), 0);
			assert_loads(&two, &now);
		} else { /* it happened; a number that cannot be written leaves a conflict too many */
			assert_true(two.told[4]);
		}
		ops->let_go(&two.f, !!err);
	} while (err);
	now = next;
	assert_true(n > 3);
}

/* ---- others ---- */

static void a_reader_is_told_too_and_needs_no_journal(void **state)
{
	(void)state;
	come(&one, O_RDONLY);
	assert_false(box_has(box.journal));
	come(&two, O_RDWR);
	commit_byte(&two, 1, 'a');
	hold(&one);
	assert_true(one.told[1] && ntold(&one) == 1);
	assert_loads(&one, &now);
	ops->let_go(&one.f, 1);
	go(&two);
	assert_false(box_has(box.journal));
}

static void a_strangers_change_is_one_of_everything_and_a_members_is_not(void **state)
{
	int fd;

	(void)state;
	come(&one, O_RDWR);
	come(&two, O_RDWR);
	commit_byte(&one, 1, 'a');
	usleep(20000); /* a tick of the kernel's clock, by which it is told */
	hold(&two);
	assert_true(ntold(&two) == 1);
	ops->let_go(&two.f, 1);
	ops->times(&one.f, 0); /* as touch(1) */
	assert_int_equal(futimens(one.f.fd, NULL), 0);
	ops->times(&one.f, 1);
	usleep(2000);
	hold(&two);
	assert_true(ntold(&two) == 0);
	ops->let_go(&two.f, 1);
	fd = open(box.data, O_WRONLY);
	assert_int_equal(pwrite(fd, "strange", 7, 9), 7);
	close(fd);
	memcpy(now.bytes + 9, "strange", 7);
	usleep(2000); /* it is looked for once in a millisecond */
	for (struct member *m = &one; m; m = m == &one ? &two : NULL) {
		hold(m);
		assert_true(m->told_all);
		assert_loads(m, &now);
		ops->let_go(&m->f, 1);
		hold(m);
		assert_int_equal(ntold(m), 0);
		ops->let_go(&m->f, 1);
	}
}

static void a_journal_of_members_is_in_use_and_is_none_for_those_who_share_an_overlay(void **state)
{
	struct pol_journal_report rep;
	struct member other;

	(void)state;
	come(&one, O_RDWR);
	commit_byte(&one, 1, 'a');
	assert_int_equal(pol_journal_check(box.data, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
	assert_int_equal(pol_journal_recover(box.data, NULL, NULL, NULL, &rep), -EBUSY);
	memset(&other, 0, sizeof(other));
	other.f = one.f;
	other.f.shared = other.shared;
	assert_int_equal(pol_backend_file.open(&other.f, NULL), 0);
	assert_int_equal(pol_backend_file.open_write(&other.f), -EBUSY);
	assert_int_equal(pol_backend_file.close(&other.f), 0);
	assert_int_equal(pol_journal_check(box.data, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
}

/* But a lock that cannot be given up: that is none of the kernel's. And an empty journal, until the next one
 * comes. */
static void whatever_fails_when_it_comes_leaves_nothing(void **state)
{
	unsigned n = 0;
	int err, fds = open("/dev/null", O_RDONLY), after;

	(void)state;
	close(fds);
	for (int flags = O_RDONLY; flags <= O_RDWR; flags += O_RDWR) {
		do {
			faulty_arm(FAULTY_ALL & ~FAULTY_BIT(fcntl), ++n, EIO, 0);
			err = try_open(&one, flags);
			(void)faulty_disarm();
			if (err) {
				assert_null(one.f.priv);
				close(one.f.fd);
				after = open("/dev/null", O_RDONLY);
				assert_int_equal(after, fds);
				close(after);
			}
			one.f.fd = err ? 0 : one.f.fd;
			come(&two, flags);
			go(&two);
			go(&one);
			assert_false(box_has(box.journal));
		} while (err || n < 40);
		n = 0;
	}
}

static void snapshots_name(char *ret, size_t len)
{
	struct stat st;

	assert_int_equal(stat(box.data, &st), 0);
	(void)snprintf(ret, len, "%s/snapshots-%llx-%llx", run_dir, (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
}

static void a_file_in_the_runtime_directory_that_is_none_of_ours_is_refused(void **state)
{
	char name[400];
	int fd;

	(void)state;
	snapshots_name(name, sizeof(name));
	/* what the dead left, whatever it is, is begun anew */
	fd = open(name, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "nonsense", 8), 8);
	come(&one, O_RDWR);
	go(&one);
	close(fd);
	/* of another version, and somebody lives */
	come(&one, O_RDWR);
	fd = open(name, O_RDWR);
	assert_int_equal(pwrite(fd, "\7", 1, offsetof(struct pol_snapshots, version)), 1);
	assert_int_equal(try_open(&two, O_RDWR), -EPROTO);
	assert_int_equal(pwrite(fd, "\1", 1, offsetof(struct pol_snapshots, version)), 1);
	close(fd);
	close(two.f.fd);
	come(&two, O_RDWR);
}

static void what_the_dead_left_is_swept_and_nothing_of_the_living(void **state)
{
	char name[400];
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(stat(box.data, &st), 0);
	snapshots_name(name, sizeof(name));
	fd = open(name, O_RDWR | O_CREAT, 0600);
	close(fd);
	pol_snapshot_sweep(st.st_dev, st.st_ino);
	assert_false(box_has(name));
	come(&one, O_RDWR);
	pol_snapshot_sweep(st.st_dev, st.st_ino);
	assert_true(box_has(name));
	assert_true(pol_snapshot_has_somebody(st.st_dev, st.st_ino));
	go(&one);
	assert_false(pol_snapshot_has_somebody(st.st_dev, st.st_ino));
	pol_snapshot_sweep(st.st_dev, st.st_ino); /* it is not there */
}

/* ---- killed ---- */

static struct vm_sys dying;
static unsigned left; /* calls until the end */

static void count(void)
{
	if (!--left)
		_exit(9);
}

static ssize_t dying_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t n;

	count();
	n = vm_sys_linux.pwrite(fd, buf, len > 1 ? len / 2 : len, off); /* killed half way, too */
	count();
	return n == (ssize_t)(len / 2) && len > 1
		       ? n + vm_sys_linux.pwrite(fd, (const char *)buf + n, len - (size_t)n, off + n)
		       : n;
}

static int dying_fdatasync(int fd)
{
	count();
	return vm_sys_linux.fdatasync(fd);
}

static int dying_ftruncate(int fd, off_t len)
{
	count();
	return vm_sys_linux.ftruncate(fd, len);
}

static int dying_fcntl(int fd, int cmd, long arg)
{
	count();
	return vm_sys_linux.fcntl(fd, cmd, arg);
}

/* Comes, commits next, goes, and is killed at the nth of these calls. Was it? */
static bool commit_and_die(unsigned nth, const struct image *next, uint64_t low)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		dying = vm_sys_linux;
		dying.pwrite = dying_pwrite;
		dying.fdatasync = dying_fdatasync;
		dying.ftruncate = dying_ftruncate;
		dying.fcntl = dying_fcntl;
		left = nth;
		vm_sys = &dying;
		if (try_open(&two, O_RDWR) || ops->hold(&two.f, &two.news) || try_commit(&two, next, low) < 0)
			_exit(1);
		ops->let_go(&two.f, 1);
		_exit(ops->close(&two.f) ? 2 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
	return WEXITSTATUS(status) == 9;
}

/* What the other one finds is the state before or the one after, and it was told of what differs. */
static void a_member_that_is_killed_leaves_a_whole_commit_or_none(void **state)
{
	uint64_t rnd = 5, low;
	static uint8_t buf[IMAGE_MAX];
	unsigned n = 0, nbefore = 0, nafter = 0;
	struct image next;
	bool killed;

	(void)state;
	come(&one, O_RDWR);
	do {
		low = now.size;
		next = now;
		image_change(&next, &rnd, &low);
		killed = commit_and_die(++n, &next, low);
		hold(&one);
		assert_int_equal(ops->loadblk(&one.f, 0, NPAGES, buf), 0);
		if (memcmp(buf, now.bytes, IMAGE_MAX) || one.news.size != now.size) {
			assert_loads(&one, &next);
			for (unsigned pg = 0; pg < NPAGES; pg++)
				if (memcmp(next.bytes + pg * VM_BLKSIZE, now.bytes + pg * VM_BLKSIZE,
					   VM_BLKSIZE))
					assert_true(one.told[pg]);
			assert_true(one.news.resized || next.size == now.size);
			now = next;
			nafter++;
		} else {
			nbefore++;
		}
		ops->let_go(&one.f, 1);
		assert_int_equal(one.told_all, false);
		if (now.size > 3 * VM_BLKSIZE) {
			commit_byte(&one, n % 3, (uint8_t)(now.bytes[n % 3 * VM_BLKSIZE + 7] + 1));
			assert_true(image_is_in(&now, box.data));
		}
	} while (killed);
	assert_true(nbefore > 5 && nafter > 5);
}

/* It was durable, maybe, but nobody saw it: nor does anybody later. */
static void what_a_killed_one_did_not_finish_does_not_come_back(void **state)
{
	uint64_t rnd = 8, low;
	static uint8_t buf[IMAGE_MAX];
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		come(&one, O_RDWR);
		low = now.size;
		next = now;
		image_change(&next, &rnd, &low);
		killed = commit_and_die(++n, &next, low);
		hold(&one);
		assert_int_equal(ops->loadblk(&one.f, 0, NPAGES, buf), 0);
		if (memcmp(buf, now.bytes, IMAGE_MAX) || one.news.size != now.size)
			now = next;
		assert_loads(&one, &now);
		ops->let_go(&one.f, 1);
		go(&one);
		assert_false(box_has(box.journal));
		assert_true(image_is_in(&now, box.data));
	} while (killed);
}

static void a_reader_that_is_left_by_the_killed_leaves_a_whole_file(void **state)
{
	uint64_t rnd = 7, low;
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		come(&one, O_RDONLY);
		low = now.size;
		next = now;
		image_change(&next, &rnd, &low);
		killed = commit_and_die(++n, &next, low);
		go(&one);
		assert_false(box_has(box.journal));
		assert_true(image_is_in(&next, box.data) || image_is_in(&now, box.data));
		now = image_is_in(&next, box.data) ? next : now;
	} while (killed);
}

static void when_all_are_killed_the_next_one_finds_the_last_commit(void **state)
{
	uint64_t rnd = 6, low;
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		low = now.size;
		next = now;
		image_change(&next, &rnd, &low);
		killed = commit_and_die(++n, &next, low);
		come(&one, n % 2 ? O_RDWR : O_RDONLY);
		now = image_is_in(&next, box.data) ? next : now;
		assert_loads(&one, &now);
		assert_true(image_is_in(&now, box.data));
		go(&one);
		assert_false(box_has(box.journal));
	} while (killed);
}

/* ---- main ---- */

static int make_dirs(void **state)
{
	(void)state;
	box_make(&box);
	(void)snprintf(run_dir, sizeof(run_dir), "%s/run", box.dir);
	setenv("TXMAP_PATHS", box.data, 1);
	setenv("TXMAP_RUNTIME_DIR", run_dir, 1);
	setenv("TXMAP_LOG", getenv("SHOW") ?: "off", 1);
	return mkdir(run_dir, 0700) || pol_start() != 1;
}

static int remove_dirs(void **state)
{
	(void)state;
	(void)rmdir(run_dir);
	box_remove(&box);
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_is_told_of_the_pages_that_others_committed_and_no_others),
		TEST(a_page_that_is_stored_as_it_was_is_no_news),
		TEST(a_growth_is_told_and_a_cut_with_all_it_took_away),
		TEST(a_cut_too_large_to_be_noted_page_by_page_changes_everything),
		TEST(a_commit_that_fails_is_no_news),
		TEST(a_reader_is_told_too_and_needs_no_journal),
		TEST(a_strangers_change_is_one_of_everything_and_a_members_is_not),
		TEST(a_journal_of_members_is_in_use_and_is_none_for_those_who_share_an_overlay),
		TEST(a_file_in_the_runtime_directory_that_is_none_of_ours_is_refused),
		TEST(whatever_fails_when_it_comes_leaves_nothing),
		TEST(what_the_dead_left_is_swept_and_nothing_of_the_living),
		TEST(a_member_that_is_killed_leaves_a_whole_commit_or_none),
		TEST(what_a_killed_one_did_not_finish_does_not_come_back),
		TEST(a_reader_that_is_left_by_the_killed_leaves_a_whole_file),
		TEST(when_all_are_killed_the_next_one_finds_the_last_commit),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
