/* SPDX-License-Identifier: MIT */
/*
 *	chaos [--preload SO --txmap BIN --runtime DIR] [--seconds N] [--seed N]
 *	      [--at-violation COMMAND]
 *
 * In an empty directory. The supervisor: never under txmap itself. It starts the processes, kills and stops
 * them, has them be quiet now and then, kills all at once, and looks at what is left. The command is run when
 * something is wrong, while all are still there: to look at them with a debugger.
 */
#include "chaos.h"
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BURIED UINT32_MAX /* as a pid: it is dead, its children not for certain */

static const char *preload, *txmap, *at_violation;
static uint64_t state; /* of the random numbers */
static uint64_t stopped_until[NSLOTS + 1];

static uint64_t now_msec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void start(unsigned slot)
{
	struct slot *s = &ledger->slot[slot];
	pid_t pid;

	put32(&s->is_ending, 0);
	pid = fork();
	if (pid == 0) {
		put32(&s->pid, (uint32_t)getpid());
		exec_self(preload, "worker", slot, state ^ slot);
	}
	put32(&s->pid, (uint32_t)pid);
	(void)random_below(&state, 2);
}

static void tell_death(unsigned i, int st)
{
	struct slot *s = &ledger->slot[i];
	bool was_to = s->is_ending || ledger->crash;

	if (WIFSIGNALED(st) && WTERMSIG(st) != SIGKILL && !was_to)
		violation("slot %u, process %u: ended by SIG%s; its threads were at %s and %s", i, s->pid,
			  sigabbrev_np(WTERMSIG(st)), doing_names[s->doing[0] % NDOING],
			  doing_names[s->doing[1] % NDOING]);
	if (WIFEXITED(st) && (WEXITSTATUS(st) || !was_to) && !get(&ledger->violations))
		violation("slot %u, process %u: ended with status %d", i, s->pid, WEXITSTATUS(st));
}

static void bury(unsigned i, int st)
{
	struct slot *s = &ledger->slot[i];

	tell_death(i, st);
	put32(&s->pid, BURIED);
	end_children(i);
	commits_are_unsure(i);
	for (unsigned t = 0; t < NTHREADS; t++) {
		put32(&s->is_live[t], 0);
		put32(&s->parked[t], 0);
	}
	put32(&s->has_files, 0);
	put32(&s->is_ending, 0);
	stopped_until[i] = 0;
	put32(&s->pid, 0);
}

static void reap(void)
{
	int st;
	pid_t pid;

	while ((pid = waitpid(-1, &st, WNOHANG)) > 0)
		for (unsigned i = 0; i <= NSLOTS; i++)
			if (ledger->slot[i].pid == (uint32_t)pid)
				bury(i, st);
}

/* One that is in a commit, if there is one, every other time. */
static unsigned choose(void)
{
	bool in_commit = random_below(&state, 2);
	unsigned first = (unsigned)random_below(&state, NSLOTS);

	for (unsigned k = 0; in_commit && k < NSLOTS; k++) {
		const struct slot *s = &ledger->slot[(first + k) % NSLOTS];

		for (unsigned i = 0; i < NTHREADS * NFILES; i++)
			if (get32(&s->commits[i / NFILES][i % NFILES]))
				return (first + k) % NSLOTS;
	}
	return first;
}

static void kill_one(unsigned i)
{
	struct slot *s = &ledger->slot[i];
	uint32_t child = get32(&s->child[random_below(&state, NTHREADS)]);

	if (!s->pid)
		return;
	if (child && random_below(&state, 2))
		(void)kill((pid_t)child, SIGKILL);
	else
		(void)kill((pid_t)s->pid, SIGKILL);
	ledger->kills++;
}

static void stop_one(unsigned i)
{
	if (!ledger->slot[i].pid || stopped_until[i])
		return;
	(void)kill((pid_t)ledger->slot[i].pid, SIGSTOP);
	stopped_until[i] = now_msec() + 1 + random_below(&state, 400);
	ledger->stops++;
}

static void go_on_those_of(uint64_t until)
{
	for (unsigned i = 0; i <= NSLOTS; i++) {
		if (!stopped_until[i] || stopped_until[i] > until)
			continue;
		(void)kill((pid_t)ledger->slot[i].pid, SIGCONT);
		stopped_until[i] = 0;
	}
}

/* Those that had not come so far as to be in the ledger. */
static void kill_unknown(void)
{
	char path[64];
	FILE *f;
	int pid;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1) {
		violation("process %d does not get so far as to work, nor ends", pid);
		if (at_violation)
			(void)system(at_violation);
		(void)kill(pid, SIGKILL);
	}
	if (f)
		(void)fclose(f);
}

static void kill_all(void)
{
	unsigned first = (unsigned)random_below(&state, NSLOTS + 1);
	uint64_t until = now_msec() + 20000;

	put32(&ledger->crash, 1);
	do {
		for (unsigned k = 0; k <= NSLOTS; k++) {
			struct slot *s = &ledger->slot[(first + k) % (NSLOTS + 1)];

			for (unsigned t = 0; t < NTHREADS; t++)
				if (s->child[t])
					(void)kill((pid_t)s->child[t], SIGKILL);
			if (s->pid && s->pid != BURIED)
				(void)kill((pid_t)s->pid, SIGKILL);
		}
		reap();
		await(&ledger->answer, get32(&ledger->answer), 1);
		if (now_msec() > until)
			kill_unknown();
	} while (!waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT));
	put32(&ledger->crash, 0);
}

static void crash(void)
{
	kill_all();
	ledger->crashes++;
	if (!ledger->violations)
		look_at_what_is_left(txmap, preload, random_below(&state, 2));
}

static void end_in_order(void)
{
	uint64_t until = now_msec() + 40000;
	unsigned n;

	go_on_those_of(UINT64_MAX);
	if (ledger->slot[KEEPER].pid) /* else nobody is there: all were killed just now */
		quiet_point(reap, &state);
	put32(&ledger->stop, 1);
	ring(&ledger->bell);
	do {
		reap();
		n = 0;
		for (unsigned i = 0; i <= NSLOTS; i++)
			n += ledger->slot[i].pid != 0;
		await(&ledger->answer, get32(&ledger->answer), 5);
		if (now_msec() > until)
			violation("%u processes do not end", n);
	} while (n && !ledger->violations);
	if (!ledger->violations)
		look_at_the_end(txmap);
}

static void act(void)
{
	uint64_t r = random_below(&state, 100);

	if (r < 6)
		kill_one(choose());
	else if (r < 9)
		stop_one(r == 6 ? KEEPER : choose());
	for (unsigned i = 0; i < NMAIN; i++)
		if (!ledger->slot[i].pid && !random_below(&state, 3))
			start(i);
}

static void supervise(unsigned seconds)
{
	uint64_t begin = now_msec(), next_quiet = begin + 1000, next_crash = begin + 3000, now;

	while ((now = now_msec()) < begin + seconds * (uint64_t)1000 && !get(&ledger->violations)) {
		reap();
		go_on_those_of(now);
		if (!ledger->slot[KEEPER].pid) { /* the first one, or one of the first */
			for (unsigned i = 0; i < random_below(&state, NMAIN); i++)
				start(i);
			start(KEEPER);
		}
		if (get32(&ledger->slot[KEEPER].has_files))
			act();
		if (now > next_quiet) {
			go_on_those_of(UINT64_MAX);
			quiet_point(reap, &state);
			next_quiet = now_msec() + 300 + random_below(&state, 1500);
		}
		if (now > next_crash) {
			crash();
			next_crash = now_msec() + 1000 + random_below(&state, 5000);
			next_quiet = now_msec() + 300 + random_below(&state, 1500);
		}
		await(&ledger->answer, get32(&ledger->answer), (unsigned)random_below(&state, 20));
	}
}

static int tell(unsigned seconds)
{
	struct ledger *l = ledger;

	printf("seed %lu, %u s: %lu commits, %lu kills, %lu stops, %lu crashes of all, %lu forks, %lu execs, "
	       "%lu exits, %lu threads, "
	       "%lu quiet points, %lu images looked at, %lu looks, %lu stores, %lu violations\n",
	       (unsigned long)l->seed, seconds, (unsigned long)l->commits, (unsigned long)l->kills,
	       (unsigned long)l->stops, (unsigned long)l->crashes, (unsigned long)l->forks,
	       (unsigned long)l->execs, (unsigned long)l->exits, (unsigned long)l->threads,
	       (unsigned long)l->quiets, (unsigned long)l->images, (unsigned long)l->looks,
	       (unsigned long)l->stores, (unsigned long)l->violations);
	return l->violations || !l->commits || !l->kills;
}

static int supervisor(int argc, char **argv)
{
	static const struct option options[] = {{"preload", 1, 0, 'p'},	     {"txmap", 1, 0, 't'},
						{"runtime", 1, 0, 'r'},	     {"seconds", 1, 0, 's'},
						{"seed", 1, 0, 'n'},	     {"at-violation", 1, 0, 'v'},
						{0}};
	const char *runtime = "";
	unsigned seconds = 10;
	uint64_t seed = now_msec();
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'p':
			preload = optarg;
			break;
		case 't':
			txmap = optarg;
			break;
		case 'r':
			runtime = optarg;
			break;
		case 's':
			seconds = (unsigned)atoi(optarg);
			break;
		case 'n':
			seed = strtoul(optarg, NULL, 0);
			break;
		case 'v':
			at_violation = optarg;
			break;
		default:
			return 2;
		}
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	ledger_open(getenv("CHAOS_LEDGER"), true);
	ledger->seed = state = seed;
	ledger->has_txmap = preload != NULL;
	(void)snprintf(ledger->runtime, sizeof(ledger->runtime), "%s", runtime);
	if (!getcwd(ledger->dir, sizeof(ledger->dir)))
		return 99;
	make_files();
	supervise(seconds);
	if (!ledger->violations)
		end_in_order();
	if (ledger->violations && at_violation)
		(void)system(at_violation);
	kill_all();
	return tell(seconds);
}

int main(int argc, char **argv)
{
	if (!getenv("CHAOS_LEDGER")) {
		fprintf(stderr, "chaos: CHAOS_LEDGER is to name a file that nobody manages\n");
		return 2;
	}
	if (argc == 4 && !strcmp(argv[1], "worker")) {
		ledger_open(getenv("CHAOS_LEDGER"), false);
		worker_main((unsigned)atoi(argv[2]), strtoul(argv[3], NULL, 0));
	}
	if (argc == 4 && !strcmp(argv[1], "touch")) {
		ledger_open(getenv("CHAOS_LEDGER"), false);
		touch_main();
	}
	return supervisor(argc, argv);
}
