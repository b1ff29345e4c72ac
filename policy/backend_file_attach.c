/* SPDX-License-Identifier: MIT */
/* How a process comes to its journal: it begins one, with what a crash left, or takes that of others. */
#define _GNU_SOURCE 1
#include "backend_file_group.h"
#include "backend_file_snapshot.h"
#include "log.h"
#include "recover.h"
#include "share.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int pol_journal_take_over(struct vm_bigfile *f, struct vm_scan *scan, const char **ret_what)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_files one = {.fd = f->fd};
	struct pol_file_own own;
	int err;

	*ret_what = "read";
	err = vm_journal_scan(p->j.fd, &p->j.id, scan);
	if (err || scan->state == VM_SCAN_EMPTY)
		return err;
	*ret_what = scan->state == VM_SCAN_FOREIGN  ? "is another file's or another version's"
		    : scan->state == VM_SCAN_MEMBER ? "is of a group, by whose journal it is to be recovered"
						    : "is damaged";
	if (scan->state == VM_SCAN_MEMBER)
		*ret_what = "says that the file is a member of a group";
	if (scan->state != VM_SCAN_COMMITS)
		return -EUCLEAN;
	*ret_what = "recover";
	err = pol_file_own_begin(f, &own);
	if (err)
		return err;
	if (p->snapshot) /* who has one may never have seen these commits */
		pol_news_all(f);
	err = vm_journal_replay(p->j.fd, &one, VM_JOURNAL_START, scan->end, NULL, NULL);
	pol_file_own_end(f, &own);
	return err ? err : vm_sys->fsync(f->fd);
}

int pol_journal_open_nameless(int *fd, const char **ret_what)
{
	*ret_what = "memfd_create";
	*fd = vm_sys->memfd_create("txmap-journal", 1u /* MFD_CLOEXEC */);
	if (*fd < 0) {
		int err = *fd;

		*fd = -1;
		return err;
	}
	return vm_fd_adopt(fd);
}

static int begin_journal(struct vm_bigfile *f, const struct stat *data, const char **ret_what)
{
	struct pol_file_priv *p = f->priv;
	struct pol_file_shared *s = pol_file_shared(f);
	struct vm_journal_mark m = {0};
	struct vm_scan scan;
	struct stat st, now;
	bool created = false;
	int err = data->st_nlink ? pol_journal_open(p->jpath, data, true, &p->j.fd, &created, ret_what)
				 : pol_journal_open_nameless(&p->j.fd, ret_what);

	if (err)
		return err;
	err = pol_journal_take_over(f, &scan, ret_what);
	if (err)
		goto close;
	*ret_what = "fstat";
	err = vm_sys->fstat(p->j.fd, &st);
	if (!err)
		err = vm_sys->fstat(f->fd, &now);
	if (err)
		goto close;
	m.generation = scan.header.generation;
	m.good_slot = scan.slot;
	m.alloc = (uint64_t)st.st_size & ~(uint64_t)(VM_JOURNAL_ALIGN - 1);
	m.flags = VM_MARK_START;
	vm_journal_set_mark(&p->j, &m);
	*ret_what = "write";
	err = vm_journal_start_over(&p->j, (uint64_t)now.st_size);
	if (err)
		goto unset;
	*ret_what = "sync its directory";
	err = data->st_nlink ? pol_journal_sync_dir(p->dir) : 0;
	if (err)
		goto unset;
	*ret_what = "lock";
	err = p->snapshot ? pol_journal_keep_with_others(p->j.fd) : 0;
	if (err)
		goto unset;
	s->jdev = st.st_dev;
	s->jino = st.st_ino;
	s->mode = data->st_mode;
	s->gid = data->st_gid;
	pol_journal_end_exclusive(p->j.fd);
	return 0;
unset:
	vm_journal_set_mark(&p->j, &(struct vm_journal_mark){0});
close:
	if (created)
		(void)vm_sys->unlinkat(AT_FDCWD, p->jpath, 0); /* it holds nothing */
	vm_fd_drop(&p->j.fd);
	return err;
}

bool pol_journal_name_of(int fd, char *ret_path)
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = vm_sys->readlinkat(AT_FDCWD, link, ret_path, PATH_MAX - 1);
	if (n <= 0 || n >= PATH_MAX - 1)
		return false;
	ret_path[n] = 0;
	return pol_journal_is_at(ret_path, fd) > 0;
}

void pol_journal_look_where_the_file_is(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char path[PATH_MAX];

	if (pol_journal_name_of(f->fd, path) && strcmp(path, f->path))
		(void)pol_journal_path(path, p->arg, p->dir, p->jpath); /* too long: the open says so */
}

void pol_journal_look_where_it_is(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char path[PATH_MAX], *slash;

	if (pol_journal_is_at(p->jpath, p->j.fd) || !pol_journal_name_of(p->j.fd, path))
		return;
	strcpy(p->jpath, path);
	slash = strrchr(path, '/');
	slash[slash == path] = 0;
	strcpy(p->dir, path);
}

/* Where each has a snapshot: open the journal that they commit to, with a lock of our own. -ENOENT: it is
 * gone. */
static int open_kept(struct vm_bigfile *f, const struct stat *data)
{
	struct pol_file_priv *p = f->priv;
	const char *what;
	int err = pol_journal_open_shared(p->jpath, data, &p->j.fd, &what);

	if (err)
		return err;
	if (!pol_backend_file_is_journal(f, p->j.fd)) {
		vm_fd_drop(&p->j.fd);
		return -ENOENT;
	}
	pol_journal_end_exclusive(p->j.fd);
	return 0;
}

/* One who has it open gives it: the same open file, so that its lock is ours, too. Was it so? */
static bool take_from_others(struct vm_bigfile *f, const struct stat *data)
{
	struct pol_file_priv *p = f->priv;
	struct vm_journal_mark m;

	vm_journal_mark(&p->j, &m);
	if (!m.tail || (p->snapshot ? open_kept(f, data) : pol_share_fetch_journal(f, &p->j.fd)))
		return false;
	pol_journal_look_where_it_is(f);
	return true;
}

int pol_journal_attach(struct vm_bigfile *f)
{
	struct pol_file_priv *p = f->priv;
	char group[PATH_MAX], text[PATH_MAX + 100];
	const char *what = "fstat";
	struct stat st;
	int err;

	if (p->j.fd >= 0)
		return 0;
	pol_journal_look_where_the_file_is(f);
	err = vm_sys->fstat(f->fd, &st);
	if (!err) {
		pol_journal_id(f->path, &st, f->fd, &p->j.id);
		err = take_from_others(f, &st) ? 0 : begin_journal(f, &st, &what);
	}
	if (err == -EBUSY && pol_stub_peek(p->jpath, p->dir, group)) {
		(void)snprintf(text, sizeof(text),
			       "another process has the file managed in the group of journal %s", group);
		what = text;
	} else if (err == -EBUSY) {
		what = "another process has the file managed, and does not share it: it is another user's, "
		       "or has another runtime_dir or share";
	}
	if (err)
		pol_log(POL_LOG_ERROR, "%s: journal %s: %s: %s", f->path, p->jpath, what,
			pol_errno_name(err));
	return err;
}
