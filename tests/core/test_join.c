/* SPDX-License-Identifier: MIT */
/* A forked child that gets to the handle between two steps of what its parent does. */
#include "board.h"
#include "faulty_sys.h"
#include <linux/futex.h>
#include <sys/prctl.h>

enum { NPAGES = 16 };

static struct vm_sys held;
static struct vm_fileh *discarded;
static pid_t parent;
static unsigned nlocks;

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static void wait_here(void)
{
	await(1);
}

/* The child is a peer with its mappings armed, and about to be served. */
static int told_openat(int dir, const char *path, int flags, mode_t mode)
{
	if (vm_sys->getpid() != parent && !strcmp(path, "/proc/self/task"))
		say(2);
	return vm_sys_linux.openat(dir, path, flags, mode);
}

/* The parent takes the handle's lock for the second time with the gate closed: the first time all was made to stand
 * still, now the pages go. */
static int held_gettid(void)
{
	int tid = vm_sys_linux.gettid(); /* the main thread's is the process's: others have no business with the gate */

	if (tid == parent && vm_lock_is_held(VM_RANK_MAP) && !vm_lock_is_held(VM_RANK_FILEH) &&
	    discarded->ctl->gate == VM_GATE_CLOSED && ++nlocks == 2) {
		say(1);
		await(2);
	}
	return tid;
}

static void a_child_that_comes_between_the_standstill_and_the_drop_sees_the_storage(struct rig *r)
{
	char *m;
	pid_t pid;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	m = rig_map(r->h, 0, NPAGES);
	for (uint64_t pg = 0; pg < NPAGES / 2; pg++)
		rig_store8(at(m, pg), 77);
	for (uint64_t pg = NPAGES / 2; pg < NPAGES; pg++)
		(void)rig_load8(at(m, pg));
	discarded = r->h;
	parent = getpid();
	nlocks = 0;
	held = vm_sys_linux;
	held.openat = told_openat;
	held.gettid = held_gettid;
	faulty_use(&held);
	pid = rig_fork_late(wait_here);
	if (!pid) {
		int nwrong = 0;

		for (uint64_t pg = 0; pg < NPAGES; pg++)
			nwrong += (uint8_t)rig_load8(at(m, pg)) != rig_byte(pg);
		_exit(nwrong);
	}
	rig_discard(r->h);
	faulty_use(&vm_sys_linux);
	assert_true(nlocks >= 2);
	assert_int_equal(rig_reap(pid), 0);
}

/* A private mapping has nobody who loads what was dropped. */
static void a_private_mapping_that_only_a_child_on_its_way_has_shows_the_new_bytes(struct rig *r)
{
	pid_t pid;
	char *p;

	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	(void)rig_map(r->h, 0, NPAGES);
	p = rig_map_with(r->h, 0, NPAGES, PROT_READ, MAP_PRIVATE);
	(void)rig_load8(at(p, 3));
	pid = rig_fork_late(wait_here);
	if (!pid) {
		int nwrong = (uint8_t)rig_load8(at(p, 3)) != 200;

		for (uint64_t pg = 4; pg < NPAGES; pg++)
			nwrong += (uint8_t)rig_load8(at(p, pg)) != rig_byte(pg);
		_exit(nwrong);
	}
	rig_unmap(p, NPAGES);
	rig_put_byte(r->f, 3 * VM_PAGE, 200);
	rig_invalidate(r->h, 0, NPAGES);
	say(1);
	assert_int_equal(rig_reap(pid), 0);
}

static struct vm_ctl *closed;

static int told_futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	if (vm_sys->getpid() == parent && op == FUTEX_WAIT && word == &closed->seq)
		say(1); /* it waits for its child */
	return vm_sys_linux.futex(word, op, value, timeout);
}

static void who_closes_a_handle_that_a_child_on_its_way_has_is_not_the_last_one(struct rig *r)
{
	pid_t pid;
	char *m;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	m = rig_map(r->h, 0, NPAGES);
	parent = getpid();
	closed = r->h->ctl;
	held = vm_sys_linux;
	held.futex = told_futex;
	faulty_use(&held);
	pid = rig_fork_late(wait_here);
	if (!pid) {
		await(2);
		rig_store8(at(m, 3), 77);
		_exit(rig_ncalls(r->f, RIG_CLOSE) || rig_try_commit(r->h) || rig_get_byte(r->f, 3 * VM_PAGE) != 77);
	}
	rig_unmap(m, NPAGES);
	int err = rig_close(r->h);

	say(2);
	faulty_use(&vm_sys_linux);
	assert_int_equal(err, 0);
	assert_int_equal(rig_reap(pid), 0);
}

/* ---- children for which there is no place ---- */

static void a_child_without_a_place_answers_for_nobody(struct rig *r)
{
	char *m;
	struct vm_peer *peers;
	pid_t pid, late;
	bool done = false;

	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	m = rig_map(r->h, 0, NPAGES);
	pid = rig_fork();
	if (!pid) {
		say(1);
		await(3);
		int err = rig_try_commit(r->h);

		say(4);
		until_stopped();
		_exit(err != 0);
	}
	await(1);
	peers = r->h->ctl->peers;
	vm_fileh_lock(r->h);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (!peers[i].pid)
			peers[i] = (struct vm_peer){.pid = getpid()};
	vm_fileh_unlock(r->h);
	assert_int_equal(vm_fork_prepare(VM_FOREVER), 0);
	late = fork();
	if (!late) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (vm_fork_child() != -EAGAIN || !vm_fileh_is_lost(r->h) || vm_is_mapped(m, VM_PAGE))
			_exit(1);
		await(2);
		say(3);
		until_stopped();
		_exit(vm_fileh_close(r->h) || rig_ncalls(r->f, RIG_CLOSE));
	}
	vm_fork_parent();
	rig_store8(at(m, 5), 77);
	vm_lock(&vm_map_lock); /* whose server does not get to answer */
	say(2);
	for (unsigned i = 0; i < 300 && !done; i++) {
		(void)usleep(1000);
		done = __atomic_load_n(&board->step, __ATOMIC_SEQ_CST) == 4;
	}
	vm_unlock(&vm_map_lock);
	await(4);
	assert_false(done);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 77);
	vm_fileh_lock(r->h);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (peers[i].pid == getpid() && i != r->h->peer)
			peers[i] = (struct vm_peer){0};
	vm_fileh_unlock(r->h);
	end(late);
	assert_int_equal(rig_reap(pid), 0);
}

static void a_child_in_a_namespace_of_its_own_has_no_place(struct rig *r)
{
	pid_t pid;

	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	(void)rig_map(r->h, 0, NPAGES);
	pid = rig_fork();
	if (!pid) {
		if (unshare(CLONE_NEWPID))
			_exit(77);
		assert_int_equal(vm_fork_prepare(VM_FOREVER), 0);
		pid = fork();
		if (!pid)
			_exit(vm_fork_child() != -EREMOTE || !vm_fileh_is_lost(r->h) || vm_nvmas);
		vm_fork_parent();
		_exit(rig_reap(pid));
	}
	int status = rig_reap(pid);

	if (status == 77)
		skip();
	assert_int_equal(status, 0);
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		assert_int_not_equal(r->h->ctl->peers[i].pid, 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_private_mapping_that_only_a_child_on_its_way_has_shows_the_new_bytes),
	RIG_BOTH(who_closes_a_handle_that_a_child_on_its_way_has_is_not_the_last_one),
	RIG_BOTH(a_child_without_a_place_answers_for_nobody),
	RIG_BOTH(a_child_in_a_namespace_of_its_own_has_no_place),
	RIG_BOTH(a_child_that_comes_between_the_standstill_and_the_drop_sees_the_storage),
};

RIG_MAIN(cases)
