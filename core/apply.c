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

/* ---- sizes ---- */

static int apply_size(int data_fd, uint64_t new_size, uint64_t cut)
{
	struct statx st;
	uint64_t size;
	int err = vm_sys->statx(data_fd, STATX_SIZE, &st); /* fstat would make each write's time a new one */

	if (err)
		return err;
	size = st.stx_size;
	if (size > cut) {
		err = vm_sys->ftruncate(data_fd, (off_t)cut);
		if (err)
			return err;
		size = cut;
	}
	return size == new_size ? 0 : vm_sys->ftruncate(data_fd, (off_t)new_size);
}

static int apply_size_run(const struct vm_apply *a, const struct vm_run *run, const uint8_t *bytes)
{
	uint32_t file = vm_run_file(run);
	uint64_t cut;
	int fd;

	if (!file || file >= VM_JOURNAL_NFILES || run->len != sizeof(cut))
		return -EUCLEAN;
	memcpy(&cut, bytes, sizeof(cut));
	a->table[file].size = run->off;
	a->table[file].commit = a->commit.sum;
	fd = vm_file_get(a->files, file);
	if (fd == VM_FILE_GONE)
		return 0;
	return fd < 0 ? fd : apply_size(fd, run->off, cut);
}

int vm_apply_sizes(const struct vm_apply *a, const struct vm_frame *fr)
{
	const uint8_t *p = (const uint8_t *)(fr + 1), *stop = p + fr->len;
	struct vm_run run;
	int err = 0;

	if (!a->table)
		return apply_size(a->files->fd, a->commit.size, a->commit.cut);
	while (!err && p < stop) {
		p = vm_run_at(p, stop, &run);
		if (!p)
			return -EUCLEAN;
		if (vm_run_kind(&run) == VM_RUN_SIZE)
			err = apply_size_run(a, &run, p);
		p += run.len;
	}
	return err;
}

/* Does a commit give the file a size? That, or no limit. */
static bool has_size(const struct vm_apply *a, uint32_t file, uint64_t *ret)
{
	*ret = a->table ? UINT64_MAX : a->commit.size;
	if (!a->table)
		return !file;
	if (!file || file >= VM_JOURNAL_NFILES || a->table[file].commit != a->commit.sum)
		return false;
	*ret = a->table[file].size;
	return true;
}

/* ---- bytes ---- */

/* A run that this pass wants, cut at the file's size. */
struct piece {
	const uint8_t *bytes;
	uint64_t off;
	size_t len;
};

/* Runs of one file that follow each other. */
struct cursor {
	uint32_t file, kind;
	uint64_t size;
	const uint8_t *p, *stop; /* what is left of the payload */
};

/* 1; 0: no more of this file; or -EUCLEAN. */
static int next_piece(struct cursor *c, struct piece *ret)
{
	while (c->p < c->stop) {
		struct vm_run run;
		const uint8_t *bytes = vm_run_at(c->p, c->stop, &run);

		if (!bytes)
			return -EUCLEAN;
		if (vm_run_file(&run) != c->file)
			return 0;
		c->p = bytes + run.len;
		if (vm_run_kind(&run) == c->kind && run.len && run.off < c->size) {
			uint64_t left = c->size - run.off;

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
	const uint8_t *payload = (const uint8_t *)(fr + 1);
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

/* The runs of one file from c->p on; *ret_p is where those of the next one begin. */
static int apply_stretch(const struct vm_apply *a, const struct vm_frame *fr, struct cursor c,
			 const uint8_t **ret_p)
{
	uint64_t start = UINT64_MAX, stop = 0;
	struct cursor again = c;
	bool is_sized = has_size(a, c.file, &c.size);
	unsigned n = 0;
	struct piece pc;
	int more, fd;

	again.size = c.size;
	while ((more = next_piece(&c, &pc)) > 0) {
		start = pc.off < start ? pc.off : start;
		stop = pc.off + pc.len > stop ? pc.off + pc.len : stop;
		n++;
	}
	*ret_p = c.p;
	if (more < 0 || !n)
		return more;
	if (!is_sized)
		return -EUCLEAN;
	fd = vm_file_get(a->files, c.file);
	if (fd == VM_FILE_GONE)
		return 0;
	if (fd < 0)
		return fd;
	again.stop = c.p;
	if (n >= MANY && map_pieces(a->fd, fd, fr, again, start, stop))
		return 0;
	return write_pieces(fd, again);
}

int vm_apply_frame(const struct vm_apply *a, const struct vm_frame *fr, uint32_t kind)
{
	const uint8_t *payload = (const uint8_t *)(fr + 1);
	struct cursor c = {.kind = kind, .p = payload, .stop = payload + fr->len};
	int err = 0;

	while (!err && c.p < c.stop) {
		struct vm_run run;

		if (!vm_run_at(c.p, c.stop, &run))
			return -EUCLEAN;
		c.file = vm_run_file(&run);
		err = apply_stretch(a, fr, c, &c.p);
	}
	return err;
}
