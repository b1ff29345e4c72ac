/* SPDX-License-Identifier: MIT */
/* Memory of a mapped file in every state that a page can be in, to be handed to the kernel. */
#ifndef PLACE_H
#define PLACE_H

#include "fact.h"

enum place { FRESH, CLEAN, DIRTY, ACROSS, MISSING, HALF, NPLACES };
#define GOOD MISSING /* the places below are good memory */

static const char *const place_names[NPLACES] = {
	"never touched",    "clean since a commit", "dirty",
	"across two pages", "beyond the end",	    "half of it mapped",
};

#define PLACE_NPAGES 256u /* of each kind */
static unsigned char *place_map;
static unsigned place_next[NPLACES];

/* Six regions of the file, the last two pages of it not there; and a page with nothing behind it. */
UNUSED static void places(const char *name)
{
	size_t len = NPAGES(PLACE_NPAGES * NPLACES);
	int fd = make(name, NPAGES(PLACE_NPAGES * MISSING));

	place_map = map(fd, len);
	memset(place_map + NPAGES(PLACE_NPAGES * CLEAN), 0x55, NPAGES(PLACE_NPAGES));
	if (msync(place_map, len, MS_SYNC))
		die("msync");
	memset(place_map + NPAGES(PLACE_NPAGES * DIRTY), 0x55, NPAGES(PLACE_NPAGES));
	close(fd);
}

/* A page that no call has had so far, len bytes of it. */
UNUSED static void *place(enum place kind, size_t len)
{
	unsigned i = place_next[kind];
	unsigned char *p;

	if (kind == HALF) { /* of a file of its own, the page behind it taken away */
		char name[32];
		int fd;

		snprintf(name, sizeof(name), "half%u.dat", place_next[kind]++);
		fd = make(name, PAGE);

		p = map(fd, NPAGES(2));
		close(fd);
		if (munmap(p + PAGE, PAGE) ||
		    mmap(p + PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			    MAP_FAILED)
			die("guard");
		return p + PAGE - len / 2 / 4 * 4;
	}
	if ((i += 2) > PLACE_NPAGES)
		die("no more places");
	place_next[kind] = i;
	p = place_map + NPAGES(PLACE_NPAGES * kind + i - 2);
	return kind == ACROSS ? p + PAGE - len / 2 / 4 * 4 : p + 64;
}

/* A string there. For the bad places: an address only. */
UNUSED static char *place_string(enum place kind, const char *s)
{
	char *p = place(kind, strlen(s) + 1);

	if (kind < GOOD)
		memcpy(p, s, strlen(s) + 1);
	return p;
}

/* Commit, for the places that are about that: what was stored to is clean, and protected, after it. */
UNUSED static void settle(enum place kind)
{
	if ((kind == CLEAN || kind == ACROSS) && msync(place_map, NPAGES(PLACE_NPAGES * NPLACES), MS_SYNC))
		die("msync");
}

/* A call on a place: its result, and where it succeeded whether the bytes are right after it. */
#define told(what, kind, call, right)                                                                        \
	do {                                                                                                 \
		long ret_ = (errno = 0, (call));                                                             \
		int err_ = errno;                                                                            \
                                                                                                             \
		printf("%s, %s: %ld %s\n", what, place_names[kind], ret_,                                    \
		       ret_ < 0			 ? strerrorname_np(err_)                                     \
		       : kind >= GOOD || (right) ? "right"                                                   \
						 : "wrong");                                                 \
		fflush(stdout);                                                                              \
	} while (0)

#endif
