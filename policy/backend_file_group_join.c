/* SPDX-License-Identifier: MIT */
/* A file becomes a member of its group, and ends being one. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "log.h"
#include "share.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#define LOAD_MSEC 1000u

/* ---- the stub ---- */

/* Somebody has the stub, or the journal in its place: who, in words. */
static const char *who_has(struct vm_bigfile *f, const struct pol_group *g, char *text, size_t len)
{
	struct pol_file_priv *p = pol_file_priv(f);
	char other[PATH_MAX];

	if (!pol_stub_peek(p->jpath, p->dir, other))
		return "another process has it managed, without a group (scope), or with another runtime_dir";
	if (!strcmp(other, g->jpath))
		return "another process of this group has it, and does not share it: it is another user's";
	(void)snprintf(text, len,
		       "another process has it in another group, of journal %s, and this one would have it "
		       "in that of %s",
		       other, g->jpath);
	return text;
}

/* What is in it, now that the lock is ours. */
static int take_over(struct vm_bigfile *f, const struct pol_group *g, const char **ret_what)
{
	struct vm_scan scan = {0};
	int err = pol_journal_take_over(f, &scan, ret_what);

	if (err == -EUCLEAN && scan.state == VM_SCAN_MEMBER)
		*ret_what = "is a member's of another group, whose journal is needed to recover it";
	return err == -EUCLEAN && scan.state == VM_SCAN_MEMBER && scan.header.group == g->all->id ? 0 : err;
}

static int open_stub(struct vm_bigfile *f, const struct pol_group *g, const struct stat *data,
		     const char **ret_what)
{
	struct pol_file_priv *p = pol_file_priv(f);
	bool created;
	int err = data->st_nlink ? pol_journal_open(p->jpath, data, true, &p->j.fd, &created, ret_what)
				 : pol_journal_open_nameless(&p->j.fd, ret_what);

	if (err)
		return err;
	return data->st_nlink ? take_over(f, g, ret_what) : vm_sys->flock(p->j.fd, LOCK_EX | LOCK_NB);
}

static int write_stub(struct vm_bigfile *f, const struct pol_group *g, const struct stat *data,
		      const char **ret_what)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_file_shared *s = p->shared;
	struct stat st;
	int err;

	*ret_what = "write";
	err = pol_stub_write(p->j.fd, p->dir, &p->j.id, g);
	if (!err && data->st_nlink)
		err = pol_journal_sync_dir(p->dir);
	if (!err)
		err = vm_sys->fstat(p->j.fd, &st);
	if (err)
		return err;
	s->jdev = st.st_dev;
	s->jino = st.st_ino;
	s->mode = data->st_mode;
	s->gid = data->st_gid;
	if (data->st_nlink)
		pol_journal_end_exclusive(p->j.fd);
	return 0;
}

/* ---- becoming one ---- */

/* Its commits that another process made, and could not bring in place any more, are in place then. */
static int find_number(struct vm_bigfile *f, struct pol_group *g, const struct stat *data, uint32_t *ret,
		       bool *ret_new)
{
	int err;

	*ret = pol_group_find_member(g, &pol_file_priv(f)->j.id);
	*ret_new = !*ret;
	if (!*ret)
		return pol_group_add_member(g, f, data, ret);
	err = pol_group_checkpoint(g);
	return err ? err : pol_group_member(g->all, *ret)->is_stuck ? -EUCLEAN : 0;
}

int pol_group_sync_names(const struct vm_bigfile *f, const char *path)
{
	const char *journal_dir = pol_file_priv(f)->arg;
	char dir[PATH_MAX], stub[PATH_MAX];
	int err = pol_journal_path(path, NULL, dir, stub);

	if (!err)
		err = pol_journal_sync_dir(dir);
	if (!journal_dir)
		return err;
	if (err == -EACCES) /* who may not read it cannot sync it, and needs it for nothing else */
		err = 0;
	return err ? err : pol_journal_sync_dir(journal_dir);
}

static void link_in(struct vm_bigfile *f, struct pol_group *g, uint32_t number)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_member *here = &p->here;

	here->number = number;
	here->nmoved = __atomic_load_n(&p->shared->nmoved, __ATOMIC_ACQUIRE);
	here->mode = p->shared->mode;
	here->gid = p->shared->gid;
	here->has_begun = here->takes_part = here->is_own = false;
	here->next = g->members;
	g->members = p;
	p->to = &g->j;
	__atomic_store_n(&p->group, g, __ATOMIC_RELEASE);
	pol_group_take_in(f);
}

static int become_first(struct vm_bigfile *f, struct pol_group *g, const struct stat *data,
			const char **ret_what)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group_member *e;
	uint32_t number = 0;
	bool is_new;
	struct stat now;
	int err = open_stub(f, g, data, ret_what);

	if (err)
		return err;
	*ret_what = "what was committed is in the group's journal, and cannot be brought in place";
	err = find_number(f, g, data, &number, &is_new);
	if (err)
		return err;
	e = pol_group_member(g->all, number);
	err = vm_sys->fstat(f->fd, &now);
	if (!err) {
		e->size = (uint64_t)now.st_size;
		e->is_unlinked = !now.st_nlink;
		e->named = 0;
		if (!now.st_nlink ||
		    !pol_journal_name_of(f->fd, e->path)) /* it may have been renamed by a stranger */
			strcpy(e->path, f->path);
		err = pol_group_write_names(g); /* G2 */
	}
	if (!err)
		err = write_stub(f, g, data, ret_what);
	if (!err && data->st_nlink && p->arg)
		err = pol_group_sync_names(f, e->path);
	if (err) {
		if (is_new && data->st_nlink &&
		    !vm_sys->unlinkat(AT_FDCWD, p->jpath, 0)) /* it says nothing yet */
			e->is_used = 0;
		return err;
	}
	p->shared->gdev = g->all->dev;
	p->shared->gino = g->all->ino;
	__atomic_store_n(&p->shared->number, number, __ATOMIC_RELEASE);
	link_in(f, g, number);
	return 0;
}

/* One who has it gives its stub: the same open file, so that its lock is ours, too. Was it so? */
static bool take_from_others(struct vm_bigfile *f, struct pol_group *g)
{
	struct pol_file_priv *p = pol_file_priv(f);
	uint32_t number = p->shared->number;

	if (!number || p->shared->gdev != g->all->dev || p->shared->gino != g->all->ino ||
	    pol_share_fetch_journal(f, &p->j.fd))
		return false;
	pol_journal_look_where_it_is(f);
	link_in(f, g, number);
	return true;
}

static int become_member(struct vm_bigfile *f, struct pol_group *g, const struct stat *data)
{
	struct pol_file_priv *p = pol_file_priv(f);
	const char *what = "mode";
	char text[2 * PATH_MAX + 200];
	int err = pol_group_follow_mode(g, data);

	if (!err && !take_from_others(f, g))
		err = become_first(f, g, data, &what);
	if (!err)
		return 0;
	if (err == -EBUSY)
		what = who_has(f, g, text, sizeof(text));
	pol_log(POL_LOG_ERROR, "%s: %s: %s: %s", f->path, p->jpath, what, pol_errno_name(err));
	if (p->j.fd >= 0)
		vm_fd_drop(&p->j.fd);
	return err;
}

int pol_group_enroll(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g;
	struct stat st;
	int err;

	if (p->group)
		return 0;
	pol_journal_look_where_the_file_is(f);
	err = vm_sys->fstat(f->fd, &st);
	if (err)
		return err;
	pol_journal_id(f->path, &st, f->fd, &p->j.id);
	err = pol_group_get(f, p->group_arg, &st, &g);
	if (err)
		return err;
	err = pol_group_hold(g);
	if (!err) {
		err = become_member(f, g, &st);
		pol_group_let_go(g);
	}
	if (err)
		pol_group_put(g);
	return err;
}

/* ---- the end ---- */

static void link_out(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;
	struct pol_file_priv **pp;

	for (pp = &g->members; *pp != p; pp = &(*pp)->here.next)
		;
	*pp = p->here.next;
	__atomic_store_n(&p->to, &p->j, __ATOMIC_SEQ_CST);
	__atomic_store_n(&p->group, NULL, __ATOMIC_SEQ_CST);
}

/* Who loads meanwhile looks at the group. Does nobody any more? A thread of the parent's does for ever. */
static bool wait_for_loads(struct vm_bigfile *f)
{
	struct pol_member *here = &pol_file_priv(f)->here;

	for (unsigned msec = 0; atomic_load(&here->nloads) && msec < LOAD_MSEC; msec++)
		(void)vm_sys->poll(NULL, 0, 1);
	return !atomic_load(&here->nloads);
}

static void leave_group(struct vm_bigfile *f, struct pol_group *g)
{
	bool done = wait_for_loads(f);

	if (done)
		pol_group_put(g);
}

void pol_group_detach(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;

	if (p->j.fd >= 0)
		vm_fd_drop(&p->j.fd); /* the others have it, too, and with it its lock */
	if (!g)
		return;
	if (!pol_group_hold(g)) { /* else: it is only in the way of its own process */
		link_out(f);
		pol_group_let_go(g);
	} else {
		link_out(f);
	}
	leave_group(f, g);
}

/* 1: it goes with its last descriptor, which was ours; 0: a relative by fork has one, too. */
static int drop_nameless(struct pol_file_priv *p)
{
	char link[32];
	int fd, err;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", p->j.fd);
	fd = vm_sys->openat(AT_FDCWD, link, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	vm_fd_drop(&p->j.fd);
	err = vm_sys->flock(fd, LOCK_EX | LOCK_NB);
	(void)vm_sys->close(fd); /* only looked at */
	return err == -EWOULDBLOCK ? 0 : err ? err : 1;
}

/* The same by its name. */
static int drop_stub(struct vm_bigfile *f, const struct pol_group *g)
{
	struct pol_file_priv *p = pol_file_priv(f);
	int err;

	pol_journal_look_where_it_is(f);
	err = pol_journal_is_at(p->jpath, p->j.fd);
	if (err <= 0)
		return err ? err : drop_nameless(p);
	vm_fd_drop(&p->j.fd);
	err = pol_stub_remove(p->jpath, g->all->id);
	return err == 1 ? pol_journal_sync_dir(p->dir) ?: 1 : err;
}

/* A process was killed that had the file at path, and others of the group live: what it committed goes into the
 * file, and its stub goes. */
static int bring_in_place(struct pol_group *g, const char *stub)
{
	int err = pol_group_checkpoint(g);

	if (err || pol_group_is_stuck(g)) /* G3 */
		return err ? err : -EUCLEAN;
	err = pol_stub_remove(stub, g->all->id); /* its number is given back with the group's end */
	return err == 1 ? 0 : err ? err : -EBUSY;
}

int pol_group_bring_in_place(const char *path, const char *stub, const char *jpath, const struct stat *data)
{
	const struct vm_bigfile f = {.path = path};
	struct pol_group *g;
	int err = pol_group_get(&f, jpath, data, &g);

	if (err)
		return err;
	err = pol_group_hold(g);
	if (!err) {
		err = bring_in_place(g, stub);
		pol_group_let_go(g);
	}
	pol_group_put(g);
	return err;
}

/* Held; the journal holds no commit. */
static int end_membership(struct vm_bigfile *f, struct pol_group *g)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group_member *e = pol_group_member(g->all, p->here.number);
	int err = drop_stub(f, g);

	if (err != 1)
		return err; /* a relative by fork still has it: the last one removes it */
	e->is_used = 0;
	__atomic_store_n(&p->shared->number, 0, __ATOMIC_RELEASE);
	return 0;
}

int pol_group_leave(struct vm_bigfile *f)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_group *g = p->group;
	int err;

	if (!g)
		return 0;
	err = pol_group_hold(g);
	if (err)
		return err;
	err = pol_group_checkpoint(g);
	if (err) {
		pol_group_let_go(g);
		return err;
	}
	if (!pol_group_is_stuck(g)) /* G3 */
		err = end_membership(f, g);
	if (p->j.fd >= 0)
		vm_fd_drop(&p->j.fd);
	link_out(f);
	pol_group_let_go(g);
	leave_group(f, g);
	return err;
}
