/* SPDX-License-Identifier: MIT */
/* A journal with the image that was committed to it last. */
#ifndef JOURNAL_RIG_H
#define JOURNAL_RIG_H

#include "jrig.h"
#include "recover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct rig {
	struct jrig r;
	struct image now;
};

static inline int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));

	jrig_make(&g->r);
	*state = g;
	return 0;
}

static inline int teardown(void **state)
{
	struct rig *g = *state;

	jrig_remove(&g->r);
	free(g);
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

	assert_int_equal(vm_journal_scan(g->r.j.fd, &g->r.j.id, &s), 0);
	return s;
}

/* One more byte of the file is value. */
static inline int commit_byte(struct rig *g, uint8_t value, bool sync)
{
	struct image next = g->now;
	int err;

	next.bytes[next.size++] = value;
	err = jrig_commit(&g->r, &g->now, &next, g->now.size, sync);
	if (!err)
		g->now = next;
	return err;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
