/* SPDX-License-Identifier: MIT */
/*
 * A crew of writers, who store 1, 2, 3, ... to page 0, 1, ... n - 1 in turn, over and over. Whatever instant a
 * commit holds, a writer's counters in it do not rise from page to page, and the first is at most one ahead of
 * the last: a store is never there without one that came before it. The pages may be those of several files,
 * dealt out in turn.
 */
#ifndef CREW_H
#define CREW_H

#include "rig_group.h"

enum crew_how {
	BY_STORE,
	BY_WRITE, /* vm_fileh_write */
	BY_READ,  /* read(2) of a pipe into the mapping */
	BY_PREAD, /* pread(2) of a file, the same */
};

struct crew;
struct writer {
	pthread_t thread;
	struct crew *crew;
	unsigned no;
	enum crew_how how;
	uint64_t rounds;  /* complete ones */
	unsigned nshown;  /* commits that hold a part of a round */
	int from, to;	  /* BY_READ, BY_PREAD */
	uint64_t nefault; /* how often the kernel met a protected page */
};

#define MAX_WRITERS 4
struct crew {
	struct rig_set s;
	char *m[RIG_MAX_GROUP]; /* of each file */
	char *m2;		/* odd pages, of one file, are stored into here (may be NULL) */
	uint64_t npages;
	unsigned nwriters;
	unsigned ncuts;
	uint64_t most_ahead; /* the first page's counter of the last one's: 1, or anything if chained */
	bool chained;	     /* a writer stores what it reads in its page from the writer before it */
	bool is_slow;
	bool in_bursts; /* they store for about as long as a commit takes, and then wait for the next */
	uint32_t turn;	/* of the bursts (atomic, futex) */
	bool stop;	/* (atomic) */
	struct writer w[MAX_WRITERS];
};

static inline void put_release(void *p, uint64_t value)
{
	__atomic_store_n((uint64_t *)p, value, __ATOMIC_RELEASE);
}

static inline uint64_t get_acquire(const void *p)
{
	return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

/* A second thread, which could store, and does nothing. */
struct idle {
	pthread_t thread;
	int pipe[2];
};
void idle_begin(struct idle *i);
void idle_end(struct idle *i);

/* nfiles holes, c->npages in all, and a mapping of each. */
void crew_open(struct crew *c, struct rig *r, unsigned nfiles);
/* Where a writer's counter of page pg lies. */
char *crew_at(struct crew *c, unsigned writer, uint64_t pg);
/* The writers are at work / have ended. */
void crew_start(struct crew *c);
void crew_stop(struct crew *c);
/* All of them have been through their pages once. */
void crew_await_all(struct crew *c);
/* What a commit holds. */
uint64_t crew_committed(struct crew *c, unsigned writer, uint64_t pg);
/* Is it a prefix of what the writer stored? Returns whether it shows the writer on its way. */
bool crew_check(struct crew *c, unsigned writer);
/* c->ncuts commits under the writers, and the rest at the end. */
void crew_check_cuts(struct crew *c);
void crew_check_equals_memory(struct crew *c);
/* Nothing of [m, m + npages) stays frozen. */
void crew_check_protections(const char *m, uint64_t npages);
/* Calls fn for the kernel's mappings that lie there. Returns how many there are. */
unsigned crew_for_each_kernel_mapping(const char *m, uint64_t npages, void (*fn)(const char *perms));

#endif
