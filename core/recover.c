/* SPDX-License-Identifier: MIT */
/* What a journal holds: frames that verify, and which of them count. */
#define _GNU_SOURCE 1
#include "journal_priv.h"
#include "vm_sys.h"

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

uint64_t vm_journal_header_sum(const struct vm_journal_header *h)
{
	struct vm_journal_header copy = *h;

	copy.sum = 0;
	return XXH3_64bits(&copy, sizeof(copy));
}

uint64_t vm_frame_sum(const struct vm_frame *fr)
{
	return XXH3_64bits(fr, offsetof(struct vm_frame, sum));
}

uint64_t vm_frame_payload_sum(const void *payload, size_t len)
{
	return XXH3_64bits(payload, len);
}

void *vm_frame_alloc(void)
{
	void *p =
		vm_own_map(VM_JOURNAL_FRAME_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return vm_sys_err(p) ? NULL : p;
}

void vm_frame_free(void *frame)
{
	if (frame)
		(void)vm_sys->munmap(frame, VM_JOURNAL_FRAME_MAX); /* cannot fail for a whole mapping */
}

bool vm_journal_is_of(const struct vm_journal_header *h, const struct vm_journal_id *id)
{
	if (h->ino != id->ino)
		return false;
	return h->igen && id->igen ? h->igen == id->igen : h->dev == id->dev;
}

/* ---- frames ---- */

static bool frame_header_verifies(const struct vm_frame *fr, uint64_t off)
{
	return fr->magic == VM_JOURNAL_FRAME_MAGIC && fr->offset == off &&
	       fr->len <= VM_JOURNAL_PAYLOAD_MAX && fr->sum == vm_frame_sum(fr);
}

int vm_frame_load_header(int fd, uint64_t off, struct vm_frame *ret)
{
	int err = vm_sys_pread_full(fd, ret, sizeof(*ret), (off_t)off);

	if (err)
		return err;
	return frame_header_verifies(ret, off) ? 0 : -EUCLEAN;
}

int vm_frame_load(int fd, uint64_t off, void *buf)
{
	struct vm_frame *fr = buf;
	int err = vm_frame_load_header(fd, off, fr);

	if (err)
		return err;
	err = vm_sys_pread_full(fd, fr + 1, fr->len, (off_t)(off + sizeof(*fr)));
	if (err)
		return err;
	return fr->payload_sum == vm_frame_payload_sum(fr + 1, fr->len) ? 0 : -EUCLEAN;
}

int vm_frame_find_commit(int fd, uint64_t off, struct vm_frame *ret_commit, uint64_t *ret_next)
{
	struct vm_frame fr;
	int err;

	do {
		err = vm_frame_load_header(fd, off, &fr);
		if (err)
			return err;
		off += vm_frame_space(&fr);
	} while (!(fr.flags & VM_FRAME_COMMIT));
	*ret_commit = fr;
	*ret_next = off;
	return 0;
}

/* ---- scanning ---- */

/* The first frame at or after off that verifies and is newer than generation, or is of it and says that
 * commit seq was durable. 0 or -errno; *ret_off is 0 when there is none. */
static int find_proof(int fd, uint64_t off, uint64_t len, const struct vm_journal_header *h, uint64_t seq,
		      uint8_t *buf, uint64_t *ret_off)
{
	*ret_off = 0;
	while (off < len) {
		size_t n = len - off < VM_JOURNAL_PAYLOAD_MAX ? (size_t)(len - off) : VM_JOURNAL_PAYLOAD_MAX;
		int err = vm_sys_pread_full(fd, buf, n, (off_t)off);

		if (err)
			return err;
		for (size_t i = 0; i + sizeof(struct vm_frame) <= n; i += VM_JOURNAL_ALIGN) {
			struct vm_frame fr;

			memcpy(&fr, buf + i, sizeof(fr));
			if (!frame_header_verifies(&fr, off + i))
				continue;
			if (fr.generation > h->generation ||
			    (fr.generation == h->generation && fr.salt == h->salt && fr.durable_seq >= seq)) {
				*ret_off = off + i;
				return 0;
			}
		}
		off += n;
	}
	return 0;
}

/* How much of a frame of this generation lies at off, which did not verify? 0 when it does not look like one:
 * a single field may be off, and then it was meant to be one. */
static int torn_len(int fd, uint64_t off, uint64_t len, const struct vm_journal_header *h, uint64_t chain,
		    uint64_t *ret)
{
	struct vm_frame fr;
	int err = vm_sys_pread_full(fd, &fr, sizeof(fr), (off_t)off);
	int alike = (fr.magic == VM_JOURNAL_FRAME_MAGIC) + (fr.generation == h->generation) +
		    (fr.salt == h->salt) + (fr.offset == off) + (fr.prev == chain);

	*ret = 0;
	if (err || alike < 3)
		return err;
	*ret = fr.len <= VM_JOURNAL_PAYLOAD_MAX ? vm_frame_space(&fr) : VM_JOURNAL_ALIGN;
	if (*ret > len - off)
		*ret = len - off;
	return 0;
}

static bool is_zero(const void *p, size_t len)
{
	const uint8_t *b = p;

	return !len || (!b[0] && !memcmp(b, b + 1, len - 1));
}

static bool header_verifies(const struct vm_journal_header *h)
{
	return h->magic == VM_JOURNAL_MAGIC && h->sum == vm_journal_header_sum(h);
}

/* No header verifies. Was there ever one? */
static int scan_headless(int fd, uint64_t len, const struct vm_journal_header slot[2], uint8_t *buf,
			 struct vm_scan *ret)
{
	static const struct vm_journal_header none;
	static const uint64_t magic = VM_JOURNAL_MAGIC;
	bool never = is_zero(&slot[0], sizeof(*slot)) && is_zero(&slot[1], sizeof(*slot));
	int err = find_proof(fd, VM_JOURNAL_START, len, &none, 0, buf, &ret->proof_off);

	if (err)
		return err;
	if (ret->proof_off) {
		ret->state = VM_SCAN_DAMAGED;
		ret->why = VM_SCAN_BAD_HEADER;
		return 0;
	}
	err = never ? -EUCLEAN : vm_journal_verify_stub(fd, NULL);
	if (err && err != -EUCLEAN)
		return err;
	if (!err) {
		ret->state = VM_SCAN_DAMAGED;
		ret->why = VM_SCAN_BAD_HEADER;
		return 0;
	}
	if (never || (len < sizeof(magic) && !memcmp(&slot[0], &magic, len)) || slot[0].magic == magic ||
	    slot[1].magic == magic) {
		ret->state = VM_SCAN_EMPTY;
		ret->why = len < VM_JOURNAL_START ? VM_SCAN_SHORT : VM_SCAN_UNSTARTED;
		return 0;
	}
	ret->state = VM_SCAN_FOREIGN;
	ret->why = VM_SCAN_NO_JOURNAL;
	return 0;
}

/* Frames, until one does not continue the chain. */
static int scan_frames(int fd, uint64_t len, uint8_t *buf, struct vm_sense *sense, struct vm_scan *ret)
{
	const struct vm_journal_header *h = &ret->header;
	struct vm_frame *fr = (struct vm_frame *)buf;
	uint64_t off = VM_JOURNAL_START, chain = h->salt, torn = 0;
	int err = 0;

	ret->end = off;
	ret->chain = chain;
	ret->size = h->size;
	ret->last_txid = h->base_txid;
	while (off < len) {
		err = vm_frame_load(fd, off, buf);
		if (err && err != -EUCLEAN)
			return err;
		if (err || fr->generation != h->generation || fr->salt != h->salt || fr->prev != chain ||
		    fr->seq != ret->ncommits + 1)
			break;
		if (!vm_sense_frame(sense, fr)) {
			ret->state = VM_SCAN_DAMAGED;
			ret->why = VM_SCAN_BAD_RUN;
			ret->bad_off = off;
			ret->bad_seq = fr->seq;
			return 0;
		}
		off += vm_frame_space(fr);
		chain = fr->sum;
		if (fr->flags & VM_FRAME_COMMIT) {
			if (!ret->ncommits++)
				ret->first_txid = fr->txid;
			ret->last_txid = fr->txid;
			ret->size = fr->size;
			ret->end = off;
			ret->chain = chain;
		}
	}
	if (off < len) {
		err = find_proof(fd, off, len, h, ret->ncommits + 1, buf, &ret->proof_off);
		if (err)
			return err;
		err = torn_len(fd, off, len, h, chain, &torn);
		if (err)
			return err;
	}
	ret->dropped = off - ret->end + torn;
	ret->bad_off = off;
	ret->bad_seq = ret->ncommits + 1;
	if (ret->proof_off) {
		ret->state = VM_SCAN_DAMAGED;
		ret->why = VM_SCAN_BAD_FRAME;
	} else {
		ret->state = ret->ncommits ? VM_SCAN_COMMITS : VM_SCAN_EMPTY;
	}
	return 0;
}

static int scan_stub(int fd, struct vm_scan *ret)
{
	int err = vm_journal_verify_stub(fd, &ret->header);

	if (err && err != -EUCLEAN)
		return err;
	ret->state = err ? VM_SCAN_DAMAGED : VM_SCAN_MEMBER;
	ret->why = err ? VM_SCAN_BAD_STUB : VM_SCAN_OK;
	return 0;
}

static int scan_journal(int fd, uint64_t len, uint8_t *buf, struct vm_scan *ret)
{
	struct vm_sense sense;
	int err = vm_sense_init(&sense, ret->header.kind == VM_JOURNAL_GROUP);

	if (err)
		return err;
	err = scan_frames(fd, len, buf, &sense, ret);
	vm_sense_fini(&sense);
	return err;
}

static bool version_is_known(const struct vm_journal_header *h)
{
	if (h->version == VM_JOURNAL_VERSION)
		return h->kind == VM_JOURNAL_ONE;
	return h->version == VM_JOURNAL_VERSION_GROUP &&
	       (h->kind == VM_JOURNAL_GROUP || h->kind == VM_JOURNAL_STUB);
}

static int scan_slots(int fd, uint64_t len, struct vm_journal_header slot[2], uint8_t *buf,
		      struct vm_scan *ret)
{
	bool valid[2];
	int best;

	for (int i = 0; i < 2; i++) {
		int err = vm_sys_pread_full(fd, &slot[i], sizeof(slot[i]), (off_t)i * VM_JOURNAL_SLOT);

		if (err)
			return err;
		valid[i] = header_verifies(&slot[i]);
		if (valid[i] && !version_is_known(&slot[i])) {
			ret->header = slot[i];
			ret->state = VM_SCAN_FOREIGN;
			ret->why = VM_SCAN_VERSION;
			return 0;
		}
	}
	best = valid[0] && valid[1] ? slot[1].generation > slot[0].generation : valid[1];
	/* below its headers no commit can have been: J2; a stub's record was there before them */
	if (!valid[best] || (len < VM_JOURNAL_START && slot[best].kind != VM_JOURNAL_STUB))
		return scan_headless(fd, len, slot, buf, ret);
	ret->header = slot[best];
	ret->slot = (uint32_t)best;
	return slot[best].kind == VM_JOURNAL_STUB ? scan_stub(fd, ret) : scan_journal(fd, len, buf, ret);
}

int vm_journal_scan(int fd, const struct vm_journal_id *id, struct vm_scan *ret)
{
	struct vm_journal_header slot[2];
	struct stat st;
	uint8_t *buf;
	int err = vm_sys->fstat(fd, &st);

	memset(ret, 0, sizeof(*ret));
	if (err)
		return err;
	buf = vm_frame_alloc();
	if (!buf)
		return -ENOMEM;
	err = scan_slots(fd, (uint64_t)st.st_size, slot, buf, ret);
	/* of another file: nothing to lose when it holds nothing */
	if (!err && id && ret->state != VM_SCAN_EMPTY && ret->header.magic && ret->why != VM_SCAN_VERSION &&
	    (ret->header.kind == VM_JOURNAL_GROUP || !vm_journal_is_of(&ret->header, id))) {
		ret->state = VM_SCAN_FOREIGN;
		ret->why = VM_SCAN_IDENTITY;
	}
	vm_frame_free(buf);
	return err;
}
