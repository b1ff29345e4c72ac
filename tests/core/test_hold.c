/* SPDX-License-Identifier: MIT */
/* A handle on storage that others commit to, too: it shows a snapshot, and takes in what they did with its
 * own commits. */
#include "rig.h"
#include "rig_file.h"

enum { NPAGES = 16, SIZE = NPAGES * 4096 };

/* What others did since the snapshot. */
static struct others {
	struct vm_pgrun changed[4];
	unsigned n;
	bool resized;
	unsigned nholds, nseen;
	int err;
} others;

static int hold(struct vm_bigfile *f, struct vm_news *news)
{
	int err = others.err;

	others.nholds++;
	for (unsigned i = 0; !err && i < others.n; i++)
		err = news->pages(news, others.changed[i].start, others.changed[i].stop);
	news->resized = others.resized;
	news->txid = ((struct rig_file *)f)->txid; /* its first member */
	return err ? err : f->ops->getsize(f, &news->size);
}

static void let_go(struct vm_bigfile *f, int seen)
{
	(void)f;
	assert_int_equal(others.nholds--, 1);
	others.nseen += !!seen;
	if (seen) {
		others.n = 0;
		others.resized = false;
	}
}

static struct vm_backend_ops held_ops;

static void open_held(struct rig *r, uint64_t size)
{
	held_ops = rig_ops;
	held_ops.hold = hold;
	held_ops.let_go = let_go;
	held_ops.changed = NULL;
	others = (struct others){0};
	r->f = rig_file_make(size);
	r->f->file.ops = &held_ops;
	r->h = rig_handle(r->f, r->load);
	others.nseen = 0;
}

/* Somebody else commits. */
static void commit_page(struct rig *r, uint64_t pgoff, uint8_t byte)
{
	char page[4096];

	memset(page, byte, sizeof(page));
	rig_put(r->f, pgoff * 4096, page, sizeof(page));
	others.changed[others.n++] = (struct vm_pgrun){pgoff, pgoff + 1};
	r->f->txid++;
}

static void commit_size(struct rig *r, uint64_t size)
{
	rig_put_size(r->f, size);
	others.resized = true;
	r->f->txid++;
}

static int try_commit(struct rig *r, bool overwrite, struct vm_commit_result *ret)
{
	int err = vm_fileh_commit(r->h, true, overwrite, ret);

	assert_int_equal(others.nholds, 0);
	return err;
}

static void it_is_loaded_when_it_is_opened(struct rig *r)
{
	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	commit_page(r, 3, 'o');
	assert_int_equal(rig_load8(p + 3 * 4096), rig_byte(3));
	assert_int_equal(others.nholds, 0);
}

static void a_commit_takes_in_what_others_committed(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p, 'm');
	commit_page(r, 3, 'o');
	commit_page(r, 5, 'p');
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	assert_int_equal(rig_load8(p + 5 * 4096 + 9), 'p');
	assert_int_equal(rig_load8(p), 'm');
	assert_int_equal(rig_get_byte(r->f, 0), 'm');
	assert_int_equal(rig_get_byte(r->f, 3 * 4096), 'o');
	assert_int_equal(res.npages, 1);
	assert_int_equal(res.txid, 3);
	assert_false(res.overwrote);
	assert_int_equal(others.nseen, 1);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void so_does_a_commit_of_nothing(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	commit_page(r, 3, 'o');
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	assert_int_equal(res.npages, 0);
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 0);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_page_that_both_changed_is_a_conflict_and_both_keep_theirs(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p + 3 * 4096, 'm');
	rig_store8(p + 4 * 4096, 'n');
	commit_page(r, 3, 'o');
	commit_page(r, 7, 'p');
	for (int i = 0; i < 2; i++) {
		assert_int_equal(try_commit(r, false, &res), -EBUSY);
		assert_int_equal(rig_load8(p + 3 * 4096), 'm');
		assert_int_equal(rig_load8(p + 4 * 4096), 'n');
		assert_int_equal(rig_load8(p + 7 * 4096), rig_byte(7));
		assert_int_equal(rig_get_byte(r->f, 3 * 4096), 'o');
		assert_int_equal(rig_get_byte(r->f, 4 * 4096), rig_byte(4));
		assert_int_equal(rig_ndirty(r->h), 2);
		assert_int_equal(others.nseen, 0);
	}
	rig_discard(r->h);
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	assert_int_equal(rig_load8(p + 4 * 4096), rig_byte(4));
	assert_int_equal(rig_load8(p + 7 * 4096), 'p');
	assert_int_equal(others.nseen, 1);
	rig_store8(p + 3 * 4096, 'm');
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(rig_get_byte(r->f, 3 * 4096), 'm');
}

static void overwritten_are_the_pages_that_both_changed_and_no_others(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p + 3 * 4096, 'm');
	commit_page(r, 3, 'o');
	commit_page(r, 7, 'p');
	assert_int_equal(try_commit(r, true, &res), 0);
	assert_true(res.overwrote);
	assert_int_equal(res.noverwritten, 1);
	assert_int_equal(rig_get_byte(r->f, 3 * 4096), 'm');
	assert_int_equal(rig_get_byte(r->f, 3 * 4096 + 1), rig_byte(3)); /* the whole page is ours */
	assert_int_equal(rig_get_byte(r->f, 7 * 4096), 'p');
	assert_int_equal(rig_load8(p + 7 * 4096), 'p');
}

static void a_size_that_others_committed_is_taken_in(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, 2 * NPAGES);

	commit_size(r, SIZE + 2 * 4096);
	commit_page(r, NPAGES + 1, 'o');
	rig_store8(p, 'm');
	assert_int_equal(vm_fileh_size(r->h), SIZE);
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(vm_fileh_size(r->h), SIZE + 2 * 4096);
	assert_int_equal(rig_load8(p + SIZE), 0);
	assert_int_equal(rig_load8(p + SIZE + 4096), 'o');
	commit_size(r, 4 * 4096);
	others.changed[others.n++] = (struct vm_pgrun){4, NPAGES + 2};
	rig_store8(p, 'n');
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(vm_fileh_size(r->h), 4 * 4096);
	assert_int_equal(rig_touch(p + 4 * 4096), SIGBUS);
	assert_int_equal(rig_size(r->f), 4 * 4096);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void two_sizes_are_a_conflict(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	rig_resize(r->h, SIZE + 4096);
	commit_size(r, SIZE + 8192);
	assert_int_equal(try_commit(r, false, &res), -EBUSY);
	assert_int_equal(vm_fileh_size(r->h), SIZE + 4096);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), -EBUSY);
	assert_int_equal(try_commit(r, true, &res), 0);
	assert_true(res.overwrote);
	assert_int_equal(res.noverwritten, 0);
	assert_int_equal(rig_size(r->f), SIZE + 4096);
	rig_resize(r->h, 4096);
	commit_size(r, SIZE);
	rig_discard(r->h);
	assert_int_equal(vm_fileh_size(r->h), SIZE);
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(rig_size(r->f), SIZE);
}

/* What others appended lies where this one has cut: with its size its zeros win. */
static void what_was_cut_and_grew_again_replaces_what_others_made_there(struct rig *r)
{
	struct vm_commit_result res;
	char page[4096];

	open_held(r, SIZE);
	rig_resize(r->h, 4 * 4096);
	rig_resize(r->h, SIZE);
	commit_page(r, 6, 'o');
	commit_size(r, SIZE + 4096);
	assert_int_equal(try_commit(r, true, &res), 0);
	assert_int_equal(rig_size(r->f), SIZE);
	rig_get(r->f, 6 * 4096, page, sizeof(page));
	assert_true(!page[0] && !memcmp(page, page + 1, sizeof(page) - 1));
	assert_int_equal(rig_read(r->h, page, 1, 6 * 4096), 1);
	assert_int_equal(page[0], 0);
}

static void a_store_beyond_the_end_that_others_set_is_a_conflict(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p + 9 * 4096, 'm');
	commit_size(r, 8 * 4096);
	others.changed[others.n++] = (struct vm_pgrun){8, NPAGES};
	assert_int_equal(try_commit(r, false, &res), -EBUSY);
	assert_int_equal(rig_load8(p + 9 * 4096), 'm');
	assert_int_equal(try_commit(r, true, &res), 0);
	assert_int_equal(rig_size(r->f), SIZE);
	assert_int_equal(rig_get_byte(r->f, 9 * 4096), 'm');
}

static void an_invalidation_keeps_a_dirty_page_only_if_nobody_else_changed_it(struct rig *r)
{
	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p + 3 * 4096, 'm');
	commit_page(r, 5, 'o');
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_FAIL, NULL), -EBUSY);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), 0);
	assert_int_equal(rig_load8(p + 3 * 4096), 'm');
	assert_int_equal(rig_load8(p + 5 * 4096), 'o');
	commit_page(r, 3, 'o');
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_KEEP, NULL), -EBUSY);
	assert_int_equal(rig_load8(p + 3 * 4096), 'm');
	/* of a part there is no snapshot: the rest must be free of conflicts */
	assert_int_equal(vm_fileh_invalidate(r->h, 8 * 4096, 4096, VM_DIRTY_DROP, NULL), -EBUSY);
	assert_int_equal(others.nseen, 1);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	commit_page(r, 2, 'q');
	assert_int_equal(vm_fileh_invalidate(r->h, 8 * 4096, 4096, VM_DIRTY_DROP, NULL), 0);
	assert_int_equal(rig_load8(p + 2 * 4096), 'q');
	assert_int_equal(others.nseen, 3);
}

static void a_refresh_takes_in_what_others_committed_if_there_is_any(struct rig *r)
{
	struct vm_dropped d;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 0);
	commit_page(r, 3, 'o');
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 1);
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	assert_int_equal(vm_fileh_refresh(r->h, false, VM_DIRTY_DROP, &d), 0);
}

/* Half of it is new then: nothing is committed on top of that. */
static void what_cannot_be_loaded_leaves_the_handle_torn_until_a_discard(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p, 'm');
	commit_page(r, 3, 'o');
	commit_page(r, 7, 'p');
	rig_fail_page(r->f, 7, EIO);
	assert_int_equal(try_commit(r, false, &res), -EIO);
	rig_fail_none(r->f);
	assert_int_equal(try_commit(r, false, &res), -EIO);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	rig_discard(r->h);
	assert_int_equal(rig_load8(p), rig_byte(0));
	assert_int_equal(rig_load8(p + 3 * 4096), 'o');
	assert_int_equal(rig_load8(p + 7 * 4096), 'p');
	rig_store8(p, 'n');
	assert_int_equal(try_commit(r, false, &res), 0);
}

static void storage_that_cannot_be_held_changes_nothing(struct rig *r)
{
	struct vm_commit_result res;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	rig_store8(p, 'm');
	others.err = -ETIMEDOUT;
	assert_int_equal(vm_fileh_commit(r->h, true, false, &res), -ETIMEDOUT);
	assert_int_equal(vm_fileh_discard(r->h), -ETIMEDOUT);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), -ETIMEDOUT);
	assert_int_equal(rig_load8(p), 'm');
	others = (struct others){0};
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(rig_get_byte(r->f, 0), 'm');
}

/* Threads never see one page of another's commit without the other. */
static void *watch(void *arg)
{
	char *p = arg;
	char a, b;

	do {
		b = rig_load8(p + 7 * 4096);
		a = rig_load8(p + 3 * 4096);
		/* 3 is read later: it is as new, at least */
		if ((unsigned char)a < (unsigned char)b)
			return "saw half of it";
	} while ((unsigned char)a != 100);
	return NULL;
}

static void what_others_committed_is_taken_in_as_one_instant(struct rig *r)
{
	struct vm_commit_result res;
	pthread_t thread;
	void *said;

	open_held(r, SIZE);
	char *p = rig_map(r->h, 0, NPAGES);

	commit_page(r, 3, 1);
	commit_page(r, 7, 1);
	assert_int_equal(try_commit(r, false, &res), 0);
	assert_int_equal(pthread_create(&thread, NULL, watch, p), 0);
	for (uint8_t i = 2; i <= 100; i++) {
		commit_page(r, 7, i); /* in the order that would show it */
		commit_page(r, 3, i);
		assert_int_equal(try_commit(r, false, &res), 0);
	}
	assert_int_equal(pthread_join(thread, &said), 0);
	assert_null(said);
}

static const struct rig_case cases[] = {
	RIG_BOTH(it_is_loaded_when_it_is_opened),
	RIG_EAGER(a_commit_takes_in_what_others_committed),
	RIG_EAGER(so_does_a_commit_of_nothing),
	RIG_EAGER(a_page_that_both_changed_is_a_conflict_and_both_keep_theirs),
	RIG_EAGER(overwritten_are_the_pages_that_both_changed_and_no_others),
	RIG_EAGER(a_size_that_others_committed_is_taken_in),
	RIG_EAGER(two_sizes_are_a_conflict),
	RIG_EAGER(what_was_cut_and_grew_again_replaces_what_others_made_there),
	RIG_EAGER(a_store_beyond_the_end_that_others_set_is_a_conflict),
	RIG_EAGER(an_invalidation_keeps_a_dirty_page_only_if_nobody_else_changed_it),
	RIG_EAGER(a_refresh_takes_in_what_others_committed_if_there_is_any),
	RIG_EAGER(what_cannot_be_loaded_leaves_the_handle_torn_until_a_discard),
	RIG_EAGER(storage_that_cannot_be_held_changes_nothing),
	RIG_EAGER(what_others_committed_is_taken_in_as_one_instant),
};
RIG_MAIN(cases)
