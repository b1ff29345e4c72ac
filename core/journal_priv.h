/* SPDX-License-Identifier: MIT */
/* Between the journal's own files. */
#ifndef VM_JOURNAL_PRIV_H
#define VM_JOURNAL_PRIV_H

#include "journal.h"

/* fdatasync, also when a signal came. */
int vm_journal_datasync(int fd);
/* Write zeros from *alloc on, so that the frames to come overwrite blocks that are there and their fdatasync
 * has no metadata to write. Only a help: where it ends, *alloc tells. */
void vm_journal_zero_ahead(int fd, uint64_t limit, uint64_t *alloc);
/* There is less than this written ahead: time to do it again. */
#define VM_JOURNAL_AHEAD_MIN (64u << 10)

#endif
