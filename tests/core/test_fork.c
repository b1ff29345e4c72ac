/* SPDX-License-Identifier: MIT */
/* What parent and child see of a file that both have. */
#include "fork_rig.h"

static void a_child_loads_what_was_not_loaded_and_its_stores_are_the_parents(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	(void)rig_touch(m);
	pid = rig_fork();
	if (!pid) {
		int n = nwrong(m);

		for (uint64_t pg = 0; pg < NPAGES; pg++)
			rig_store8(at(m, pg) + 1, (char)(pg + 1));
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(nwrong(m), 0);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_load8(at(m, pg) + 1), pg + 1);
	(void)rig_commit(r->h);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE + 1), pg + 1);
}

static void parent_and_child_may_touch_the_same_pages_first(struct rig *r)
{
	for (unsigned i = 0; i < 10; i++) {
		char *m = open_and_map(r);
		pid_t pid = rig_fork();

		if (!pid)
			_exit(nwrong(m));
		assert_int_equal(nwrong(m), 0);
		assert_int_equal(rig_reap(pid), 0);
		rig_unmap(m, NPAGES);
		assert_int_equal(rig_close(r->h), 0);
	}
}

static void stores_made_before_a_fork_are_in_the_next_commit(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	rig_store8(at(m, 5), 1);
	pid = rig_fork();
	if (!pid)
		_exit(rig_load8(at(m, 5)) != 1);
	assert_int_equal(rig_reap(pid), 0);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 1);
}

static void a_child_commits_its_stores_and_the_parent_sees_them_committed(struct rig *r)
{
	char *m = open_and_map(r);
	struct vm_fileh_stat st;
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 7), 1);
		_exit(rig_try_commit(r->h) ? 1 : 0);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(rig_get_byte(r->f, 7 * VM_PAGE), 1);
	vm_fileh_stat(r->h, false, &st);
	assert_int_equal(st.txid, 1);
	assert_int_equal(rig_commit(r->h), 0);
}

/* What is not inherited leaves holes in the child's addresses, the highest of which is where the next mapping
 * goes: what is kept about a large mapping, a thread's stack. */
static void a_child_has_all_mappings_at_their_places(struct rig *r)
{
	char *m[NPAGES];
	pid_t pid;

	rig_open(r, NPAGES * VM_PAGE);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		m[pg] = rig_map(r->h, pg, 1);
	(void)rig_map(r->h, 0, 1 << 17); /* lies below those */
	pid = rig_fork();
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < NPAGES; pg++)
			n += rig_touch(m[pg]) || (uint8_t)rig_load8(m[pg]) != rig_byte(pg);
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void a_child_of_a_child_shares_too(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		pid = rig_fork();
		if (!pid) {
			rig_store8(at(m, 3) + 1, 1);
			_exit(nwrong(m));
		}
		_exit(rig_reap(pid));
	}
	assert_int_equal(rig_reap(pid), 0);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 1), 1);
}

/* clone(2) without a word to us, at a moment when no thread is inside. */
static void a_child_made_behind_our_back_sees_and_makes_no_zeros(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	(void)rig_touch(m);
	vm_lock(&vm_map_lock);
	pid = fork();
	vm_unlock(&vm_map_lock);
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < NPAGES; pg++) {
			int sig = rig_touch(at(m, pg));

			n += !sig && (uint8_t)rig_load8(at(m, pg)) != rig_byte(pg);
		}
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(nwrong(m), 0);
}

static void a_child_has_the_protections_that_the_parent_asked_for(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	assert_int_equal(vm_protect(at(m, 4), 4 * VM_PAGE, PROT_READ), 0);
	assert_int_equal(vm_protect(at(m, 8), 4 * VM_PAGE, PROT_NONE), 0);
	pid = rig_fork();
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < 12; pg++) {
			n += rig_touch(at(m, pg)) != (pg >= 8 ? SIGSEGV : 0);
			n += rig_store(at(m, pg), 1) != (pg >= 4 ? SIGSEGV : 0);
		}
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void a_child_unmaps_and_closes_and_the_parent_goes_on(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 9), 1);
		rig_unmap(m, NPAGES);
		_exit(rig_close(r->h) || rig_ncalls(r->f, RIG_CLOSE) || rig_ncalls(r->f, RIG_DETACH) != 1);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	assert_false(r->h->ctl->suspect); /* munmap told */
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 9 * VM_PAGE), 1);
	rig_unmap(m, NPAGES);
	assert_int_equal(rig_close(r->h), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CLOSE), 1);
}

static void a_fork_beyond_the_number_of_processes_says_so_and_harms_nobody(struct rig *r)
{
	struct vm_peer *peers;
	pid_t pid;

	(void)open_and_map(r);
	peers = r->h->ctl->peers;
	for (unsigned i = 1; i < VM_MAX_PEERS; i++)
		peers[i] = (struct vm_peer){.pid = getpid()};
	assert_int_equal(vm_fork_prepare(VM_FOREVER), 0);
	pid = fork();
	if (!pid)
		_exit(vm_fork_child() == -EAGAIN ? 0 : 1);
	vm_fork_parent();
	assert_int_equal(rig_reap(pid), 0);
	vm_fileh_lock(r->h); /* who answers the others looks at them by now */
	for (unsigned i = 1; i < VM_MAX_PEERS; i++)
		peers[i] = (struct vm_peer){0};
	vm_fileh_unlock(r->h);
	(void)rig_commit(r->h);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_loads_what_was_not_loaded_and_its_stores_are_the_parents),
	RIG_BOTH(parent_and_child_may_touch_the_same_pages_first),
	RIG_BOTH(stores_made_before_a_fork_are_in_the_next_commit),
	RIG_BOTH(a_child_commits_its_stores_and_the_parent_sees_them_committed),
	RIG_BOTH(a_child_has_all_mappings_at_their_places),
	RIG_BOTH(a_child_of_a_child_shares_too),
	RIG_BOTH(a_child_made_behind_our_back_sees_and_makes_no_zeros),
	RIG_BOTH(a_child_has_the_protections_that_the_parent_asked_for),
	RIG_BOTH(a_child_unmaps_and_closes_and_the_parent_goes_on),
	RIG_BOTH(a_fork_beyond_the_number_of_processes_says_so_and_harms_nobody),
};

RIG_MAIN(cases)
