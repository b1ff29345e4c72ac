/* SPDX-License-Identifier: MIT */
/* A member's stub: what a crash leaves of it is nothing or all, and what damages it is seen. */
#include "faulty_sys.h"
#include "jrig.h"
#include "journal_priv.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define STUB_MAX (VM_JOURNAL_START + sizeof(struct vm_frame) + PATH_MAX + VM_JOURNAL_ALIGN)
#define GROUP	 4711u

struct rig {
	struct jrig r;
	uint8_t bytes[STUB_MAX];
	size_t len;
};

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));

	jrig_make(&g->r);
	assert_int_equal(vm_journal_write_stub(g->r.j.fd, &g->r.j.id, GROUP, "../.three.txmap"), 0);
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

static struct vm_scan scan_as(struct rig *g, const struct vm_journal_id *id)
{
	struct vm_scan s;

	assert_int_equal(vm_journal_scan(g->r.j.fd, id, &s), 0);
	return s;
}

static struct vm_scan scan(struct rig *g)
{
	return scan_as(g, &g->r.j.id);
}

static void it_says_where_the_journal_is(void **state)
{
	struct rig *g = *state;
	char path[PATH_MAX];

	assert_int_equal(scan(g).state, VM_SCAN_MEMBER);
	assert_int_equal(scan(g).header.group, GROUP);
	assert_int_equal(scan(g).header.version, VM_JOURNAL_VERSION_GROUP);
	assert_int_equal(vm_journal_read_stub(g->r.j.fd, path), 0);
	assert_string_equal(path, "../.three.txmap");
}

static void a_path_may_be_as_long_as_paths_are(void **state)
{
	struct rig *g = *state;
	char path[PATH_MAX + 1], is[PATH_MAX];

	memset(path, 'x', sizeof(path));
	path[PATH_MAX] = 0;
	assert_int_equal(vm_journal_write_stub(g->r.j.fd, &g->r.j.id, GROUP, path), -ENAMETOOLONG);
	path[PATH_MAX - 1] = 0;
	assert_int_equal(vm_journal_write_stub(g->r.j.fd, &g->r.j.id, GROUP, path), 0);
	assert_int_equal(vm_journal_read_stub(g->r.j.fd, is), 0);
	assert_string_equal(is, path);
}

static void another_files_stub_is_refused(void **state)
{
	struct rig *g = *state;
	struct vm_journal_id other = g->r.j.id;

	other.ino++;
	assert_int_equal(scan_as(g, &other).state, VM_SCAN_FOREIGN);
	assert_int_equal(scan_as(g, &other).why, VM_SCAN_IDENTITY);
	assert_int_equal(scan_as(g, &other).header.kind, VM_JOURNAL_STUB);
	assert_int_equal(scan_as(g, NULL).state, VM_SCAN_MEMBER);
}

/* What was written, in order; a sync is an empty one. */
static struct {
	uint64_t off;
	size_t len;
} done[16];
static unsigned ndone;

static ssize_t note_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	done[ndone].off = (uint64_t)off;
	done[ndone++].len = len;
	return vm_sys_linux.pwrite(fd, buf, len, off);
}

static int note_fdatasync(int fd)
{
	(void)fd;
	done[ndone].off = 0;
	done[ndone++].len = 0;
	return 0;
}

/* Sectors of the writes since the last sync, any of them: a file that begins to be a member is not damaged. */
static void a_crash_leaves_nothing_or_all_of_it(void **state)
{
	struct rig *g = *state;
	uint8_t disk[STUB_MAX] = {0}, state_of[STUB_MAX];
	struct vm_sys noting = vm_sys_linux;
	uint64_t rnd = 4;
	unsigned nempty = 0, nmember = 0;

	noting.pwrite = note_pwrite;
	noting.fdatasync = note_fdatasync;
	faulty_use(&noting);
	ndone = 0;
	assert_int_equal(vm_journal_write_stub(g->r.j.fd, &g->r.j.id, GROUP, "../.three.txmap"), 0);
	faulty_use(&vm_sys_linux);
	g->len = box_get(g->r.box.journal, g->bytes, sizeof(g->bytes));
	assert_int_equal(done[ndone - 1].len, 0);
	for (unsigned from = 0, to = 0; to < ndone; to++) {
		if (done[to].len)
			continue;
		for (int i = 0; i < 300; i++) {
			struct vm_scan s;

			memcpy(state_of, disk, sizeof(disk));
			for (unsigned w = from; w < to; w++)
				for (uint64_t at = done[w].off; at < done[w].off + done[w].len; at += 512)
					if (i < 2 ? i : (int)(box_random(&rnd) % 2))
						memcpy(state_of + at, g->bytes + at, 512);
			box_put(g->r.box.journal, state_of,
				i % 3 || from ? g->len : box_random(&rnd) % g->len);
			s = scan(g);
			assert_true(s.state == VM_SCAN_EMPTY || s.state == VM_SCAN_MEMBER);
			nempty += s.state == VM_SCAN_EMPTY;
			nmember += s.state == VM_SCAN_MEMBER;
		}
		for (; from < to; from++)
			memcpy(disk + done[from].off, g->bytes + done[from].off, done[from].len);
		from++;
	}
	assert_true(nempty > 100 && nmember > 100);
	box_put(g->r.box.journal, disk, g->len);
	assert_int_equal(scan(g).state, VM_SCAN_MEMBER);
}

/* Its group may have commits: no damage makes it look like nothing. */
static void a_flipped_byte_is_survived_or_damage(void **state)
{
	struct rig *g = *state;
	size_t end = VM_JOURNAL_START + sizeof(struct vm_frame) + sizeof("../.three.txmap");

	for (size_t at = 0; at < end; at++) {
		uint8_t flipped = g->bytes[at] ^ 16;
		enum vm_scan_state want = at < VM_JOURNAL_START ? VM_SCAN_MEMBER : VM_SCAN_DAMAGED;

		assert_int_equal(pwrite(g->r.j.fd, &flipped, 1, (off_t)at), 1);
		assert_int_equal(scan(g).state, want);
		assert_int_equal(pwrite(g->r.j.fd, &g->bytes[at], 1, (off_t)at), 1);
	}
}

static void without_whole_headers_it_is_damaged(void **state)
{
	struct rig *g = *state;

	g->bytes[100] ^= 1;
	g->bytes[VM_JOURNAL_SLOT + 100] ^= 1;
	box_put(g->r.box.journal, g->bytes, g->len);
	assert_int_equal(scan(g).state, VM_SCAN_DAMAGED);
	assert_int_equal(scan(g).why, VM_SCAN_BAD_HEADER);
}

static void cut_short_it_is_damaged(void **state)
{
	struct rig *g = *state;

	for (size_t len = VM_JOURNAL_SLOT; len < VM_JOURNAL_START + sizeof(struct vm_frame) + 10; len += 61) {
		box_put(g->r.box.journal, g->bytes, len);
		assert_int_equal(scan(g).state, VM_SCAN_DAMAGED);
		assert_int_equal(scan(g).why, VM_SCAN_BAD_STUB);
	}
}

static void the_record_of_another_group_is_damage(void **state)
{
	struct rig *g = *state;
	struct vm_frame *fr = (struct vm_frame *)(g->bytes + VM_JOURNAL_START);

	fr->salt++;
	fr->sum = vm_frame_sum(fr);
	box_put(g->r.box.journal, g->bytes, g->len);
	assert_int_equal(scan(g).why, VM_SCAN_BAD_STUB);
}

static void a_frame_in_its_place_is_damage(void **state)
{
	struct rig *g = *state;
	struct vm_frame *fr = (struct vm_frame *)(g->bytes + VM_JOURNAL_START);

	fr->magic = VM_JOURNAL_FRAME_MAGIC;
	fr->sum = vm_frame_sum(fr);
	box_put(g->r.box.journal, g->bytes, g->len);
	assert_int_equal(scan(g).why, VM_SCAN_BAD_STUB);
}

static void a_stub_that_could_not_be_written_says_so(void **state)
{
	struct rig *g = *state;

	for (unsigned n = 1;; n++) {
		int err;

		faulty_arm(FAULTY_ALL, n, EIO, 0);
		err = vm_journal_write_stub(g->r.j.fd, &g->r.j.id, GROUP, "../.three.txmap");
		faulty_disarm();
		if (!err) {
			assert_true(n > 5);
			break;
		}
		assert_int_equal(err, -EIO);
		assert_true(scan(g).state == VM_SCAN_EMPTY || scan(g).state == VM_SCAN_MEMBER);
	}
	assert_int_equal(scan(g).state, VM_SCAN_MEMBER);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(it_says_where_the_journal_is),
		T(a_path_may_be_as_long_as_paths_are),
		T(another_files_stub_is_refused),
		T(a_crash_leaves_nothing_or_all_of_it),
		T(a_flipped_byte_is_survived_or_damage),
		T(without_whole_headers_it_is_damaged),
		T(cut_short_it_is_damaged),
		T(the_record_of_another_group_is_damage),
		T(a_frame_in_its_place_is_damage),
		T(a_stub_that_could_not_be_written_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
