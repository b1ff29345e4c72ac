/* SPDX-License-Identifier: MIT */
/* What is committed goes into the files: by this process's descriptors, or, of those it does not have live, by
 * their names. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NOTHERS 16u /* files of others that are open at a time */

/* One way into the files. */
struct round {
	struct vm_journal_files files;
	struct pol_group *g;
	bool must_all; /* a file that cannot be had is an error */
	struct other {
		uint32_t number;
		int fd; /* home */
		int64_t from_nsec;
	} other[NOTHERS];
	unsigned nothers;
};

/* ---- members here ---- */

static struct pol_file_priv *member_here(const struct pol_group *g, uint32_t number)
{
	for (struct pol_file_priv *p = g->members; p; p = p->here.next)
		if (p->here.number == number)
			return p;
	return NULL;
}

void pol_group_take_in(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group_member *e = pol_group_member(p->group->all, p->here.number);

	if (!e->wrote_to_nsec)
		return;
	pol_file_wrote(p->shared, e->wrote_from_nsec, e->wrote_to_nsec, e->wrote_size);
	e->wrote_from_nsec = e->wrote_to_nsec = 0;
}

static int get_own(struct pol_file_priv *p)
{
	int err;

	if (p->here.is_own)
		return p->here.file->fd;
	pol_group_take_in(p->here.file);
	err = pol_file_own_begin(p->here.file, &p->here.own);
	if (err)
		return err;
	p->here.is_own = true;
	return p->here.file->fd;
}

/* ---- those of others ---- */

static void done_with(struct round *r, struct other *o)
{
	struct pol_group_member *e = pol_group_member(r->g->all, o->number);
	int64_t to = pol_file_time_to();

	(void)pol_file_basics(o->fd, &e->wrote_size, NULL); /* else it looks like a stranger's change: safe */
	if (!e->wrote_to_nsec || o->from_nsec < e->wrote_from_nsec)
		e->wrote_from_nsec = o->from_nsec;
	e->wrote_to_nsec = to;
	vm_fd_drop(&o->fd);
}

static int open_other(const struct pol_group_member *e, struct other *o)
{
	struct vm_journal_id id;
	struct stat st;
	int err;

	o->fd = vm_sys->openat(AT_FDCWD, e->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0);
	if (o->fd < 0)
		return o->fd;
	err = vm_fd_adopt(&o->fd);
	if (err)
		return err;
	o->from_nsec = pol_file_time_from();
	err = vm_sys->fstat(o->fd, &st);
	if (!err) {
		pol_journal_id(e->path, &st, o->fd, &id);
		err = S_ISREG(st.st_mode) && id.dev == e->dev && id.ino == e->ino && id.igen == e->igen
			      ? 0
			      : -ESTALE;
	}
	if (err)
		vm_fd_drop(&o->fd);
	return err;
}

/* The kernel's limits on descriptors and memory are no fault of the file's. */
static bool may_pass(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EINTR;
}

static int get_other(struct round *r, uint32_t number, struct pol_group_member *e)
{
	struct other *o;
	int err;

	for (unsigned i = 0; i < r->nothers; i++)
		if (r->other[i].number == number)
			return r->other[i].fd;
	if (r->nothers == NOTHERS)
		done_with(r, &r->other[--r->nothers]);
	o = &r->other[r->nothers];
	o->number = number;
	err = open_other(e, o);
	if (!err) {
		r->nothers++;
		return o->fd;
	}
	if (may_pass(err) || pol_stub_is_kept(e->path, r->g->dir))
		return err; /* who has it will do it */
	if (r->must_all)
		return err;
	e->is_stuck = 1; /* G4 */
	pol_log(POL_LOG_ERROR,
		"%s: committed together with other files, by a process that is gone, and cannot be written: "
		"%s; "
		"it needs recovery from %s",
		e->path, pol_errno_name(err), r->g->jpath);
	return VM_FILE_GONE;
}

static int get(const struct vm_journal_files *files, uint32_t number)
{
	struct round *r = (struct round *)((char *)(uintptr_t)files - offsetof(struct round, files));
	struct pol_file_priv *p = member_here(r->g, number);
	struct pol_group_member *e = pol_group_member(r->g->all, number);

	if (p)
		return get_own(p);
	if (number > r->g->all->nmembers || e->is_unlinked || (e->is_stuck && !r->must_all))
		return VM_FILE_GONE;
	return get_other(r, number, e);
}

/* ---- all of them ---- */

static int run(struct pol_group *g, bool must_all,
	       int (*fn)(struct vm_journal *j, const struct vm_journal_files *files))
{
	struct round r = {.files.get = get, .files.fd = -1, .g = g, .must_all = must_all};
	int err = fn(&g->j, &r.files);

	while (r.nothers)
		done_with(&r, &r.other[--r.nothers]);
	for (struct pol_file_priv *p = g->members; p; p = p->here.next)
		if (p->here.is_own) { /* also when it failed: something may have been written before */
			pol_file_own_end(p->here.file, &p->here.own);
			p->here.is_own = false;
		}
	return err;
}

bool pol_group_is_stuck(const struct pol_group *g)
{
	for (uint32_t n = 1; n <= g->all->nmembers; n++)
		if (pol_group_member(g->all, n)->is_used && pol_group_member(g->all, n)->is_stuck)
			return true;
	return false;
}

static void nothing_waits(struct pol_group *g)
{
	for (struct pol_file_priv *p = g->members; p; p = p->here.next) {
		uint64_t waiting = atomic_load(&p->shared->waiting);

		if (waiting & 1)
			atomic_store(&p->shared->waiting, waiting + 1);
	}
}

int pol_group_apply(struct pol_group *g)
{
	struct vm_journal_mark m;
	int err = run(g, false, vm_journal_apply);

	vm_journal_mark(&g->j, &m);
	if (!err && m.applied == m.tail)
		nothing_waits(g);
	return err;
}

bool pol_group_has_only_names(const struct pol_group *g, const struct vm_journal_mark *m)
{
	return m->generation == g->all->names_generation && m->tail == g->all->names_tail &&
	       m->applied == m->tail && !(m->flags & VM_MARK_START);
}

int pol_group_start_over(struct pol_group *g)
{
	int err = vm_journal_sync(&g->j);

	if (!err)
		err = pol_group_apply(g);
	if (!err && pol_group_is_stuck(g))
		return -EUCLEAN;
	return err ? err : run(g, true, vm_journal_checkpoint);
}

int pol_group_checkpoint(struct pol_group *g)
{
	struct vm_journal_mark m;
	int err;

	vm_journal_mark(&g->j, &m);
	if (pol_group_has_only_names(g, &m))
		return 0;
	err = pol_group_start_over(g);
	if (!err)
		return pol_group_write_names(g);
	if (!pol_group_is_stuck(g))
		err = pol_group_apply(g) ?: err; /* one may have become so */
	return pol_group_is_stuck(g) ? 0 : err;
}
