/* SPDX-License-Identifier: MIT */
/* Building a commit, making it durable, and bringing it into the file. */
#define _GNU_SOURCE 1
#include "journal_priv.h"
#include "bug.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>

int vm_journal_init(struct vm_journal *j)
{
	j->frame = vm_frame_alloc();
	if (!j->frame)
		return -ENOMEM;
	j->file = j->group ? vm_files_alloc(sizeof(*j->file)) : NULL;
	if (!j->group || j->file)
		return 0;
	vm_journal_fini(j);
	return -ENOMEM;
}

void vm_journal_fini(struct vm_journal *j)
{
	vm_frame_free(j->frame);
	j->frame = NULL;
	vm_files_free(j->file, sizeof(*j->file));
	j->file = NULL;
}

void vm_journal_begin(struct vm_journal *j)
{
	struct vm_journal_mark m;

	vm_journal_mark(j, &m);
	BUG_ON(m.flags & VM_MARK_START || !m.tail); /* J2 */
	j->fill = 0;
	j->flags = 0;
	j->nframes = 0;
	j->is_open = true;
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
	}
	if (txn && !j->group) {
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

int vm_journal_add_run(struct vm_journal *j, uint64_t off, const void *data, size_t len, uint32_t flags)
{
	const uint8_t *p = data;

	while (len) {
		struct vm_run run = {.off = off, .flags = flags};
		uint8_t *to = j->frame + sizeof(struct vm_frame) + j->fill;
		size_t room = VM_JOURNAL_PAYLOAD_MAX - j->fill;

		if (room < sizeof(run) + VM_RUN_WHOLE && room < sizeof(run) + len) {
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

int vm_journal_add(struct vm_journal *j, uint64_t off, const void *data, size_t len, uint32_t flags)
{
	BUG_ON(flags & (VM_RUN_KINDS & ~VM_RUN_BASE) || !(flags >> VM_RUN_FILE_SHIFT) != !j->group);
	if (flags & VM_RUN_BASE)
		j->flags |= VM_FRAME_BASE;
	return vm_journal_add_run(j, off, data, len, flags);
}

bool vm_journal_has_runs(const struct vm_journal *j)
{
	return j->is_open && (j->fill || j->nframes);
}

/* A commit is reported as failed: try that no crash brings it back. Without its first frame the others are
 * nothing. The result is not looked at: there is no more that could be done. */
static void neutralise(struct vm_journal *j, uint64_t off)
{
	static const uint8_t zeros[VM_JOURNAL_ALIGN];

	(void)vm_sys_pwrite_full(j->fd, zeros, sizeof(zeros), (off_t)off);
	(void)vm_journal_datasync(j->fd);
}

void vm_journal_forget(struct vm_journal *j)
{
	struct vm_journal_mark m;

	vm_journal_mark(j, &m);
	neutralise(j, m.tail);
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

/* fdatasync, with what an earlier failed one may have lost. m is the present mark; on an error it is updated. */
static int sync_frames(struct vm_journal *j, struct vm_journal_mark *m)
{
	int err = 0;

	if (m->flags & VM_MARK_REWRITE)
		err = rewrite_unsynced(j, m);
	if (!err)
		err = vm_journal_datasync(j->fd);
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
	if (j->alloc - j->tail < VM_JOURNAL_AHEAD_MIN)
		vm_journal_zero_ahead(j->fd, j->limit, &j->alloc);
	m.tail = j->tail;
	m.alloc = j->alloc;
	m.chain = j->chain;
	m.seq++;
	m.txid = txn->txid;
	m.size = j->group ? 0 : txn->size;
	if (sync) {
		m.synced = m.tail;
		m.durable_seq = m.seq;
	}
	vm_journal_set_mark(j, &m);
	j->is_open = false;
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

static int apply_from_memory(const struct vm_journal *j, const struct vm_journal_files *files)
{
	const struct vm_frame *fr = (const struct vm_frame *)j->frame;
	struct vm_apply a = {.fd = j->fd, .files = files, .table = j->file, .commit = *fr};
	int err = vm_apply_sizes(&a, fr);

	if (!err && fr->flags & VM_FRAME_BASE)
		err = vm_apply_frame(&a, fr, VM_RUN_BASE);
	return err ? err : vm_apply_frame(&a, fr, 0);
}

int vm_journal_apply(struct vm_journal *j, const struct vm_journal_files *files)
{
	struct vm_journal_mark m;
	int err;

	vm_journal_mark(j, &m);
	if (m.applied == m.synced)
		return 0;
	if (is_in_memory(j, &m))
		err = apply_from_memory(j, files);
	else
		err = vm_replay(j->fd, files, j->file, m.applied, m.synced, NULL, NULL);
	if (err)
		return err;
	m.applied = m.synced;
	vm_journal_set_mark(j, &m);
	return 0;
}

int vm_journal_checkpoint(struct vm_journal *j, const struct vm_journal_files *files)
{
	struct vm_journal_mark m;
	int err = vm_journal_sync(j);

	if (!err)
		err = vm_journal_apply(j, files);
	if (err)
		return err;
	vm_journal_mark(j, &m);
	if (m.flags & VM_MARK_START)
		return vm_journal_start_over(j, m.size);
	if (m.tail == VM_JOURNAL_START)
		return 0;
	err = j->group ? vm_journal_sync_files(j, files, m.tail) : vm_journal_datasync(files->fd);
	if (err) {
		/* pages of a file may be lost though the kernel calls them clean: replay them all */
		m.applied = VM_JOURNAL_START;
		vm_journal_set_mark(j, &m);
		return err;
	}
	return vm_journal_start_over(j, m.size);
}
