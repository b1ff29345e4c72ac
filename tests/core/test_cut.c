/* SPDX-License-Identifier: MIT */
/* The cut: a commit holds one instant, whoever stores, into one file and into several. */
#include "crew.h"
#include <sched.h>

static void a_commit_holds_one_instant_of_a_few_hot_pages(struct rig *r)
{
	struct crew c = {.npages = 16, .nwriters = 4, .ncuts = 60};

	crew_open(&c, r, 1);
	crew_check_cuts(&c);
}

static void a_commit_holds_one_instant_of_many_pages(struct rig *r)
{
	struct crew c = {.npages = 300, .nwriters = 2, .ncuts = 25};

	crew_open(&c, r, 1);
	crew_check_cuts(&c);
}

static void a_commit_holds_one_instant_of_slow_writers(struct rig *r)
{
	struct crew c = {.npages = 64, .nwriters = 3, .ncuts = 100, .is_slow = true};

	crew_open(&c, r, 1);
	crew_check_cuts(&c);
}

static void a_commit_keeps_the_order_between_threads(struct rig *r)
{
	struct crew c = {.npages = 4, .nwriters = 4, .ncuts = 40, .chained = true};

	crew_open(&c, r, 1);
	crew_check_cuts(&c);
}

static void a_commit_holds_one_instant_of_writes_by_the_kernel(struct rig *r)
{
	struct crew c = {.npages = 24,
			 .nwriters = 3,
			 .ncuts = 100,
			 .in_bursts = true,
			 .w = {{.how = BY_WRITE}, {.how = BY_READ}, {.how = BY_STORE}}};

	crew_open(&c, r, 1);
	crew_check_cuts(&c);
}

/* The pages of one writer are shown, and stored into, at two places. */
static void a_commit_holds_one_instant_of_two_mappings(struct rig *r)
{
	struct crew c = {.npages = 32, .nwriters = 2, .ncuts = 40};
	char *other;

	crew_open(&c, r, 1);
	other = rig_map(r->h, 0, c.npages);
	c.m2 = other;
	crew_check_cuts(&c);
	crew_check_protections(other, c.npages);
}

/* ---- several files ---- */

static void a_commit_holds_one_instant_of_three_files(struct rig *r)
{
	struct crew c = {.npages = 18,
			 .nwriters = 3,
			 .ncuts = 60,
			 .in_bursts = true,
			 .w = {[1] = {.how = BY_WRITE}, [2] = {.how = BY_READ}}};

	crew_open(&c, r, 3);
	crew_check_cuts(&c);
}

static void a_commit_keeps_the_order_between_threads_over_files(struct rig *r)
{
	struct crew c = {.npages = 4, .nwriters = 4, .ncuts = 40, .chained = true};

	crew_open(&c, r, 4);
	crew_check_cuts(&c);
}

/* ---- after the cut ---- */

static void store_after_the_cut(struct rig_file *f, uint64_t pgoff)
{
	(void)pgoff;
	rig_store8((char *)f->hook_arg, 2);
	f->hook[RIG_COMMIT] = NULL;
}

static void a_store_after_the_cut_stays_dirty(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_hook_at(r->f, RIG_COMMIT, store_after_the_cut, m + 3 * VM_PAGE);
	rig_store8(m + 3 * VM_PAGE, 1);
	rig_store8(m + 4 * VM_PAGE, 1);
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 1);
	assert_int_equal(rig_ndirty(r->h), 1);
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 2);
}

static void must_be_read_only(const char *perms)
{
	assert_string_equal(perms, "r--s");
}

/* The engine's own protections and the freeze go up to what the program asked for, and no further. */
static void a_cut_gives_no_more_rights_than_the_program_asked_for(struct rig *r)
{
	struct crew c = {.npages = 16, .nwriters = 2, .ncuts = 40};
	char *ro, *part;

	crew_open(&c, r, 1);
	ro = rig_map_with(r->h, 0, 16, PROT_READ, MAP_SHARED);
	part = rig_map(r->h, 0, 16);
	assert_int_equal(vm_protect(part + 4 * VM_PAGE, 4 * VM_PAGE, PROT_READ), 0);
	(void)rig_touch(ro);
	crew_check_cuts(&c);
	for (unsigned pg = 0; pg < 16; pg++) {
		(void)rig_touch(ro + pg * VM_PAGE); /* segv: as loaded by the other mapping */
		assert_int_equal(rig_store(ro + pg * VM_PAGE, 1), SIGSEGV);
		assert_int_equal(rig_store(part + pg * VM_PAGE + 1024, 1), pg / 4 == 1 ? SIGSEGV : 0);
	}
	assert_true(crew_for_each_kernel_mapping(ro, 16, must_be_read_only) > 0);
	assert_int_equal(rig_ndirty(r->h), 12);
}

/* ---- failures ---- */

/* A commit that fails half way loses nothing, and leaves nobody frozen. */
static void a_failed_cut_leaves_the_writers_running_and_their_stores_dirty(struct rig *r)
{
	struct crew c = {.npages = 16, .nwriters = 3};

	crew_open(&c, r, 1);
	crew_start(&c);
	crew_await_all(&c);
	for (unsigned nth = 1; nth <= 12; nth++) {
		uint64_t seen = get_acquire(crew_at(&c, 0, 0));

		rig_fail(r->f, RIG_STOREBLK, nth, ENOSPC);
		if (rig_try_commit(r->h))
			assert_int_equal(r->f->in_txn, false);
		rig_fail_none(r->f);
		while (get_acquire(crew_at(&c, 0, 0)) < seen + 2) /* it goes on */
			(void)sched_yield();
		(void)crew_check(&c, 0);
	}
	crew_stop(&c);
	(void)rig_commit(r->h);
	crew_check_equals_memory(&c);
	crew_check_protections(c.m[0], c.npages);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_commit_holds_one_instant_of_a_few_hot_pages),
	RIG_BOTH(a_commit_holds_one_instant_of_many_pages),
	RIG_EAGER(a_commit_holds_one_instant_of_slow_writers),
	RIG_BOTH(a_commit_keeps_the_order_between_threads),
	RIG_BOTH(a_commit_holds_one_instant_of_writes_by_the_kernel),
	RIG_EAGER(a_commit_holds_one_instant_of_two_mappings),
	RIG_BOTH(a_commit_holds_one_instant_of_three_files),
	RIG_EAGER(a_commit_keeps_the_order_between_threads_over_files),
	RIG_BOTH(a_store_after_the_cut_stays_dirty),
	RIG_BOTH(a_cut_gives_no_more_rights_than_the_program_asked_for),
	RIG_BOTH(a_failed_cut_leaves_the_writers_running_and_their_stores_dirty),
};

RIG_MAIN(cases)
