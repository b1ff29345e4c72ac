/* SPDX-License-Identifier: MIT */
/* A second reader of journals, written from docs/journal.md: all in memory, without a thought of speed. */
#ifndef READER_H
#define READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reader_state { READER_EMPTY, READER_COMMITS, READER_DAMAGED, READER_MEMBER, READER_FOREIGN };

enum reader_kind { READER_ONE, READER_GROUP, READER_STUB };

#define READER_RUNS 8192

/* Bytes of a file, or in a group what gives it a size. */
struct reader_run {
	uint32_t file;
	bool base, is_size;
	uint64_t off, len; /* of a size: it, and what it is cut to before */
	const uint8_t *bytes;
};

struct reader_commit {
	uint64_t cut, size; /* of the only file */
	bool has_base;
	size_t first, nruns; /* in run[] */
};

/* A file of a group, and the commits that had the last of these. */
struct reader_file {
	uint32_t number;
	uint64_t bytes_seq, size_seq;
	bool is_named;
};

struct reader {
	enum reader_state state;
	bool has_header;
	enum reader_kind kind;
	uint64_t generation, salt, dev, ino, igen, group;
	uint64_t ncommits, end, size, last_txid;
	struct reader_commit commit[READER_RUNS];
	struct reader_run run[READER_RUNS];
	size_t nruns;
	struct reader_file file[READER_RUNS];
	size_t nfiles;
};

/* bytes: the journal, len bytes, and after it 2 MiB of zeros. */
void reader_read(struct reader *r, const uint8_t *bytes, size_t len);
/* buf is 4096 bytes of a file at off, as they were before all commits: make them what they are after. size as well.
 */
void reader_replay(const struct reader *r, uint32_t file, uint64_t off, uint8_t *buf, uint64_t *size);

#endif
