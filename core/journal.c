/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "journal.h"
#include "bug.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

#define ZERO_STEP_MIN (256u << 10)
#define ZERO_STEP_MAX (4u << 20)

static const uint8_t zeros[64 << 10];

/* ---- the position ---- */

uint64_t vm_journal_mark(struct vm_journal *j, struct vm_journal_mark *ret)
{
	uint64_t turn;

	do {
		turn = atomic_load(&j->pos->turn);
		*ret = j->pos->mark[turn & 1];
		atomic_thread_fence(memory_order_acquire);
	} while (turn != atomic_load(&j->pos->turn));
	return turn;
}

/* J6: fill the mark that does not count, then let it count. */
void vm_journal_set_mark(struct vm_journal *j, const struct vm_journal_mark *m)
{
	uint64_t turn = atomic_load(&j->pos->turn);

	j->pos->mark[(turn + 1) & 1] = *m;
	atomic_store(&j->pos->turn, turn + 1);
}

int vm_journal_init(struct vm_journal *j)
{
	j->frame = vm_frame_alloc();
	return j->frame ? 0 : -ENOMEM;
}

void vm_journal_fini(struct vm_journal *j)
{
	vm_frame_free(j->frame);
	j->frame = NULL;
}

/* ---- writing ---- */

static int datasync(int fd)
{
	int err;

	do {
		err = vm_sys->fdatasync(fd);
	} while (err == -EINTR);
	return err;
}

/* Write zeros from *alloc on, so that the frames to come overwrite blocks that are there and their fdatasync
 * has no metadata to write. Only a help: where it ends, *alloc tells. */
static void zero_ahead(int fd, uint64_t limit, uint64_t *alloc)
{
	uint64_t step = *alloc - VM_JOURNAL_START;
	uint64_t stop;

	step = step < ZERO_STEP_MIN ? ZERO_STEP_MIN : step > ZERO_STEP_MAX ? ZERO_STEP_MAX : step;
	stop = *alloc + step < limit ? *alloc + step : limit;
	while (*alloc < stop) {
		struct iovec iov[16];
		uint64_t left = stop - *alloc;
		int n = 0;
		ssize_t len;

		for (; n < 16 && left; n++) {
			iov[n].iov_base = (void *)(uintptr_t)zeros;
			iov[n].iov_len = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
			left -= iov[n].iov_len;
		}
		len = vm_sys->pwritev(fd, iov, n, (off_t)*alloc);
		if (len <= 0)
			return;
		*alloc += (uint64_t)len;
	}
}

static int write_slot(int fd, uint32_t slot, const struct vm_journal_header *h)
{
	uint8_t buf[VM_JOURNAL_SLOT] = {0};

	memcpy(buf, h, sizeof(*h));
	return vm_sys_pwrite_full(fd, buf, sizeof(buf), (off_t)slot * VM_JOURNAL_SLOT);
}

static int get_salt(uint64_t *ret)
{
	*ret = 0;
	while (!*ret) {
		ssize_t n = vm_sys->getrandom(ret, sizeof(*ret), 0);

		if (n < 0 && n != -EINTR)
			return (int)n;
		if (n != sizeof(*ret))
			*ret = 0;
	}
	return 0;
}

int vm_journal_start_over(struct vm_journal *j, uint64_t size)
{
	struct vm_journal_header h = {.magic = VM_JOURNAL_MAGIC,
				      .version = VM_JOURNAL_VERSION,
				      .len = sizeof(h),
				      .dev = j->id.dev,
				      .ino = j->id.ino,
				      .igen = j->id.igen,
				      .size = size};
	struct vm_journal_mark m;
	uint32_t first;
	int err;

	vm_journal_mark(j, &m);
	BUG_ON(m.applied != m.tail && !(m.flags & VM_MARK_START)); /* J4 */
	memcpy(h.name, j->id.name, sizeof(h.name));

	/* From here on the disk may hold the new header, or not: frames of either generation could be lost.
	 */
	m.flags |= VM_MARK_START;
	m.generation++;
	vm_journal_set_mark(j, &m);
	err = get_salt(&m.salt);
	if (err)
		return err;
	h.generation = m.generation;
	h.salt = m.salt;
	h.base_txid = m.txid;
	h.sum = vm_journal_header_sum(&h);

	/* the slot that is not known to be good goes first: the other one counts until this is durable */
	first = !m.good_slot;
	err = write_slot(j->fd, first, &h);
	if (!err)
		err = datasync(j->fd);
	if (err)
		return err;
	m.good_slot = first;
	/* The second is a spare for a damaged first. Should this fail the next start-over writes it first. */
	(void)write_slot(j->fd, !first, &h);

	m.flags = 0;
	m.tail = m.synced = m.applied = VM_JOURNAL_START;
	m.chain = m.salt;
	m.seq = m.durable_seq = 0;
	m.size = size;
	if (m.alloc > j->limit && !vm_sys->ftruncate(j->fd, (off_t)j->limit))
		m.alloc = j->limit;
	if (m.alloc <= VM_JOURNAL_START) {
		m.alloc = VM_JOURNAL_START;
		zero_ahead(j->fd, j->limit, &m.alloc);
	}
	vm_journal_set_mark(j, &m);
	return 0;
}

void vm_journal_begin(struct vm_journal *j)
{
	struct vm_journal_mark m;

	vm_journal_mark(j, &m);
	BUG_ON(m.flags & VM_MARK_START || !m.tail); /* J2 */
	j->fill = 0;
	j->flags = 0;
	j->nframes = 0;
	j->attempt = atomic_fetch_add(&j->pos->attempt, 1) + 1;
	vm_journal_rebase(j);
}

void vm_journal_rebase(struct vm_journal *j)
{
	struct vm_journal_mark m;

	BUG_ON(j->nframes);
	vm_journal_mark(j, &m);
	j->tail = m.tail;
	j->chain = m.chain;
	j->alloc = m.alloc;
}

/* Write what was gathered as the next frame. txn: as the commit frame. */
static int write_frame(struct vm_journal *j, const struct vm_txn *txn)
{
	struct vm_frame *fr = (struct vm_frame *)j->frame;
	struct vm_journal_mark m;
	uint64_t space;
	int err;

	vm_journal_mark(j, &m);
	*fr = (struct vm_frame){.magic = VM_JOURNAL_FRAME_MAGIC,
				.generation = m.generation,
				.salt = m.salt,
				.offset = j->tail,
				.prev = j->chain,
				.seq = m.seq + 1,
				.durable_seq = m.durable_seq,
				.attempt = j->attempt,
				.len = j->fill};
	if (txn) {
		fr->flags = VM_FRAME_COMMIT | j->flags;
		fr->txid = txn->txid;
		fr->size = txn->size;
		fr->cut = txn->size_low < txn->size ? txn->size_low : txn->size;
	}
	fr->payload_sum = vm_frame_payload_sum(fr + 1, fr->len);
	fr->sum = vm_frame_sum(fr);
	space = vm_frame_space(fr);
	memset((uint8_t *)(fr + 1) + fr->len, 0, space - sizeof(*fr) - fr->len);

	err = vm_sys_pwrite_full(j->fd, j->frame, space, (off_t)j->tail);
	if (err)
		return err;
	j->tail += space;
	j->chain = fr->sum;
	j->nframes++;
	if (j->tail > j->alloc)
		j->alloc = j->tail;
	return 0;
}

int vm_journal_add(struct vm_journal *j, uint64_t off, const void *data, size_t len, uint32_t flags)
{
	const uint8_t *p = data;

	if (flags & VM_RUN_BASE)
		j->flags |= VM_FRAME_BASE;
	while (len) {
		struct vm_run run = {.off = off, .flags = flags};
		uint8_t *to = j->frame + sizeof(struct vm_frame) + j->fill;
		size_t room = VM_JOURNAL_PAYLOAD_MAX - j->fill;

		if (room < sizeof(run) + VM_BLKSIZE && room < sizeof(run) + len) {
			int err = write_frame(j, NULL);

			if (err)
				return err;
			j->fill = 0;
			continue;
		}
		room -= sizeof(run);
		run.len = (uint32_t)(len < room ? len : room);
		memcpy(to, &run, sizeof(run));
		memcpy(to + sizeof(run), p, run.len);
		j->fill += (uint32_t)sizeof(run) + run.len;
		off += run.len;
		p += run.len;
		len -= run.len;
	}
	return 0;
}

bool vm_journal_has_runs(const struct vm_journal *j)
{
	return j->fill || j->nframes;
}

/* A commit is reported as failed: try that no crash brings it back. Without its first frame the others are
 * nothing. The result is not looked at: there is no more that could be done. */
static void neutralise(struct vm_journal *j, uint64_t off)
{
	(void)vm_sys_pwrite_full(j->fd, zeros, VM_JOURNAL_ALIGN, (off_t)off);
	(void)datasync(j->fd);
}

/* After a failed fdatasync the kernel may call pages clean that the disk does not have: write the frames of
 * [synced, tail) again. What the cache gave up does not verify, and then these commits cannot become durable.
 */
static int rewrite_unsynced(struct vm_journal *j, const struct vm_journal_mark *m)
{
	struct vm_frame *fr = vm_frame_alloc();
	uint64_t off = m->synced;
	int err = fr ? 0 : -ENOMEM;

	while (!err && off < m->tail) {
		uint64_t space;

		err = vm_frame_load(j->fd, off, fr);
		if (err)
			break;
		space = vm_frame_space(fr);
		err = vm_sys_pwrite_full(j->fd, fr, sizeof(*fr) + fr->len, (off_t)off);
		off += space;
	}
	vm_frame_free(fr);
	return err;
}

/* fdatasync, with what an earlier failed one may have lost. m is the present mark; on an error it is updated.
 */
static int sync_frames(struct vm_journal *j, struct vm_journal_mark *m)
{
	int err = 0;

	if (m->flags & VM_MARK_REWRITE)
		err = rewrite_unsynced(j, m);
	if (!err)
		err = datasync(j->fd);
	if (!err) {
		m->flags &= ~VM_MARK_REWRITE;
		return 0;
	}
	if (m->synced < m->tail) {
		m->flags |= VM_MARK_REWRITE;
		vm_journal_set_mark(j, m);
	}
	return err;
}

int vm_journal_commit(struct vm_journal *j, const struct vm_txn *txn, bool sync)
{
	struct vm_journal_mark m;
	uint64_t start;
	int err;

	vm_journal_mark(j, &m);
	start = m.tail;
	err = write_frame(j, txn);
	if (!err && sync)
		err = sync_frames(j, &m);
	if (err) {
		neutralise(j, start);
		return err;
	}
	if (j->alloc - j->tail < ZERO_STEP_MIN / 4)
		zero_ahead(j->fd, j->limit, &j->alloc);
	m.tail = j->tail;
	m.alloc = j->alloc;
	m.chain = j->chain;
	m.seq++;
	m.txid = txn->txid;
	m.size = txn->size;
	if (sync) {
		m.synced = m.tail;
		m.durable_seq = m.seq;
	}
	vm_journal_set_mark(j, &m);
	return 0;
}

int vm_journal_sync(struct vm_journal *j)
{
	struct vm_journal_mark m;
	int err;

	vm_journal_mark(j, &m);
	if (m.synced == m.tail)
		return 0;
	err = sync_frames(j, &m);
	if (err)
		return err;
	m.synced = m.tail;
	m.durable_seq = m.seq;
	vm_journal_set_mark(j, &m);
	return 0;
}

/* ---- to the file, and from it ---- */

/* Is [applied, synced) one frame, and still in the buffer of this process? The sum says that it is this very
 * frame. */
static bool is_in_memory(const struct vm_journal *j, const struct vm_journal_mark *m)
{
	const struct vm_frame *fr = (const struct vm_frame *)j->frame;

	return j->nframes == 1 && j->chain == m->chain && fr->offset == m->applied && j->tail == m->synced &&
	       m->synced == m->tail;
}

static int apply_from_memory(struct vm_journal *j, int data_fd)
{
	const struct vm_frame *fr = (const struct vm_frame *)j->frame;
	int err = vm_apply_size(data_fd, fr);

	if (!err && fr->flags & VM_FRAME_BASE)
		err = vm_apply_runs(data_fd, fr, fr + 1, fr->len, true);
	return err ? err : vm_apply_runs(data_fd, fr, fr + 1, fr->len, false);
}

int vm_journal_apply(struct vm_journal *j, int data_fd)
{
	struct vm_journal_mark m;
	int err;

	vm_journal_mark(j, &m);
	if (m.applied == m.synced)
		return 0;
	if (is_in_memory(j, &m))
		err = apply_from_memory(j, data_fd);
	else
		err = vm_journal_replay(j->fd, data_fd, m.applied, m.synced, NULL, NULL);
	if (err)
		return err;
	m.applied = m.synced;
	vm_journal_set_mark(j, &m);
	return 0;
}

int vm_journal_checkpoint(struct vm_journal *j, int data_fd)
{
	struct vm_journal_mark m;
	int err = vm_journal_sync(j);

	if (!err)
		err = vm_journal_apply(j, data_fd);
	if (err)
		return err;
	vm_journal_mark(j, &m);
	if (m.flags & VM_MARK_START)
		return vm_journal_start_over(j, m.size);
	if (m.tail == VM_JOURNAL_START)
		return 0;
	err = datasync(data_fd);
	if (err) {
		/* pages of the file may be lost though the kernel calls them clean: replay them all */
		m.applied = VM_JOURNAL_START;
		vm_journal_set_mark(j, &m);
		return err;
	}
	return vm_journal_start_over(j, m.size);
}
