/* SPDX-License-Identifier: MIT */
/*
 * Processes that store, commit, fork and are killed over a few shared files, and a ledger that knows every
 * value that may legally be seen. Nothing of txmap is in here: without it the same must hold.
 *
 * The *ledger* is shared memory of an ordinary file that nobody manages. Who stores says there what it is
 * about to store (begun), and afterwards that it has (done): what is in memory lies between. Who commits
 * notes what was done before it began, and raises the *floor* once the commit was acknowledged: what is in
 * the file lies between floor and begun. A process that is killed leaves a gap between the two, and no more.
 *
 * What is in a file is built so that at every instant it is consistent (image.c): a commit, which is one
 * instant of all processes, must never hold a store without one that came before it.
 */
#ifndef CHAOS_H
#define CHAOS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE	  ((size_t)4096)
#define NFILES	  4u
#define NMAIN	  8u	 /* processes that the supervisor starts */
#define NSLOTS	  12u	 /* with those that go on as children of these */
#define KEEPER	  NSLOTS /* has all files mapped, stores nothing, and is killed only with all others */
#define NTHREADS  2u
#define NLANES	  (NSLOTS * NTHREADS)
#define NCOUNTERS 16u
#define NACCOUNTS 32u
#define NRECORDS  16u
#define TOTAL	  (NACCOUNTS * 1000u) /* what the accounts hold together */

/* ---- a file: NPAGES pages, some of them shared by all, each file with another distance between them ---- */

struct view {
	uint8_t *base;
	size_t stride; /* from one page to the next, in pages */
};

enum {
	AT_LOCK,      /* uint32_t: 0, or who has it */
	AT_INTENT,    /* struct intent */
	AT_TRANSFERS, /* how many there were */
	AT_MUTEX,     /* a robust one */
	AT_PAIR_X,
	AT_PAIR_Y,
	AT_COUNTERS,
	AT_ACCOUNTS = AT_COUNTERS + 4,
	AT_RECORDS = AT_ACCOUNTS + 16,
	NPAGES = AT_RECORDS + 2 * NRECORDS
};

/* A lane (a thread of a slot) numbers its records, and the n-th overwrites the one NRECORDS before. Stored in
 * this order. */
struct record {
	uint64_t begin; /* n */
	uint64_t lane;
	uint64_t ticket;   /* from counter 0: later ones are higher */
	uint64_t saw_lane; /* whose record saw_n was seen before */
	uint64_t saw_n;
	uint64_t hash;
	uint64_t fill;
	uint64_t end; /* n */
};

/* From one account to another, under the lock. Who finds it begun does it again. */
struct intent {
	uint64_t is_begun;
	uint64_t seq;
	uint64_t from, to, from_old, to_old, amount;
};

static inline void *page_at(struct view v, size_t page)
{
	return v.base + page * v.stride * PAGE;
}

static inline uint64_t *counter_at(struct view v, unsigned c)
{
	return (uint64_t *)page_at(v, AT_COUNTERS + c % 4) + 1 + 32 * (c / 4);
}

static inline uint64_t *account_at(struct view v, unsigned a)
{
	return (uint64_t *)page_at(v, AT_ACCOUNTS + a % 16) + 100 * (a / 16);
}

static inline struct record *record_at(struct view v, unsigned lane, uint64_t n)
{
	return (struct record *)page_at(v, AT_RECORDS + 2 * (n % NRECORDS) + lane % 2) + 2 + lane / 2;
}

static inline uint64_t get(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline void put(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
static inline uint32_t get32(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline void put32(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
static inline void count(uint64_t *p)
{
	__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
}

size_t file_len(unsigned f);
struct view file_view(unsigned f, void *base);
const char *file_name(unsigned f);

/* ---- the ledger ---- */

struct book {		      /* of one lane in one file */
	uint64_t begun, done; /* records */
	uint64_t added_begun[NCOUNTERS], added_done[NCOUNTERS];
};

/* One end of what may be seen. */
struct bounds {
	uint64_t lane[NLANES];
	uint64_t counter[NCOUNTERS];
	uint64_t transfers;
	uint64_t pair;
};

struct file_book {
	struct book lane[NLANES];
	uint64_t base[NCOUNTERS]; /* what the books of the lanes are added to */
	uint64_t transfers_begun, transfers_done;
	uint64_t pair_begun, pair_done;
	struct bounds floor;
	uint32_t is_unsure; /* somebody died in a commit, or one is under way that nobody waits for */
};

enum doing {
	DOES_NOTHING,
	DOES_RECORD,
	DOES_ADD,
	DOES_TRANSFER,
	DOES_PAIR,
	DOES_LOOK,
	DOES_COMMIT,
	DOES_REMAP,
	DOES_REOPEN,
	DOES_FORK,
	DOES_EXEC,
	DOES_EXIT,
	DOES_START,
	DOES_THREAD,
	NDOING
};

struct slot {
	uint32_t pid;		  /* 0: free. Whoever takes it over swaps its own in */
	uint32_t incarnation;	  /* of the program that runs in it */
	uint32_t child[NTHREADS]; /* does the thread's work while that waits */
	uint32_t is_live[NTHREADS];
	uint32_t has_files;	   /* the first thread has them open */
	uint32_t parked[NTHREADS]; /* the quiet that it keeps */
	uint32_t doing[NTHREADS], file[NTHREADS];
	uint32_t commits[NTHREADS][NFILES]; /* a commit may be under way */
	uint32_t is_ending;		    /* by its own will */
	uint32_t order_done;
	uint64_t hash[NFILES]; /* of what it sees */
};

struct ledger {
	uint64_t seed;
	uint32_t has_txmap;
	uint32_t stop;		  /* end in order */
	uint32_t crash;		  /* nobody is to be born any more */
	uint32_t quiet;		  /* nobody is to store; 0, or a number */
	uint32_t bell;		  /* rings when one of these changes */
	uint32_t answer;	  /* rings when somebody is quiet, or has done as ordered */
	uint32_t order;		  /* a number: hash what is seen, and */
	uint32_t order_committer; /* this slot commits all files first */
	char runtime[256], dir[256];
	struct slot slot[NSLOTS + 1];
	struct file_book file[NFILES];
	uint64_t commits, kills, stops, forks, execs, exits, threads, crashes, quiets, images, looks,
		violations, stores;
	uint8_t dump[NFILES][NPAGES * PAGE]; /* the files as one who opened them under txmap sees them */
};

extern struct ledger *ledger;
void ledger_open(const char *path, bool create);
/* What is certainly there, and what can be. Read the low ones before looking and the high ones afterwards. */
void bounds_low(unsigned f, struct bounds *ret);
void bounds_high(unsigned f, struct bounds *ret);
/* A commit was acknowledged that began after all that was done. */
void raise_floor(unsigned f, const struct bounds *b);
void ring(uint32_t *bell);
/* Wait until it rings again since seen, for msec at most. */
void await(uint32_t *bell, uint32_t seen, unsigned msec);
/* What was seen and what is allowed. The supervisor ends the test. */
__attribute__((format(printf, 1, 2))) void violation(const char *fmt, ...);
extern const char *const doing_names[NDOING];

/* ---- a thread at work ---- */

struct worker {
	unsigned slot, thread, lane;
	uint32_t incarnation;
	bool is_child; /* of the one whose lane it uses */
	uint64_t random;
	struct view view[NFILES];
	int fd[NFILES];
	pthread_t id;
};

uint64_t random_below(uint64_t *state, uint64_t n);
static inline struct slot *slot_of(const struct worker *w)
{
	return &ledger->slot[w->slot];
}
void worker_main(unsigned slot, uint64_t seed) __attribute__((noreturn));
void touch_main(void) __attribute__((noreturn));
/* At work as the first thread of its slot, whose files are open. */
void worker_run(const struct worker *w) __attribute__((noreturn));

/* life.c: what happens to mappings and processes */
void open_file(struct worker *w, unsigned f);
void close_files(struct worker *w);
void remap_file(struct worker *w, unsigned f);
void reopen_file(struct worker *w, unsigned f);
/* A child that does the thread's work while that waits. */
void fork_child(struct worker *w);
/* One that goes on as a process of its own, without a parent. */
void fork_worker(struct worker *w);
/* Nobody but the caller is alive who was at work for the slot. */
void end_children(unsigned slot);
/* Commits that were under way may be half done. */
void commits_are_unsure(unsigned slot);
void exec_again(struct worker *w) __attribute__((noreturn));
void end_process(struct worker *w) __attribute__((noreturn));

/* quiet.c: the supervisor looks at the files */
void make_files(void);
void quiet_point(void (*reap)(void), uint64_t *random);
/* Nobody is alive. by_command: recovered by `txmap recover`, otherwise by who opens the files. */
void look_at_what_is_left(const char *txmap, const char *preload, bool by_command);
void look_at_the_end(const char *txmap);
/* This program as another one, under txmap unless preload is NULL. In the child only. */
void exec_self(const char *preload, const char *what, unsigned slot, uint64_t seed) __attribute__((noreturn));

/* store.c */
void store_record(struct worker *w, unsigned f);
void store_add(struct worker *w, unsigned f);
void store_transfer(struct worker *w, unsigned f);
void store_pair(struct worker *w, unsigned f);
void look(struct worker *w, unsigned f);
/* The lane was somebody else's: how far did that one get? */
void settle(struct worker *w, unsigned f);
void store_anything(struct worker *w, unsigned f);

/* lock.c: a lock in the file, whose holder may have died at any moment */
void lock_file(struct worker *w, unsigned f);
void unlock_file(struct worker *w, unsigned f);
void unlock_left(struct worker *w, unsigned f);
void mutex_make(void *at);

/* commit.c */
void commit(struct worker *w, unsigned f);
/* Not one that nobody waits for. Was it acknowledged? */
bool commit_now(struct worker *w, unsigned f);
/* Around what may commit by itself. */
void commit_mark(struct worker *w, unsigned f, bool on);

/* image.c */
uint64_t record_hash(const struct record *r);
/* The last complete record of a lane. */
uint64_t lane_position(struct view v, unsigned lane);
uint64_t image_hash(struct view v);
/* Is it one instant, and within bounds? */
void check_image(const char *what, unsigned f, struct view v, const struct bounds *low,
		 const struct bounds *high);
/* From now on it is what is certain. Nobody stores. */
void anchor(unsigned f, struct view v);

#endif
