/* SPDX-License-Identifier: MIT */
/* What a crash left, as somebody finds it who knows only the files' names. */
#ifndef LOOK_H
#define LOOK_H

#include "work.h"

/* Which versions may be seen. */
struct allowed {
	unsigned low, high;
	bool failed[WORK_VERSIONS + 1];
};

/* Check and recover the files, beginning with first. NULL, or what is wrong, until the next call. */
const char *look_recover(const struct work_run *w, unsigned first);
/* The version that they are, of those they may be; or -1. */
int look_version(const struct work_run *w, const struct allowed *ok);
/* Can they be gone on with? They are not these versions any more. */
bool look_goes_on(struct work_run *w);

#endif
