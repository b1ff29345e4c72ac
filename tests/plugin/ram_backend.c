/* SPDX-License-Identifier: MIT */
/*
 * A backend of one's own, as short as it can be: blocks in memory and, with an argument, in a plain file:
 *
 *	backend = plugin:/path/ram_backend.so		gone with the process
 *	backend = plugin:/path/ram_backend.so:/path/store	written anew and renamed at each commit
 *
 * The store begins as a copy of the program's file, which is then left alone. A forked child has a copy of
 * its own without a store: an example that shared one would need a lock.
 */
#include "vm_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
	unsigned char *data; /* cap bytes; zeros past size */
	uint64_t size, cap;
};

struct ram {
	struct image now, next; /* committed; being built by a transaction */
	struct image stored;	/* a byte for each block: 1 when the transaction stored it */
	char *store;		/* path, or NULL */
};

static int image_resize(struct image *im, uint64_t cap)
{
	unsigned char *p;

	if (cap <= im->cap)
		return 0;
	p = realloc(im->data, cap);
	if (!p)
		return -ENOMEM;
	memset(p + im->cap, 0, cap - im->cap);
	im->data = p;
	im->cap = cap;
	return 0;
}

static int image_read(struct image *im, int fd)
{
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	err = image_resize(im, (uint64_t)st.st_size);
	for (uint64_t done = 0; !err && done < (uint64_t)st.st_size;) {
		ssize_t n = pread(fd, im->data + done, (uint64_t)st.st_size - done, (off_t)done);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (uint64_t)n;
	}
	im->size = err ? 0 : (uint64_t)st.st_size;
	return err;
}

static int image_write(const struct image *im, const char *path)
{
	char tmp[4096];
	int fd, err = 0;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	for (uint64_t done = 0; !err && done < im->size;) {
		ssize_t n = write(fd, im->data + done, im->size - done);

		if (n < 0)
			err = -errno;
		else
			done += (uint64_t)n;
	}
	if (!err && fsync(fd))
		err = -errno;
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename(tmp, path))
		err = -errno;
	return err;
}

static void forget_transaction(struct ram *r)
{
	free(r->next.data);
	memset(&r->next, 0, sizeof(r->next));
	free(r->stored.data);
	memset(&r->stored, 0, sizeof(r->stored));
}

static int ram_open(struct vm_bigfile *f, const char *arg)
{
	struct ram *r = calloc(1, sizeof(*r));
	int fd = -1, err = 0;

	if (!r)
		return -ENOMEM;
	if (arg && *arg) {
		r->store = strdup(arg);
		fd = open(arg, O_RDONLY | O_CLOEXEC);
		if (!r->store)
			err = -ENOMEM;
		else if (fd < 0 && errno != ENOENT)
			err = -errno;
	}
	if (!err && (fd >= 0 || f->fd >= 0))
		err = image_read(&r->now, fd >= 0 ? fd : f->fd);
	if (fd >= 0)
		close(fd);
	if (err) {
		free(r->now.data);
		free(r->store);
		free(r);
		return err;
	}
	f->priv = r;
	return 0;
}

static int ram_close(struct vm_bigfile *f)
{
	struct ram *r = f->priv;

	forget_transaction(r);
	free(r->now.data);
	free(r->store);
	free(r);
	return 0;
}

static int ram_getsize(struct vm_bigfile *f, uint64_t *ret_size)
{
	struct ram *r = f->priv;

	*ret_size = r->now.size;
	return 0;
}

static int ram_loadblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, void *buf)
{
	struct ram *r = f->priv;
	uint64_t off = pgoff * VM_BLKSIZE, len = npages * VM_BLKSIZE, have = 0;

	if (off < r->now.size)
		have = r->now.size - off < len ? r->now.size - off : len;
	memcpy(buf, r->now.data + off, have);
	memset((char *)buf + have, 0, len - have);
	return 0;
}

static int ram_begin(struct vm_bigfile *f)
{
	struct ram *r = f->priv;
	int err;

	forget_transaction(r);
	err = image_resize(&r->next, r->now.size);
	if (!err)
		memcpy(r->next.data, r->now.data, r->now.size);
	return err;
}

static int ram_storeblk(struct vm_bigfile *f, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	struct ram *r = f->priv;
	uint64_t off = pgoff * VM_BLKSIZE, len = npages * VM_BLKSIZE;
	int err = image_resize(&r->next, off + len);

	(void)flags; /* a block that comes again simply replaces */
	if (!err)
		err = image_resize(&r->stored, pgoff + npages);
	if (err)
		return err;
	memcpy(r->next.data + off, buf, len);
	memset(r->stored.data + pgoff, 1, npages);
	return 0;
}

/* What lay at or beyond low is gone, but for what was stored there. */
static void cut(struct ram *r, uint64_t low)
{
	while (low < r->next.cap) {
		uint64_t blk = low / VM_BLKSIZE, stop = (blk + 1) * VM_BLKSIZE;

		stop = stop < r->next.cap ? stop : r->next.cap;
		if (blk >= r->stored.cap || !r->stored.data[blk])
			memset(r->next.data + low, 0, stop - low);
		low = stop;
	}
}

static int ram_commit(struct vm_bigfile *f, const struct vm_txn *txn, unsigned flags)
{
	struct ram *r = f->priv;
	int err = image_resize(&r->next, txn->size);

	(void)flags; /* every commit is durable */
	if (err)
		return err;
	cut(r, txn->size_low);
	if (r->next.cap > txn->size)
		memset(r->next.data + txn->size, 0, r->next.cap - txn->size);
	r->next.size = txn->size;
	err = r->store ? image_write(&r->next, r->store) : 0;
	if (err)
		return err;
	free(r->now.data);
	r->now = r->next;
	r->next.data = NULL;
	forget_transaction(r);
	return 0;
}

static void ram_abort(struct vm_bigfile *f)
{
	forget_transaction(f->priv);
}

__attribute__((visibility("default"))) extern const struct vm_backend_ops txmap_backend;
const struct vm_backend_ops txmap_backend = {
	.abi = VM_BACKEND_ABI,
	.name = "ram",
	.open = ram_open,
	.close = ram_close,
	.getsize = ram_getsize,
	.loadblk = ram_loadblk,
	.begin = ram_begin,
	.storeblk = ram_storeblk,
	.commit = ram_commit,
	.abort = ram_abort,
};
