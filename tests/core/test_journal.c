/* SPDX-License-Identifier: MIT */
/* What the journal holds, when the file gets it, and how it starts over. */
#include "faulty_sys.h"
#include "journal_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_reads(struct rig *g)
{
	static uint8_t buf[IMAGE_MAX];

	assert_int_equal(vm_journal_read(&g->r.j, 0, g->r.data_fd, buf, IMAGE_MAX, 0), 0);
	assert_memory_equal(buf, g->now.bytes, IMAGE_MAX);
}

static void a_durable_commit_is_one_sync_and_reaches_the_file_when_applied(void **state)
{
	struct rig *g = *state;
	struct image empty = {0};

	faulty_arm(FAULTY_BIT(fdatasync) | FAULTY_BIT(fsync), 0, 0, 0);
	assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(faulty_disarm(), 1);
	assert_true(image_is_in(&empty, g->r.box.data));
	assert_reads(g);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_reads(g);
}

static void a_lazy_commit_is_not_applied_before_it_is_synced(void **state)
{
	struct rig *g = *state;
	struct image empty = {0};

	assert_int_equal(commit_byte(g, 1, false), 0);
	assert_int_equal(commit_byte(g, 2, false), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(image_is_in(&empty, g->r.box.data));
	assert_reads(g);
	assert_int_equal(vm_journal_sync(&g->r.j), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
}

static void what_is_not_applied_is_read_as_committed(void **state)
{
	struct rig *g = *state;
	uint64_t rnd = 11, low;

	for (int i = 0; i < 300; i++) {
		struct image next = g->now;

		image_change(&next, &rnd, &low);
		assert_int_equal(jrig_commit(&g->r, &g->now, &next, low, i % 5 == 0), 0);
		g->now = next;
		assert_reads(g);
		if (i % 7 == 0)
			assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	}
}

static atomic_bool reader_stop;

/* Every commit makes the whole file one value. */
static void *read_all_the_time(void *arg)
{
	struct rig *g = arg;
	static uint8_t page[IMAGE_MAX];
	uintptr_t nbad = 0;

	while (!reader_stop) {
		if (vm_journal_read(&g->r.j, 0, g->r.data_fd, page, sizeof(page), 0))
			nbad++;
		nbad += memcmp(page, page + 1, sizeof(page) - 1) != 0;
	}
	return (void *)nbad;
}

static void put_in_memory(int fd)
{
	int mem = memfd_create("memory", MFD_CLOEXEC);

	assert_true(mem >= 0);
	assert_int_equal(dup2(mem, fd), fd);
	close(mem);
}

static int no_sync(int fd)
{
	(void)fd;
	return 0;
}

static void a_reader_beside_the_writer_never_sees_half_a_commit(void **state)
{
	struct rig *g = *state;
	/* many commits in little time, for the reader to meet */
	static struct vm_sys quick;
	void *nbad;
	pthread_t t;

	/* in memory, where a write takes long enough to be met half done */
	put_in_memory(g->r.data_fd);
	put_in_memory(g->r.j.fd);
	quick = vm_sys_linux;
	quick.fdatasync = no_sync;
	vm_sys = &quick;
	reader_stop = false;
	assert_int_equal(pthread_create(&t, NULL, read_all_the_time, g), 0);
	for (unsigned i = 1; i < 20000; i++) {
		struct image next = {.size = IMAGE_MAX};

		memset(next.bytes, (int)(i % 250 + 1), IMAGE_MAX);
		assert_int_equal(jrig_commit(&g->r, &g->now, &next, IMAGE_MAX, i % 2 == 0), 0);
		g->now = next;
		if (i % 2 == 0)
			assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
		if (i % 64 == 0)
			assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	}
	reader_stop = true;
	assert_int_equal(pthread_join(t, &nbad), 0);
	vm_sys = &vm_sys_linux;
	assert_null(nbad);
}

/* What was under a cut comes back from base runs, below the others, wherever it is read. */
static void base_runs_lie_below_the_others(void **state)
{
	struct rig *g = *state;
	struct vm_txn txn = {.txid = 2, .size = 8, .size_low = 0};

	for (int i = 0; i < 8; i++)
		assert_int_equal(commit_byte(g, (uint8_t)('a' + i), true), 0);
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add(&g->r.j, 2, "XY", 2, 0), 0);
	assert_int_equal(vm_journal_add(&g->r.j, 1, "bcdef", 5, VM_RUN_BASE), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	memcpy(g->now.bytes, "\0bXYef\0\0", 8);
	assert_reads(g);
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, mark(g).tail, NULL, NULL), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
}

static void a_start_over_leaves_nothing_to_replay(void **state)
{
	struct rig *g = *state;
	uint64_t generation = mark(g).generation;

	assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(scan(g).ncommits, 1);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	assert_true(image_is_in(&g->now, g->r.box.data));
	assert_int_equal(scan(g).state, VM_SCAN_EMPTY);
	assert_true(mark(g).generation > generation);
	assert_int_equal(mark(g).tail, VM_JOURNAL_START);
	assert_int_equal(commit_byte(g, 2, true), 0);
	assert_int_equal(scan(g).ncommits, 1);
	assert_int_equal(scan(g).first_txid, 2);
}

static void a_start_over_cuts_a_journal_that_outgrew_its_limit(void **state)
{
	struct rig *g = *state;
	static uint8_t big[3 << 20];
	struct vm_txn txn = {.txid = 1, .size = sizeof(big)};
	struct stat st;

	g->r.j.limit = 1 << 20;
	vm_journal_begin(&g->r.j);
	memset(big, 1, sizeof(big));
	assert_int_equal(vm_journal_add(&g->r.j, 0, big, sizeof(big), 0), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	assert_int_equal(fstat(g->r.j.fd, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	assert_int_equal(fstat(g->r.data_fd, &st), 0);
	assert_int_equal(st.st_size, sizeof(big));
}

static void frames_overwrite_blocks_that_were_written_ahead(void **state)
{
	struct rig *g = *state;
	struct stat before, after;

	assert_int_equal(fstat(g->r.j.fd, &before), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(commit_byte(g, 1, true), 0);
	assert_int_equal(fstat(g->r.j.fd, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	assert_true(before.st_size >= VM_JOURNAL_START + (256 << 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_durable_commit_is_one_sync_and_reaches_the_file_when_applied),
		TEST(a_lazy_commit_is_not_applied_before_it_is_synced),
		TEST(what_is_not_applied_is_read_as_committed),
		TEST(a_reader_beside_the_writer_never_sees_half_a_commit),
		TEST(base_runs_lie_below_the_others),
		TEST(a_start_over_leaves_nothing_to_replay),
		TEST(a_start_over_cuts_a_journal_that_outgrew_its_limit),
		TEST(frames_overwrite_blocks_that_were_written_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
