/* SPDX-License-Identifier: MIT */
/* Settings, the supervisor, and what is said when something differs. */
#include "fsx.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_SECONDS 30 /* without an operation done */

struct settings set = {.seed = 1, .nops = 1000, .max_size = 1u << 20, .check_every = 150};
struct shared *sh;
uint64_t op_index;
static uint8_t *keep; /* operation -> do it; NULL: all */

/* ---- the log ---- */

void say(const char *fmt, ...)
{
	char *line = sh->log[sh->nlog % LOG_LINES];
	va_list ap;
	int n = snprintf(line, LOG_LEN, "%6lu ", (unsigned long)op_index);

	va_start(ap, fmt);
	(void)vsnprintf(line + n, LOG_LEN - (size_t)n, fmt, ap);
	va_end(ap);
	sh->nlog++;
	if (set.verbose)
		fprintf(stderr, "%s\n", line);
}

static void print_tail(void)
{
	unsigned n = sh->nlog < LOG_LINES ? sh->nlog : LOG_LINES;

	fprintf(stderr, "the last operations:\n");
	for (unsigned i = n < 40 ? n : 40; i > 0; i--)
		fprintf(stderr, "  %s\n", sh->log[(sh->nlog - i) % LOG_LINES]);
}

void mismatch(const char *fmt, ...)
{
	va_list ap;

	if (!set.quiet) {
		if (!set.verbose)
			print_tail();
		fprintf(stderr, "MISMATCH at operation %lu (seed %lu, pid %d): ", (unsigned long)op_index,
			(unsigned long)set.seed, getpid());
		va_start(ap, fmt);
		vfprintf(stderr, fmt, ap);
		va_end(ap);
		fprintf(stderr, "\n");
	}
	if (getenv("FSX_STOP"))
		raise(SIGSTOP); /* for a debugger */
	(void)kernel(SYS_exit_group, STATUS_MISMATCH, 0, 0, 0);
	abort();
}

void expect(const char *what, long ret, long want)
{
	long got = ret < 0 ? -errno : ret;

	if (got == want)
		return;
	mismatch("%s: %ld (%s), but should be %ld (%s)", what, got, got < 0 ? strerrorname_np((int)-got) : "ok", want,
		 want < 0 ? strerrorname_np((int)-want) : "ok");
}

/* ---- a worker ---- */

#define NTABLES 6
static const struct op *const tables[NTABLES] = {ops_io, ops_size, ops_map, ops_remap, ops_life, ops_other};

static const struct op *random_op(void)
{
	static unsigned total;
	uint64_t at;

	if (!total)
		for (size_t t = 0; t < NTABLES; t++)
			for (const struct op *o = tables[t]; o->name; o++)
				total += o->weight;
	at = below(total);
	for (size_t t = 0; t < NTABLES; t++)
		for (const struct op *o = tables[t]; o->name; at -= o->weight, o++)
			if (at < o->weight)
				return o;
	abort();
}

/* Does operations from sh->next on; returns after the last. */
static void work(void)
{
	catch_faults();
	op_index = sh->next;
	begin_worker();
	while (sh->next < set.nops) {
		const struct op *o;

		op_index = sh->next;
		random_begin(set.seed, op_index);
		o = random_op();
		__atomic_store_n(&sh->next, op_index + 1, __ATOMIC_SEQ_CST);
		if (keep && !keep[op_index])
			continue;
		if (set.only && !strstr(set.only, o->name) && strcmp(o->name, "map"))
			continue;
		o->fn();
		if (set.check_every && op_index % set.check_every == 0)
			check_all();
	}
	check_all();
}

/* ---- the supervisor ---- */

static int wait_for(pid_t pid)
{
	struct timespec second = {.tv_sec = 1};
	uint64_t last = sh->next;
	int status, idle = 0;
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		uint64_t next = __atomic_load_n(&sh->next, __ATOMIC_SEQ_CST);

		idle = next == last ? idle + (sigtimedwait(&chld, NULL, &second) < 0) : 0;
		last = next;
		if (idle == HANG_SECONDS) {
			fprintf(stderr, "HANG at operation %lu (seed %lu, pid %d)\n", (unsigned long)next - 1,
				(unsigned long)set.seed, pid);
			if (getenv("FSX_STOP"))
				pause();
			kill(pid, SIGKILL);
			(void)waitpid(pid, &status, 0);
			return -1;
		}
	}
	return status;
}

/* After a worker: what the next one should find. False: it ended in a way that is none of ours. */
static bool settle(int status)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && sh->killed;

	if (!killed && (!WIFEXITED(status) || (WEXITSTATUS(status) != STATUS_QUIT && WEXITSTATUS(status) != 0)))
		return false;
	for (unsigned i = 0; i < NFILES; i++) {
		struct file *f = &sh->f[i];

		if (killed && set.control)
			model_discard(f);
		else
			model_commit(f);
		f->live = false;
	}
	sh->killed = false;
	return true;
}

static void *shared_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("fsx: mmap");
		exit(2);
	}
	return p;
}

static void prepare(void)
{
	size_t len = set.max_size + MAX_IO + PAGE;

	sh = shared_memory(sizeof(*sh));
	set.npages = (uint32_t)(set.max_size / PAGE * 2 + 64);
	arena = calloc(set.npages, sizeof(*arena));
	for (unsigned i = 0; i < NFILES; i++) {
		struct file *f = &sh->f[i];
		char journal[48]; /* txmap's, when an earlier run was killed: it goes with its file */

		(void)snprintf(f->name, sizeof(f->name), "fsx%u.dat", i);
		(void)snprintf(journal, sizeof(journal), ".%s.txmap", f->name);
		(void)unlink(f->name);
		(void)unlink(journal);
		f->cur = shared_memory(len);
		f->com = shared_memory(len);
		f->changed = shared_memory(len / PAGE + 1);
	}
}

static int supervise(void)
{
	sigset_t chld;
	int status;
	bool last;
	pid_t pid;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	do { /* the last one finds everything done, and only looks */
		last = sh->next >= set.nops;
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			sigprocmask(SIG_UNBLOCK, &chld, NULL);
			work();
			make_sure(&sh->f[0]);
			make_sure(&sh->f[1]);
			exit(0);
		}
		status = pid < 0 ? -1 : wait_for(pid);
		if (status == -1 || !settle(status)) {
			if (!set.quiet && !(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_MISMATCH)) {
				print_tail();
				fprintf(stderr, "the worker ended with status %#x after operation %lu (seed %lu)\n",
					(unsigned)status, (unsigned long)sh->next - 1, (unsigned long)set.seed);
			}
			return 1;
		}
	} while (!last);
	return 0;
}

/* ---- settings ---- */

bool parse_keep(const char *list, uint8_t *to, uint64_t nops)
{
	char *end;

	while (*list) {
		uint64_t a = strtoul(list, &end, 10), b = a;

		if (*end == '-')
			b = strtoul(end + 1, &end, 10);
		if ((*end && *end != ',') || b < a)
			return false;
		for (; a <= b && a < nops; a++)
			to[a] = 1;
		list = end + (*end == ',');
	}
	return true;
}

static void usage(void)
{
	fprintf(stderr, "fsx [--seed N] [--ops N] [--size BYTES] [--control DIR] [--threads N] [--shrink SECONDS] "
			"[--keep LIST] [--only NAMES] [--check-every N] [--verbose] [--quiet]\n"
			"In the current directory. --control: under txmap, whose control sockets are there.\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", 1, NULL, 's'},	  {"ops", 1, NULL, 'n'},    {"size", 1, NULL, 'z'},
		{"control", 1, NULL, 'c'}, {"threads", 1, NULL, 't'}, {"shrink", 1, NULL, 'x'},
		{"keep", 1, NULL, 'k'},	  {"only", 1, NULL, 'o'},   {"check-every", 1, NULL, 'e'},
		{"verbose", 0, NULL, 'v'}, {"quiet", 0, NULL, 'q'},  {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long n = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (c) {
		case 's': set.seed = n; break;
		case 'n': set.nops = n; break;
		case 'z': set.max_size = n; break;
		case 'c': set.control = optarg; break;
		case 't': set.threads = (unsigned)n; break;
		case 'x': set.shrink = (unsigned)n; break;
		case 'k': set.keep = optarg; break;
		case 'o': set.only = optarg; break;
		case 'e': set.check_every = n; break;
		case 'v': set.verbose = true; break;
		case 'q': set.quiet = true; break;
		default: usage();
		}
	}
	if (optind < argc || !set.nops || set.max_size < 64 * PAGE || set.max_size % PAGE)
		usage();
}

int main(int argc, char **argv)
{
	int status;

	if (argc == 6 && !strcmp(argv[1], "outside"))
		return outside_main(argv);
	parse(argc, argv);
	prepare();
	if (set.threads)
		return threads_main();
	if (set.keep) {
		keep = calloc(set.nops, 1);
		if (!keep || !parse_keep(set.keep, keep, set.nops))
			usage();
	}
	status = supervise();
	if (!set.quiet)
		printf("seed %lu: %lu operations %s\n", (unsigned long)set.seed, (unsigned long)sh->next,
		       status ? "FAILED" : "ok");
	fflush(stdout);
	if (status && set.shrink)
		return shrink_main(argc, argv, sh->next);
	return status;
}
