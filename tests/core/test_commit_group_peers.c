/* SPDX-License-Identifier: MIT */
/* One transaction of several files that other threads and processes have, too. In a child nothing is asserted:
 * it tells by its exit status. */
#include "board.h"
#include "rig_group.h"

enum { NFILES = 3, NPAGES = 8 };

static struct rig_set s;
static char *m[NFILES];

static void open_files(struct rig *r)
{
	clear_board();
	rig_open_set(r, &s, NFILES, rig_file_make_sparse, NPAGES * VM_PAGE);
	for (unsigned i = 0; i < NFILES; i++)
		m[i] = rig_map(s.h[i], 0, NPAGES);
}

static uint64_t committed(unsigned file, uint64_t pg)
{
	uint64_t value;

	rig_get(s.f[file], pg * VM_PAGE, &value, sizeof(value));
	return value;
}

static uint64_t get(unsigned file, uint64_t pg)
{
	return __atomic_load_n((uint64_t *)(m[file] + pg * VM_PAGE), __ATOMIC_ACQUIRE);
}

static void put(unsigned file, uint64_t pg, uint64_t value)
{
	__atomic_store_n((uint64_t *)(m[file] + pg * VM_PAGE), value, __ATOMIC_RELEASE);
}

/* ---- one instant ---- */

/* Counts in the page of each file, in turn. */
static void count(uint64_t pg)
{
	for (uint64_t n = 1; !is_stopped(); n++)
		for (unsigned i = 0; i < NFILES; i++)
			put(i, pg, n);
}

static void *count_main(void *arg)
{
	count((uint64_t)(uintptr_t)arg);
	return NULL;
}

static void counts_are_one_instant(uint64_t pg)
{
	for (unsigned i = 1; i < NFILES; i++)
		if (committed(i, pg) > committed(i - 1, pg) || committed(0, pg) - committed(i, pg) > 1)
			fail_msg("page %d: %d, %d, %d", (int)pg, (int)committed(0, pg), (int)committed(1, pg),
				 (int)committed(2, pg));
}

static void processes_that_never_stop_storing_are_committed_at_one_instant(struct rig *r)
{
	const unsigned ncommits = rig_is_tsan() ? 10 : 100;
	pthread_t thread;
	pid_t pid[2];

	open_files(r);
	for (unsigned i = 0; i < 2; i++) {
		pid[i] = rig_fork();
		if (!pid[i]) {
			count(i);
			_exit(0);
		}
	}
	assert_int_equal(pthread_create(&thread, NULL, count_main, (void *)2), 0);
	for (unsigned c = 0; c < ncommits || !committed(0, 0) || !committed(0, 1) || !committed(0, 2); c++) {
		rig_commit_set(&s);
		for (uint64_t pg = 0; pg < 3; pg++)
			counts_are_one_instant(pg);
	}
	end(pid[0]);
	end(pid[1]);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Stores what it sees in page from to page to, of a file. */
static void pass_on(unsigned file, uint64_t from, uint64_t to)
{
	while (!is_stopped())
		put(file, to, get(file, from));
}

static void *first_main(void *arg)
{
	(void)arg;
	for (uint64_t n = 1; !is_stopped(); n++) {
		put(0, 0, n);
		put(1, 0, n);
	}
	return NULL;
}

static void *last_main(void *arg)
{
	(void)arg;
	while (!is_stopped())
		put(2, 0, get(1, 1));
	return NULL;
}

/* A store follows another over a process that has only the file in between. */
static void a_process_with_one_of_the_files_is_part_of_the_instant(struct rig *r)
{
	const unsigned ncommits = rig_is_tsan() ? 10 : 100;
	pthread_t thread[2];
	pid_t pid;

	open_files(r);
	pid = rig_fork();
	if (!pid) {
		for (unsigned i = 0; i < NFILES; i += 2) {
			rig_unmap(m[i], NPAGES);
			if (vm_fileh_close(s.h[i]))
				_exit(1);
		}
		pass_on(1, 0, 1);
		_exit(0);
	}
	assert_int_equal(pthread_create(&thread[0], NULL, first_main, NULL), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, last_main, NULL), 0);
	for (unsigned c = 0; c < ncommits || !committed(2, 0); c++) {
		rig_commit_set(&s);
		assert_true(committed(0, 0) >= committed(1, 0));
		assert_true(committed(1, 0) >= committed(1, 1));
		assert_true(committed(1, 1) >= committed(2, 0));
	}
	end(pid);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
}

/* ---- who is stopped ---- */

static pid_t stopped;
static unsigned in_rounds; /* of copies */

/* It goes on, and stores before its server gets to what it was asked. */
static void let_go(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (!stopped || --in_rounds)
		return;
	assert_int_equal(kill(stopped, SIGCONT), 0);
	stopped = 0;
	await(1);
}

static void who_was_stopped_and_goes_on_while_one_file_is_copied_does_not_tear_the_others(struct rig *r)
{
	int status;
	pid_t pid;

	open_files(r);
	pid = rig_fork();
	if (!pid) {
		for (unsigned i = 0; i < NFILES; i++)
			put(i, 1, 1);
		vm_lock(&vm_map_lock); /* the server waits for it */
		(void)kill(getpid(), SIGSTOP);
		for (unsigned i = 0; i < NFILES; i++)
			put(i, 1, 2);
		say(1);
		vm_unlock(&vm_map_lock);
		until_stopped();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	stopped = pid;
	in_rounds = rig_is_uffd() ? 2 : 1; /* in the first one it is not known yet that one is stopped */
	rig_hook_at(s.f[0], RIG_STOREBLK, let_go, NULL);
	rig_commit_set(&s);
	assert_int_equal(stopped, 0);
	for (unsigned i = 1; i < NFILES; i++)
		assert_int_equal(committed(i, 1), committed(0, 1));
	rig_commit_set(&s);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(committed(i, 1), 2);
	end(pid);
}

/* ---- who is killed ---- */

static void die(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	(void)kill(getpid(), SIGKILL);
}

static void who_is_killed_at(enum rig_op op, unsigned file)
{
	pid_t pid = rig_fork();

	if (!pid) {
		rig_hook_at(s.f[file], op, die, NULL);
		for (unsigned i = 0; i < NFILES; i++)
			put(i, 3, 77);
		(void)rig_try_commit_set(&s);
		_exit(1);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	rig_hook_at(s.f[file], op, NULL, NULL);
}

static void who_is_killed_in_the_middle_of_it_leaves_all_files_to_the_next(struct rig *r)
{
	static const enum rig_op ops[] = {RIG_BEGIN, RIG_STOREBLK, RIG_COMMIT};

	open_files(r);
	for (unsigned k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		for (unsigned file = 0; file < NFILES; file += 2) {
			who_is_killed_at(ops[k], file);
			for (unsigned i = 0; i < NFILES; i++)
				assert_int_equal(committed(i, 3), 0);
			put(0, 4, k + 1);
			rig_commit_set(&s);
			for (unsigned i = 0; i < NFILES; i++) {
				assert_int_equal(committed(i, 3), 77);
				assert_false(s.f[i]->in_txn);
				put(i, 3, 0);
			}
			assert_int_equal(committed(0, 4), k + 1);
			rig_commit_set(&s);
		}
	}
}

/* ---- two at once ---- */

struct pair {
	struct vm_fileh *h[2];
	char *m;
	int err;
};

static void *pair_main(void *arg)
{
	struct pair *p = arg;
	struct vm_commit_result res[2];

	for (unsigned i = 0; !p->err && i < 300; i++) {
		rig_store64(p->m, i);
		p->err = i % 10 == 9 ? vm_discard(p->h, 2) : vm_commit(p->h, 2, true, false, res);
	}
	return NULL;
}

/* Also beside a fork, which takes the locks of all. */
static void two_who_want_the_same_files_in_opposite_order_do_not_wait_for_each_other(struct rig *r)
{
	pthread_t thread[3];
	struct pair p[3];

	open_files(r);
	p[0] = (struct pair){.h = {s.h[0], s.h[1]}, .m = m[0]};
	p[1] = (struct pair){.h = {s.h[1], s.h[0]}, .m = m[0] + 64};
	p[2] = (struct pair){.h = {s.h[2], s.h[1]}, .m = m[2]};
	for (unsigned i = 0; i < 2; i++) /* two of three have a file in common: one transaction at a time */
		assert_int_equal(pthread_create(&thread[i], NULL, pair_main, &p[i]), 0);
	for (unsigned i = 0; i < (rig_is_tsan() ? 0 : 10); i++) {
		pid_t pid = rig_fork();

		if (!pid) {
			put(0, 5, i);
			_exit(rig_try_commit_set(&s) != 0);
		}
		assert_int_equal(rig_reap(pid), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(p[i].err, 0);
	}
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, pair_main, &p[i]), 0);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(p[i].err, 0);
	}
}

static const struct rig_case cases[] = {
	RIG_BOTH(processes_that_never_stop_storing_are_committed_at_one_instant),
	RIG_EAGER(a_process_with_one_of_the_files_is_part_of_the_instant),
	RIG_EAGER(who_was_stopped_and_goes_on_while_one_file_is_copied_does_not_tear_the_others),
	RIG_EAGER(who_is_killed_in_the_middle_of_it_leaves_all_files_to_the_next),
	RIG_EAGER(two_who_want_the_same_files_in_opposite_order_do_not_wait_for_each_other),
};
RIG_MAIN(cases)
