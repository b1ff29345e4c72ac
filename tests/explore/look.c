/* SPDX-License-Identifier: MIT */
#include "look.h"
#include "backend_file_group.h"
#include "box.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has_journal(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char journal[300];

	(void)snprintf(journal, sizeof(journal), "%.*s.%s.txmap", (int)(name - path), path, name);
	return box_has(journal);
}

/* A crash before there was a stub leaves it behind, empty, and nothing leads to it; and one before a new generation
 * names its files makes it stay until the next one has ended. */
static bool group_has_commits(const struct work_run *w)
{
	int fd = *w->group ? open(w->group, O_RDWR | O_CLOEXEC) : -1;
	bool has = fd >= 0 && pol_group_holds_commits(fd);

	if (fd >= 0)
		close(fd);
	return has;
}

const char *look_recover(const struct work_run *w, unsigned first)
{
	static struct pol_journal_report rep;

	for (unsigned n = 0; n < w->npaths; n++) {
		const char *path = w->path[(first + n) % w->npaths];

		if (!box_has(path)) /* it was made, but its name was not on the disk yet */
			continue;
		if (pol_journal_check(path, NULL, &rep) || rep.state == POL_JOURNAL_DAMAGED ||
		    rep.state == POL_JOURNAL_FOREIGN || pol_journal_recover(path, NULL, NULL, NULL, &rep))
			return rep.text;
		if (has_journal(path))
			return "the journal is still there";
	}
	return group_has_commits(w) ? "the group's journal still holds commits" : NULL;
}

int look_version(const struct work_run *w, const struct allowed *ok)
{
	for (unsigned v = ok->high + 1; v-- > ok->low;) {
		unsigned i = 0;

		while (i < w->npaths && !ok->failed[v] && work_is_content(&w->version[v].f[i], w->path[i]))
			i++;
		if (i == w->npaths)
			return (int)v;
	}
	return -1;
}

bool look_goes_on(struct work_run *w)
{
	return work_goes_on(w) && !group_has_commits(w);
}
