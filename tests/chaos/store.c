/* SPDX-License-Identifier: MIT */
/* What is stored, said in the ledger before and after; and what is seen of what others store. */
#include "chaos.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void does(struct worker *w, enum doing what, unsigned f)
{
	put32(&slot_of(w)->file[w->thread], f);
	put32(&slot_of(w)->doing[w->thread], what);
}

static struct book *book_of(const struct worker *w, unsigned f)
{
	return &ledger->file[f].lane[w->lane];
}

static uint64_t add(struct worker *w, unsigned f, unsigned c, uint64_t n)
{
	struct book *b = book_of(w, f);
	uint64_t was;

	put(&b->added_begun[c], b->added_begun[c] + n);
	was = __atomic_fetch_add(counter_at(w->view[f], c), n, __ATOMIC_SEQ_CST);
	put(&b->added_done[c], b->added_done[c] + n);
	return was;
}

void store_add(struct worker *w, unsigned f)
{
	does(w, DOES_ADD, f);
	(void)add(w, f, 1 + (unsigned)random_below(&w->random, NCOUNTERS - 1),
		  1 + random_below(&w->random, 1000));
}

static void store_in_order(struct record *to, const struct record *r)
{
	put(&to->begin, r->begin);
	put(&to->lane, r->lane);
	put(&to->ticket, r->ticket);
	put(&to->saw_lane, r->saw_lane);
	put(&to->saw_n, r->saw_n);
	put(&to->hash, r->hash);
	put(&to->fill, r->fill);
	put(&to->end, r->end);
}

static void write_record(struct worker *w, unsigned f, const struct record *r, const struct record *to)
{
	off_t at = (const uint8_t *)to - w->view[f].base;

	if (pwrite(w->fd[f], r, sizeof(*r), at) != (ssize_t)sizeof(*r))
		violation("lane %u: pwrite to %s: %s", w->lane, file_name(f), strerror(errno));
}

void store_record(struct worker *w, unsigned f)
{
	struct book *b = book_of(w, f);
	unsigned other = (unsigned)random_below(&w->random, NLANES);
	uint64_t n = b->done + 1;
	struct record *to = record_at(w->view[f], w->lane, n), *seen,
		      r = {.begin = n, .lane = w->lane, .end = n};

	does(w, DOES_RECORD, f);
	put(&b->begun, n);
	seen = record_at(w->view[f], other, random_below(&w->random, NRECORDS));
	r.saw_lane = other;
	r.saw_n = get(&seen->end);
	r.ticket = add(w, f, 0, 1) + 1;
	r.fill = w->random;
	r.hash = record_hash(&r);
	if (random_below(&w->random, 8))
		store_in_order(to, &r);
	else
		write_record(w, f, &r, to);
	put(&b->done, n);
}

static void end_transfer(struct worker *w, unsigned f)
{
	struct view v = w->view[f];
	struct intent *t = page_at(v, AT_INTENT);

	put(account_at(v, (unsigned)t->from), t->from_old - t->amount);
	put(account_at(v, (unsigned)t->to), t->to_old + t->amount);
	put(page_at(v, AT_TRANSFERS), t->seq);
	put(&t->is_begun, 0);
	put(&ledger->file[f].transfers_done, t->seq);
}

void store_transfer(struct worker *w, unsigned f)
{
	struct view v = w->view[f];
	struct intent *t = page_at(v, AT_INTENT);
	uint64_t from = random_below(&w->random, NACCOUNTS);

	does(w, DOES_TRANSFER, f);
	lock_file(w, f);
	if (t->is_begun)
		end_transfer(w, f);
	put(&t->seq, get(page_at(v, AT_TRANSFERS)) + 1);
	put(&t->from, from);
	put(&t->to, (from + 1 + random_below(&w->random, NACCOUNTS - 1)) % NACCOUNTS);
	put(&t->from_old, *account_at(v, (unsigned)t->from));
	put(&t->to_old, *account_at(v, (unsigned)t->to));
	put(&t->amount, random_below(&w->random, 100));
	put(&ledger->file[f].transfers_begun, t->seq);
	put(&t->is_begun, 1);
	if (!random_below(&w->random, 32))
		commit(w, f);
	end_transfer(w, f);
	unlock_file(w, f);
}

void store_pair(struct worker *w, unsigned f)
{
	struct view v = w->view[f];
	uint64_t *x = page_at(v, AT_PAIR_X), *y = page_at(v, AT_PAIR_Y);
	struct file_book *b = &ledger->file[f];
	struct timespec until;
	int err;

	does(w, DOES_PAIR, f);
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	err = pthread_mutex_timedlock(page_at(v, AT_MUTEX), &until);
	if (err == EOWNERDEAD) {
		(void)pthread_mutex_consistent(page_at(v, AT_MUTEX));
		put(y, get(x));
		put(&b->pair_done, get(y));
	} else if (err) {
		violation("lane %u: the mutex of %s, held by thread %d: %s", w->lane, file_name(f),
			  ((pthread_mutex_t *)page_at(v, AT_MUTEX))->__data.__lock, strerror(err));
		_exit(0);
	}
	put(&b->pair_begun, get(x) + 1);
	put(x, get(x) + 1);
	if (!random_below(&w->random, 32))
		commit(w, f);
	put(y, get(y) + 1);
	put(&b->pair_done, get(y));
	(void)pthread_mutex_unlock(page_at(v, AT_MUTEX));
}

/* Which memory it was that was wrong. */
static void tell_mapping(const struct worker *w, unsigned f)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, stop, at = (unsigned long)w->view[f].base;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &stop) == 2 && start <= at && at < stop)
			fprintf(stderr, "lane %u of process %d, a child: %d, has at %lx: %s", w->lane,
				getpid(), w->is_child, at, line);
	if (maps)
		(void)fclose(maps);
}

static void look_at_record(struct worker *w, unsigned f)
{
	unsigned lane = (unsigned)random_below(&w->random, NLANES);
	struct book *b = &ledger->file[f].lane[lane];
	uint64_t low = get(&b->done), v, high;
	struct record *at = record_at(w->view[f], lane, low), r;

	if (random_below(&w->random, 4)) {
		v = get(&at->begin);
	} else {
		if (pread(w->fd[f], &r, sizeof(r), (uint8_t *)at - w->view[f].base) != (ssize_t)sizeof(r))
			violation("lane %u: pread of %s: %s", w->lane, file_name(f), strerror(errno));
		v = r.begin;
	}
	high = get(&b->begun);
	if (v < low || v > high || (v - low) % NRECORDS) {
		violation("lane %u looks at %s: record %lu of lane %u is %lu, allowed are every %u-th from "
			  "there to %lu",
			  w->lane, file_name(f), (unsigned long)low, lane, (unsigned long)v, NRECORDS,
			  (unsigned long)high);
		tell_mapping(w, f);
	}
}

static void look_at_counters(struct worker *w, unsigned f)
{
	struct bounds low, high;
	uint64_t v[NCOUNTERS], transfers, y;

	bounds_low(f, &low);
	for (unsigned c = 0; c < NCOUNTERS; c++)
		v[c] = get(counter_at(w->view[f], c));
	transfers = get(page_at(w->view[f], AT_TRANSFERS));
	y = get(page_at(w->view[f], AT_PAIR_Y));
	bounds_high(f, &high);
	for (unsigned c = 0; c < NCOUNTERS; c++)
		if (v[c] < low.counter[c] || v[c] > high.counter[c]) {
			violation("lane %u looks at %s: counter %u is %lu, allowed are %lu to %lu", w->lane,
				  file_name(f), c, (unsigned long)v[c], (unsigned long)low.counter[c],
				  (unsigned long)high.counter[c]);
			tell_mapping(w, f);
		}
	if (transfers < low.transfers || transfers > high.transfers || y < low.pair || y > high.pair)
		violation("lane %u looks at %s: transfers %lu, allowed %lu to %lu; pair %lu, allowed %lu to "
			  "%lu",
			  w->lane, file_name(f), (unsigned long)transfers, (unsigned long)low.transfers,
			  (unsigned long)high.transfers, (unsigned long)y, (unsigned long)low.pair,
			  (unsigned long)high.pair);
}

void look(struct worker *w, unsigned f)
{
	does(w, DOES_LOOK, f);
	count(&ledger->looks);
	if (random_below(&w->random, 4))
		look_at_record(w, f);
	else
		look_at_counters(w, f);
}

void settle(struct worker *w, unsigned f)
{
	struct book *b = book_of(w, f);
	uint64_t pos = lane_position(w->view[f], w->lane);

	if (pos < b->done || pos > b->begun)
		violation("lane %u begins anew in %s: its records got to %lu, allowed are %lu to %lu",
			  w->lane, file_name(f), (unsigned long)pos, (unsigned long)b->done,
			  (unsigned long)b->begun);
	put(&b->done, pos);
	unlock_left(w, f);
}

void store_anything(struct worker *w, unsigned f)
{
	uint64_t r = random_below(&w->random, 100);

	count(&ledger->stores);
	if (r < 45)
		store_record(w, f);
	else if (r < 75)
		store_add(w, f);
	else if (r < 92)
		store_transfer(w, f);
	else
		store_pair(w, f);
}
