/* SPDX-License-Identifier: MIT */
/*
 * Every host call fails in its turn, with every error, once and for ever from then on: what an operation said is
 * there, what it refused is not, and who asks again once the failure is over gets it.
 *
 *	faults [--group] [--few] [--call=N]	two files that commit together; fewer errors for each call; only one
 *
 * Each case is a process of its own, which is killed after the operation in which the call failed. Then its files are
 * recovered twice: as they are in the kernel's memory (the process was killed), and as the disk has them at the
 * least (the power failed). The same case is run again, and goes on to the end.
 *
 * Calls of helper threads do not fail. EINTR for ever is no case: no host is so.
 */
#define _GNU_SOURCE 1
#include "faulty_sys.h"
#include "log.h"
#include "shadow.h"
#include "vm.h"
#include "work.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CALLS 8192u
#define MAX_BAD	  100u /* that are told of */

enum outcome { UNHARMED, REFUSED, REFUSED_BUT_THERE, NOT_REACHED, NOUTCOMES };

/* What the process and its parent tell each other. */
static struct report {
	enum op op;
	struct {
		enum faulty_kind kind;
		enum op op;
		unsigned nth; /* of its kind */
	} call[MAX_CALLS];
	unsigned ncalls;
	bool reached, failed, ended, keeps_stores;
	enum op hit_op; /* in which the first call failed */
	enum op failed_op;
	int err, retry_err;
	int ok, durable; /* the last versions that an operation said are there */
} * rep;

struct failure {
	unsigned call; /* index */
	int err;
	unsigned how;
};

static struct work work;
static FILE *log_file;
static unsigned nbad, nruns;
static unsigned table[FAULTY_NKINDS][OP_N][NOUTCOMES], nplaces[FAULTY_NKINDS][OP_N];

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static void count_call(enum faulty_kind kind, unsigned n)
{
	must(n <= MAX_CALLS, "too many calls");
	rep->call[n - 1].kind = kind;
	rep->call[n - 1].op = rep->op;
	rep->ncalls = n;
}

static unsigned hit_nth;

static void note_hit(enum faulty_kind kind, unsigned n)
{
	(void)kind;
	if (n == hit_nth)
		rep->hit_op = rep->op;
}

/* ---- one case ---- */

static void arm(const struct failure *f)
{
	if (!f)
		faulty_arm(FAULTY_ALL, 0, 0, FAULTY_MINE);
	else /* for ever: all calls of this kind, from then on */
		faulty_arm(1ull << rep->call[f->call].kind, rep->call[f->call].nth, f->err,
			   f->how | FAULTY_MINE);
	shadow_use();
}

static void disarm(void)
{
	(void)faulty_disarm();
	shadow_use();
}

static void note_success(enum op op)
{
	if (op_version[op])
		rep->ok = op_version[op];
	if (op_is_durable(op) && (op_version[op] || op == OP_CHECKPOINT))
		rep->durable = rep->ok;
}

/* What hangs tells where. */
static void is_stuck(int signo, siginfo_t *info, void *ucontext)
{
	(void)signo, (void)info;
	vm_backtrace(ucontext);
	_exit(98);
}

/* A file that was refused stays so until nobody is at work on it, as the helper thread may just be. */
static int ask_again(enum op op)
{
	int err = work_do(&work, op);

	for (unsigned i = 0; err && (op == OP_OPEN || op == OP_RECOVER) && i < 1000; i++) {
		(void)vm_sys->poll(NULL, 0, 1);
		err = work_do(&work, op);
	}
	return err;
}

static void child(const struct failure *f, bool go_on)
{
	const struct sigaction sa = {.sa_sigaction = is_stuck, .sa_flags = SA_SIGINFO};

	must(!sigaction(SIGALRM, &sa, NULL), "sigaction");
	(void)alarm(30);
	must(dup2(fileno(log_file), STDERR_FILENO) >= 0, "dup2");
	work_begin(&work);
	if (f)
		hit_nth = rep->call[f->call].nth;
	faulty_tell(f ? note_hit : count_call);
	arm(f);
	for (rep->op = 0; rep->op < OP_N; rep->op++) {
		int err = work_do(&work, rep->op);

		if (err) {
			rep->failed = true;
			rep->failed_op = rep->op;
			rep->err = err;
			rep->reached = faulty_has_failed();
			if (!go_on)
				break;
			disarm();
			rep->keeps_stores = work_keeps_stores(&work, rep->op);
			rep->retry_err = ask_again(rep->op);
			if (rep->retry_err)
				break;
		}
		note_success(rep->op);
		if (!go_on && faulty_has_failed())
			break;
	}
	rep->reached |= faulty_has_failed();
	rep->ended = true;
	(void)kill(getpid(), SIGKILL);
}

static const char *name_of(const struct failure *f)
{
	static char text[128];

	(void)snprintf(text, sizeof(text), "%s, call %u (%s), %s%s", op_names[rep->hit_op], f->call,
		       faulty_name(rep->call[f->call].kind),
		       f->how & FAULTY_SHORT  ? "short"
		       : f->how & FAULTY_TORN ? "torn"
					      : pol_errno_name(f->err),
		       f->how & FAULTY_FOR_EVER ? " for ever" : "");
	return text;
}

static void bad(const struct failure *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void bad(const struct failure *f, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	nbad++;
	if (nbad > MAX_BAD)
		return;
	(void)printf("BAD: %s: ", f ? name_of(f) : "no failure");
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)printf("\n");
	rewind(log_file);
	while (fgets(line, sizeof(line), log_file))
		(void)printf("	| %s", line);
}

static void run(const struct failure *f, bool go_on)
{
	int status;
	pid_t pid;

	nruns++;
	work_prepare(&work);
	shadow_start(work.dir);
	rewind(log_file); /* the process writes where we are */
	must(!ftruncate(fileno(log_file), 0), "log");
	memset(rep, 0, offsetof(struct report, call));
	rep->reached = rep->failed = rep->ended = rep->keeps_stores = false;
	rep->err = rep->retry_err = rep->ok = rep->durable = 0;
	pid = fork();
	must(pid >= 0, "fork");
	if (!pid)
		child(f, go_on);
	must(waitpid(pid, &status, 0) == pid, "waitpid");
	if (!rep->ended)
		bad(f, "the process ended by itself, status %#x", (unsigned)status);
}

/* ---- what must be ---- */

/* An end of use that fails may have committed before: what failed then is to clear the journal away. The kernel's own
 * msync is asked what it thinks of the range, and decides nothing else. A commit whose
 * journal cannot be written or synced any more may come back by it. */
static bool may_be_there(const struct failure *f)
{
	enum faulty_kind kind;

	if (!rep->failed || rep->retry_err)
		return false;
	kind = rep->call[f->call].kind;
	if (rep->failed_op == OP_END || kind == FAULTY_msync)
		return true;
	return f->how & FAULTY_FOR_EVER && (kind == FAULTY_pwrite || kind == FAULTY_fdatasync);
}

static void check_version(const struct failure *f, const char *when, int least, bool *ret_is_there)
{
	char why[1024];
	int v = work_version(&work, why, sizeof(why));

	if (v < 0)
		bad(f, "%s: no version %s", when, why);
	else if (rep->failed && v == op_version[rep->failed_op] && v > rep->ok && may_be_there(f))
		*ret_is_there = true;
	else if (v < least)
		bad(f, "%s: LOST: version %d, but %d was said to be there", when, v, least);
	else if (v > rep->ok)
		bad(f, "%s: version %d, but only %d was said to be there", when, v, rep->ok);
	if (!work_is_recovered(&work))
		bad(f, "%s: what a crash had left is not recovered", when);
}

static bool check_files(const struct failure *f)
{
	bool is_there = false;

	check_version(f, "killed", rep->ok, &is_there);
	shadow_cut_power();
	check_version(f, "power cut", rep->durable, &is_there);
	return is_there;
}

/* Should the log tell of it? Not of what is the program's own, as of a mmap for which there is no memory; and it
 * cannot when it is what fails. */
static bool is_told(enum faulty_kind kind)
{
	static const uint64_t of_files = FAULTY_BIT(openat) | FAULTY_BIT(pread) | FAULTY_BIT(pwrite) |
					 FAULTY_BIT(fsync) | FAULTY_BIT(fdatasync) | FAULTY_BIT(ftruncate) |
					 FAULTY_BIT(flock) | FAULTY_BIT(unlinkat);

	if (kind == FAULTY_write || kind == FAULTY_fstat || kind == FAULTY_msync ||
	    rep->failed_op == OP_CHECKPOINT)
		return false;
	return (op_version[rep->failed_op] && rep->failed_op != OP_END) || of_files & 1ull << kind;
}

/* Whoever looks at the log finds the file and what it was. */
static void check_log(const struct failure *f)
{
	char line[1024];
	const char *name = pol_errno_name(rep->err);

	rewind(log_file);
	while (fgets(line, sizeof(line), log_file))
		if (strstr(line, work.dir) && strstr(line, name))
			return;
	bad(f, "%s fails with %s, and the log does not say so", op_names[rep->failed_op], name);
}

/* What cannot be asked for after a write of ours is not known to be ours: a conflict too many, and no store lost. */
static bool is_taken_for_a_change(const struct failure *f)
{
	return rep->retry_err == -EBUSY && rep->call[f->call].kind == FAULTY_statx;
}

static void go_on_after(const struct failure *f, bool failed)
{
	for (unsigned i = 0; i < 5; i++) { /* now and then a call more is made before */
		run(f, true);
		if (rep->failed || !failed)
			break;
	}
	if (rep->failed && !rep->keeps_stores &&
	    rep->call[f->call].kind != FAULTY_msync) /* see may_be_there */
		bad(f, "%s: after the failure the stores are gone, or clean", op_names[rep->failed_op]);
	if (rep->retry_err && !is_taken_for_a_change(f))
		bad(f, "%s: tried again: %s", op_names[rep->failed_op], pol_errno_name(rep->retry_err));
	(void)check_files(f);
}

static void try(const struct failure *f)
{
	enum outcome o = UNHARMED;

	run(f, false);
	if (check_files(f))
		o = REFUSED_BUT_THERE;
	else if (rep->failed)
		o = REFUSED;
	else if (!rep->reached)
		o = NOT_REACHED;
	table[rep->call[f->call].kind][rep->reached ? rep->hit_op : rep->call[f->call].op][o]++;
	if (rep->failed && is_told(rep->call[f->call].kind))
		check_log(f);
	go_on_after(f, rep->failed);
}

/* ---- all cases ---- */

static void try_call(unsigned call, bool few)
{
	static const int errs[] = {EIO, ENOSPC, EDQUOT, ENOMEM, EINTR};
	enum faulty_kind kind = rep->call[call].kind;

	for (unsigned i = 0; i < (few ? 1 : sizeof(errs) / sizeof(*errs)); i++) {
		int err = few ? errs[call % 5] : errs[i];

		try(&(struct failure){call, err, 0});
		/* the list of who shares is looked for by name, for five seconds: once will do */
		if (err != EINTR && (kind != FAULTY_fstatat || (!few && !i)))
			try(&(struct failure){call, err, FAULTY_FOR_EVER});
	}
	if (kind == FAULTY_write || kind == FAULTY_pwrite || kind == FAULTY_read || kind == FAULTY_pread) {
		try(&(struct failure){call, 0, FAULTY_SHORT});
		try(&(struct failure){call, 0, FAULTY_SHORT | FAULTY_FOR_EVER});
	}
	if (kind == FAULTY_pwrite)
		try(&(struct failure){call, EIO, FAULTY_TORN});
}

static void number_kinds(void)
{
	unsigned n[FAULTY_NKINDS] = {0};

	for (unsigned i = 0; i < rep->ncalls; i++) {
		rep->call[i].nth = ++n[rep->call[i].kind];
		nplaces[rep->call[i].kind][rep->call[i].op]++;
	}
}

static void print_table(void)
{
	unsigned sum[NOUTCOMES] = {0};

	(void)printf("%-14s %-12s %6s  %8s %8s %8s %8s\n", "call", "operation", "places", "unharmed",
		     "refused", "there*", "other**");
	for (unsigned k = 0; k < FAULTY_NKINDS; k++) {
		for (unsigned op = 0; op < OP_N; op++) {
			const unsigned *o = table[k][op];

			if (!nplaces[k][op])
				continue;
			(void)printf("%-14s %-12s %6u  %8u %8u %8u %8u\n", faulty_name((enum faulty_kind)k),
				     op_names[op], nplaces[k][op], o[UNHARMED], o[REFUSED],
				     o[REFUSED_BUT_THERE], o[NOT_REACHED]);
			for (unsigned i = 0; i < NOUTCOMES; i++)
				sum[i] += o[i];
		}
	}
	(void)printf("%-14s %-12s %6u  %8u %8u %8u %8u\n", "all", "", rep->ncalls, sum[UNHARMED],
		     sum[REFUSED], sum[REFUSED_BUT_THERE], sum[NOT_REACHED]);
	(void)printf("*  the end of use, which had committed; or the journal could not be written any more\n"
		     "** the call was not made again\n");
}

int main(int argc, char **argv)
{
	char dir[64] = "/dev/shm/txmap-faults-XXXXXX", command[512];
	unsigned first = 0, most = MAX_CALLS;
	bool few = false;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	work.nfiles = 1;
	for (int i = 1; i < argc; i++) {
		few |= !strcmp(argv[i], "--few");
		work.nfiles += !strcmp(argv[i], "--group");
		if (!strncmp(argv[i], "--call=", 7)) {
			first = (unsigned)atoi(argv[i] + 7);
			most = 1;
		}
	}
	must(mkdtemp(dir) != NULL, dir);
	(void)snprintf(work.dir, sizeof(work.dir), "%s/files", dir);
	(void)snprintf(work.run, sizeof(work.run), "%s/run", dir);
	(void)snprintf(command, sizeof(command), "mkdir %s && mkdir -m 700 %s", work.dir, work.run);
	must(!system(command), command);
	log_file = tmpfile();
	must(log_file != NULL, "tmpfile");
	rep = mmap(NULL, sizeof(*rep), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(rep != MAP_FAILED, "mmap");

	run(NULL, false);
	number_kinds();
	if (rep->failed)
		bad(NULL, "%s: %s", op_names[rep->failed_op], pol_errno_name(rep->err));
	(void)check_files(NULL);
	for (unsigned call = first; call < rep->ncalls && call < first + most; call++)
		try_call(call, few);
	print_table();
	(void)printf("%u processes, %u calls: %s\n", nruns, rep->ncalls,
		     nbad ? "" : "0 lost, 0 false success");
	if (nbad)
		(void)printf("%u bad\n", nbad);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	must(!system(command), command);
	return nbad != 0;
}
