/* SPDX-License-Identifier: MIT */
/* What the rest of policy asks about the file backend: whose journal it is, and how far commits have come. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "vm.h"

#include <errno.h>
#include <sys/sysmacros.h>

int pol_backend_file_journal(const struct vm_bigfile *f)
{
	return pol_file_priv(f)->j.fd;
}

bool pol_backend_file_is_journal(const struct vm_bigfile *f, int fd)
{
	const struct pol_file_shared *s = pol_file_shared(f);
	struct statx st;

	return !vm_sys->statx(fd, STATX_INO, &st) && makedev(st.stx_dev_major, st.stx_dev_minor) == s->jdev &&
	       st.stx_ino == s->jino;
}

bool pol_backend_is_file(const struct vm_bigfile *f)
{
	return f->ops == &pol_backend_file || f->ops == &pol_backend_file_snapshot ||
	       f->ops == &pol_backend_file_group;
}

/* Where its commits have come to. Do names of a group's files count for nothing? Then all is in place. */
static void look(const struct vm_bigfile *f, struct vm_journal_mark *m, bool *ret_empty)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g;

	atomic_fetch_add(&p->here.nloads, 1); /* so that the group stays */
	g = __atomic_load_n(&p->group, __ATOMIC_SEQ_CST);
	vm_journal_mark(g ? &g->j : &p->j, m);
	*ret_empty = m->tail <= VM_JOURNAL_START || (g && pol_group_has_only_names(g, m));
	atomic_fetch_sub(&p->here.nloads, 1);
}

/* Another process of those that have it may have committed it with its group. */
static bool waits_elsewhere(const struct vm_bigfile *f)
{
	const struct pol_file_priv *p = pol_file_priv(f);

	return !p->group && atomic_load(&p->shared->waiting) & 1;
}

bool pol_backend_file_needs_recovery(const struct vm_bigfile *f)
{
	struct vm_journal_mark m;
	bool empty;

	look(f, &m, &empty);
	return m.applied < m.synced;
}

bool pol_backend_file_is_in_place(const struct vm_bigfile *f)
{
	struct vm_journal_mark m;
	bool empty;

	if (!pol_backend_is_file(f))
		return false;
	look(f, &m, &empty);
	return m.applied == m.tail && !waits_elsewhere(f);
}

uint64_t pol_backend_file_journal_fill(const struct vm_bigfile *f)
{
	struct vm_journal_mark m;
	bool empty;

	look(f, &m, &empty);
	return m.tail - VM_JOURNAL_START;
}

bool pol_backend_file_is_on_disk(const struct vm_bigfile *f)
{
	struct vm_journal_mark m;
	bool empty;

	look(f, &m, &empty);
	return empty && !(m.flags & VM_MARK_START) && !waits_elsewhere(f);
}

bool pol_journal_is_in_use(const char *path, const char *dir)
{
	char in[PATH_MAX], jpath[PATH_MAX];
	const char *what;
	int fd, err = pol_journal_path(path, dir, in, jpath);

	if (!err)
		err = pol_journal_open_check(jpath, &fd, &what);
	if (!err)
		vm_fd_drop(&fd);
	return err && err != -ENOENT;
}
