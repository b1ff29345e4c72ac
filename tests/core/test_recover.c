/* SPDX-License-Identifier: MIT */
/* What a journal is taken for when it is short, strange, somebody else's, or headless. */
#include "jrig.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define JOURNAL_MAX (1u << 20)

struct rig {
	struct jrig r;
	struct image now;
	uint8_t bytes[JOURNAL_MAX]; /* of the journal, with three commits */
	size_t len;
};

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));
	uint64_t rnd = 9, low;

	jrig_make(&g->r);
	for (int i = 0; i < 3; i++) {
		struct image next = g->now;

		image_change(&next, &rnd, &low);
		next.size += next.size < IMAGE_MAX;
		next.bytes[next.size - 1] = (uint8_t)(i + 5);
		assert_int_equal(jrig_commit(&g->r, &g->now, &next, low, true), 0);
		assert_int_equal(vm_journal_apply(&g->r.j, &g->r.files), 0);
		g->now = next;
	}
	g->len = box_get(g->r.box.journal, g->bytes, sizeof(g->bytes));
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct rig *g = *state;

	jrig_remove(&g->r);
	free(g);
	return 0;
}

static struct vm_scan scan(struct rig *g, const void *bytes, size_t len, const struct vm_journal_id *id)
{
	struct vm_scan s;

	box_put(g->r.box.journal, bytes, len);
	assert_int_equal(vm_journal_scan(g->r.j.fd, id, &s), 0);
	return s;
}

static struct vm_journal_header *slot(struct rig *g, int i)
{
	return (struct vm_journal_header *)(g->bytes + (size_t)i * VM_JOURNAL_SLOT);
}

static void a_whole_journal_has_its_commits(void **state)
{
	struct rig *g = *state;
	struct vm_scan s = scan(g, g->bytes, g->len, &g->r.j.id);

	assert_int_equal(s.state, VM_SCAN_COMMITS);
	assert_int_equal(s.ncommits, 3);
	assert_int_equal(s.first_txid, 1);
	assert_int_equal(s.last_txid, 3);
	assert_int_equal(s.size, g->now.size);
	assert_int_equal(s.dropped, 0);
}

static void a_journal_of_any_length_below_its_headers_holds_nothing(void **state)
{
	struct rig *g = *state;

	for (size_t len = 0; len < VM_JOURNAL_START; len++) {
		struct vm_scan s = scan(g, g->bytes, len, &g->r.j.id);

		assert_int_equal(s.state, VM_SCAN_EMPTY);
	}
}

static void zeros_of_any_length_hold_nothing(void **state)
{
	static const uint8_t zeros[20000];
	struct rig *g = *state;

	for (size_t len = 0; len < sizeof(zeros); len += 499)
		assert_int_equal(scan(g, zeros, len, &g->r.j.id).state, VM_SCAN_EMPTY);
}

static void something_else_is_no_journal(void **state)
{
	struct rig *g = *state;
	char text[12000];

	memset(text, 'x', sizeof(text));
	for (size_t len = 1; len < sizeof(text); len += 997) {
		struct vm_scan s = scan(g, text, len, &g->r.j.id);

		assert_int_equal(s.state, VM_SCAN_FOREIGN);
		assert_int_equal(s.why, VM_SCAN_NO_JOURNAL);
	}
}

static void a_future_version_is_refused(void **state)
{
	struct rig *g = *state;

	for (int i = 0; i < 2; i++) {
		struct vm_scan s;

		slot(g, i)->version = 2;
		slot(g, i)->sum = vm_journal_header_sum(slot(g, i));
		s = scan(g, g->bytes, g->len, &g->r.j.id);
		assert_int_equal(s.state, VM_SCAN_FOREIGN);
		assert_int_equal(s.why, VM_SCAN_VERSION);
		assert_int_equal(s.header.version, 2);
	}
}

static void another_files_journal_is_refused(void **state)
{
	struct rig *g = *state;
	struct vm_journal_id other = g->r.j.id;
	struct vm_scan s;

	other.ino++;
	s = scan(g, g->bytes, g->len, &other);
	assert_int_equal(s.state, VM_SCAN_FOREIGN);
	assert_int_equal(s.why, VM_SCAN_IDENTITY);
	assert_int_equal(s.ncommits, 3);
	other = g->r.j.id;
	other.dev++;
	assert_int_equal(scan(g, g->bytes, g->len, &other).state, VM_SCAN_FOREIGN);
}

static void another_files_journal_without_commits_is_nothing_to_refuse(void **state)
{
	struct rig *g = *state;
	struct vm_journal_id other = g->r.j.id;

	other.ino++;
	memset(g->bytes + VM_JOURNAL_START, 0, g->len - VM_JOURNAL_START);
	assert_int_equal(scan(g, g->bytes, g->len, &other).state, VM_SCAN_EMPTY);
}

static void the_inodes_generation_counts_more_than_the_device(void **state)
{
	struct vm_journal_header h = {.dev = 1, .ino = 2, .igen = 3};
	struct vm_journal_id id = {.dev = 9, .ino = 2, .igen = 3};

	(void)state;
	assert_true(vm_journal_is_of(&h, &id)); /* another device number after a boot */
	id.dev = 1;
	id.igen = 4;
	assert_false(vm_journal_is_of(&h, &id)); /* another file with the same inode number */
	id.igen = 0;
	assert_true(vm_journal_is_of(&h, &id)); /* unknown */
	id.dev = 9;
	assert_false(vm_journal_is_of(&h, &id));
}

static void one_damaged_header_is_survived(void **state)
{
	struct rig *g = *state;

	for (int i = 0; i < 2; i++) {
		struct vm_journal_header good = *slot(g, i);

		memset(slot(g, i), 0xff, VM_JOURNAL_SLOT);
		assert_int_equal(scan(g, g->bytes, g->len, &g->r.j.id).ncommits, 3);
		memset(slot(g, i), 0, VM_JOURNAL_SLOT);
		assert_int_equal(scan(g, g->bytes, g->len, &g->r.j.id).ncommits, 3);
		*slot(g, i) = good;
	}
}

static void frames_without_a_header_are_damage(void **state)
{
	struct rig *g = *state;
	struct vm_scan s;

	slot(g, 0)->salt ^= 1;
	memset(slot(g, 1), 0, VM_JOURNAL_SLOT);
	s = scan(g, g->bytes, g->len, &g->r.j.id);
	assert_int_equal(s.state, VM_SCAN_DAMAGED);
	assert_int_equal(s.why, VM_SCAN_BAD_HEADER);
}

/* The start-over's first slot was lost, the second still is the old one, and the new generation has a commit. */
static void frames_newer_than_the_header_are_damage(void **state)
{
	struct rig *g = *state;
	struct vm_scan s;

	for (int i = 0; i < 2; i++) {
		slot(g, i)->generation--;
		slot(g, i)->salt ^= 1;
		slot(g, i)->sum = vm_journal_header_sum(slot(g, i));
	}
	s = scan(g, g->bytes, g->len, &g->r.j.id);
	assert_int_equal(s.state, VM_SCAN_DAMAGED);
}

static void frames_older_than_the_header_are_nothing(void **state)
{
	struct rig *g = *state;
	struct vm_scan s;

	slot(g, 1)->generation++;
	slot(g, 1)->salt ^= 1;
	slot(g, 1)->sum = vm_journal_header_sum(slot(g, 1));
	s = scan(g, g->bytes, g->len, &g->r.j.id);
	assert_int_equal(s.state, VM_SCAN_EMPTY);
	assert_int_equal(s.dropped, 0);
}

static struct vm_frame *frame_at(struct rig *g, uint64_t off)
{
	return (struct vm_frame *)(g->bytes + off);
}

static void seal(struct vm_frame *fr)
{
	fr->payload_sum = vm_frame_payload_sum(fr + 1, fr->len);
	fr->sum = vm_frame_sum(fr);
}

static void a_run_that_leaves_its_frame_is_damage(void **state)
{
	struct rig *g = *state;
	struct vm_frame *fr = frame_at(g, VM_JOURNAL_START);
	struct vm_run *run = (struct vm_run *)(fr + 1);
	struct vm_scan s;

	run->len = 1u << 30;
	seal(fr);
	s = scan(g, g->bytes, g->len, &g->r.j.id);
	assert_int_equal(s.state, VM_SCAN_DAMAGED);
	assert_int_equal(s.why, VM_SCAN_BAD_RUN);
	run->len = 1;
	run->off = UINT64_MAX;
	seal(fr);
	assert_int_equal(scan(g, g->bytes, g->len, &g->r.j.id).why, VM_SCAN_BAD_RUN);
}

static void a_journal_that_cannot_be_read_is_an_error_and_no_answer(void **state)
{
	struct rig *g = *state;
	struct vm_scan s;
	int fd = open(g->r.box.journal, O_WRONLY | O_CLOEXEC);

	assert_int_equal(vm_journal_scan(fd, NULL, &s), -EBADF);
	close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_whole_journal_has_its_commits),
		T(a_journal_of_any_length_below_its_headers_holds_nothing),
		T(zeros_of_any_length_hold_nothing),
		T(something_else_is_no_journal),
		T(a_future_version_is_refused),
		T(another_files_journal_is_refused),
		T(another_files_journal_without_commits_is_nothing_to_refuse),
		T(the_inodes_generation_counts_more_than_the_device),
		T(one_damaged_header_is_survived),
		T(frames_without_a_header_are_damage),
		T(frames_newer_than_the_header_are_damage),
		T(frames_older_than_the_header_are_nothing),
		T(a_run_that_leaves_its_frame_is_damage),
		T(a_journal_that_cannot_be_read_is_an_error_and_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
