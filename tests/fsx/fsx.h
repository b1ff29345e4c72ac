/* SPDX-License-Identifier: MIT */
/*
 * Random operations on files and their mappings, against a model in memory. A plain POSIX program: it knows
 * of txmap only that a control socket may be there, and without one leaves out what needs it.
 *
 *	supervisor	forks workers one after another; a worker does operations until one of them is its end (exit or
 *			SIGKILL), and the next begins by looking whether the files are what the model says
 *	model		what the program sees (cur), what the storage holds (com), and what each page of the arena, the only
 *			place where mappings are made, is
 *	operation i	draws from the random stream (seed, i) and from the model, so that a sequence with operations
 *			left out is a sequence still: that is what shrinking needs
 */
#ifndef FSX_H
#define FSX_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE	   4096u
#define NFILES	   2
#define NFDS	   8 /* of each file, at most */
#define ARENA	   ((uint8_t *)0x2000000000) /* far from where the kernel places mappings: holes stay holes */
#define LOG_LINES  128u
#define LOG_LEN	   160u
#define MAX_IO	   (256u << 10)

enum { STATUS_MISMATCH = 1, STATUS_QUIT = 3 }; /* a worker's exit */

struct file {
	char name[32];
	uint64_t size, com_size;
	uint64_t low;	  /* the smallest size since the last commit */
	bool live;	  /* was mapped shared since it was last released: from then on changes wait for a commit */
	bool unsure;	  /* a commit may or may not have happened (MS_ASYNC) */
	uint8_t *cur;	  /* zeros beyond size; so com */
	uint8_t *com;
	uint8_t *changed; /* page -> may differ between cur and com */
};

/* Shared by supervisor, workers, and their children. */
struct shared {
	struct file f[NFILES];
	uint64_t next; /* operation */
	bool killed;   /* the worker ended by SIGKILL */
	unsigned nlog;
	char log[LOG_LINES][LOG_LEN];
};

enum kind { NOTHING, SHARED, PRIVATE };

struct apage { /* of the arena */
	uint8_t kind, file, prot;
	bool maywrite;	/* the descriptor allowed writing */
	uint32_t pgoff;
	uint32_t id;	/* mapping: neighbours of one id with successive offsets are one to the kernel */
	uint8_t *own;	/* a private page that was stored to */
};

struct fd {
	int fd; /* -1: free */
	int flags;
	int *pos; /* [0] position, [1] references */
};

struct settings {
	uint64_t seed, nops, max_size;
	uint32_t npages; /* of the arena */
	const char *control; /* directory of control sockets: under txmap */
	const char *keep;    /* only these operations: "0-7,9" */
	const char *only;    /* only operations of this name */
	unsigned shrink;     /* seconds */
	unsigned threads;
	uint64_t check_every;
	bool verbose, quiet;
};

extern struct settings set;
extern struct shared *sh;
extern struct apage *arena;
extern struct fd fds[NFILES][NFDS];
extern bool stored_here[NFILES]; /* by this process since the last commit */
extern uint64_t op_index;

/* ---- main.c ---- */

/* One line for the operation under way, before it is done. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The program and the model differ: the end, with the log's tail. */
void mismatch(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* A call's result and errno must be want: >= 0, or -errno. */
void expect(const char *what, long ret, long want);
/* A system call that no library sees, as another program would make it; -1 and errno. */
long kernel(long nr, long a, long b, long c, long d);
bool parse_keep(const char *list, uint8_t *keep, uint64_t nops);

/* ---- random.c ---- */

void random_begin(uint64_t seed, uint64_t index);
uint64_t rnd(void);
uint64_t below(uint64_t n);		   /* [0, n) */
uint64_t between(uint64_t a, uint64_t b);  /* [a, b] */
bool one_in(unsigned n);
uint64_t skewed(uint64_t n);		   /* [0, n), small ones more often */
uint64_t random_size(void);		   /* of a file */
uint64_t random_off(const struct file *f); /* near pages' ends and the file's, mostly below the end */
size_t random_len(void);
void random_bytes(void *buf, size_t len);

/* ---- model.c ---- */

bool is_direct(const struct file *f); /* changes reach the storage at once */
uint64_t npages_of(uint64_t size);
void model_write(struct file *f, uint64_t off, const void *buf, size_t len);
void model_zero(struct file *f, uint64_t off, uint64_t len);
void model_resize(struct file *f, uint64_t size);
void model_commit(struct file *f);
void model_discard(struct file *f);
void model_invalidate(struct file *f, uint64_t off, uint64_t len); /* len 0: to the end */
/* Somebody else writes into the storage, or gives it another size. */
void model_outside_write(struct file *f, uint64_t off, const void *buf, size_t len);
bool is_changed(const struct file *f); /* not committed */
bool is_size_changed(const struct file *f);

/* Of arena pages [start, start + n). */
bool can_touch(uint32_t pg, bool write);
bool is_mapped(uint32_t start, uint32_t n);
bool is_free(uint32_t start, uint32_t n);
uint32_t run_of(uint32_t pg); /* how many pages from pg on are one mapping with one protection */
unsigned nmapped(const struct file *f);
void model_map(uint32_t start, uint32_t n, const struct apage *first);
void model_unmap(uint32_t start, uint32_t n);
/* Bytes [off, off + len) of the arena. How many of them can be touched, and lie below the file's end. */
size_t touchable(uint64_t off, size_t len, bool write);
void model_load(uint64_t off, void *buf, size_t len);
void model_store(uint64_t off, const void *buf, size_t len);
void model_own(uint32_t pg); /* the private page gets its copy now */
void drop_own(uint32_t pg);
/* Do bytes of the arena lie on file bytes [off, off + len) of f? */
bool overlaps(uint64_t aoff, size_t alen, const struct file *f, uint64_t off, size_t len);
/* A random mapped page, or set.npages. */
uint32_t random_page(void);

/* ---- ops ---- */

struct op {
	const char *name;
	unsigned weight;
	void (*fn)(void);
};
extern const struct op ops_io[], ops_size[], ops_map[], ops_remap[], ops_life[], ops_other[];

int open_one(struct file *f, int flags); /* a new entry of fds, or -1 when all are in use */
struct fd *random_fd(struct file *f, bool readable, bool writable); /* or NULL */
struct file *random_file(void);
void close_one(struct fd *d);
size_t available(const struct file *f, uint64_t off, size_t len); /* how many bytes of the range the file has */
uint32_t random_npages(void);
/* Around what may take the last mapping of a file away. */
void unmapping(void);
void unmapped(void);
/* Ask txmap, and expect success, or this errno's name. */
void order(const char *verb, const struct file *f, const char *more, const char *want);
void invalidate(struct file *f, uint64_t off, uint64_t len);
void may_be_released(struct file *f); /* the last descriptor or mapping may just have gone */
void make_sure(struct file *f);	      /* com is known, and an end of use commits what there is */
unsigned nfds(const struct file *f);
void compare_bytes(const char *what, uint64_t off, const uint8_t *got, const uint8_t *want, size_t len);
void check_all(void);
void begin_worker(void);

void catch_faults(void);
/* Touch one byte that must not be touched: the signal, 0 when there was none. */
int probe(volatile uint8_t *p, bool write);

int shrink_main(int argc, char **argv, uint64_t nops);
int threads_main(void);
/* This program again, without a preload: writes as somebody else does. */
int outside_main(char **argv);
/* Send a request; the answer's errno name, "" when it was ok. */
const char *control(const char *request);

#endif
