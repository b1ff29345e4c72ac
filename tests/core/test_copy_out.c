/* SPDX-License-Identifier: MIT */
/* Copies of a handle's content: what is in them, and the handle as it was before. */
#include "copy_rig.h"

/* ---- what it is ---- */

static void check_copy(struct rig *r, bool takes_base)
{
	struct copy c;
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	rig_store8(m + VM_PAGE, 'a');
	rig_commit(r->h);
	rig_store8(m + 3 * VM_PAGE, 'b');
	assert_int_equal(rig_write(r->h, "ccc", 3, 64 * VM_PAGE - 2), 3);
	copy_init(&c, r, 80, takes_base);
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.vm.size, 64 * VM_PAGE + 1);
	assert_int_equal(c.vm.txid, 1);
	assert_int_equal(c.mem[VM_PAGE], 'a');
	assert_int_equal(c.mem[3 * VM_PAGE], 'b');
	assert_memory_equal(c.mem + 64 * VM_PAGE - 3,
			    "\x40"
			    "ccc",
			    4);
	assert_int_equal((uint8_t)c.mem[40 * VM_PAGE + 7], rig_byte(40));
	/* nothing was committed, nothing dropped */
	assert_int_equal(rig_ncalls(r->f, RIG_BEGIN), 1);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), rig_byte(3));
	assert_int_equal(rig_size(r->f), 64 * VM_PAGE);
	assert_int_equal(rig_ndirty(r->h), 3);
	assert_int_equal(rig_commit(r->h), 3);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'b');
	if (!rig_is_lazy(r) || rig_is_uffd()) /* else some pages are not there yet */
		crew_check_protections(m, 64);
	copy_free(&c);
}

static void a_copy_has_what_was_stored_over_what_is_committed_and_commits_nothing(struct rig *r)
{
	check_copy(r, true);
}

static void what_cannot_be_copied_at_once_comes_page_by_page(struct rig *r)
{
	check_copy(r, false);
}

static void what_a_shrink_took_away_is_not_in_the_copy(struct rig *r)
{
	for (int takes_base = 0; takes_base < 2; takes_base++) {
		struct copy c;

		rig_open(r, 8 * VM_PAGE);
		rig_resize(r->h, 3 * VM_PAGE + 5);
		rig_resize(r->h, 6 * VM_PAGE);
		copy_init(&c, r, 8, takes_base);
		assert_int_equal(copy_out(&c, false), 0);
		assert_int_equal(c.vm.size, 6 * VM_PAGE);
		assert_int_equal(c.base_len, 3 * VM_PAGE + 5);
		assert_int_equal((uint8_t)c.mem[3 * VM_PAGE + 4], rig_byte(3));
		for (size_t i = 3 * VM_PAGE + 5; i < 6 * VM_PAGE; i++)
			assert_int_equal(c.mem[i], 0);
		copy_free(&c);
		assert_int_equal(rig_close(r->h), 0);
		r->h = NULL;
	}
}

/* ---- commits meanwhile ---- */

static void commit_in_base(struct copy *c)
{
	c->in_base = NULL;
	assert_int_equal(rig_write(c->r->h, "x", 1, 5 * VM_PAGE), 1);
	rig_commit(c->r->h);
}

static void a_base_that_a_commit_overtook_is_made_again(struct rig *r)
{
	struct copy c;

	rig_open(r, 8 * VM_PAGE);
	copy_init(&c, r, 8, true);
	c.in_base = commit_in_base;
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.nbase, 2);
	assert_int_equal(c.mem[5 * VM_PAGE], 'x');
	assert_int_equal(c.vm.txid, 1);
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.nbase, 3); /* nobody committed: once */
	copy_free(&c);
}

static void shrink_in_base(struct copy *c)
{
	c->in_base = NULL;
	rig_resize(c->r->h, VM_PAGE);
}

static void a_base_that_a_shrink_overtook_is_made_again(struct rig *r)
{
	struct copy c;

	rig_open(r, 8 * VM_PAGE);
	copy_init(&c, r, 8, true);
	c.in_base = shrink_in_base;
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.vm.size, VM_PAGE);
	assert_int_equal(c.base_len, VM_PAGE);
	copy_free(&c);
}

static void invalidate_in_base(struct copy *c)
{
	c->in_base = NULL;
	rig_put_byte(c->r->f, 2 * VM_PAGE, 'o');
	rig_invalidate(c->r->h, 0, 8);
}

static void a_base_that_an_invalidation_overtook_is_made_again(struct rig *r)
{
	struct copy c;

	rig_open(r, 8 * VM_PAGE);
	copy_init(&c, r, 8, true);
	c.in_base = invalidate_in_base;
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.mem[2 * VM_PAGE], 'o');
	copy_free(&c);
}

static void a_conflict_is_that_of_a_commit(struct rig *r)
{
	struct copy c;
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, 'a');
	rig_put_byte(r->f, VM_PAGE, 'o');
	copy_init(&c, r, 4, true);
	assert_int_equal(copy_out(&c, false), -EBUSY);
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(copy_out(&c, true), 0);
	assert_int_equal(c.mem[0], 'a');
	assert_int_equal(c.mem[VM_PAGE], 'o');
	copy_free(&c);
}

/* ---- errors ---- */

static void a_copy_that_fails_leaves_everything_as_it_was(struct rig *r)
{
	for (unsigned how = 0; how < 5; how++) {
		struct copy c;
		char *m;

		rig_open(r, 8 * VM_PAGE);
		m = rig_map(r->h, 0, 8);
		rig_store8(m, 'a');
		rig_store8(m + 6 * VM_PAGE, 'b');
		copy_init(&c, r, 8, how != 3);
		if (how == 0)
			rig_fail(r->f, RIG_CHECKPOINT, 1, EIO);
		else if (how == 1)
			c.fail_base = 1;
		else if (how == 4)
			c.in_base = commit_in_base, c.fail_base = 2;
		else
			c.fail_store = 1;
		assert_int_equal(copy_out(&c, false), how == 0		     ? -EIO
						      : how == 1 || how == 4 ? -EDQUOT
									     : -ENOSPC);
		assert_int_equal(rig_ndirty(r->h), how == 4 ? 0 : 2);
		rig_store8(m + 2 * VM_PAGE, 'c'); /* nobody is kept out */
		assert_int_equal(rig_write(r->h, "d", 1, 3 * VM_PAGE), 1);
		assert_int_equal(rig_commit(r->h), how == 4 ? 2 : 4);
		assert_int_equal(rig_get_byte(r->f, 6 * VM_PAGE), 'b');
		crew_check_protections(m, 8);
		rig_unmap(m, 8);
		copy_free(&c);
		assert_int_equal(rig_close(r->h), 0);
		r->h = NULL;
	}
}

static void what_another_process_stored_is_in_the_copy(struct rig *r)
{
	struct copy c;
	pid_t pid;
	char *m;
	int p[2], q[2];
	char go;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map(r->h, 0, 4);
	rig_store8(m, 'p');
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(q), 0);
	pid = rig_fork();
	if (!pid) {
		rig_store8(m + VM_PAGE, 'c');
		_exit(write(p[1], "g", 1) != 1 || close(q[1]) || read(q[0], &go, 1) != 0);
	}
	assert_int_equal(close(q[0]), 0);
	assert_int_equal(read(p[0], &go, 1), 1);
	copy_init(&c, r, 4, true);
	assert_int_equal(copy_out(&c, false), 0);
	assert_int_equal(c.mem[0], 'p');
	assert_int_equal(c.mem[VM_PAGE], 'c');
	assert_int_equal(close(q[1]), 0);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(rig_ndirty(r->h), 2);
	copy_free(&c);
	assert_int_equal(close(p[0]) | close(p[1]), 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_copy_has_what_was_stored_over_what_is_committed_and_commits_nothing),
	RIG_BOTH(what_cannot_be_copied_at_once_comes_page_by_page),
	RIG_BOTH(what_a_shrink_took_away_is_not_in_the_copy),
	RIG_BOTH(a_base_that_a_commit_overtook_is_made_again),
	RIG_BOTH(a_base_that_a_shrink_overtook_is_made_again),
	RIG_BOTH(a_base_that_an_invalidation_overtook_is_made_again),
	RIG_BOTH(a_conflict_is_that_of_a_commit),
	RIG_BOTH(a_copy_that_fails_leaves_everything_as_it_was),
	RIG_BOTH(what_another_process_stored_is_in_the_copy),
};
RIG_MAIN(cases)
