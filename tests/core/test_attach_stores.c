/* SPDX-License-Identifier: MIT */
/* Owner and newcomers see the same bytes and sizes, and a commit of either holds what both stored. */
#include "attach_rig.h"

static void a_newcomer_sees_stores_that_nobody_committed_and_its_own_are_seen(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);
		int wrong = rig_load8(at(m, 3)) != 77 || (uint8_t)rig_load8(at(m, 5)) != rig_byte(5);

		rig_store8(at(m, 4), 78);
		say(1);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	rig_store8(at(m, 3), 77);
	give(r);
	await(1);
	assert_int_equal(rig_load8(at(m, 4)), 78);
	vm_check();
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	end(pid);
	finish(r);
}

static void a_commit_of_a_newcomer_holds_what_the_owner_stored(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		(void)join(r);
		await(1);
		int err = rig_try_commit(r->h);

		say(2);
		_exit(err != 0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	rig_store8(at(m, 4), 78);
	say(1);
	await(2);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	assert_int_equal(rig_commit(r->h), 0);
	end(pid);
	finish(r);
}

static void stores_of_two_processes_into_one_page_are_both_kept(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		for (uint64_t i = 1; i <= 20000; i++)
			rig_store64(at(m, 7) + 8, i);
		say(1);
		until_stopped();
		_exit(0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);
	uint64_t n[2];

	give(r);
	for (uint64_t i = 1; i <= 20000; i++) {
		rig_store64(at(m, 7), i);
		if (i % 1000 == 0)
			(void)rig_commit(r->h);
	}
	await(1);
	(void)rig_commit(r->h);
	rig_get(r->f, 7 * VM_PAGE, n, sizeof(n));
	assert_int_equal(n[0], 20000);
	assert_int_equal(n[1], 20000);
	end(pid);
	finish(r);
}

/* Stores a number to one page, then to another: never may the second be ahead. */
static void a_cut_is_one_instant_for_newcomers_too(struct rig *r)
{
	const unsigned ncommits = rig_is_tsan() ? 20 : 100;

	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		for (uint64_t n = 1; !__atomic_load_n(&board->stop, __ATOMIC_RELAXED); n++) {
			rig_store64(at(m, 10), n);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			rig_store64(at(m, 11), n);
		}
		_exit(0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);
	uint64_t first, second, last = 0;

	rig_store64(at(m, 10), 0);
	rig_store64(at(m, 11), 0);
	give(r);
	for (unsigned c = 0; c < ncommits || !last; c++) {
		(void)rig_commit(r->h);
		rig_get(r->f, 10 * VM_PAGE, &first, 8);
		rig_get(r->f, 11 * VM_PAGE, &second, 8);
		assert_true(first == second || first == second + 1);
		assert_true(first >= last);
		last = first;
	}
	end(pid);
	finish(r);
}

static void a_discard_and_an_invalidation_reach_a_newcomer(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		rig_store8(at(m, 3), 77);
		say(1);
		await(2);
		int wrong = (uint8_t)rig_load8(at(m, 3)) != rig_byte(3);

		wrong |= rig_load8(at(m, 9)) != 99;
		say(3);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	await(1);
	assert_int_equal((uint8_t)rig_load8(at(m, 9)), rig_byte(9));
	rig_discard(r->h);
	rig_put_byte(r->f, 9 * VM_PAGE, 99);
	rig_invalidate(r->h, 9, 1);
	say(2);
	await(3);
	end(pid);
	finish(r);
}

static void both_see_a_new_size(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		await(1);
		int wrong = vm_fileh_size(r->h) != 10 * VM_PAGE || rig_touch(at(m, 10)) != SIGBUS;

		rig_resize(r->h, 20 * VM_PAGE);
		wrong |= rig_load8(at(m, 10)) != 0;
		rig_store8(at(m, 19), 7);
		say(2);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	rig_store8(at(m, 30), 1);
	give(r);
	rig_resize(r->h, 10 * VM_PAGE);
	say(1);
	await(2);
	assert_int_equal(rig_load8(at(m, 19)), 7);
	(void)rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 20 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 19 * VM_PAGE), 7);
	assert_int_equal(rig_get_byte(r->f, 12 * VM_PAGE), 0);
	end(pid);
	finish(r);
}

static void a_newcomer_of_another_engine_loses_nothing(struct rig *r)
{
	if (!rig_is_uffd())
		skip();
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		vm_engine_ops = &vm_engine_segv;
		char *m = join(r);

		for (uint32_t i = 0; i < 20; i++) {
			await(2 * i);
			rig_store8(at(m, i), (char)(i + 1));
			say(2 * i + 1);
		}
		await(40);
		_exit(rig_load8(at(m, 50)) != 5 || rig_try_commit(r->h));
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	for (uint32_t i = 0; i < 20; i++) {
		await(2 * i + 1);
		assert_int_equal(rig_load8(at(m, i)), i + 1);
		(void)rig_commit(r->h);
		assert_int_equal(rig_get_byte(r->f, i * VM_PAGE), i + 1);
		if (i == 19)
			rig_store8(at(m, 50), 5);
		say(2 * i + 2);
	}
	end(pid);
	assert_int_equal(rig_get_byte(r->f, 50 * VM_PAGE), 5);
	finish(r);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_newcomer_sees_stores_that_nobody_committed_and_its_own_are_seen),
	RIG_BOTH(a_commit_of_a_newcomer_holds_what_the_owner_stored),
	RIG_BOTH(stores_of_two_processes_into_one_page_are_both_kept),
	RIG_BOTH(a_cut_is_one_instant_for_newcomers_too),
	RIG_BOTH(a_discard_and_an_invalidation_reach_a_newcomer),
	RIG_BOTH(both_see_a_new_size),
	RIG_BOTH(a_newcomer_of_another_engine_loses_nothing),
};

RIG_MAIN(cases)
