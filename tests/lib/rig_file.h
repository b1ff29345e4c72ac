/* SPDX-License-Identifier: MIT */
/* What rig.c and rig_run.c use of each other. */
#ifndef RIG_FILE_H
#define RIG_FILE_H

#include <stddef.h>

#define RIG_MAX_PGOFF  (1ull << 29) /* 2 TiB of file */
#define RIG_MAX_STORED (1ull << 20) /* pages of one transaction */

struct rig_file;

/* Zeroed memory that forked children share. */
void *rig_shared(size_t len);
void rig_file_free(struct rig_file *f);

#endif
