/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "file_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

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

/* ---- the file as others left it ---- */

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
		T(holes_are_skipped),
		T(a_removed_journal_is_replaced),
		T(the_journal_has_the_files_mode_and_goes_at_close),
		T(a_second_process_cannot_have_the_journal),
		T(a_journal_that_is_a_link_is_not_followed),
		T(a_missing_journal_directory_is_an_error),
		T(journals_of_equal_names_do_not_meet_in_a_directory),
		T(a_name_of_full_length_has_a_journal),
		T(an_idle_file_has_no_journal_until_the_next_commit),
		T(an_idle_child_leaves_the_journal_to_its_parent),
		T(parent_and_child_commit_in_turns_through_one_journal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
