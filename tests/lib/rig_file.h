/* SPDX-License-Identifier: MIT */
/* What the files of the rig use of each other. */
#ifndef RIG_FILE_H
#define RIG_FILE_H

#include "vm.h"

#define RIG_MAX_PGOFF  (1ull << 29) /* 2 TiB of file */
#define RIG_MAX_STORED (1ull << 20) /* pages of one transaction */

struct rig_file;
extern const struct vm_backend_ops rig_ops;
/* The transaction happens; has anything changed? */
bool rig_file_apply(struct rig_file *f, const struct vm_txn *txn);
/* A handle; both are closed after the test. */
struct vm_fileh *rig_keep(struct rig_file *f, enum vm_load load);

/* A promise that core broke, or a host that is too small for tests: ends the process. */
void rig_must(bool ok, const char *what);
/* Whole buffers, not by the table of host calls in use: that may be told to fail. */
void rig_get_bytes(int fd, uint64_t off, void *buf, size_t len);
void rig_put_bytes(int fd, uint64_t off, const void *buf, size_t len);

/* Zeroed memory that forked children share. */
void *rig_shared(size_t len);
void rig_file_free(struct rig_file *f);

#endif
