/* SPDX-License-Identifier: MIT */
/* Between the journal's own files. */
#ifndef VM_JOURNAL_PRIV_H
#define VM_JOURNAL_PRIV_H

#include "recover.h"

/* vm_journal_add, with runs of any kind. One of up to VM_RUN_WHOLE bytes stays one. */
int vm_journal_add_run(struct vm_journal *j, uint64_t off, const void *data, size_t len, uint32_t flags);
#define VM_RUN_WHOLE (2 * VM_BLKSIZE)
/* fdatasync of all files of a group that the frames up to to have a size of. */
int vm_journal_sync_files(struct vm_journal *j, const struct vm_journal_files *files, uint64_t to);
/* fdatasync, also when a signal came. */
int vm_journal_datasync(int fd);
/* Does a stub's record verify, and belong to the header, if there is one? 0, -EUCLEAN or -errno. */
int vm_journal_verify_stub(int fd, const struct vm_journal_header *h);
/* One of the two header slots. */
int vm_journal_write_slot(int fd, uint32_t slot, const struct vm_journal_header *h);
/* Write zeros from *alloc on, so that the frames to come overwrite blocks that are there and their fdatasync
 * has no metadata to write. Only a help: where it ends, *alloc tells. */
void vm_journal_zero_ahead(int fd, uint64_t limit, uint64_t *alloc);
/* There is less than this written ahead: time to do it again. */
#define VM_JOURNAL_AHEAD_MIN (64u << 10)

#endif
