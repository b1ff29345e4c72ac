/* SPDX-License-Identifier: MIT */
/* The group's lock, and what its holder finds who follows a dead one. */
#include "backend_file_group.h"
#include "log.h"
#include "vm.h"

#include <errno.h>

#define HOLD_MSEC 10000u

bool pol_group_is_held(const struct pol_group *g)
{
	return __atomic_load_n(&g->holder, __ATOMIC_RELAXED) == vm_sys->gettid();
}

static int lock_in_turn(struct pol_group_shared *all)
{
	int err = vm_robust_try(&all->turn);

	if (err == -EBUSY)
		err = vm_robust_lock_within(&all->turn, HOLD_MSEC);
	if (err == -ETIMEDOUT)
		return err;
	err = vm_robust_try(&all->lock);
	if (err == -EBUSY)
		err = vm_robust_lock_within(&all->lock, HOLD_MSEC);
	vm_robust_unlock(&all->turn);
	return err;
}

/* A commit happened with the position (J6), or not: what was noted for it counts, or not. */
void pol_group_settle(struct pol_group *g)
{
	struct vm_journal_mark m;

	vm_journal_mark(&g->j, &m);
	for (uint32_t n = 1; n <= g->all->nmembers; n++) {
		struct pol_group_member *e = pol_group_member(g->all, n);

		if (!e->next_seq)
			continue;
		__atomic_store_n(&e->size, pol_group_size(e, &m), __ATOMIC_RELEASE);
		__atomic_store_n(&e->next_seq, 0, __ATOMIC_RELEASE);
	}
}

static void after_a_death(struct pol_group *g)
{
	pol_log(POL_LOG_INFO,
		"%s: a process was killed in the middle of a commit or the like, which is undone", g->jpath);
	pol_group_settle(g);
	g->all->is_in_doubt = 1;
}

/* In a forked child: what another thread of the parent was building. */
static void forget_parts(struct pol_group *g)
{
	g->nparts = 0;
	for (struct pol_file_priv *p = g->members; p; p = p->here.next)
		p->here.has_begun = p->here.takes_part = p->here.is_own = false;
}

int pol_group_hold(struct pol_group *g)
{
	int err;

	if (pol_group_is_held(g)) {
		g->nholds++;
		return 0;
	}
	err = lock_in_turn(g->all);
	if (err && err != -EOWNERDEAD) {
		pol_log(POL_LOG_ERROR,
			"%s: another process, which may be stopped, is in the middle of a commit: %s",
			g->jpath, pol_errno_name(err));
		return err;
	}
	__atomic_store_n(&g->holder, vm_sys->gettid(), __ATOMIC_RELAXED);
	g->nholds = 1;
	forget_parts(g);
	if (err)
		after_a_death(g);
	if (g->all->is_in_doubt) {
		vm_journal_forget(&g->j);
		g->all->is_in_doubt = 0;
	}
	return 0;
}

void pol_group_let_go(struct pol_group *g)
{
	if (--g->nholds)
		return;
	__atomic_store_n(&g->holder, 0, __ATOMIC_RELAXED);
	vm_robust_unlock(&g->all->lock);
}
