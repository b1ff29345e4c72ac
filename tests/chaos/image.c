/* SPDX-License-Identifier: MIT */
/*
 * What holds at every instant in a file, whoever is in the middle of what, dead or alive:
 *
 *   records	those of a lane are its last NRECORDS, without a gap; only the one after the newest may be
 * half there tickets	none is higher than counter 0, no two are equal, those of a lane rise
 *   saw	the record that was seen before this one was stored is there, or a later one
 *   accounts	they hold TOTAL together, once what the intent says of a transfer under way is taken into
 * account pair	x is stored before y: it is as high, or one higher
 */
#include "chaos.h"
#include <string.h>

uint64_t record_hash(const struct record *r)
{
	uint64_t h = 1469598103934665603u;
	const uint64_t words[] = {r->begin, r->lane, r->ticket, r->saw_lane, r->saw_n, r->fill};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		h = (h ^ words[i]) * 1099511628211u;
	return h;
}

uint64_t lane_position(struct view v, unsigned lane)
{
	uint64_t pos = 0;

	for (unsigned k = 0; k < NRECORDS; k++) {
		struct record *r = record_at(v, lane, k);
		uint64_t end = get(&r->end);

		if (end > pos && get(&r->begin) == end)
			pos = end;
	}
	return pos;
}

uint64_t image_hash(struct view v)
{
	uint64_t h = 1469598103934665603u;

	for (size_t p = 0; p < NPAGES; p++)
		for (size_t i = 0; i < PAGE / 8; i++)
			h = (h ^ ((uint64_t *)page_at(v, p))[i]) * 1099511628211u + 1;
	return h | 1;
}

#define BAD(fmt, ...) violation("%s of %s: " fmt, what, file_name(f), __VA_ARGS__)
#define UL(x)	      ((unsigned long)(x))

static void check_bounds(const char *what, unsigned f, const char *name, unsigned i, uint64_t v, uint64_t low,
			 uint64_t high)
{
	if (v < low || v > high)
		BAD("%s %u is %lu, allowed are %lu to %lu", name, i, UL(v), UL(low), UL(high));
}

static void check_lane(const char *what, unsigned f, struct view v, unsigned lane, const struct bounds *high)
{
	uint64_t pos = lane_position(v, lane), ticket = 0;

	for (uint64_t n = pos > NRECORDS ? pos - NRECORDS + 1 : 1; n <= pos; n++) {
		struct record *r = record_at(v, lane, n);

		/* the next one takes the place of the oldest */
		if (n + NRECORDS == pos + 1 && r->begin == pos + 1 && r->end == n) {
			if (high->lane[lane] < pos + 1)
				BAD("lane %u: record %lu is half there, nobody began it", lane, UL(pos + 1));
			continue;
		}
		if (r->begin != n || r->end != n) {
			BAD("lane %u: record %lu is there, in place of record %lu are %lu and %lu", lane,
			    UL(pos), UL(n), UL(r->begin), UL(r->end));
			continue;
		}
		if (r->lane != lane || r->hash != record_hash(r))
			BAD("lane %u: record %lu is whole and not as stored: lane %lu, hash %lx, not %lx",
			    lane, UL(n), UL(r->lane), UL(r->hash), UL(record_hash(r)));
		else if (r->ticket <= ticket || r->ticket > *counter_at(v, 0))
			BAD("lane %u: record %lu has ticket %lu; the one before %lu, the counter %lu", lane,
			    UL(n), UL(r->ticket), UL(ticket), UL(*counter_at(v, 0)));
		else if (r->saw_n > lane_position(v, (unsigned)r->saw_lane % NLANES))
			BAD("lane %u: record %lu came after record %lu of lane %lu, and that has got to %lu "
			    "only",
			    lane, UL(n), UL(r->saw_n), UL(r->saw_lane),
			    UL(lane_position(v, (unsigned)r->saw_lane % NLANES)));
		ticket = r->ticket;
	}
}

static void check_tickets(const char *what, unsigned f, struct view v)
{
	static uint64_t seen[NLANES * NRECORDS];
	size_t n = 0;

	for (unsigned l = 0; l < NLANES; l++)
		for (unsigned k = 0; k < NRECORDS; k++) {
			struct record *r = record_at(v, l, k);

			if (!r->end || r->begin != r->end)
				continue;
			for (size_t i = 0; i < n; i++)
				if (seen[i] == r->ticket)
					BAD("lane %u: ticket %lu of record %lu was given out twice", l,
					    UL(r->ticket), UL(r->end));
			seen[n++] = r->ticket;
		}
}

static void check_accounts(const char *what, unsigned f, struct view v)
{
	const struct intent *t = page_at(v, AT_INTENT);
	uint64_t sum = 0, transfers = *(uint64_t *)page_at(v, AT_TRANSFERS), from, to;

	for (unsigned a = 0; a < NACCOUNTS; a++)
		sum += *account_at(v, a);
	if (t->is_begun) {
		from = *account_at(v, (unsigned)t->from % NACCOUNTS);
		to = *account_at(v, (unsigned)t->to % NACCOUNTS);
		sum += t->from_old + t->to_old - from - to;
		if ((from != t->from_old && from != t->from_old - t->amount) ||
		    (to != t->to_old && to != t->to_old + t->amount) ||
		    (to != t->to_old && from == t->from_old) || transfers + 1 < t->seq ||
		    transfers > t->seq || (transfers == t->seq && to == t->to_old))
			BAD("transfer %lu of %lu: %lu from %lu, %lu to %lu, transfers %lu: not in this order",
			    UL(t->seq), UL(t->amount), UL(t->from_old), UL(from), UL(t->to_old), UL(to),
			    UL(transfers));
	}
	if (sum != TOTAL)
		BAD("the accounts hold %lu, not %u, a transfer is %s", UL(sum), TOTAL,
		    t->is_begun ? "begun" : "not begun");
}

void check_image(const char *what, unsigned f, struct view v, const struct bounds *low,
		 const struct bounds *high)
{
	uint64_t x = *(uint64_t *)page_at(v, AT_PAIR_X), y = *(uint64_t *)page_at(v, AT_PAIR_Y);

	count(&ledger->images);
	for (unsigned l = 0; l < NLANES; l++) {
		check_lane(what, f, v, l, high);
		check_bounds(what, f, "lane", l, lane_position(v, l), low->lane[l], high->lane[l]);
	}
	check_tickets(what, f, v);
	for (unsigned c = 0; c < NCOUNTERS; c++)
		check_bounds(what, f, "counter", c, *counter_at(v, c), low->counter[c], high->counter[c]);
	check_accounts(what, f, v);
	check_bounds(what, f, "transfers", 0, *(uint64_t *)page_at(v, AT_TRANSFERS), low->transfers,
		     high->transfers);
	if (x != y && x != y + 1)
		BAD("the pair is %lu and %lu", UL(x), UL(y));
	check_bounds(what, f, "pair", 0, y, low->pair, high->pair);
	check_bounds(what, f, "pair", 1, x, low->pair, high->pair);
}

void anchor(unsigned f, struct view v)
{
	struct file_book *b = &ledger->file[f];
	const struct intent *t = page_at(v, AT_INTENT);

	memset(b, 0, sizeof(*b));
	for (unsigned c = 0; c < NCOUNTERS; c++)
		b->base[c] = *counter_at(v, c);
	for (unsigned l = 0; l < NLANES; l++) {
		uint64_t pos = lane_position(v, l);

		b->lane[l].done = pos;
		b->lane[l].begun = pos + (record_at(v, l, pos + 1)->begin == pos + 1);
	}
	b->transfers_done = *(uint64_t *)page_at(v, AT_TRANSFERS);
	b->transfers_begun = t->is_begun && t->seq > b->transfers_done ? t->seq : b->transfers_done;
	b->pair_done = *(uint64_t *)page_at(v, AT_PAIR_Y);
	b->pair_begun = *(uint64_t *)page_at(v, AT_PAIR_X);
	bounds_low(f, &b->floor);
}
