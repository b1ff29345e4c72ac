/* SPDX-License-Identifier: MIT */
/* The names of live files change. Recovery finds a journal by the name of its file, so none may stay by a
 * name that its file no longer has, least of all when another file has it now. */
#include "managed_priv.h"
#include <stdio.h>
#include <string.h>

/* Two files are held at once: by one thread at a time, so that no other holds them the other way round. */
static pthread_mutex_t renaming = PTHREAD_MUTEX_INITIALIZER;

void pol_rename_fork_child(void)
{
	renaming = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static int hold(int dirfd, const char *path, const struct pol_file *held, struct pol_file **ret_m)
{
	struct pol_file *m = pol_file_of_path(dirfd, path, false);
	int err = 0;

	if (m && m != held) {
		err = vm_fileh_rename_begin(m->h);
		if (err)
			pol_file_failed(m, "rename: what was committed could not be brought in place", err);
	}
	if (m && (err || m == held)) {
		(void)pol_fd_close(m); /* never the last one's release: the file is in use */
		m = NULL;
	}
	*ret_m = m;
	return err;
}

/* Held since vm_fileh_rename_begin; done: it has another name, or none. */
static void follow(struct pol_file *m, bool done)
{
	char path[PATH_MAX + 1];

	if (done && pol_path_of_fd(m->file.fd, path)) {
		pol_lock();
		strcpy(m->path, path);
		pol_unlock();
	}
	vm_fileh_rename_end(m->h, done);
}

int pol_rename_begin(int olddirfd, const char *old, int newdirfd, const char *new, struct pol_rename *ret)
{
	int err;

	ret->m[1] = NULL;
	(void)pthread_mutex_lock(&renaming);
	err = hold(olddirfd, old, NULL, &ret->m[0]);
	if (!err && new)
		err = hold(newdirfd, new, ret->m[0], &ret->m[1]);
	if (err)
		pol_rename_end(ret, false);
	return err;
}

void pol_rename_end(struct pol_rename *r, bool done)
{
	/* the one that lost its name first */
	for (int i = 1; i >= 0; i--)
		if (r->m[i])
			follow(r->m[i], done);
	for (int i = 0; i < 2; i++)
		if (r->m[i])
			(void)pol_fd_close(r->m[i]); /* logged, when it was the last */
	(void)pthread_mutex_unlock(&renaming);
}

static struct pol_file *get_other_at(const struct pol_file *m)
{
	struct pol_file *other;

	pol_lock();
	for (other = pol_files; other; other = other->next)
		if (other != m && other->h && !other->busy && other->file.writable &&
		    !strcmp(other->path, m->path))
			break;
	if (other)
		other->refs++;
	pol_unlock();
	return other;
}

void pol_file_take_path(struct pol_file *m)
{
	struct pol_file *other;

	/* of a file that relatives by fork have, too, the journal must stay where they expect it */
	while ((other = get_other_at(m)) && !vm_fileh_is_shared(other->h) &&
	       !vm_fileh_rename_begin(other->h)) {
		follow(other, true);
		pol_file_put(other);
	}
	if (other)
		pol_file_put(other);
}
