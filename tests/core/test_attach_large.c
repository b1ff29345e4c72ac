/* SPDX-License-Identifier: MIT */
/*
 * A mapping that is too large to be armed in no time: nobody stores through it before that is done, by the
 * server or by who stores first. What the others load and store meanwhile, or later, is no store of this
 * process.
 */
#include "attach_rig.h"

enum { LARGE = 51200, FAR = 40000 }; /* 200 MiB */

static void begin_large(struct rig *r)
{
	begin(r, 0);
	rig_forget(r->f);
	r->f = rig_file_make_sparse(LARGE * VM_PAGE);
}

/* In a newcomer. */
static char *join_large(struct rig *r)
{
	void *m = NULL;

	rig_unmap(join(r), NPAGES);
	if (vm_map(r->h, NULL, LARGE * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, true, &m))
		_exit(100);
	return m;
}

static char *own_large(struct rig *r)
{
	open_here(r);
	return rig_map(r->h, 0, LARGE);
}

static bool stored_here(struct rig *r)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(r->h, true, &st);
	return st.stored_here;
}

static void until_settled(struct rig *r)
{
	while (__atomic_load_n(&r->h->unsettled, __ATOMIC_ACQUIRE) != VM_SETTLED)
		(void)sched_yield();
}

static void a_reader_stored_nothing_whatever_the_others_store(struct rig *r)
{
	begin_large(r);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join_large(r);

		say(1);
		await(2);
		int wrong = rig_load8(at(m, FAR)) != 77 || stored_here(r);

		until_settled(r);
		say(3);
		await(4);
		wrong |= rig_load8(at(m, FAR + 5000)) != 78 || stored_here(r);
		_exit(wrong);
	}
	char *m = own_large(r);

	give(r);
	await(1);
	rig_store8(at(m, FAR), 77);
	say(2);
	await(3);
	rig_store8(at(m, FAR + 5000), 78);
	say(4);
	end(pid);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, FAR * VM_PAGE), 77);
	assert_int_equal(rig_get_byte(r->f, (FAR + 5000) * VM_PAGE), 78);
	finish(r);
}

static void who_committed_all_it_stored_stored_nothing_since(struct rig *r)
{
	begin_large(r);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join_large(r);

		rig_store8(at(m, 5), 76);
		int wrong = !stored_here(r) || rig_try_commit(r->h) || stored_here(r);

		say(1);
		await(2);
		wrong |= stored_here(r);
		_exit(wrong);
	}
	char *m = own_large(r);

	give(r);
	await(1);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 76);
	rig_store8(at(m, FAR), 77);
	say(2);
	end(pid);
	finish(r);
}

/* The first store is done by whoever arms, before or after the server: the rounds differ in when it comes. */
static void the_first_stores_of_a_newcomer_are_in_the_next_commit(struct rig *r)
{
	begin_large(r);
	for (uint32_t round = 0; round < 6; round++) {
		pid_t pid = rig_fork();

		if (!pid) {
			char *m = join_large(r);

			if (round % 2)
				until_settled(r);
			rig_store8(at(m, 1 + round), (char)(10 + round));
			rig_store8(at(m, LARGE - 1 - round), (char)(20 + round));
			say(round + 1);
			until_stopped();
			_exit(0);
		}
		if (!r->h)
			(void)own_large(r);
		give(r);
		await(round + 1);
		(void)rig_commit(r->h);
		assert_int_equal(rig_get_byte(r->f, (1 + round) * VM_PAGE), 10 + round);
		assert_int_equal(rig_get_byte(r->f, (LARGE - 1 - round) * VM_PAGE), 20 + round);
		end(pid);
		__atomic_store_n(&board->stop, 0, __ATOMIC_SEQ_CST);
	}
	finish(r);
}

static void the_kernel_stores_into_what_was_prepared(struct rig *r)
{
	begin_large(r);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join_large(r);
		int fd = vm_sys->openat(AT_FDCWD, "/dev/zero", O_RDONLY, 0), wrong;

		wrong = vm_prepare(at(m, FAR), VM_PAGE, true) != 0 ||
			vm_sys->read(fd, at(m, FAR), VM_PAGE) != (ssize_t)VM_PAGE;
		wrong |= !stored_here(r);
		_exit(wrong);
	}
	char *m = own_large(r);

	rig_store8(at(m, FAR), 77);
	give(r);
	end(pid);
	assert_int_equal(rig_load8(at(m, FAR)), 0);
	finish(r);
}

static void a_child_stores_at_once_and_one_that_reads_stored_nothing(struct rig *r)
{
	begin_large(r);
	char *m = own_large(r);

	rig_store8(at(m, FAR), 77);
	for (int reads = 0; reads < 2; reads++) {
		pid_t pid = rig_fork();

		if (!pid) {
			int wrong = rig_load8(at(m, FAR)) != 77;

			if (!reads)
				rig_store8(at(m, 7), 78);
			_exit(wrong || stored_here(r) == reads || (!reads && rig_try_commit(r->h)));
		}
		assert_int_equal(rig_reap(pid), 0);
		assert_int_equal(rig_get_byte(r->f, 7 * VM_PAGE), 78);
		assert_int_equal(rig_get_byte(r->f, FAR * VM_PAGE),
				 77); /* before the fork, and committed with the child's */
	}
	finish(r);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_reader_stored_nothing_whatever_the_others_store),
	RIG_BOTH(who_committed_all_it_stored_stored_nothing_since),
	RIG_BOTH(the_first_stores_of_a_newcomer_are_in_the_next_commit),
	RIG_BOTH(the_kernel_stores_into_what_was_prepared),
	RIG_BOTH(a_child_stores_at_once_and_one_that_reads_stored_nothing),
};

RIG_MAIN(cases)
