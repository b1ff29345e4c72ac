/* SPDX-License-Identifier: MIT */
/* What those with a snapshot are told of each other's commits, and of a stranger's. */
#define _GNU_SOURCE 1
#include "snapshot_rig.h"

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
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
