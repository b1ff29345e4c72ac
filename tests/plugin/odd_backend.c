/* SPDX-License-Identifier: MIT */
/*
 * Storage that misbehaves when told to: ram_backend.so, which lies beside it, with a word in front of each
 * operation.
 *
 *	backend = plugin:/path/odd_backend.so:/path/orders
 *
 * The file `orders` holds lines "OPERATION ERRNO" (load 5) or "OPERATION hang"; no file, no line: as always.
 * It is looked at anew at each operation, and all the time while one hangs.
 */
#define _GNU_SOURCE 1
#include "vm_backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct vm_backend_ops *ram;
static char orders[4096];

/* What the orders say of an operation: 0, an error, or -1: hang. */
static int look(const char *operation)
{
	char text[256] = "", *at;
	size_t len = strlen(operation);
	int fd = open(orders, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (at = text; n > 0 && at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (!strncmp(at, operation, len) && at[len] == ' ')
			return at[len + 1] == 'h' ? -1 : atoi(at + len + 1);
	return 0;
}

static int ordered(const char *operation)
{
	int what;

	while ((what = look(operation)) < 0)
		poll(NULL, 0, 5);
	return -what;
}

static int odd_open(struct vm_bigfile *f, const char *arg)
{
	char path[4096], *slash;
	Dl_info info;
	void *so;

	if (!arg || strlen(arg) >= sizeof(orders) || !dladdr(orders, &info) || strlen(info.dli_fname) >= sizeof(path) - 20)
		return -EINVAL;
	strcpy(orders, arg);
	strcpy(path, info.dli_fname);
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, "ram_backend.so");
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ram = so ? dlsym(so, "txmap_backend") : NULL;
	return ram ? ordered("open") ?: ram->open(f, NULL) : -ELIBACC;
}

static int odd_close(struct vm_bigfile *f)
{
	int err = ordered("close");

	return ram->close(f) ?: err;
}

static int odd_getsize(struct vm_bigfile *f, uint64_t *ret_size)
{
	return ordered("size") ?: ram->getsize(f, ret_size);
}

static int odd_loadblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
{
	return ordered("load") ?: ram->loadblk(f, pgoff, npages, buf);
}

static int odd_begin(struct vm_bigfile *f)
{
	return ordered("begin") ?: ram->begin(f);
}

static int odd_storeblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	return ordered("store") ?: ram->storeblk(f, pgoff, npages, buf, flags);
}

static int odd_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	return ordered("commit") ?: ram->commit(f, txn, flags);
}

static void odd_abort(struct vm_bigfile *f)
{
	ram->abort(f);
}

__attribute__((visibility("default"))) extern const struct vm_backend_ops txmap_backend;
const struct vm_backend_ops txmap_backend = {
	.abi = VM_BACKEND_ABI,
	.name = "odd",
	.open = odd_open,
	.close = odd_close,
	.getsize = odd_getsize,
	.loadblk = odd_loadblk,
	.begin = odd_begin,
	.storeblk = odd_storeblk,
	.commit = odd_commit,
	.abort = odd_abort,
};
