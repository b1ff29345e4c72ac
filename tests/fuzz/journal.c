/* SPDX-License-Identifier: MIT */
/*
 * A journal of any bytes: what the scan says of it, and what a replay does to the file, is what a second reader,
 * written from the document, says. Nothing else of the file changes, and memory stays bounded.
 *
 * The first byte of the input says how the rest becomes a journal:
 *
 *	PACKED	the first 512 bytes are slot 0, the next 512 slot 1, then frames; else all of it stands as it is
 *	SUMS	headers and frames get the sums that they should have
 *	CHAIN	... and frames generation, salt, offset, prev and seq, too
 *	ID	the scan is told of which file it should be
 */
#define _GNU_SOURCE 1
#include "fuzz.h"
#include "journal.h"
#include "reader.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACKED 1u
#define SUMS   2u
#define CHAIN  4u
#define ID     8u

#define NFILES	  4u
#define MAX_LEN	  (VM_JOURNAL_START + 65536u)
#define FILE_SIZE 10000u			     /* of the file before */
#define LAST_PAGE (((uint64_t)INT64_MAX & ~4095ull)) /* which the kernel does not read whole */

static uint8_t bytes[MAX_LEN + 2 * VM_JOURNAL_PAYLOAD_MAX]; /* the journal, and zeros */
static struct reader reader;
static int jfd, fds[NFILES]; /* the only file, then those of a group that are there */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	jfd = memfd_create("journal", MFD_CLOEXEC);
	CLAIM(jfd >= 0);
	for (unsigned i = 0; i < NFILES; i++) {
		fds[i] = memfd_create("file", MFD_CLOEXEC);
		CLAIM(fds[i] >= 0);
	}
	return 0;
}

static int get_file(const struct vm_journal_files *files, uint32_t file)
{
	(void)files;
	return file < NFILES ? fds[file] : VM_FILE_GONE;
}

static uint8_t was(uint64_t off)
{
	return off < FILE_SIZE ? (uint8_t)(off * 7 + off / 251 + 1) : 0;
}

/* ---- from the input to a journal ---- */

static void fix_frames(const struct vm_journal_header *h, size_t len, bool chain)
{
	uint64_t off = VM_JOURNAL_START, prev = h->salt, seq = 1;

	while (off + sizeof(struct vm_frame) <= len) {
		struct vm_frame fr;

		memcpy(&fr, bytes + off, sizeof(fr));
		if (fr.magic != VM_JOURNAL_FRAME_MAGIC || fr.len > VM_JOURNAL_PAYLOAD_MAX)
			return;
		if (chain) {
			fr.generation = h->generation;
			fr.salt = h->salt;
			fr.offset = off;
			fr.prev = prev;
			fr.seq = seq;
		}
		fr.payload_sum = vm_frame_payload_sum(bytes + off + sizeof(fr), fr.len);
		fr.sum = vm_frame_sum(&fr);
		memcpy(bytes + off, &fr, sizeof(fr));
		prev = fr.sum;
		seq += fr.flags & VM_FRAME_COMMIT;
		off += vm_frame_space(&fr);
	}
}

static void fix_stub(const struct vm_journal_header *h, bool chain)
{
	struct vm_frame fr;

	memcpy(&fr, bytes + VM_JOURNAL_START, sizeof(fr));
	if (fr.magic != VM_JOURNAL_STUB_MAGIC || fr.len > VM_JOURNAL_PAYLOAD_MAX)
		return;
	if (chain) {
		fr.salt = h->group;
		fr.offset = VM_JOURNAL_START;
	}
	fr.payload_sum = vm_frame_payload_sum(bytes + VM_JOURNAL_START + sizeof(fr), fr.len);
	fr.sum = vm_frame_sum(&fr);
	memcpy(bytes + VM_JOURNAL_START, &fr, sizeof(fr));
}

static void fix(size_t len, bool chain)
{
	struct vm_journal_header best = {0};

	for (unsigned i = 0; i < 2; i++) {
		uint8_t *slot = bytes + (size_t)i * VM_JOURNAL_SLOT;
		struct vm_journal_header h;

		memcpy(&h, slot, sizeof(h));
		if (h.magic != VM_JOURNAL_MAGIC || len < i * VM_JOURNAL_SLOT + sizeof(h))
			continue;
		h.sum = vm_journal_header_sum(&h);
		memcpy(slot, &h, sizeof(h));
		if (best.magic != h.magic || h.generation > best.generation)
			best = h;
	}
	fix_frames(&best, len, chain);
	fix_stub(&best, chain);
}

static size_t make_journal(const uint8_t *in, size_t len, unsigned how)
{
	size_t n = len < MAX_LEN ? len : MAX_LEN;

	memset(bytes, 0, MAX_LEN);
	if (how & PACKED) {
		const size_t slot = sizeof(struct vm_journal_header);
		size_t first = n < slot ? n : slot, second = n - first < slot ? n - first : slot;

		n = n - first - second < MAX_LEN - VM_JOURNAL_START ? n - first - second
								    : MAX_LEN - VM_JOURNAL_START;
		memcpy(bytes, in, first);
		memcpy(bytes + VM_JOURNAL_SLOT, in + first, second);
		memcpy(bytes + VM_JOURNAL_START, in + first + second, n);
		n += VM_JOURNAL_START;
	} else {
		memcpy(bytes, in, n);
	}
	if (how & SUMS)
		fix(n, how & CHAIN);
	CLAIM(!ftruncate(jfd, 0) && pwrite(jfd, bytes, n, 0) == (ssize_t)n);
	return n;
}

static void make_files(void)
{
	uint8_t buf[FILE_SIZE];

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = was(i);
	for (unsigned i = 0; i < NFILES; i++)
		CLAIM(!ftruncate(fds[i], 0) && pwrite(fds[i], buf, sizeof(buf), 0) == sizeof(buf));
}

/* ---- what must come out ---- */

static uint64_t expect_page(uint32_t file, uint64_t off, uint8_t *buf)
{
	uint64_t size = FILE_SIZE;

	for (unsigned i = 0; i < 4096; i++)
		buf[i] = was(off + i);
	reader_replay(&reader, file, off, buf, &size);
	return size;
}

static void claim_same_page(uint64_t off, const uint8_t *got, const uint8_t *want)
{
	unsigned i = 0;

	while (i < 4096 && got[i] == want[i])
		i++;
	if (i < 4096)
		(void)fprintf(stderr, "at %llu: %u, not %u\n", (unsigned long long)off + i, got[i], want[i]);
	CLAIM(i == 4096);
}

/* What is read beside commits that are not yet in the file. */
static void check_reads(const struct vm_scan *s)
{
	struct vm_journal_pos pos = {
		.mark[0] = {.tail = s->end, .synced = s->end, .applied = VM_JOURNAL_START, .size = s->size}};
	struct vm_journal j = {.fd = jfd, .pos = &pos};
	uint8_t got[4096], want[4096];

	for (size_t i = 0; i < reader.nruns && i < 16; i++) {
		uint64_t off = reader.run[i].off & ~4095ull;
		uint32_t file = reader.run[i].file;

		if (off == LAST_PAGE || file >= NFILES)
			continue;
		CLAIM(!vm_journal_read(&j, file, fds[file], got, sizeof(got), off));
		(void)expect_page(file, off, want);
		claim_same_page(off, got, want);
	}
}

static void check_page(uint32_t file, uint64_t off)
{
	uint8_t got[4096] = {0}, want[4096];

	if (off == LAST_PAGE)
		return;
	CLAIM(pread(fds[file], got, sizeof(got), (off_t)off) >= 0);
	(void)expect_page(file, off, want);
	claim_same_page(off, got, want);
}

static void check_file(uint32_t file)
{
	off_t data = 0, hole;
	uint64_t last = UINT64_MAX;
	uint8_t page[4096];
	struct stat st;

	CLAIM(!fstat(fds[file], &st) && (uint64_t)st.st_size == expect_page(file, 0, page));
	while ((data = lseek(fds[file], data, SEEK_DATA)) >=
	       0) { /* also where nobody had anything to write */
		hole = lseek(fds[file], data, SEEK_HOLE);
		for (; data < hole; data += 4096)
			check_page(file, (uint64_t)data);
	}
	for (size_t i = 0; i < reader.nruns; i++) {
		if (reader.run[i].file != file || (reader.run[i].off & ~4095ull) == last)
			continue;
		last = reader.run[i].off & ~4095ull;
		check_page(file, last);
	}
}

static void check_stub(void)
{
	char path[4096];

	CLAIM(!vm_journal_read_stub(jfd, path));
	CLAIM(!strcmp(path, (const char *)bytes + VM_JOURNAL_START + sizeof(struct vm_frame)));
}

static int take_note(const struct vm_journal_note *note, void *arg)
{
	unsigned *n = arg;

	CLAIM(note->file && note->file < VM_JOURNAL_NFILES);
	if (note->name)
		CLAIM(strlen(note->name->path) < VM_JOURNAL_PAYLOAD_MAX);
	else
		CLAIM(note->cut <= note->size);
	*n += !note->name;
	return 0;
}

/* Each size of a group's journal is told of. */
static void check_notes(uint64_t end)
{
	unsigned n = 0;

	CLAIM(!vm_journal_notes(jfd, VM_JOURNAL_START, end, take_note, &n));
	for (uint64_t i = 0; i < reader.ncommits; i++)
		for (size_t k = 0; k < reader.commit[i].nruns; k++)
			n -= reader.run[reader.commit[i].first + k].is_size;
	CLAIM(!n);
}

static enum vm_scan_state expect_state(const struct vm_journal_id *id)
{
	static const enum vm_scan_state states[] = {[READER_EMPTY] = VM_SCAN_EMPTY,
						    [READER_COMMITS] = VM_SCAN_COMMITS,
						    [READER_DAMAGED] = VM_SCAN_DAMAGED,
						    [READER_MEMBER] = VM_SCAN_MEMBER,
						    [READER_FOREIGN] = VM_SCAN_FOREIGN};
	bool is_of = !id || !reader.has_header ||
		     (reader.kind != READER_GROUP && reader.ino == id->ino &&
		      (reader.igen && id->igen ? reader.igen == id->igen : reader.dev == id->dev));

	return reader.state == READER_EMPTY || is_of ? states[reader.state] : VM_SCAN_FOREIGN;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	const struct vm_journal_id id = {.dev = 1, .ino = 2, .igen = 3};
	unsigned how = len ? *in : 0;
	struct vm_journal_files files = {.fd = fds[0]};
	struct vm_scan s;
	size_t n;

	n = make_journal(in + !!len, len - !!len, how);
	make_files();
	reader_read(&reader, bytes, n);
	if (reader.kind == READER_GROUP)
		files.get = get_file;

	CLAIM(!vm_journal_scan(jfd, how & ID ? &id : NULL, &s));
	CLAIM(s.state == expect_state(how & ID ? &id : NULL));
	if (s.state == VM_SCAN_MEMBER)
		check_stub();
	if (s.state != VM_SCAN_COMMITS)
		return 0;
	CLAIM(s.ncommits == reader.ncommits && s.end == reader.end && s.size == reader.size);
	CLAIM(s.last_txid == reader.last_txid);
	check_reads(&s);
	if (files.get)
		check_notes(s.end);
	for (int again = 0; again < 2; again++) { /* a crash in between, and once more from the start */
		CLAIM(!vm_journal_replay(jfd, &files, VM_JOURNAL_START, s.end, NULL, NULL));
		for (uint32_t i = 0; i < NFILES; i++)
			if (files.get || !i)
				check_file(i);
	}
	return 0;
}
