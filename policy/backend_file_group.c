/* SPDX-License-Identifier: MIT */
/* The file backend for files that commit together. */
#include "backends.h"

#include <errno.h>

static int group_open(struct vm_bigfile *f, const char *arg)
{
	(void)f;
	(void)arg;
	return -EOPNOTSUPP;
}

const struct vm_backend_ops pol_backend_file_group = {
	.abi = VM_BACKEND_ABI,
	.name = "file",
	.open = group_open,
};
