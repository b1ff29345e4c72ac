/* SPDX-License-Identifier: MIT */
/*
 * A journal cut at any byte, or with any byte flipped, recovers to one of the committed versions and no
 * other, or is refused with the file untouched.
 */
#include "jrig.h"
#include "recover.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define NVERSIONS   16
#define JOURNAL_MAX (1u << 20)

/* One generation: what the file held at its start, and after each commit. */
struct history {
	struct jrig r;
	struct image version[NVERSIONS + 1];
	uint64_t tail[NVERSIONS + 1];	 /* of the journal, after each */
	uint8_t *journal[NVERSIONS + 1]; /* the journal's bytes, after each */
	size_t len[NVERSIONS + 1];
	char cut_data[300], cut_journal[300];
};

static uint64_t tail_of(struct jrig *r)
{
	struct vm_journal_mark m;

	vm_journal_mark(&r->j, &m);
	return m.tail;
}

static void keep(struct history *h, int v)
{
	static uint8_t buf[JOURNAL_MAX];

	h->tail[v] = tail_of(&h->r);
	h->len[v] = box_get(h->r.box.journal, buf, sizeof(buf));
	while (h->len[v] > h->tail[v] + 1024 && !buf[h->len[v] - 1]) /* what was written ahead */
		h->len[v]--;
	h->journal[v] = malloc(h->len[v]);
	memcpy(h->journal[v], buf, h->len[v]);
}

/* An older generation's frames lie under those of the one that is cut, as they do after any start-over. */
static struct history *make_history(uint64_t rnd)
{
	struct history *h = calloc(1, sizeof(*h));
	struct image old = {0}, next;
	uint64_t low;

	jrig_make(&h->r);
	strcpy(h->cut_data, h->r.box.dir);
	strcat(h->cut_data, "/cut");
	strcpy(h->cut_journal, h->r.box.dir);
	strcat(h->cut_journal, "/.cut.txmap");
	for (int i = 0; i < NVERSIONS / 2; i++) {
		next = old;
		image_change(&next, &rnd, &low);
		assert_int_equal(jrig_commit(&h->r, &old, &next, low, true), 0);
		assert_int_equal(vm_journal_apply(&h->r.j, &h->r.files), 0);
		old = next;
	}
	assert_int_equal(vm_journal_checkpoint(&h->r.j, &h->r.files), 0);
	h->version[0] = old;
	keep(h, 0);
	for (int v = 1; v <= NVERSIONS; v++) {
		h->version[v] = h->version[v - 1];
		image_change(&h->version[v], &rnd, &low);
		/* so that no version is like the one before */
		h->version[v].size += h->version[v].size < IMAGE_MAX - 1;
		h->version[v].bytes[h->version[v].size - 1] = (uint8_t)(v + 3);
		assert_int_equal(jrig_commit(&h->r, &h->version[v - 1], &h->version[v], low, true), 0);
		assert_int_equal(vm_journal_apply(&h->r.j, &h->r.files), 0);
		assert_true(image_is_in(&h->version[v], h->r.box.data));
		keep(h, v);
	}
	return h;
}

static void free_history(struct history *h)
{
	for (int v = 0; v <= NVERSIONS; v++)
		free(h->journal[v]);
	jrig_remove(&h->r);
	free(h);
}

/* Scan and replay; the version that the file is then, -1 when refused; anything else ends the test. */
static int recover(struct history *h, const void *journal, size_t len, int file_is, struct vm_scan *scan)
{
	int jfd, fd, err;

	box_put(h->cut_journal, journal, len);
	image_put(h->cut_data, &h->version[file_is]);
	jfd = open(h->cut_journal, O_RDONLY | O_CLOEXEC);
	fd = open(h->cut_data, O_RDWR | O_CLOEXEC);
	err = vm_journal_scan(jfd, NULL, scan);
	assert_int_equal(err, 0);
	if (scan->state == VM_SCAN_COMMITS)
		assert_int_equal(vm_journal_replay(jfd, &(struct vm_journal_files){.fd = fd}, VM_JOURNAL_START, scan->end, NULL, NULL), 0);
	close(jfd);
	close(fd);
	if (scan->state == VM_SCAN_DAMAGED || scan->state == VM_SCAN_FOREIGN) {
		assert_true(image_is_in(&h->version[file_is], h->cut_data));
		return -1;
	}
	assert_true(scan->ncommits <= NVERSIONS);
	assert_true(
		image_is_in(&h->version[scan->ncommits ? scan->ncommits : (uint64_t)file_is], h->cut_data));
	return (int)scan->ncommits;
}

/* The last version whose frames end before the cut. */
static int whole_before(const struct history *h, uint64_t cut, int last)
{
	int v = 0;

	while (v < last && h->tail[v + 1] <= cut)
		v++;
	return v;
}

static void a_journal_cut_at_every_byte_is_one_of_its_versions(void **state)
{
	unsigned ncuts = 0;

	(void)state;
	for (uint64_t seed = 1; ncuts < 10000; seed++) {
		struct history *h = make_history(seed);
		static uint8_t bytes[JOURNAL_MAX];

		for (int v = 1; v <= NVERSIONS && ncuts < 10000; v++) {
			uint64_t start = h->tail[v - 1], stop = h->tail[v];

			for (uint64_t cut = start; cut <= stop; cut++) {
				/* the file is what it was at the checkpoint, or has some of the commits
				 * applied */
				int file_is = cut % 3 ? 0 : v - 1;
				size_t len = (size_t)cut;
				struct vm_scan scan;
				int got;

				memcpy(bytes, h->journal[v], cut);
				if (cut % 2) { /* the disk kept the length, and what was there before */
					len = h->len[v];
					memset(bytes + cut, 0, len - cut);
					if (h->len[v - 1] > cut)
						memcpy(bytes + cut, h->journal[v - 1] + cut,
						       (h->len[v - 1] < len ? h->len[v - 1] : len) - cut);
				}
				got = recover(h, bytes, len, file_is, &scan);
				ncuts++;
				/* a frame is whole before its padding, and what is missing may have been
				 * zeros */
				assert_true(got == whole_before(h, cut, v) ||
					    (got == v && cut > start + 128));
			}
		}
		free_history(h);
	}
	assert_true(ncuts >= 10000);
}

static void a_flipped_byte_is_found(void **state)
{
	struct history *h = make_history(77);
	unsigned nrefused = 0, ndropped = 0, nharmless = 0;
	uint64_t rnd = 5;

	(void)state;
	for (int i = 0; i < 6000; i++) {
		int last = 1 + (int)(box_random(&rnd) % NVERSIONS);
		uint64_t len = h->len[last], at = box_random(&rnd) % (i % 2 ? h->tail[last] : len);
		struct vm_scan scan;
		uint8_t flip;
		int got, owner; /* the version whose frames at is in */

		if (i % 16 == 0)
			at = box_random(&rnd) % 8192;
		owner = at < VM_JOURNAL_START ? 0 : whole_before(h, at, last) + 1;
		flip = (uint8_t)(1u << box_random(&rnd) % 8);
		h->journal[last][at] ^= flip;
		got = recover(h, h->journal[last], len, 0, &scan);
		h->journal[last][at] ^= flip;
		if (got == last) {
			nharmless++; /* a spare header, padding, or beyond the last commit */
		} else if (got >= 0) {
			/* only the last commit: of one before it the next frame says that it was durable */
			assert_int_equal(owner, last);
			assert_int_equal(got, last - 1);
			assert_true(scan.dropped > 0);
			assert_int_equal(scan.end, h->tail[last - 1]);
			ndropped++;
		} else {
			assert_int_equal(scan.state, VM_SCAN_DAMAGED);
			assert_int_equal(scan.why, VM_SCAN_BAD_FRAME);
			assert_int_equal(scan.bad_seq, owner);
			assert_true(owner >= 1 && owner < last);
			nrefused++;
		}
	}
	assert_true(nrefused > 100 && ndropped > 20 && nharmless > 100);
	free_history(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_journal_cut_at_every_byte_is_one_of_its_versions),
		cmocka_unit_test(a_flipped_byte_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
