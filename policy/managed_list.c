/* SPDX-License-Identifier: MIT */
/* The list of the managed files of this process, and its lock. */
#include "managed_priv.h"
#include "backends.h"
#include <string.h>
#include <sys/mman.h>

struct pol_file *pol_files;
static struct pol_file *free_list; /* (pol_lock) */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a file's busy, refs or h */

void pol_lock(void)
{
	(void)pthread_mutex_lock(&lock); /* cannot fail: initialised, not recursive */
}

void pol_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

void pol_lock_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pol_rename_fork_child();
	pol_group_fork_child();
	pol_set_fork_child();
	for (struct pol_file *m = pol_files; m; m = m->next) {
		m->position = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		m->refs = m->nending = 0; /* those at work are in the parent */
		m->busy = false;
		if (m->file.priv && m->rule->snapshot)
			pol_snapshot_fork_child(&m->file, m->h);
	}
}

void pol_wait(void)
{
	(void)pthread_cond_wait(&changed, &lock);
}

void pol_changed(void)
{
	(void)pthread_cond_broadcast(&changed);
}

/* ---- the list ---- */

/* The inodes in the list: a set of 64 classes of them, so that most others are told apart by a look. (atomic) */
static uint64_t known_classes;

uint64_t pol_inode_class(ino_t ino)
{
	return UINT64_C(1) << (((uint64_t)ino * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

uint64_t pol_known_classes(void)
{
	return __atomic_load_n(&known_classes, __ATOMIC_ACQUIRE);
}

bool pol_inode_may_be_known(ino_t ino)
{
	return __atomic_load_n(&known_classes, __ATOMIC_ACQUIRE) & pol_inode_class(ino);
}

static void list_changed_locked(void)
{
	uint64_t classes = 0;

	for (struct pol_file *m = pol_files; m; m = m->next)
		classes |= pol_inode_class(m->file.ino);
	__atomic_store_n(&known_classes, classes, __ATOMIC_RELEASE);
}

struct pol_file *pol_list_find_locked(dev_t dev, ino_t ino)
{
	struct pol_file *m;

	for (m = pol_files; m; m = m->next)
		if (m->file.ino == ino && m->file.dev == dev)
			return m;
	return NULL;
}

static struct pol_file *alloc_locked(void)
{
	struct pol_file *m = free_list;

	if (m) {
		free_list = m->next;
		memset(m, 0, sizeof(*m));
	} else {
		m = vm_own_map(sizeof(*m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (vm_sys_err(m))
			return NULL;
	}
	m->position = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	m->file.fd = m->fd_before = -1;
	return m;
}

struct pol_file *pol_list_add_locked(const struct stat *st, const char *path, const struct pol_rule *rule)
{
	struct pol_file *m = alloc_locked(), **pp;

	if (!m)
		return NULL;
	strcpy(m->path, path);
	m->file.path = m->path;
	m->file.dev = st->st_dev;
	m->file.ino = st->st_ino;
	m->rule = rule;
	m->busy = true;
	for (pp = &pol_files; *pp; pp = &(*pp)->next)
		;
	*pp = m;
	list_changed_locked();
	return m;
}

void pol_list_remove_locked(struct pol_file *m)
{
	struct pol_file **pp;

	for (pp = &pol_files; *pp != m; pp = &(*pp)->next)
		;
	*pp = m->next;
	m->next = free_list;
	free_list = m;
	list_changed_locked();
}
