/* SPDX-License-Identifier: MIT */
/* What no rule applies to, however wide its globs: our own files, and the code that this process runs. */
#include "managed_priv.h"
#include "log.h"
#include "vm_procmaps.h"
#include <string.h>
#include <sys/mman.h>

struct search {
	const struct stat *st;
	bool found;
};

static void look(const struct vm_procmap *m, void *arg)
{
	struct search *s = arg;

	s->found |= (m->prot & PROT_EXEC) && m->ino == s->st->st_ino && m->dev == s->st->st_dev;
}

static bool is_running(const struct stat *st)
{
	struct search s = {.st = st};

	return !vm_procmaps_for_each(look, &s) && s.found;
}

/* In the runtime directory; the sockets in there are unfit anyway. */
static bool is_of_sharing(const char *path)
{
	const char *dir = pol_config_get()->runtime_dir;
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (!strcmp(path + len, "/shares") || !strncmp(path + len, "/share-", 7));
}

const char *pol_never_managed(int fd, const struct stat *st, const char *path)
{
	char magic[4];

	if (pol_is_journal(path))
		return "a journal";
	if (is_of_sharing(path))
		return "a list of who shares what";
	if (pol_log_is_file(st))
		return "the log";
	if (S_ISREG(st->st_mode) && vm_sys->pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	    !memcmp(magic, "\177ELF", sizeof(magic)) && is_running(st))
		return "code that this process runs";
	return NULL;
}
