/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a frame into the file.
 *
 * Runs are written with pwrite. Where the file's page cache has large folios, ext4 looks at every block of
 * the folio at each write (6.18: 10 to 40 us a write). A mapping is no cure for some hundreds of runs: it
 * costs the same when the kernel takes its dirty pages over at munmap, and then whole folios are written
 * back, 2 MiB for a byte. For thousands it is worth it: they are read from the journal straight into a
 * mapping of the file, hundreds of them in one preadv. The kernel does the copying: a page that cannot be had
 * is a short count and no SIGBUS, and then pwrite does it all again and has the real errno.
 */
#define _GNU_SOURCE 1
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define MANY	  1024u	   /* runs, from which on a mapping pays */
#define NIOV	  128u	   /* little stack: this may run in a signal handler */
#define GAP_MAX	  64u	   /* bytes of the journal between two runs that are read and thrown away */
#define MAP_ALIGN 65536ull /* whole pages on any machine */

const uint8_t *vm_run_at(const uint8_t *p, const uint8_t *stop, struct vm_run *ret)
{
	if ((size_t)(stop - p) < sizeof(*ret))
		return NULL;
	memcpy(ret, p, sizeof(*ret));
	p += sizeof(*ret);
	if (ret->len > (size_t)(stop - p) || ret->off > (uint64_t)INT64_MAX - ret->len)
		return NULL;
	return p;
}

int vm_apply_size(int data_fd, const struct vm_frame *commit)
{
	struct statx st;
	uint64_t size;
	int err = vm_sys->statx(data_fd, STATX_SIZE, &st); /* fstat would make each write's time a new one */

	if (err)
		return err;
	size = st.stx_size;
	if (size > commit->cut) {
		err = vm_sys->ftruncate(data_fd, (off_t)commit->cut);
		if (err)
			return err;
		size = commit->cut;
	}
	return size == commit->size ? 0 : vm_sys->ftruncate(data_fd, (off_t)commit->size);
}

/* A run that this pass wants, cut at the file's size. */
struct piece {
	const uint8_t *bytes;
	uint64_t off;
	size_t len;
};

struct cursor {
	const struct vm_frame *commit;
	bool base;
	const uint8_t *p, *stop; /* what is left of the payload */
};

static struct cursor pieces_of(const struct vm_frame *fr, const struct vm_frame *commit, bool base)
{
	const uint8_t *payload = (const uint8_t *)(fr + 1);

	return (struct cursor){.commit = commit, .base = base, .p = payload, .stop = payload + fr->len};
}

/* 1, 0 at the end, or -EUCLEAN. */
static int next_piece(struct cursor *c, struct piece *ret)
{
	while (c->p < c->stop) {
		struct vm_run run;
		const uint8_t *bytes = vm_run_at(c->p, c->stop, &run);

		if (!bytes)
			return -EUCLEAN;
		c->p = bytes + run.len;
		if (!!(run.flags & VM_RUN_BASE) == c->base && run.len && run.off < c->commit->size) {
			uint64_t left = c->commit->size - run.off;

			*ret = (struct piece){bytes, run.off, run.len < left ? run.len : (size_t)left};
			return 1;
		}
	}
	return 0;
}

static int write_pieces(int data_fd, struct cursor c)
{
	struct piece pc;
	int more;

	while ((more = next_piece(&c, &pc)) > 0) {
		int err = vm_sys_pwrite_full(data_fd, pc.bytes, pc.len, (off_t)pc.off);

		if (err)
			return err;
	}
	return more;
}

/* Reads that follow each other in the journal. */
struct batch {
	int fd;
	uint64_t at, stop; /* journal bytes gathered */
	unsigned n;
	struct iovec iov[NIOV];
};

static bool batch_flush(struct batch *b)
{
	bool done =
		!b->n || vm_sys->preadv(b->fd, b->iov, (int)b->n, (off_t)b->at) == (ssize_t)(b->stop - b->at);

	b->n = 0;
	return done;
}

static bool batch_add(struct batch *b, uint64_t at, void *to, size_t len)
{
	static uint8_t sink[GAP_MAX]; /* nobody reads it */

	if (b->n && (at - b->stop > GAP_MAX || b->n + 2 > NIOV) && !batch_flush(b))
		return false;
	if (!b->n)
		b->at = b->stop = at;
	if (at > b->stop)
		b->iov[b->n++] = (struct iovec){sink, at - b->stop};
	b->iov[b->n++] = (struct iovec){to, len};
	b->stop = at + len;
	return true;
}

/* All pieces, which lie in [start, stop) of the file, through a mapping. */
static bool map_pieces(int fd, int data_fd, const struct vm_frame *fr, struct cursor c, uint64_t start,
		       uint64_t stop)
{
	struct batch b = {.fd = fd};
	const uint8_t *payload = c.p;
	struct piece pc;
	uint8_t *map;
	bool done = true;

	start &= ~(MAP_ALIGN - 1);
	map = vm_own_map(stop - start, PROT_READ | PROT_WRITE, MAP_SHARED, data_fd, (off_t)start);
	if (vm_sys_err(map))
		return false;
	while (done && next_piece(&c, &pc) > 0)
		done = batch_add(&b, fr->offset + sizeof(*fr) + (uint64_t)(pc.bytes - payload),
				 map + (pc.off - start), pc.len);
	done = done && batch_flush(&b);
	(void)vm_sys->munmap(map, stop - start); /* a whole mapping: cannot fail */
	return done;
}

int vm_apply_frame(int fd, int data_fd, const struct vm_frame *commit, const struct vm_frame *fr, bool base)
{
	struct cursor c = pieces_of(fr, commit, base);
	uint64_t start = UINT64_MAX, stop = 0;
	unsigned n = 0;
	struct piece pc;
	int more;

	while ((more = next_piece(&c, &pc)) > 0) {
		start = pc.off < start ? pc.off : start;
		stop = pc.off + pc.len > stop ? pc.off + pc.len : stop;
		n++;
	}
	if (more < 0)
		return more;
	c = pieces_of(fr, commit, base);
	if (n >= MANY && map_pieces(fd, data_fd, fr, c, start, stop))
		return 0;
	return write_pieces(data_fd, c);
}
