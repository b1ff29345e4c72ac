/* SPDX-License-Identifier: MIT */
/* A process at work: two threads at most, each with mappings and descriptors of its own. */
#include "chaos.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct worker self[NTHREADS];

/* Hash what is seen; and one of all commits before. */
static void obey(struct worker *w)
{
	struct slot *s = slot_of(w);
	uint32_t order = get32(&ledger->order);

	if (s->order_done == order || !get32(&s->has_files))
		return;
	for (unsigned f = 0; f < NFILES; f++) {
		while (get32(&ledger->order_committer) == w->slot && !commit_now(w, f) &&
		       !get(&ledger->violations))
			;
		put(&s->hash[f], image_hash(w->view[f]));
	}
	put32(&s->order_done, order);
	ring(&ledger->answer);
}

static void park(struct worker *w)
{
	struct slot *s = slot_of(w);
	uint32_t quiet = get32(&ledger->quiet), seen;

	put32(&s->parked[w->thread], quiet);
	ring(&ledger->answer);
	for (;;) {
		seen = get32(&ledger->bell);
		if (get32(&ledger->quiet) != quiet)
			break;
		if (!w->thread)
			obey(w);
		await(&ledger->bell, seen, 1000);
	}
	put32(&s->parked[w->thread], 0);
}

static void begin(struct worker *w)
{
	put32(&slot_of(w)->doing[w->thread], DOES_START);
	if (get32(&ledger->quiet))
		park(w);
	for (unsigned f = 0; f < NFILES; f++) {
		if (!w->view[f].base)
			open_file(w, f);
		if (w->slot != KEEPER)
			settle(w, f);
	}
	if (!w->thread)
		put32(&slot_of(w)->has_files, 1);
}

static void act(struct worker *w);

static void *second_thread(void *arg)
{
	struct worker *w = arg;

	begin(w);
	while (!get32(&ledger->stop)) {
		act(w);
		if (get32(&ledger->quiet))
			park(w);
		if (!random_below(&w->random, 4000))
			break;
	}
	put32(&slot_of(w)->doing[w->thread], DOES_THREAD);
	close_files(w);
	put32(&slot_of(w)->is_live[w->thread], 0);
	return NULL;
}

static void begin_second_thread(struct worker *w)
{
	struct worker *two = &self[1];

	if (two->id)
		(void)pthread_join(two->id, NULL);
	*two = (struct worker){.slot = w->slot,
			       .thread = 1,
			       .lane = w->slot * NTHREADS + 1,
			       .incarnation = w->incarnation,
			       .random = w->random ^ 77};
	count(&ledger->threads);
	put32(&slot_of(w)->is_live[1], 1);
	if (pthread_create(&two->id, NULL, second_thread, two)) {
		violation("slot %u: no second thread: %s", w->slot, strerrorname_np(errno));
		_exit(0);
	}
}

static void act(struct worker *w)
{
	unsigned f = (unsigned)random_below(&w->random, NFILES);
	uint64_t r = random_below(&w->random, 2000);

	put32(&slot_of(w)->file[w->thread], f);
	if (r < 1600) {
		store_anything(w, f);
	} else if (r < 1880) {
		look(w, f);
	} else if (r < 1960) {
		commit(w, f);
	} else if (r < 1976) {
		put32(&slot_of(w)->doing[w->thread], DOES_REMAP);
		remap_file(w, f);
	} else if (r < 1984) {
		put32(&slot_of(w)->doing[w->thread], DOES_REOPEN);
		reopen_file(w, f);
	} else if (r < 1990) {
		put32(&slot_of(w)->doing[w->thread], DOES_FORK);
		fork_child(w);
	} else if (r < 1993) {
		put32(&slot_of(w)->doing[w->thread], DOES_FORK);
		if (w->slot < NMAIN)
			fork_worker(w);
	} else if (r < 1998) {
		if (!w->thread && !get32(&slot_of(w)->is_live[1]))
			begin_second_thread(w);
	} else if (!get32(&ledger->slot[KEEPER].has_files)) {
		return; /* what is not committed would go with the last one */
	} else if (r < 1999) {
		put32(&slot_of(w)->doing[w->thread], DOES_EXEC);
		if (!w->thread)
			exec_again(w);
	} else {
		put32(&slot_of(w)->doing[w->thread], DOES_EXIT);
		end_process(w);
	}
}

void worker_run(const struct worker *from)
{
	struct worker *w = &self[0];
	struct slot *s = &ledger->slot[from->slot];

	*w = *from;
	self[1].id = 0; /* of the process that this one was forked from, if any */
	put32(&s->is_live[1], 0);
	put32(&s->has_files, 0);
	w->lane = w->slot * NTHREADS;
	w->incarnation = (get32(&s->incarnation) + 1) & 0xffffff;
	put32(&s->incarnation, w->incarnation);
	put32(&s->is_live[0], 1);
	begin(w);
	if (w->slot != KEEPER)
		begin_second_thread(w);
	while (!get32(&ledger->stop)) {
		uint32_t seen = get32(&ledger->bell);

		if (get32(&ledger->quiet))
			park(w);
		else if (w->slot != KEEPER)
			act(w);
		else
			await(&ledger->bell, seen, 20);
	}
	if (self[1].id)
		(void)pthread_join(self[1].id, NULL);
	put32(&s->is_ending, 1);
	_exit(0);
}

void worker_main(unsigned slot, uint64_t seed)
{
	struct worker w = {.slot = slot, .random = seed};

	end_children(slot);
	commits_are_unsure(slot);
	worker_run(&w);
}

void touch_main(void)
{
	struct worker w = {.slot = KEEPER};

	for (unsigned f = 0; f < NFILES; f++) {
		open_file(&w, f);
		for (size_t p = 0; p < NPAGES; p++)
			memcpy(ledger->dump[f] + p * PAGE, page_at(w.view[f], p), PAGE);
	}
	_exit(0);
}
