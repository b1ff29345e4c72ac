/* SPDX-License-Identifier: MIT */
/* The members of a group by number and name, and what the journal says of them. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"

#include <errno.h>
#include <string.h>

const char *pol_group_relative(const char *dir, const char *path)
{
	size_t len = strlen(dir);

	if (!strcmp(dir, "/"))
		return path + 1;
	return !strncmp(path, dir, len) && path[len] == '/' && path[len + 1] ? path + len + 1 : path;
}

static bool is_of(const struct pol_group_member *e, const struct vm_journal_id *id)
{
	return e->is_used && e->dev == id->dev && e->ino == id->ino && e->igen == id->igen;
}

uint32_t pol_group_find_member(const struct pol_group *g, const struct vm_journal_id *id)
{
	for (uint32_t n = 1; n <= g->all->nmembers; n++)
		if (is_of(pol_group_member(g->all, n), id))
			return n;
	return 0;
}

/* A number that the generation has not given to another file. */
static int free_number(struct pol_group *g, uint32_t *ret)
{
	struct vm_journal_mark m;
	uint32_t n;
	int err;

	vm_journal_mark(&g->j, &m);
	for (n = 1; n <= g->all->nmembers; n++)
		if (!pol_group_member(g->all, n)->is_used &&
		    pol_group_member(g->all, n)->named != m.generation)
			break;
	if (n > POL_GROUP_NMEMBERS)
		return -ENFILE;
	if (n > g->all->nmembers) {
		err = pol_group_shared_grow(g, n);
		if (err)
			return err;
		g->all->nmembers = n;
	}
	*ret = n;
	return 0;
}

int pol_group_add_member(struct pol_group *g, struct vm_bigfile *f, const struct stat *st,
			 uint32_t *ret_number)
{
	struct vm_journal_id *id = &pol_file_priv(f)->j.id;
	struct pol_group_member *e;
	int err = strlen(f->path) < sizeof(e->path) ? free_number(g, ret_number) : -ENAMETOOLONG;

	if (err)
		return err;
	e = pol_group_member(g->all, *ret_number);
	memset(e, 0, sizeof(*e));
	e->dev = id->dev;
	e->ino = id->ino;
	e->igen = id->igen;
	e->is_unlinked = !st->st_nlink;
	e->size = (uint64_t)st->st_size;
	strcpy(e->path, f->path);
	e->is_used = 1;
	return 0;
}

int pol_group_add_more(struct vm_journal *j)
{
	return vm_journal_add_name(j, POL_GROUP_MORE,
				   &(struct vm_journal_name){.is_unlinked = true, .path = "?"});
}

int pol_group_add_names(struct pol_group *g)
{
	struct vm_journal_mark m;
	int err = 0;

	vm_journal_mark(&g->j, &m);
	if (g->all->may_have_more && g->all->more_named != m.generation)
		err = pol_group_add_more(&g->j);
	for (uint32_t n = 1; !err && n <= g->all->nmembers; n++) {
		struct pol_group_member *e = pol_group_member(g->all, n);
		struct vm_journal_name name = {.dev = e->dev,
					       .ino = e->ino,
					       .igen = e->igen,
					       .is_unlinked = e->is_unlinked,
					       .path = pol_group_relative(g->dir, e->path)};

		if (e->is_used && e->named != m.generation)
			err = vm_journal_add_name(&g->j, n, &name);
	}
	return err;
}

void pol_group_named(struct pol_group *g)
{
	struct vm_journal_mark m;

	vm_journal_mark(&g->j, &m);
	g->all->more_named = m.generation;
	for (uint32_t n = 1; n <= g->all->nmembers; n++)
		if (pol_group_member(g->all, n)->is_used)
			pol_group_member(g->all, n)->named = m.generation;
}

int pol_group_write_names(struct pol_group *g)
{
	struct vm_journal_mark m;
	struct vm_txn txn = {0};
	bool only;
	int err;

	vm_journal_mark(&g->j, &m);
	only = m.tail == VM_JOURNAL_START ||
	       (m.generation == g->all->names_generation && m.tail == g->all->names_tail);
	txn.txid = m.txid;
	vm_journal_begin(&g->j);
	err = pol_group_add_names(g);
	if (!err && vm_journal_has_runs(&g->j))
		err = vm_journal_commit(&g->j, &txn, true);
	if (err)
		return err;
	pol_group_named(g);
	vm_journal_mark(&g->j, &m);
	if (only) {
		g->all->names_tail = m.tail;
		g->all->names_generation = m.generation;
	}
	return pol_group_apply(g); /* nothing, but the position moves */
}
