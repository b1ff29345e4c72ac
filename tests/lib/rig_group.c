/* SPDX-License-Identifier: MIT */
/*
 * A transaction over files of a rig: each part waits for the last one. Core has all its files busy, and the
 * sets of a test overlap: so there is one at a time.
 */
#include "rig_group.h"
#include "rig_file.h"

struct rig_group {
	struct rig_file *f[RIG_MAX_GROUP];
	unsigned n;
	unsigned nbegun;
	pid_t holder; /* the thread whose transaction it is, or 0 */
	uint64_t ntxns;
};

void rig_group_begin(struct rig_file *f)
{
	struct rig_group *g = f->group;

	rig_must(!g->holder || g->holder == gettid(), "two transactions of a group at a time");
	g->holder = gettid();
	g->nbegun++;
}

void rig_group_end(struct rig_file *f)
{
	struct rig_group *g = f->group;

	f->is_part = false;
	if (!--g->nbegun)
		g->holder = 0;
}

int rig_group_commit(struct rig_file *f, const struct vm_txn *txn, unsigned flags)
{
	struct rig_group *g = f->group;
	unsigned nbegun = g->nbegun, nparts = 0;
	bool part[RIG_MAX_GROUP], changed = false;

	rig_must(!f->is_part, "one part twice");
	f->txn = *txn;
	f->is_part = true;
	for (unsigned i = 0; i < g->n; i++)
		nparts += g->f[i]->is_part;
	rig_must((nparts == nbegun) == !(flags & VM_COMMIT_PART),
		 "the last part is the last of those that began");
	if (flags & VM_COMMIT_PART)
		return 0;
	for (unsigned i = 0; i < g->n; i++) {
		part[i] = g->f[i]->is_part;
		rig_must(!part[i] || g->f[i]->txn.txid == txn->txid, "the parts have one number");
		changed |= part[i] && rig_file_apply(g->f[i], &g->f[i]->txn);
	}
	for (unsigned i = 0; changed && i < g->n; i++)
		g->f[i]->txid = part[i] ? txn->txid : g->f[i]->txid;
	g->ntxns += changed;
	return !changed;
}

void rig_open_set(struct rig *r, struct rig_set *s, unsigned n, struct rig_file *(*make)(uint64_t size),
		  uint64_t size)
{
	static struct rig_group *g; /* of the test that runs */

	rig_must(n <= RIG_MAX_GROUP, "more files than a group has");
	if (!g)
		g = rig_shared(sizeof(*g));
	*g = (struct rig_group){.n = n};
	s->n = n;
	for (unsigned i = 0; i < n; i++) {
		g->f[i] = s->f[i] = make(size);
		s->f[i]->group = g;
		s->f[i]->file.ino = i + 1;
		s->h[i] = rig_keep(s->f[i], r->load);
	}
	r->f = s->f[0];
	r->h = s->h[0];
}

int rig_try_commit_set(struct rig_set *s)
{
	return vm_commit(s->h, s->n, true, false, s->res);
}

void rig_commit_set(struct rig_set *s)
{
	assert_int_equal(rig_try_commit_set(s), 0);
}

uint64_t rig_ntxns(struct rig_set *s)
{
	return s->f[0]->group->ntxns;
}
