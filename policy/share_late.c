/* SPDX-License-Identifier: MIT */
/* A file's journal is somebody's, and nobody is there to share it: for a moment that may be so. */
#include "backends.h"
#include "managed_priv.h"
#include "share.h"

#define LATE_MSEC	500
#define LATE_PAUSE_MSEC 50
#define TRY_MSEC	5

bool pol_share_comes_late(const struct pol_file *m, unsigned asked)
{
	struct pol_registry r;
	unsigned n = 0;

	(void)vm_sys->poll(NULL, 0, (int)(asked - 1) * LATE_PAUSE_MSEC); /* who is there was on its way out */
	for (unsigned msec = 0; !n && msec < LATE_MSEC; msec += TRY_MSEC) {
		(void)vm_sys->poll(NULL, 0, TRY_MSEC); /* nothing tells when it does */
		if (!pol_journal_is_in_use(m->path, m->rule->journal_dir))
			return true;
		if (pol_registry_read(m->file.dev, m->file.ino, &r))
			continue;
		n = r.n;
		pol_registry_close(&r);
	}
	return n;
}
