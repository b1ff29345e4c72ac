/* SPDX-License-Identifier: MIT */
/* A hash over all bytes of a file and its size: what the recorder wrote down and what is found after a crash. */
#ifndef FILE_HASH_H
#define FILE_HASH_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* text: "SIZE-HASH", or "unreadable". */
static inline void file_hash(int fd, char *text, size_t len)
{
	static char buf[1 << 16];
	XXH3_state_t *state = XXH3_createState();
	off_t off = 0;
	ssize_t n = -1;

	if (state && XXH3_128bits_reset(state) == XXH_OK)
		while ((n = pread(fd, buf, sizeof(buf), off)) > 0) {
			XXH3_128bits_update(state, buf, (size_t)n);
			off += n;
		}
	if (n < 0) {
		snprintf(text, len, "unreadable");
	} else {
		XXH128_hash_t h = XXH3_128bits_digest(state);

		snprintf(text, len, "%jd-%016jx%016jx", (intmax_t)off, (uintmax_t)h.high64, (uintmax_t)h.low64);
	}
	XXH3_freeState(state);
}

#endif
