/* SPDX-License-Identifier: MIT */
/* A second reader of journals, written from docs/journal.md alone: all in memory, without a thought of speed. */
#ifndef READER_H
#define READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reader_state { READER_EMPTY, READER_COMMITS, READER_DAMAGED, READER_FOREIGN };

#define READER_RUNS 8192
struct reader_run {
	uint64_t off, len;
	const uint8_t *bytes;
	bool base;
};
struct reader_commit {
	uint64_t cut, size;
	bool has_base;
	size_t first, nruns; /* in run[] */
};

struct reader {
	enum reader_state state;
	uint64_t generation, salt, dev, ino, igen; /* of the header in force; generation 0: there is none */
	uint64_t ncommits, end, size, last_txid;
	struct reader_commit commit[READER_RUNS];
	struct reader_run run[READER_RUNS];
	size_t nruns;
};

/* bytes: the journal, len bytes, and after it 2 MiB of zeros. */
void reader_read(struct reader *r, const uint8_t *bytes, size_t len);
/* buf is 4096 bytes of the file at off, as they were before all commits: make them what they are after. */
void reader_replay(const struct reader *r, uint64_t off, uint8_t *buf);

#endif
