/* SPDX-License-Identifier: MIT */
/*
 * The crash explorer. A workload runs once, recorded; then every disk that a crash could have left is made,
 * recovered, and looked at.
 *
 * A crash comes after any host call. What was synced then is on the disk; of what was not, any part: every
 * subset of the pending calls when they are few, else samples; the last one also torn at sectors. Recovery is
 * recorded, too, and crashes in the same way (to a depth of three).
 *
 * The file must then be one version that was asked for, whole: none older than the last that was said to be
 * durable, none that was said to have failed. Its journal is gone, check never called it damaged, and it can
 * be gone on with.
 */
#include "box.h"
#include "look.h"
#include "pol.h"
#include "record.h"
#include "vm_sys.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH     3
#define NSAMPLES      24u  /* subsets at a point where there are too many for all of them */
#define NTORN	      8u   /* places where the last write is torn */
#define NESTED_EVERY  200u /* one of so many states has its recovery recorded */
#define GOES_ON_EVERY 64u

static struct {
	uint64_t states, seed;
	unsigned subsets;
	const char *only;
} arg = {20000, 1, 6, NULL};

/* A crash of a recorded run, as far as it is explored. */
struct place {
	const struct trace *t;
	size_t npast; /* events before the crash */
	struct disk durable;
	size_t *pending; /* events that may or may not have arrived, in order */
	unsigned npending;
	struct allowed ok;
	unsigned depth; /* crashes before this one */
};

/* How much of a pending event arrived. */
struct part {
	uint64_t from, to;
};

static struct work_run run;
static const struct work *work;
static uint64_t rnd, nstates, nnested, npoints;
static char dir[256];

static uint64_t below(uint64_t n)
{
	return box_random(&rnd) % n;
}

static void explore(const struct trace *t, const struct disk *start, const struct allowed *ok,
		    unsigned depth);

/* ---- one state ---- */

static void tell_events(const struct place *p, const struct part *part)
{
	static const char *const kind[] = {"write",    "size",	  "sync",    "name",  "sync failed",
					   "sync dir", "started", "durable", "failed"};
	unsigned at = 0;

	for (size_t i = 0; i < p->npast; i++) {
		const struct event *ev = &p->t->ev[i];
		bool is_pending = at < p->npending && p->pending[at] == i;

		printf("  %5zu %-8s file %d off %llu len %llu", i, kind[ev->kind], ev->node,
		       (unsigned long long)ev->off, (unsigned long long)ev->len);
		if (is_pending)
			printf(" arrived [%llu, %llu)", (unsigned long long)part[at].from,
			       (unsigned long long)part[at].to);
		at += is_pending;
		putchar('\n');
	}
}

static void violation(const struct place *p, const struct part *part, const char *what)
{
	printf("VIOLATION: %s\n", what);
	printf("  workload %s, seed %llu, %u crashes before; may be version %u to %u\n", work->name,
	       (unsigned long long)arg.seed, p->depth, p->ok.low, p->ok.high);
	tell_events(p, part);
	printf("  kept: %s\n", dir);
	exit(1);
}

static void examine(const struct place *p, const struct disk *d, const struct part *part)
{
	bool nests = p->depth + 1 < MAX_DEPTH && below(NESTED_EVERY) == 0;
	struct trace t = {0};
	const char *wrong;
	int v;

	disk_put(d, dir);
	nstates++;
	if (nests)
		record_start(dir, d, &t);
	wrong = look_recover(&run, (unsigned)below(run.npaths));
	record_stop();
	if (wrong)
		violation(p, part, wrong);
	v = look_version(&run, &p->ok);
	if (v < 0)
		violation(p, part, "the files are no version that they may be");
	if (below(GOES_ON_EVERY) == 0 && !look_goes_on(&run))
		violation(p, part, "it cannot be gone on with");
	if (nests) {
		struct allowed same = {.low = (unsigned)v, .high = (unsigned)v};

		nnested++;
		explore(&t, d, &same, p->depth + 1);
		trace_clear(&t);
	}
}

static void crash(const struct place *p, const struct part *part)
{
	static struct disk states[MAX_DEPTH]; /* their memory is used again */
	struct disk *d = &states[p->depth];

	disk_copy(d, &p->durable);
	for (unsigned i = 0; i < p->npending; i++) {
		const struct event *ev = &p->t->ev[p->pending[i]];

		if (part[i].from < part[i].to)
			disk_do(d, p->t, ev, part[i].from, part[i].to);
	}
	examine(p, d, part);
}

/* ---- the states of one point ---- */

static struct part whole(const struct place *p, unsigned i)
{
	uint64_t len = p->t->ev[p->pending[i]].len;

	return (struct part){0, len ? len : 1}; /* what is no write has no length, and arrives or does not */
}

/* A part of a write, with sectors for bounds. */
static struct part torn(const struct place *p, unsigned i)
{
	struct part part = whole(p, i);
	uint64_t nsectors = (part.to + SECTOR - 1) / SECTOR, at;

	if (nsectors < 2)
		return part;
	at = (1 + below(nsectors - 1)) * SECTOR;
	if (below(4) == 0)
		at = (at + 4095) / 4096 * 4096; /* a page */
	at = at < part.to ? at : part.to;
	if (below(3))
		part.to = at;
	else
		part.from = at;
	return part;
}

/* Which of the first n pending events arrive: each with chance in 8; whole, or now and then torn. */
static void draw(const struct place *p, struct part *part, unsigned n, unsigned chance)
{
	for (unsigned i = 0; i < n; i++) {
		part[i] = (struct part){0, 0};
		if (below(8) < chance)
			part[i] = below(4) ? whole(p, i) : torn(p, i);
	}
}

/* with_last: the last pending event has arrived at least in part: the states without it were those of the
 * point before. */
static void explore_point(const struct place *p, bool with_last)
{
	unsigned n = p->npending, nfree = n - (with_last && n);
	struct part *part = calloc(n + 1, sizeof(*part));
	static const unsigned chance[] = {0, 8, 4, 7, 1};

	npoints++;
	if (with_last && n)
		part[n - 1] = whole(p, n - 1);
	if (nfree <= arg.subsets) {
		for (uint64_t set = 0; set < 1ull << nfree; set++) {
			for (unsigned i = 0; i < nfree; i++)
				part[i] = set & 1ull << i ? whole(p, i) : (struct part){0, 0};
			crash(p, part);
		}
	} else {
		for (unsigned s = 0; s < NSAMPLES; s++) {
			draw(p, part, nfree, chance[s < 2 ? s : 2 + below(3)]);
			crash(p, part);
		}
	}
	for (unsigned s = 0; s < NTORN && with_last && n; s++) {
		part[n - 1] = torn(p, n - 1);
		if (part[n - 1].to - part[n - 1].from == whole(p, n - 1).to)
			break; /* too short to be torn */
		draw(p, part, nfree, chance[s < 2 ? s : 2 + below(3)]);
		crash(p, part);
	}
	free(part);
}

/* ---- all points of a trace ---- */

static bool is_synced_by(const struct trace *t, const struct event *ev, const struct event *sync)
{
	if (sync->kind != EV_SYNC_DIR)
		return ev->kind != EV_NAME && ev->node == sync->node;
	return ev->kind == EV_NAME && disk_dir_of((const char *)t->bytes + ev->at) == sync->off;
}

/* What a failed sync loses is drawn once, here. */
static void sync_pending(struct place *p, const struct event *sync)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < p->npending; i++) {
		const struct event *ev = &p->t->ev[p->pending[i]];

		if (!is_synced_by(p->t, ev, sync))
			p->pending[kept++] = p->pending[i];
		else if (sync->kind != EV_SYNC_FAILED || below(2))
			disk_do(&p->durable, p->t, ev, 0, ev->len);
	}
	p->npending = kept;
}

static void explore(const struct trace *t, const struct disk *start, const struct allowed *ok, unsigned depth)
{
	struct place p = {.t = t, .ok = *ok, .depth = depth, .pending = calloc(t->n + 1, sizeof(size_t))};
	size_t npoints_max = depth ? work->npoints / 10 : work->npoints;

	disk_copy(&p.durable, start);
	explore_point(&p, false);
	for (size_t i = 0; i < t->n; i++) {
		const struct event *ev = &t->ev[i];
		bool with_last = false;

		p.npast = i + 1;
		switch (ev->kind) {
		case EV_STARTED:
			p.ok.high = (unsigned)ev->off;
			continue; /* nothing changed on the disk */
		case EV_FAILED:
			p.ok.failed[ev->off] = true;
			break;
		case EV_DURABLE:
			p.ok.low = (unsigned)ev->off;
			break;
		case EV_SYNC:
		case EV_SYNC_FAILED:
		case EV_SYNC_DIR:
			sync_pending(&p, ev);
			if (i + 1 < t->n && t->ev[i + 1].kind == EV_DURABLE)
				continue; /* the same states, and then fewer are right */
			break;
		default:
			p.pending[p.npending++] = i;
			with_last = true;
		}
		if (!with_last || t->n <= npoints_max || below(t->n) < npoints_max)
			explore_point(&p, with_last);
	}
	free(p.pending);
	disk_clear(&p.durable);
}

/* ---- running ---- */

/* The disk that is explored is a trace: its files may be in memory. */
static const char *tmp(void)
{
	const char *set = getenv("TMPDIR");

	return set && *set ? set : "/dev/shm";
}

static void explore_work(const struct work *w, uint64_t seed)
{
	static const struct allowed first; /* version 0 */
	struct disk start = {0};
	struct trace t = {0};
	struct box box;

	work = w;
	rnd = seed;
	box_make_in(&box, tmp());
	(void)snprintf(dir, sizeof(dir), "%s", box.dir);
	disk_begin(dir);
	work_run(&run, w, dir, seed, &start, &t);
	for (size_t i = 0; i < t.n; i++) /* what the run left is not there when a state does not have it */
		if (t.ev[i].kind == EV_NAME)
			(void)disk_name(&start, (const char *)t.bytes + t.ev[i].at);
	explore(&t, &start, &first, 0);
	work_clear(&run);
	disk_clear(&start);
	trace_clear(&t);
	disk_end(dir);
	box_remove(&box);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	switch (key) {
	case 'n':
		arg.states = strtoull(text, NULL, 10);
		return 0;
	case 's':
		arg.seed = strtoull(text, NULL, 10);
		return 0;
	case 'k':
		arg.subsets = (unsigned)strtoul(text, NULL, 10);
		return 0;
	case 'w':
		arg.only = text;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"states", 'n', "N", 0, "Explore at least so many (20000)", 0},
		{"seed", 's', "S", 0, "Of the first round (1)", 0},
		{"subsets", 'k', "K", 0, "All subsets of up to K pending calls (6)", 0},
		{"workload", 'w', "NAME", 0, "Only this one", 0},
		{0},
	};
	static const struct argp argp = {
		options, parse, NULL, "What a crash can leave of the file backend's work.", NULL, NULL, NULL};
	struct box runtime;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	box_make_in(&runtime, tmp());
	setenv("TXMAP_RUNTIME_DIR", runtime.dir, 1);
	setenv("TXMAP_PATHS", runtime.data, 1);
	if (pol_start() != 1)
		return 2;
	for (; nstates < arg.states; arg.seed++) {
		uint64_t before = nstates;

		for (unsigned i = 0; i < nworks; i++)
			if (!arg.only || !strcmp(arg.only, works[i].name))
				explore_work(&works[i], arg.seed);
		if (nstates == before) {
			fprintf(stderr, "explore: no workload %s\n", arg.only);
			return 2;
		}
	}
	box_remove(&runtime);
	printf("%llu crash states at %llu points, %llu recoveries of them explored: 0 violations\n",
	       (unsigned long long)nstates, (unsigned long long)npoints, (unsigned long long)nnested);
	return 0;
}
