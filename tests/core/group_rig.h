/* SPDX-License-Identifier: MIT */
/* The journal of a group with the state that was committed to it last. */
#ifndef GROUP_RIG_H
#define GROUP_RIG_H

#include "faulty_sys.h"
#include "grig.h"
#include "recover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct rig {
	struct grig r;
	struct group_image now;
	uint64_t rnd;
};

static int no_sync(int fd)
{
	(void)fd;
	return 0;
}

/* These tests look at what was written, and at whether it was synced only where they say so. */
static inline int setup(void **state)
{
	static struct vm_sys quick;
	struct rig *g = calloc(1, sizeof(*g));

	quick = vm_sys_linux;
	quick.fdatasync = no_sync;
	faulty_use(&quick);
	grig_make(&g->r);
	g->rnd = 3;
	*state = g;
	return 0;
}

static inline int teardown(void **state)
{
	struct rig *g = *state;

	grig_remove(&g->r);
	free(g);
	faulty_use(&vm_sys_linux);
	return 0;
}

static inline struct vm_journal_mark mark(struct rig *g)
{
	struct vm_journal_mark m;

	vm_journal_mark(&g->r.j, &m);
	return m;
}

static inline struct vm_scan scan(struct rig *g)
{
	struct vm_scan s;

	assert_int_equal(vm_journal_scan(g->r.j.fd, NULL, &s), 0);
	return s;
}

static inline void commit_change(struct rig *g, bool sync)
{
	struct group_image next = g->now;
	uint64_t low[GRIG_N];

	group_change(&next, &g->rnd, low);
	assert_int_equal(grig_commit(&g->r, &g->now, &next, low, sync), 0);
	g->now = next;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
