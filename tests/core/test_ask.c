/* SPDX-License-Identifier: MIT */
/* What one process asks of the others that have a handle: their stores, and that they wait. In a child
 * nothing is asserted: it tells by its exit status, and by words in the pages from STEP on. */
#include "board.h"
#include <time.h>

enum { NPAGES = 64 };

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static char *open_and_map(struct rig *r)
{
	clear_board();
	rig_open(r, NPAGES * VM_PAGE);
	return rig_map(r->h, 0, NPAGES);
}

/* ---- stores ---- */

static void a_commit_holds_what_a_living_child_stored(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 3), 77);
		say(1);
		until_stopped();
		_exit(0);
	}
	await(1);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	end(pid);
}

static void a_commit_of_a_child_holds_what_its_parent_stored(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		await(1);
		int err = rig_try_commit(r->h);

		say(2);
		_exit(err != 0);
	}
	rig_store8(at(m, 4), 78);
	say(1);
	await(2);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	end(pid);
}

static void a_store_after_a_commit_by_the_other_is_in_the_next_one(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		for (uint32_t i = 0; i < 20; i++) {
			await(2 * i);
			rig_store8(at(m, 5), (char)(i + 1));
			say(2 * i + 1);
		}
		_exit(0);
	}
	for (uint32_t i = 0; i < 20; i++) {
		await(2 * i + 1);
		(void)rig_commit(r->h);
		assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), i + 1);
		say(2 * i + 2);
	}
	end(pid);
}

/* Stores a number to one page, then to another: never may the second be ahead. */
static void count(char *m, uint64_t pg)
{
	for (uint64_t n = 1; !__atomic_load_n(&board->stop, __ATOMIC_RELAXED); n++) {
		rig_store64(at(m, pg), n);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		rig_store64(at(m, pg + 1), n);
	}
}

static void a_cut_is_one_instant_for_processes_that_never_stop_storing(struct rig *r)
{
	const unsigned ncommits = rig_is_tsan() ? 20 : 200;
	char *m = open_and_map(r);
	pid_t pid[2];
	uint64_t first, second, last[2] = {0};

	for (unsigned i = 0; i < 2; i++) {
		rig_store64(at(m, 10 * i), 0);
		rig_store64(at(m, 10 * i + 1), 0);
		pid[i] = rig_fork();
		if (!pid[i]) {
			count(m, 10 * i);
			_exit(0);
		}
	}
	for (unsigned c = 0; c < ncommits || !last[0] || !last[1]; c++) {
		(void)rig_commit(r->h);
		for (unsigned i = 0; i < 2; i++) {
			rig_get(r->f, 10 * i * VM_PAGE, &first, 8);
			rig_get(r->f, (10 * i + 1) * VM_PAGE, &second, 8);
			assert_true(first == second || first == second + 1);
			assert_true(first >= last[i]);
			last[i] = first;
		}
	}
	end(pid[0]);
	end(pid[1]);
}

static void a_discard_takes_what_a_living_child_stored(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 3), 77);
		say(1);
		await(2);
		int wrong = (uint8_t)rig_load8(at(m, 3)) != rig_byte(3);

		rig_store8(at(m, 4), 78);
		say(3);
		until_stopped();
		_exit(wrong);
	}
	await(1);
	rig_discard(r->h);
	assert_int_equal((uint8_t)rig_load8(at(m, 3)), rig_byte(3));
	say(2);
	await(3);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), rig_byte(3));
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	end(pid);
}

static void pages_of_an_invalidation_change_at_one_instant_for_a_child(struct rig *r)
{
	const uint8_t last = rig_is_tsan() ? 10 : 100;
	char *m = open_and_map(r);
	pid_t pid;

	rig_put_byte(r->f, 20 * VM_PAGE, 0);
	rig_put_byte(r->f, 21 * VM_PAGE, 0);
	rig_invalidate(r->h, 20, 2);
	(void)rig_touch(at(m, 20));
	(void)rig_touch(at(m, 21));
	pid = rig_fork();
	if (!pid) {
		int wrong = 0;

		while (!__atomic_load_n(&board->stop, __ATOMIC_RELAXED)) {
			char first = rig_load8(at(m, 20));

			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			char second = rig_load8(at(m, 21));
			/* both count up: what is read later is not older */
			wrong |= second < first;
		}
		_exit(wrong);
	}
	for (uint8_t i = 1; i <= last; i++) {
		/* in this order: a page that the last invalidation dropped can be loaded in between */
		rig_put_byte(r->f, 21 * VM_PAGE, i);
		rig_put_byte(r->f, 20 * VM_PAGE, i);
		rig_invalidate(r->h, 20, 2);
		(void)rig_touch(at(m, 20)); /* loaded, before the storage has the next: it changes byte by byte */
		(void)rig_touch(at(m, 21));
	}
	end(pid);
}

/* ---- processes that do not answer ---- */

static void what_a_stopped_child_stored_is_committed_and_what_it_stores_afterwards_later(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();
	int status;

	if (!pid) {
		rig_store8(at(m, 3), 77);
		(void)kill(getpid(), SIGSTOP);
		rig_store8(at(m, 3), 78);
		say(1);
		until_stopped();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	assert_int_equal(kill(pid, SIGCONT), 0);
	await(1);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 78);
	end(pid);
}

static pid_t stopped;
static struct vm_fileh *its;

static bool has_answered(const struct vm_ctl *ctl)
{
	bool all = true;

	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		all &= !ctl->peers[i].pid || i == its->peer ||
		       __atomic_load_n(&ctl->peers[i].answered, __ATOMIC_SEQ_CST) == ctl->ask_seq;
	return all;
}

/* It stores, or answers what it was asked while it was stopped, and then has to wait. */
static void let_go(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (!stopped)
		return;
	assert_int_equal(kill(stopped, SIGCONT), 0);
	stopped = 0;
	while (__atomic_load_n(&board->step, __ATOMIC_SEQ_CST) < 1 && !has_answered(its->ctl))
		(void)sched_yield();
}

static void who_was_stopped_and_goes_on_in_the_middle_of_a_commit_does_not_tear_it(struct rig *r)
{
	enum { MANY = 2 * VM_BATCH_NPAGES + 10, LAST = MANY - 1 };
	char *m;
	int status;
	pid_t pid;

	(void)open_and_map(r);
	rig_resize(r->h, MANY * VM_PAGE);
	m = rig_map(r->h, 0, MANY);
	for (uint64_t pg = 0; pg < MANY; pg++)
		rig_store8(at(m, pg), 9);
	(void)rig_commit(r->h);
	pid = rig_fork();
	if (!pid) {
		rig_store8(at(m, 0), 1);
		rig_store8(at(m, LAST), 1);
		(void)kill(getpid(), SIGSTOP);
		rig_store8(at(m, 0), 2); /* copied already */
		rig_store8(at(m, LAST), 2);
		say(1);
		until_stopped();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	stopped = pid;
	its = r->h;
	rig_hook_at(r->f, RIG_STOREBLK, let_go, NULL);
	(void)rig_commit(r->h);
	assert_int_equal(stopped, 0);
	assert_int_equal(rig_get_byte(r->f, 0), rig_get_byte(r->f, LAST * VM_PAGE));
	await(1);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 0), 2);
	assert_int_equal(rig_get_byte(r->f, LAST * VM_PAGE), 2);
	end(pid);
}

static void die(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	(void)kill(getpid(), SIGKILL);
}

static void whom_a_killed_process_froze_goes_on(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_hook_at(r->f, RIG_STOREBLK, die, NULL);
		rig_store8(at(m, 3), 77);
		_exit(rig_try_commit(r->h) != 0);
	}
	/* as long as it lives, and after that, stores arrive */
	for (unsigned i = 0; i < 100000 && waitpid(pid, NULL, WNOHANG) == 0; i++)
		rig_store8(at(m, 5), (char)i);
	rig_store8(at(m, 5), 79);
	rig_hook_at(r->f, RIG_STOREBLK, NULL, NULL);
	r->f->in_txn = r->f->busy = false; /* its transaction died with it */
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 79);
}

static void a_child_that_ends_while_it_is_asked_holds_nobody_up(struct rig *r)
{
	const unsigned nforks = rig_is_tsan() ? 20 : 200;
	char *m = open_and_map(r);

	for (unsigned i = 1; i <= nforks; i++) {
		pid_t pid = rig_fork();

		if (!pid) {
			rig_store64(at(m, 7), i);
			_exit(0);
		}
		(void)rig_commit(r->h);
		assert_int_equal(rig_reap(pid), 0);
		assert_int_equal(rig_load64(at(m, 7)), i);
	}
}

/* It was told to thaw, and its server did not get to that before this process itself asks for something. */
static void who_asks_next_does_what_it_was_asked_before(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		vm_fileh_begin_busy(r->h);
		int wrong = vm_ask(r->h, VM_ASK_FREEZE) != 0;

		vm_fileh_end_busy(r->h);
		say(1);
		until_stopped();
		_exit(wrong);
	}
	await(1);
	vm_fileh_lock(r->h);
	vm_ask_post(r->h, VM_ASK_THAW, true); /* as the child would */
	vm_ask_post(r->h, VM_ASK_HARVEST, false);
	vm_fileh_unlock(r->h);
	rig_store8(at(m, 3), 77); /* waits for the thaw */
	end(pid);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_commit_holds_what_a_living_child_stored),
	RIG_BOTH(a_commit_of_a_child_holds_what_its_parent_stored),
	RIG_BOTH(a_store_after_a_commit_by_the_other_is_in_the_next_one),
	RIG_BOTH(a_cut_is_one_instant_for_processes_that_never_stop_storing),
	RIG_BOTH(a_discard_takes_what_a_living_child_stored),
	RIG_BOTH(pages_of_an_invalidation_change_at_one_instant_for_a_child),
	RIG_BOTH(what_a_stopped_child_stored_is_committed_and_what_it_stores_afterwards_later),
	RIG_BOTH(who_was_stopped_and_goes_on_in_the_middle_of_a_commit_does_not_tear_it),
	RIG_BOTH(whom_a_killed_process_froze_goes_on),
	RIG_BOTH(who_asks_next_does_what_it_was_asked_before),
	RIG_BOTH(a_child_that_ends_while_it_is_asked_holds_nobody_up),
};

RIG_MAIN(cases)
