/* SPDX-License-Identifier: MIT */
/* A commit of several files: the group's lock is held from the begin of the first part to the commit of the last. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <string.h>

#define LAZY_BEFORE_BEGIN (64u << 10) /* as for one file */
#define LAZY_AT_COMMIT	  (1u << 20)

/* The group whose transaction this thread builds. */
static __thread struct pol_group *building;

uint64_t pol_group_size(const struct pol_group_member *e, const struct vm_journal_mark *m)
{
	uint64_t size, seq;

	do {
		seq = __atomic_load_n(&e->next_seq, __ATOMIC_ACQUIRE);
		if (seq && m->generation == __atomic_load_n(&e->next_generation, __ATOMIC_ACQUIRE) &&
		    m->seq >= seq)
			size = __atomic_load_n(&e->next_size, __ATOMIC_ACQUIRE);
		else
			size = __atomic_load_n(&e->size, __ATOMIC_ACQUIRE);
	} while (seq != __atomic_load_n(&e->next_seq, __ATOMIC_ACQUIRE));
	return size;
}

static struct pol_group_member *entry_of(const struct pol_file_priv *p)
{
	return pol_group_member(p->group->all, p->here.number);
}

/* Has this thread stored something for a transaction? */
static bool is_building(void)
{
	return building && vm_journal_has_runs(&building->j);
}

/* ---- begin ---- */

static int is_journal_there(struct pol_group *g)
{
	unsigned nlink;
	int err = pol_file_basics(g->j.fd, NULL, &nlink);

	if (err || nlink)
		return err;
	err = pol_group_checkpoint(g); /* what it held */
	pol_log(POL_LOG_ERROR,
		"%s: the group's journal was removed: nothing is committed any more, until all who have "
		"files of it have ended; what was committed is %s",
		g->jpath, err ? "in the files, but could not be brought to the disk" : "on the disk");
	return -EUCLEAN;
}

/* All that must be in order before a transaction can be built on it. */
static int prepare(struct pol_group *g)
{
	struct vm_journal_mark m;
	int err = is_journal_there(g);

	if (err)
		return err;
	vm_journal_mark(&g->j, &m);
	if (m.flags & VM_MARK_START || m.tail > VM_JOURNAL_START + g->j.limit / 2) {
		err = pol_group_checkpoint(g);
		vm_journal_mark(&g->j, &m);
		if (!err && m.tail > VM_JOURNAL_START + g->j.limit) {
			pol_log(POL_LOG_ERROR,
				"%s: is full, and cannot start over before it was recovered from", g->jpath);
			err = -EUCLEAN;
		}
	} else if (m.applied < m.synced || m.tail - m.synced > LAZY_BEFORE_BEGIN) {
		err = vm_journal_sync(&g->j);
		if (!err)
			(void)pol_group_apply(
				g); /* if not: it waits in the journal, as far as there is room */
	}
	return err;
}

/* It was renamed by one who has it, too. No transaction is built yet. */
static int has_moved(struct vm_bigfile *f, struct pol_group_member *e)
{
	struct pol_file_priv *p = pol_file_priv(f);
	int err = pol_group_checkpoint(p->group); /* the stub may be lost on the way */

	if (err)
		return err;
	if (!pol_journal_name_of(f->fd, e->path))
		return -ESTALE;
	e->named = 0;
	err = pol_group_write_names(p->group);
	pol_journal_look_where_it_is(f);
	if (!err)
		err = pol_stub_write_again(p->j.fd, p->jpath, &p->j.id, p->group);
	return err ? err : pol_group_sync_names(f, e->path);
}

/* Its name and who may read it are what they were, or the group is told. */
static int look_at_member(struct vm_bigfile *f, bool *ret_wrote)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group_member *e = entry_of(p);
	uint32_t nmoved = __atomic_load_n(&p->shared->nmoved, __ATOMIC_ACQUIRE);
	unsigned nlink;
	struct stat st;
	int err = pol_file_basics(f->fd, NULL, &nlink);

	if (!err && !nlink && !e->is_unlinked) {
		e->is_unlinked = 1;
		e->named = 0;
	}
	if (!err && nmoved != p->here.nmoved && nlink) {
		if (is_building())
			return -EAGAIN;
		*ret_wrote = true;
		err = has_moved(f, e);
		if (!err)
			p->here.nmoved = nmoved;
	}
	if (!err && (p->shared->mode != p->here.mode || p->shared->gid != p->here.gid)) {
		err = vm_sys->fstat(f->fd, &st);
		if (!err)
			err = pol_group_follow_mode(p->group, &st);
		if (!err) {
			p->here.mode = p->shared->mode;
			p->here.gid = p->shared->gid;
		}
	}
	return err;
}

/* wrote: there was a transaction since the first part began, which has stored nothing yet. */
static int begin_held(struct vm_bigfile *f, bool wrote)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;
	int err = look_at_member(f, &wrote);

	if (!err && !g->nparts)
		err = prepare(g);
	if (err)
		return err;
	if (wrote || !g->nparts)
		vm_journal_begin(&g->j);
	p->diffs.n = p->changed.n = 0;
	p->here.has_begun = true;
	p->here.takes_part = p->here.has_runs = false;
	g->nparts++;
	building = g;
	return 0;
}

int pol_group_begin(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	bool wrote = !p->group;
	int err;

	if (!p->group && is_building())
		return -EAGAIN; /* becoming a member is a transaction of its own */
	err = pol_group_enroll(f);
	if (err)
		return err;
	if (building && building != p->group) {
		pol_log(POL_LOG_ERROR,
			"%s: its group's journal is %s, but it is to commit together with files of %s",
			f->path, p->group->jpath, building->jpath);
		return -EXDEV;
	}
	err = pol_group_hold(p->group);
	if (err)
		return err;
	err = begin_held(f, wrote);
	if (err)
		pol_group_let_go(p->group);
	return err;
}

int pol_group_store(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct vm_journal *j = p->to;
	uint64_t nframes = j->nframes;
	uint32_t fill = j->fill;
	int err = pol_file_store(f, pgoff, npages, buf, flags);

	p->here.has_runs |= j->nframes != nframes || j->fill != fill;
	return err;
}

/* ---- commit ---- */

static void end(struct pol_group *g)
{
	unsigned n = g->nparts;

	for (struct pol_file_priv *p = g->members; p; p = p->here.next)
		p->here.has_begun = p->here.takes_part = false;
	g->nparts = 0;
	building = NULL;
	while (n--)
		pol_group_let_go(g); /* with the last one it is another thread's */
}

static int add_part(struct vm_bigfile *f, const struct vm_txn *txn)
{
	struct pol_file_priv *p = pol_file_priv(f);
	uint64_t size, cut = txn->size_low < txn->size ? txn->size_low : txn->size;
	int err = pol_group_file_size(f, &size);

	if (err || (!p->here.has_runs && txn->size == size && cut == size))
		return err;
	if (cut < size)
		err = pol_file_add_base(f, cut, size);
	if (!err)
		err = vm_journal_add_size(p->to, p->here.number, txn->size, cut);
	if (err)
		return err;
	p->here.next_size = txn->size;
	p->here.takes_part = true;
	return 0;
}

/* What counts with the position that the commit makes (J6). Is there a part? */
static bool note_parts(struct pol_group *g)
{
	struct vm_journal_mark m;
	bool any = false;

	vm_journal_mark(&g->j, &m);
	for (struct pol_file_priv *p = g->members; p; p = p->here.next) {
		struct pol_group_member *e = entry_of(p);

		if (!p->here.takes_part)
			continue;
		any = true;
		__atomic_store_n(&e->next_seq, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&e->next_size, p->here.next_size, __ATOMIC_RELEASE);
		__atomic_store_n(&e->next_generation, m.generation, __ATOMIC_RELEASE);
		__atomic_store_n(&e->next_seq, m.seq + 1, __ATOMIC_RELEASE);
		atomic_fetch_or(&p->shared->waiting, 1);
	}
	return any;
}

static int write_commit(struct pol_group *g, const struct vm_txn *txn, bool durable)
{
	int err = pol_group_add_names(g);

	if (err)
		return err;
	(void)note_parts(g);
	err = vm_journal_commit(&g->j, txn, durable);
	if (err)
		return err;
	pol_group_named(g);
	return 0;
}

/* Nobody could apply for this process what it does not apply itself. */
static bool must_be_durable(const struct pol_group *g)
{
	if (g->life < 0)
		return true;
	for (struct pol_file_priv *p = g->members; p; p = p->here.next)
		if (p->here.takes_part && entry_of(p)->is_unlinked)
			return true;
	return false;
}

/* Nothing to commit; but may something before have to become durable? */
static int commit_nothing(struct pol_group *g, bool durable)
{
	int err = durable ? vm_journal_sync(&g->j) : 0;

	if (!err)
		(void)pol_group_apply(g); /* it waits in the journal */
	return err;
}

static void apply(struct pol_group *g)
{
	int err = pol_group_apply(g);

	if (err)
		pol_log(POL_LOG_ERROR,
			"%s: committed, but writing it to the files failed: %s; they may need recovery",
			g->jpath, pol_errno_name(err));
}

/* The transaction, with all its parts. */
static int commit_all(struct pol_group *g, const struct vm_txn *txn, bool durable)
{
	struct vm_journal_mark m;
	int err;

	vm_journal_mark(&g->j, &m);
	durable |= must_be_durable(g) || g->j.tail + g->j.fill - m.applied > LAZY_AT_COMMIT;
	err = write_commit(g, txn, durable);
	if ((err == -ENOSPC || err == -EDQUOT) && !g->j.nframes && !pol_group_start_over(g)) {
		/* the journal's own space, from its beginning */
		vm_journal_rebase(&g->j);
		err = write_commit(g, txn, durable);
	}
	pol_group_settle(g);
	if (!err && durable)
		apply(g);
	return err;
}

int pol_group_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;
	bool durable = flags & VM_COMMIT_DURABLE, any = false;
	int err = add_part(f, txn);

	if (err || flags & VM_COMMIT_PART)
		return err;
	for (struct pol_file_priv *q = g->members; q; q = q->here.next)
		any |= q->here.takes_part;
	err = any ? commit_all(g, txn, durable) : commit_nothing(g, durable) ?: 1;
	if (err >= 0)
		end(g);
	return err;
}

void pol_group_abort(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;

	if (!p->here.has_begun)
		return;
	p->here.has_begun = p->here.takes_part = false;
	if (!--g->nparts)
		building = NULL;
	pol_group_let_go(g);
}
