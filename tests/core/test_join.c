/* SPDX-License-Identifier: MIT */
/* A forked child that gets to the handle between two steps of what its parent does. */
#include "board.h"
#include "faulty_sys.h"

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
	if (vm_sys->getpid() == parent && vm_lock_is_held(VM_RANK_MAP) && !vm_lock_is_held(VM_RANK_FILEH) &&
	    __atomic_load_n(&discarded->ctl->gate, __ATOMIC_RELAXED) == VM_GATE_CLOSED && ++nlocks == 2) {
		say(1);
		await(2);
	}
	return vm_sys_linux.gettid();
}

static void a_child_that_comes_between_the_standstill_and_the_drop_sees_the_storage(struct rig *r)
{
	char *m;
	pid_t pid;

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

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_that_comes_between_the_standstill_and_the_drop_sees_the_storage),
};

RIG_MAIN(cases)
