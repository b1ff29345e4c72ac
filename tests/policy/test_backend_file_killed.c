/* SPDX-License-Identifier: MIT */
/* One of those with a snapshot is killed at each of its calls. */
#define _GNU_SOURCE 1
#include "snapshot_rig.h"

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

/* A random change; the other member is killed at the nth call of committing it. Was it? */
static bool die_with_change(unsigned nth, struct image *ret_next, uint64_t *rnd)
{
	uint64_t low = now.size;

	*ret_next = now;
	image_change(ret_next, rnd, &low);
	return commit_and_die(nth, ret_next, low);
}

/* What the other one finds is the state before or the one after, and it was told of what differs. */
static void a_member_that_is_killed_leaves_a_whole_commit_or_none(void **state)
{
	uint64_t rnd = 5;
	static uint8_t buf[IMAGE_MAX];
	unsigned n = 0, nbefore = 0, nafter = 0;
	struct image next;
	bool killed;

	(void)state;
	come(&one, O_RDWR);
	do {
		killed = die_with_change(++n, &next, &rnd);
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
	uint64_t rnd = 8;
	static uint8_t buf[IMAGE_MAX];
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		come(&one, O_RDWR);
		killed = die_with_change(++n, &next, &rnd);
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
	uint64_t rnd = 7;
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		come(&one, O_RDONLY);
		killed = die_with_change(++n, &next, &rnd);
		go(&one);
		assert_false(box_has(box.journal));
		assert_true(image_is_in(&next, box.data) || image_is_in(&now, box.data));
		now = image_is_in(&next, box.data) ? next : now;
	} while (killed);
}

static void when_all_are_killed_the_next_one_finds_the_last_commit(void **state)
{
	uint64_t rnd = 6;
	struct image next;
	unsigned n = 0;
	bool killed;

	(void)state;
	do {
		killed = die_with_change(++n, &next, &rnd);
		come(&one, n % 2 ? O_RDWR : O_RDONLY);
		now = image_is_in(&next, box.data) ? next : now;
		assert_loads(&one, &now);
		assert_true(image_is_in(&now, box.data));
		go(&one);
		assert_false(box_has(box.journal));
	} while (killed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_member_that_is_killed_leaves_a_whole_commit_or_none),
		TEST(what_a_killed_one_did_not_finish_does_not_come_back),
		TEST(a_reader_that_is_left_by_the_killed_leaves_a_whole_file),
		TEST(when_all_are_killed_the_next_one_finds_the_last_commit),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
