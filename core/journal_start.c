/* SPDX-License-Identifier: MIT */
/* Where the journal stands, and how a generation begins. */
#define _GNU_SOURCE 1
#include "journal_priv.h"
#include "bug.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define ZERO_STEP_MIN (256u << 10)
#define ZERO_STEP_MAX (4u << 20)

static const uint8_t zeros[64 << 10];

/* ---- the position ---- */

#define MARK_WORDS (sizeof(struct vm_journal_mark) / sizeof(uint64_t))
_Static_assert(sizeof(struct vm_journal_mark) % sizeof(uint64_t) == 0, "whole words");

/* Word by word, in order with turn: a reader that met any word of a later mark finds turn moved. */
static void copy_mark(uint64_t *to, const uint64_t *from)
{
	for (size_t i = 0; i < MARK_WORDS; i++)
		__atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

uint64_t vm_journal_mark(struct vm_journal *j, struct vm_journal_mark *ret)
{
	uint64_t turn;

	do {
		turn = atomic_load(&j->pos->turn);
		copy_mark((uint64_t *)ret, (const uint64_t *)&j->pos->mark[turn & 1]);
	} while (turn != atomic_load(&j->pos->turn));
	return turn;
}

/* J6: fill the mark that does not count, then let it count. */
void vm_journal_set_mark(struct vm_journal *j, const struct vm_journal_mark *m)
{
	uint64_t turn = atomic_load(&j->pos->turn);

	copy_mark((uint64_t *)&j->pos->mark[(turn + 1) & 1], (const uint64_t *)m);
	atomic_store(&j->pos->turn, turn + 1);
}

/* ---- the file ---- */

int vm_journal_datasync(int fd)
{
	int err;

	do {
		err = vm_sys->fdatasync(fd);
	} while (err == -EINTR);
	return err;
}

void vm_journal_zero_ahead(int fd, uint64_t limit, uint64_t *alloc)
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

int vm_journal_write_slot(int fd, uint32_t slot, const struct vm_journal_header *h)
{
	uint8_t buf[VM_JOURNAL_SLOT] = {0};

	memcpy(buf, h, sizeof(*h));
	return vm_sys_pwrite_full(fd, buf, sizeof(buf), (off_t)slot * VM_JOURNAL_SLOT);
}

int vm_journal_random(uint64_t *ret)
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
				      .version = j->group ? VM_JOURNAL_VERSION_GROUP : VM_JOURNAL_VERSION,
				      .len = sizeof(h),
				      .dev = j->id.dev,
				      .ino = j->id.ino,
				      .igen = j->id.igen,
				      .size = size,
				      .kind = j->group ? VM_JOURNAL_GROUP : VM_JOURNAL_ONE,
				      .group = j->group};
	struct vm_journal_mark m;
	uint32_t first;
	int err;

	vm_journal_mark(j, &m);
	BUG_ON(m.applied != m.tail && !(m.flags & VM_MARK_START)); /* J4 */
	memcpy(h.name, j->id.name, sizeof(h.name));

	/* From here on the disk may hold the new header, or not: frames of either generation could be lost. */
	m.flags |= VM_MARK_START;
	m.generation++;
	vm_journal_set_mark(j, &m);
	err = vm_journal_random(&m.salt);
	if (err)
		return err;
	h.generation = m.generation;
	h.salt = m.salt;
	h.base_txid = m.txid;
	h.sum = vm_journal_header_sum(&h);

	/* the slot that is not known to be good goes first: the other one counts until this is durable */
	first = !m.good_slot;
	err = vm_journal_write_slot(j->fd, first, &h);
	if (!err)
		err = vm_journal_datasync(j->fd);
	if (err)
		return err;
	m.good_slot = first;
	/* The second is a spare for a damaged first. Should this fail the next start-over writes it first. */
	(void)vm_journal_write_slot(j->fd, !first, &h);

	m.flags = 0;
	m.tail = m.synced = m.applied = VM_JOURNAL_START;
	m.chain = m.salt;
	m.seq = m.durable_seq = 0;
	m.size = size;
	if (m.alloc > j->limit && !vm_sys->ftruncate(j->fd, (off_t)j->limit))
		m.alloc = j->limit;
	if (m.alloc <= VM_JOURNAL_START) {
		m.alloc = VM_JOURNAL_START;
		vm_journal_zero_ahead(j->fd, j->limit, &m.alloc);
	}
	vm_journal_set_mark(j, &m);
	return 0;
}
