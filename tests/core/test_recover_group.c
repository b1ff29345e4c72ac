/* SPDX-License-Identifier: MIT */
/* What the journal of a group is taken for, and that its replay can be interrupted anywhere. */
#include "group_rig.h"
#include "journal_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define JOURNAL_MAX (1u << 20)
#define NVERSIONS   12

static uint32_t flags_of(uint32_t file, uint32_t kind)
{
	return file << VM_RUN_FILE_SHIFT | kind;
}

/* ---- what makes sense ---- */

/* One run that a transaction of a test has. */
struct piece {
	uint32_t file, kind; /* RUN_COMMIT: the transaction ends here, and another one begins */
	uint64_t off;
	const void *bytes;
	size_t len;
};
#define RUN_COMMIT 0xffffffffu

static const uint64_t cut_0 = 0, cut_9 = 9;
static const struct {
	struct vm_name_record r;
	char path[4];
} name_a = {.path = "a"}, name_inner_0 = {.path = "a\0b"}, name_open = {.path = "abcd"};

#define BYTES(file)                                                                                          \
	{                                                                                                    \
		(file), 0, 0, "xyz", 3                                                                       \
	}
#define BASE(file)                                                                                           \
	{                                                                                                    \
		(file), VM_RUN_BASE, 0, "xyz", 3                                                             \
	}
#define SIZE(file)                                                                                           \
	{                                                                                                    \
		(file), VM_RUN_SIZE, 5, &cut_0, 8                                                            \
	}
#define NAME(file)                                                                                           \
	{                                                                                                    \
		(file), VM_RUN_NAME, 0, &name_a, sizeof(name_a.r) + 2                                        \
	}
#define BAD_NAME(rec, len)                                                                                   \
	{                                                                                                    \
		1, VM_RUN_NAME, 0, &(rec), sizeof((rec).r) + (len)                                           \
	}
#define COMMIT                                                                                               \
	{                                                                                                    \
		0, RUN_COMMIT, 0, NULL, 0                                                                    \
	}

static struct vm_scan scan_of(struct rig *g, const struct piece *p, size_t n)
{
	struct vm_txn txn = {.txid = 1};

	vm_journal_set_mark(&g->r.j, &(struct vm_journal_mark){.flags = VM_MARK_START});
	assert_int_equal(vm_journal_start_over(&g->r.j, 0), 0);
	vm_journal_begin(&g->r.j);
	for (size_t i = 0; i < n; i++) {
		if (p[i].kind == RUN_COMMIT) {
			assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
			vm_journal_begin(&g->r.j);
			continue;
		}
		assert_int_equal(vm_journal_add_run(&g->r.j, p[i].off, p[i].bytes, p[i].len,
						    flags_of(p[i].file, p[i].kind)),
				 0);
	}
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	return scan(g);
}

#define SCAN(...)                                                                                            \
	scan_of(g, (const struct piece[]){__VA_ARGS__},                                                      \
		sizeof((const struct piece[]){__VA_ARGS__}) / sizeof(struct piece))
#define MAKES_SENSE(...) assert_int_equal(SCAN(__VA_ARGS__).state, VM_SCAN_COMMITS)
#define IS_DAMAGE(...)                                                                                       \
	do {                                                                                                 \
		struct vm_scan s_ = SCAN(__VA_ARGS__);                                                       \
		assert_int_equal(s_.state, VM_SCAN_DAMAGED);                                                 \
		assert_int_equal(s_.why, VM_SCAN_BAD_RUN);                                                   \
	} while (0)

static void name_and_size_may_stand_anywhere_in_the_commit(void **state)
{
	struct rig *g = *state;

	MAKES_SENSE(NAME(1), SIZE(1), BYTES(1));
	MAKES_SENSE(BYTES(1), SIZE(1), NAME(1));
	MAKES_SENSE(BASE(1), BYTES(2), SIZE(2), NAME(1), NAME(2), SIZE(1));
	MAKES_SENSE(NAME(1), COMMIT, BYTES(1), SIZE(1));
	MAKES_SENSE(NAME(1), NAME(1), BYTES(1), SIZE(1), COMMIT, NAME(1), COMMIT, SIZE(1));
	MAKES_SENSE(NAME(VM_JOURNAL_NFILES - 1), SIZE(VM_JOURNAL_NFILES - 1));
}

static void a_file_without_a_size_is_damage(void **state)
{
	struct rig *g = *state;

	IS_DAMAGE(NAME(1), BYTES(1));
	IS_DAMAGE(NAME(1), BASE(1));
	IS_DAMAGE(NAME(1), NAME(2), BYTES(1), SIZE(2));
	IS_DAMAGE(NAME(1), SIZE(1), COMMIT, BYTES(1));
	IS_DAMAGE(NAME(1), BYTES(1), COMMIT, SIZE(1));
}

static void a_file_without_a_name_is_damage(void **state)
{
	struct rig *g = *state;

	IS_DAMAGE(BYTES(1), SIZE(1));
	IS_DAMAGE(BYTES(1), SIZE(1), COMMIT, NAME(1));
	IS_DAMAGE(NAME(2), BYTES(1), SIZE(1));
	/* also a size alone would change it */
	IS_DAMAGE(SIZE(1));
}

static void a_file_number_that_cannot_be_is_damage(void **state)
{
	struct rig *g = *state;

	IS_DAMAGE(NAME(0), BYTES(0), SIZE(0));
	IS_DAMAGE(NAME(VM_JOURNAL_NFILES), SIZE(VM_JOURNAL_NFILES));
}

static void a_run_that_says_nothing_clear_is_damage(void **state)
{
	struct rig *g = *state;

	IS_DAMAGE(NAME(1), SIZE(1), SIZE(1));
	IS_DAMAGE(NAME(1), NAME(2), SIZE(1), SIZE(1), BYTES(2));
	IS_DAMAGE(NAME(1), {1, VM_RUN_SIZE, 5, &cut_9, 8});
	IS_DAMAGE(NAME(1), {1, VM_RUN_SIZE, 5, &cut_0, 4});
	IS_DAMAGE(NAME(1), SIZE(1), {1, VM_RUN_BASE | VM_RUN_SIZE, 5, &cut_0, 8});
	IS_DAMAGE(NAME(1), SIZE(1), {1, 8, 0, "xyz", 3});
	IS_DAMAGE(BAD_NAME(name_a, 1), SIZE(1));
	IS_DAMAGE(BAD_NAME(name_a, 0), SIZE(1));
	IS_DAMAGE(BAD_NAME(name_open, 4), SIZE(1));
	IS_DAMAGE(BAD_NAME(name_inner_0, 4), SIZE(1));
	IS_DAMAGE({1, VM_RUN_NAME, 0, "xyz", 3}, SIZE(1));
}

static void runs_of_a_group_in_the_journal_of_one_file_are_damage(void **state)
{
	struct rig *g = *state;

	g->r.j.group = 0;
	MAKES_SENSE({0, 0, 0, "xyz", 3}, {0, VM_RUN_BASE, 0, "xyz", 3});
	IS_DAMAGE({1, 0, 0, "xyz", 3});
	IS_DAMAGE({0, VM_RUN_SIZE, 5, &cut_0, 8});
	IS_DAMAGE({0, VM_RUN_NAME, 0, &name_a, sizeof(name_a.r) + 2});
}

/* ---- what it says of itself ---- */

static void who_knows_only_single_files_refuses_it(void **state)
{
	struct rig *g = *state;
	struct vm_journal_header h;

	assert_int_equal(pread(g->r.j.fd, &h, sizeof(h), VM_JOURNAL_SLOT), sizeof(h));
	assert_int_equal(h.version, 2);
	assert_int_equal(h.kind, VM_JOURNAL_GROUP);
	assert_int_equal(h.group, g->r.j.group);
	/* and this one what it does not know */
	for (uint32_t i = 0; i < 2; i++) {
		h.kind = i ? VM_JOURNAL_ONE : 3;
		h.sum = vm_journal_header_sum(&h);
		assert_int_equal(vm_journal_write_slot(g->r.j.fd, 1, &h), 0);
		assert_int_equal(scan(g).why, VM_SCAN_VERSION);
	}
}

static void a_groups_journal_is_no_single_files(void **state)
{
	struct rig *g = *state;
	struct vm_journal_id id = {0};
	struct vm_scan s;

	commit_change(g, true);
	assert_int_equal(vm_journal_scan(g->r.j.fd, &id, &s), 0);
	assert_int_equal(s.state, VM_SCAN_FOREIGN);
	assert_int_equal(s.why, VM_SCAN_IDENTITY);
	assert_int_equal(scan(g).state, VM_SCAN_COMMITS);
	assert_int_equal(scan(g).header.kind, VM_JOURNAL_GROUP);
	assert_int_equal(scan(g).header.group, g->r.j.group);
}

struct noted {
	char path[GRIG_N + 1][300];
	uint64_t size[GRIG_N + 1];
	bool is_unlinked[GRIG_N + 1];
};

static int note(const struct vm_journal_note *n, void *arg)
{
	struct noted *all = arg;

	assert_true(n->file >= 1 && n->file <= GRIG_N);
	if (n->name) {
		strcpy(all->path[n->file], n->name->path);
		all->is_unlinked[n->file] = n->name->is_unlinked;
	} else {
		all->size[n->file] = n->size;
	}
	return n->file == 3 && n->name && n->name->is_unlinked ? 77 : 0;
}

static void it_tells_the_last_names_and_sizes_of_its_files(void **state)
{
	struct rig *g = *state;
	struct vm_txn txn = {.txid = 99};
	struct vm_journal_name name = {.path = "elsewhere", .is_unlinked = true};
	struct noted all;

	for (int i = 0; i < 20; i++)
		commit_change(g, true);
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add_name(&g->r.j, 2, &name), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_int_equal(vm_journal_notes(g->r.j.fd, VM_JOURNAL_START, scan(g).end, note, &all), 0);
	assert_string_equal(all.path[1], "f0");
	assert_string_equal(all.path[2], "elsewhere");
	assert_string_equal(all.path[3], "f2");
	assert_true(!all.is_unlinked[1] && all.is_unlinked[2] && !all.is_unlinked[3]);
	for (unsigned i = 0; i < GRIG_N; i++)
		assert_int_equal(all.size[i + 1], g->now.f[i].size);
	vm_journal_begin(&g->r.j);
	assert_int_equal(vm_journal_add_name(&g->r.j, 3, &name), 0);
	assert_int_equal(vm_journal_commit(&g->r.j, &txn, true), 0);
	assert_int_equal(vm_journal_notes(g->r.j.fd, VM_JOURNAL_START, scan(g).end, note, &all), 77);
}

/* ---- replay ---- */

static int replay(struct rig *g)
{
	return vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, scan(g).end, NULL, NULL);
}

/* Also when nobody asked before whether it makes sense. */
static void the_size_of_another_commit_is_not_taken(void **state)
{
	struct rig *g = *state;

	IS_DAMAGE(NAME(1), SIZE(1), BYTES(1), COMMIT, BYTES(1));
	assert_int_equal(
		vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, mark(g).tail, NULL, NULL),
		-EUCLEAN);
}

static void a_replay_interrupted_at_any_write_can_be_repeated(void **state)
{
	static const uint64_t writes = FAULTY_BIT(pwrite) | FAULTY_BIT(ftruncate);
	struct rig *g = *state;
	struct group_image start;
	uint64_t end;
	unsigned n;

	commit_change(g, true);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	start = g->now;
	for (int i = 0; i < NVERSIONS; i++)
		commit_change(g, true);
	end = scan(g).end;
	for (n = 1;; n++) {
		unsigned ncalls;
		int err;

		group_put(&g->r, &start);
		faulty_arm(writes, n, EIO, n % 2 ? FAULTY_TORN : FAULTY_TORN | FAULTY_FOR_EVER);
		err = vm_journal_replay(g->r.j.fd, &g->r.files, VM_JOURNAL_START, end, NULL, NULL);
		ncalls = faulty_disarm();
		if (!err)
			break;
		assert_true(ncalls >= n);
		assert_int_equal(replay(g), 0);
		assert_true(group_is_in(&g->now, &g->r));
	}
	assert_true(n > 3 * NVERSIONS);
	assert_int_equal(replay(g), 0);
	assert_true(group_is_in(&g->now, &g->r));
}

/* Cut at every sector, and in it; the disk kept the length or not. All files are one version, the same. */
static void a_journal_cut_anywhere_is_one_version_of_all_files(void **state)
{
	struct rig *g = *state;
	static struct group_image version[NVERSIONS + 1];
	static uint8_t bytes[JOURNAL_MAX], cut_bytes[JOURNAL_MAX];
	uint64_t tail[NVERSIONS + 1], cut;
	unsigned nseen[NVERSIONS + 1] = {0};
	size_t len;

	for (int i = 0; i < 5; i++) /* an older generation lies below */
		commit_change(g, true);
	assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
	version[0] = g->now;
	tail[0] = VM_JOURNAL_START;
	for (int v = 1; v <= NVERSIONS; v++) {
		commit_change(g, true);
		version[v] = g->now;
		tail[v] = mark(g).tail;
	}
	len = box_get(g->r.box.journal, bytes, sizeof(bytes));
	for (cut = VM_JOURNAL_START; cut <= tail[NVERSIONS];
	     cut += cut % 512 ? 512 - cut % 512 : 37 + cut % 101) {
		unsigned v = 0;
		struct vm_scan s;

		while (v < NVERSIONS && tail[v + 1] <= cut)
			v++;
		memcpy(cut_bytes, bytes, len);
		memset(cut_bytes + cut, 0, len - cut);
		box_put(g->r.box.journal, cut_bytes, cut % 3 ? len : cut);
		s = scan(g);
		assert_true(s.state == VM_SCAN_COMMITS || s.state == VM_SCAN_EMPTY);
		/* what is missing may have been zeros */
		assert_true(s.ncommits == v || (s.ncommits == v + 1 && cut > tail[v] + 128));
		group_put(&g->r, &version[cut % 2 ? 0 : v]);
		assert_int_equal(replay(g), 0);
		assert_true(s.ncommits ? group_is_in(&version[s.ncommits], &g->r)
				       : group_is_in(&version[0], &g->r));
		nseen[s.ncommits]++;
	}
	for (unsigned v = 0; v < NVERSIONS; v++)
		assert_true(nseen[v] > 0);
}

static void a_flipped_byte_never_gives_a_mixture(void **state)
{
	struct rig *g = *state;
	static struct group_image version[NVERSIONS + 1];
	static uint8_t bytes[JOURNAL_MAX];
	unsigned nrefused = 0;
	uint64_t rnd = 8, tail;

	version[0] = g->now;
	for (int v = 1; v <= NVERSIONS; v++) {
		commit_change(g, true);
		version[v] = g->now;
	}
	tail = mark(g).tail;
	(void)box_get(g->r.box.journal, bytes, sizeof(bytes));
	for (int i = 0; i < 1500; i++) {
		uint64_t at = VM_JOURNAL_START + box_random(&rnd) % (tail - VM_JOURNAL_START);
		uint8_t flipped = bytes[at] ^ (uint8_t)(1u << box_random(&rnd) % 8);
		struct vm_scan s;

		assert_int_equal(pwrite(g->r.j.fd, &flipped, 1, (off_t)at), 1);
		s = scan(g);
		group_put(&g->r, &version[0]);
		if (s.state == VM_SCAN_DAMAGED) {
			nrefused++;
		} else {
			assert_true(s.ncommits + 1 >= NVERSIONS);
			assert_int_equal(replay(g), 0);
			assert_true(group_is_in(&version[s.ncommits], &g->r));
		}
		assert_int_equal(pwrite(g->r.j.fd, &bytes[at], 1, (off_t)at), 1);
	}
	assert_true(nrefused > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(name_and_size_may_stand_anywhere_in_the_commit),
		TEST(a_file_without_a_size_is_damage),
		TEST(a_file_without_a_name_is_damage),
		TEST(a_file_number_that_cannot_be_is_damage),
		TEST(a_run_that_says_nothing_clear_is_damage),
		TEST(runs_of_a_group_in_the_journal_of_one_file_are_damage),
		TEST(who_knows_only_single_files_refuses_it),
		TEST(a_groups_journal_is_no_single_files),
		TEST(it_tells_the_last_names_and_sizes_of_its_files),
		TEST(the_size_of_another_commit_is_not_taken),
		TEST(a_replay_interrupted_at_any_write_can_be_repeated),
		TEST(a_journal_cut_anywhere_is_one_version_of_all_files),
		TEST(a_flipped_byte_never_gives_a_mixture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
