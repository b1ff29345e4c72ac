/* SPDX-License-Identifier: MIT */
/* Every arrow of the table of page states, and that nothing else is one. */
#include "rig.h"

static void begin(struct vm_fileh *h)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
}

static void end(struct vm_fileh *h)
{
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

static void open_with_pages(struct rig *r, uint64_t npages)
{
	rig_open_sparse(r, npages * VM_PAGE);
	vm_fileh_lock(r->h);
	assert_int_equal(vm_pagemap_reserve(&r->h->pagemap, 0, npages), 0);
	vm_fileh_unlock(r->h);
}

/* Page pgoff, by legal steps. */
static void bring(struct vm_fileh *h, uint64_t pgoff, enum vm_page_state state)
{
	struct vm_runs runs = {0};

	if (state == VM_EMPTY)
		return;
	assert_int_equal(vm_page_begin_load(h, pgoff, pgoff + 1), pgoff + 1);
	if (state == VM_LOADING)
		return;
	vm_page_end_load(h, pgoff, pgoff + 1, true);
	if (state == VM_LOADED)
		return;
	vm_page_mark_dirty(h, pgoff, pgoff + 1);
	if (state == VM_DIRTY)
		return;
	assert_int_equal(vm_page_begin_store(h, &runs), 0);
	vm_runs_free(&runs);
}

static void settle(struct vm_fileh *h)
{
	uint64_t pg;

	vm_page_store_failed(h);
	while ((pg = vm_pagemap_find(&h->pagemap, 0, VM_MAX_PGOFF, VM_LOADING)) < VM_MAX_PGOFF)
		vm_page_end_load(h, pg, pg + 1, false);
	(void)vm_page_drop(h, 0, 64);
}

static void a_load_takes_empty_pages_up_to_the_first_other_one(struct rig *r)
{
	open_with_pages(r, 64);
	begin(r->h);
	bring(r->h, 5, VM_LOADED);
	assert_int_equal(vm_page_begin_load(r->h, 2, 9), 5);
	for (unsigned pg = 2; pg < 5; pg++)
		assert_int_equal(vm_page_state(r->h, pg), VM_LOADING);
	assert_int_equal(r->h->ctl->npages[VM_LOADING], 3);
	vm_page_end_load(r->h, 2, 4, true);
	vm_page_end_load(r->h, 4, 5, false);
	assert_int_equal(vm_page_state(r->h, 3), VM_LOADED);
	assert_int_equal(vm_page_state(r->h, 4), VM_EMPTY);
	assert_int_equal(r->h->ctl->npages[VM_LOADING], 0);
	assert_int_equal(r->h->ctl->npages[VM_LOADED], 3);
	settle(r->h);
	end(r->h);
}

/* from is brought about, step is done, the page is then in state to. */
static void arrow(struct rig *r, enum vm_page_state from, enum vm_page_state to, void (*step)(struct vm_fileh *h))
{
	uint64_t n[VM_NSTATES] = {0};

	open_with_pages(r, 64);
	begin(r->h);
	bring(r->h, 7, from);
	assert_int_equal(vm_page_state(r->h, 7), from);
	step(r->h);
	assert_int_equal(vm_page_state(r->h, 7), to);
	n[to]++;
	for (enum vm_page_state s = VM_LOADING; s < VM_NSTATES; s++)
		assert_int_equal(r->h->ctl->npages[s], n[s]);
	assert_int_equal(vm_page_state(r->h, 6), VM_EMPTY);
	assert_int_equal(vm_page_state(r->h, 8), VM_EMPTY);
	settle(r->h);
	end(r->h);
}

static void mark_dirty(struct vm_fileh *h)
{
	vm_page_mark_dirty(h, 7, 8);
}

static void drop(struct vm_fileh *h)
{
	assert_int_equal(vm_page_drop(h, 7, 8), 1);
}

static void drop_nothing(struct vm_fileh *h)
{
	assert_int_equal(vm_page_drop(h, 7, 8), 0);
}

static void begin_store(struct vm_fileh *h)
{
	struct vm_runs runs = {0};

	assert_int_equal(vm_page_begin_store(h, &runs), 0);
	assert_int_equal(runs.n, 1);
	assert_int_equal(runs.run[0].start, 7);
	assert_int_equal(runs.run[0].stop, 8);
	vm_runs_free(&runs);
}

#define ARROW(name, from, to, step)                                                                          \
	static void name(struct rig *r)                                                                      \
	{                                                                                                    \
		arrow(r, from, to, step);                                                                    \
	}
ARROW(a_store_makes_an_empty_page_dirty, VM_EMPTY, VM_DIRTY, mark_dirty)
ARROW(a_store_leaves_a_page_that_is_loading, VM_LOADING, VM_LOADING, mark_dirty)
ARROW(a_store_makes_a_loaded_page_dirty, VM_LOADED, VM_DIRTY, mark_dirty)
ARROW(a_store_leaves_a_dirty_page_dirty, VM_DIRTY, VM_DIRTY, mark_dirty)
ARROW(a_store_makes_a_page_that_is_being_stored_dirty, VM_STORING, VM_DIRTY, mark_dirty)
ARROW(a_commit_takes_a_dirty_page, VM_DIRTY, VM_STORING, begin_store)
ARROW(a_commit_that_happened_makes_a_page_loaded, VM_STORING, VM_LOADED, vm_page_mark_stored)
ARROW(a_commit_that_failed_makes_a_page_dirty, VM_STORING, VM_DIRTY, vm_page_store_failed)
ARROW(a_commit_that_happened_leaves_a_dirty_page, VM_DIRTY, VM_DIRTY, vm_page_mark_stored)
ARROW(a_loaded_page_can_be_dropped, VM_LOADED, VM_EMPTY, drop)
ARROW(a_dirty_page_can_be_dropped, VM_DIRTY, VM_EMPTY, drop)
ARROW(a_page_that_is_loading_is_not_dropped, VM_LOADING, VM_LOADING, drop_nothing)

static void a_commit_takes_runs_of_dirty_pages_in_order(struct rig *r)
{
	struct vm_runs runs = {0};

	open_with_pages(r, 3 << 20);
	begin(r->h);
	vm_page_mark_dirty(r->h, 10, 13);
	vm_page_mark_dirty(r->h, 4094, 4099);
	vm_page_mark_dirty(r->h, (1 << 20) - 1, (1 << 20) + 1); /* across windows */
	assert_int_equal(vm_page_begin_store(r->h, &runs), 0);
	assert_int_equal(runs.n, 3);
	assert_int_equal(runs.run[0].start, 10);
	assert_int_equal(runs.run[1].stop, 4099);
	assert_int_equal(runs.run[2].start, (1 << 20) - 1);
	assert_int_equal(runs.run[2].stop, (1 << 20) + 1);
	assert_int_equal(r->h->ctl->npages[VM_STORING], 10);
	vm_page_mark_stored(r->h);
	assert_int_equal(r->h->ctl->npages[VM_LOADED], 10);
	vm_runs_free(&runs);
	(void)vm_page_drop(r->h, 0, 3 << 20);
	end(r->h);
}

/* ---- what is no arrow dies ---- */

static bool dies(struct vm_fileh *h, enum vm_page_state from, void (*step)(struct vm_fileh *h))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)close(2); /* what it says is not what is tested */
		(void)signal(SIGABRT, SIG_DFL);
		begin(h);
		bring(h, 7, from);
		step(h);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	vm_fileh_lock(h); /* its holder died: take it over */
	settle(h);
	vm_fileh_unlock(h);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void end_load(struct vm_fileh *h)
{
	vm_page_end_load(h, 7, 8, true);
}

static void nothing(struct vm_fileh *h)
{
	(void)h;
}

static void only_a_page_that_is_loading_can_arrive(struct rig *r)
{
	open_with_pages(r, 64);
	assert_true(dies(r->h, VM_EMPTY, end_load));
	assert_true(dies(r->h, VM_LOADED, end_load));
	assert_true(dies(r->h, VM_DIRTY, end_load));
	assert_true(dies(r->h, VM_STORING, end_load));
	assert_false(dies(r->h, VM_LOADING, end_load));
	assert_false(dies(r->h, VM_STORING, nothing));
}

static void a_page_that_was_never_reserved_has_no_state_to_change(struct rig *r)
{
	rig_open_sparse(r, 64 * VM_PAGE);
	assert_true(dies(r->h, VM_LOADING, nothing));
	assert_int_equal(vm_page_state(r->h, 7), VM_EMPTY);
	assert_int_equal(vm_page_state(r->h, UINT64_MAX), VM_EMPTY);
}

/* ---- suspicion ---- */

static void whatever_is_in_ram_is_suspect(struct rig *r)
{
	rig_open(r, 64 * VM_PAGE);
	begin(r->h);
	if (rig_is_lazy(r)) {
		end(r->h);
		assert_int_equal(vm_load(r->h, 10, 20), 0);
		begin(r->h);
	}
	r->h->ctl->suspect = true;
	assert_int_equal(vm_page_suspect(r->h), 0);
	assert_false(r->h->ctl->suspect);
	assert_int_equal(r->h->ctl->npages[VM_DIRTY], rig_is_lazy(r) ? 10 : 64);
	end(r->h);
	assert_int_equal(rig_commit(r->h), 0); /* nothing had changed */
	assert_int_equal(rig_ndirty(r->h), 0);
}

static const struct rig_case cases[] = {
	RIG_EAGER(a_load_takes_empty_pages_up_to_the_first_other_one),
	RIG_EAGER(a_store_makes_an_empty_page_dirty),
	RIG_EAGER(a_store_leaves_a_page_that_is_loading),
	RIG_EAGER(a_store_makes_a_loaded_page_dirty),
	RIG_EAGER(a_store_leaves_a_dirty_page_dirty),
	RIG_EAGER(a_store_makes_a_page_that_is_being_stored_dirty),
	RIG_EAGER(a_commit_takes_a_dirty_page),
	RIG_EAGER(a_commit_that_happened_makes_a_page_loaded),
	RIG_EAGER(a_commit_that_failed_makes_a_page_dirty),
	RIG_EAGER(a_commit_that_happened_leaves_a_dirty_page),
	RIG_EAGER(a_loaded_page_can_be_dropped),
	RIG_EAGER(a_dirty_page_can_be_dropped),
	RIG_EAGER(a_page_that_is_loading_is_not_dropped),
	RIG_EAGER(a_commit_takes_runs_of_dirty_pages_in_order),
	RIG_EAGER(only_a_page_that_is_loading_can_arrive),
	RIG_EAGER(a_page_that_was_never_reserved_has_no_state_to_change),
	RIG_BOTH(whatever_is_in_ram_is_suspect),
};
RIG_MAIN(cases)
