/* SPDX-License-Identifier: MIT */
/* Forks beside threads that store and commit. */
#include "fork_rig.h"
#include <sched.h>

static pid_t owner;

struct committer {
	pthread_t thread;
	struct rig *r;
	int entered[2], go_on[2];
	int result;
};
static struct committer *committing;

static void wait_in_the_commit(struct rig_file *f, uint64_t pgoff)
{
	(void)pgoff;
	if (getpid() != owner)
		return;
	f->hook[RIG_STOREBLK] = f->hook[RIG_COMMIT] = NULL;
	(void)!write(committing->entered[1], "", 1);
	wait_for_word(committing->go_on[0]);
}

static void *committer_main(void *arg)
{
	struct committer *c = arg;

	c->result = rig_try_commit(c->r->h);
	return NULL;
}

static void fork_while_a_thread_is_in(struct rig *r, enum rig_op op)
{
	struct committer c = {.r = r};
	char *m = open_and_map(r);
	bool waits;
	pid_t pid;

	assert_int_equal(pipe(c.entered), 0);
	assert_int_equal(pipe(c.go_on), 0);
	committing = &c;
	owner = getpid();
	rig_hook_at(r->f, op, wait_in_the_commit, NULL);
	rig_store8(at(m, 1), (char)-1);
	assert_int_equal(pthread_create(&c.thread, NULL, committer_main, &c), 0);
	wait_for_word(c.entered[0]);
	waits = op == RIG_STOREBLK && !rig_is_uffd(); /* all is frozen: the fork waits until it is not */
	if (waits)
		assert_int_equal(write(c.go_on[1], "", 1), 1);
	pid = rig_fork();
	if (!pid) {
		int n = nwrong(m) - 1;

		rig_store8(at(m, 2), (char)-1);
		if (op == RIG_COMMIT)
			rig_store8(at(m, 1) + 1, (char)-1);
		_exit(n || rig_try_commit(r->h));
	}
	if (!waits)
		assert_int_equal(write(c.go_on[1], "", 1), 1);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	assert_int_equal(c.result, 0);
	assert_int_equal(rig_get_byte(r->f, 1 * VM_PAGE), 0xff);
	assert_int_equal(rig_get_byte(r->f, 2 * VM_PAGE), 0xff);
	if (op == RIG_COMMIT)
		assert_int_equal(rig_get_byte(r->f, 1 * VM_PAGE + 1), 0xff);
	for (unsigned i = 0; i < 2; i++) {
		(void)close(c.entered[i]);
		(void)close(c.go_on[i]);
	}
}

static void a_child_forked_in_a_cut_stores_and_commits_after_it(struct rig *r)
{
	fork_while_a_thread_is_in(r, RIG_STOREBLK);
}

static void a_child_forked_before_a_commit_happened_stores_and_commits_after_it(struct rig *r)
{
	fork_while_a_thread_is_in(r, RIG_COMMIT);
}

struct storer {
	pthread_t thread;
	char *m;
	unsigned no;
	bool begun, stop; /* (atomic) */
	uint64_t count;
};

static void *storer_main(void *arg)
{
	struct storer *s = arg;

	__atomic_store_n(&s->begun, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		s->count++;
		for (uint64_t pg = 0; pg < NPAGES; pg++)
			rig_store64(at(s->m, pg) + 64 * (s->no + 1), s->count);
	}
	return NULL;
}

/* Every child stores, one in seven is killed, one in five commits; so does the parent now and then. */
static void many_forks_beside_threads_that_store_lose_nothing(struct rig *r)
{
	const unsigned nforks = rig_is_tsan() ? 60 : 300;
	struct storer s[2];
	char *m = open_and_map(r), page[VM_BLKSIZE];

	for (unsigned i = 0; i < 2; i++) {
		s[i] = (struct storer){.m = m, .no = i};
		assert_int_equal(pthread_create(&s[i].thread, NULL, storer_main, &s[i]), 0);
	}
	/* a thread that is half begun may be inside of gcc's AddressSanitizer, whose locks a child then has for ever */
	for (unsigned i = 0; i < 2; i++)
		while (!__atomic_load_n(&s[i].begun, __ATOMIC_ACQUIRE))
			(void)sched_yield();
	for (unsigned i = 1; i <= nforks; i++) {
		uint64_t slot = VM_PAGE * (i % NPAGES) + 256 + 8 * (i / NPAGES);
		pid_t pid = rig_fork();

		if (!pid) {
			int n = nwrong(m);

			rig_store64(m + slot, i);
			if (i % 7 == 0)
				(void)kill(getpid(), SIGKILL);
			if (i % 5 == 0)
				n += rig_try_commit(r->h) != 0;
			_exit(n);
		}
		assert_int_equal(rig_reap(pid), i % 7 ? 0 : -SIGKILL);
		assert_int_equal(rig_load64(m + slot), i);
		if (i % 10 == 0)
			(void)rig_commit(r->h);
	}
	for (unsigned i = 0; i < 2; i++) {
		__atomic_store_n(&s[i].stop, true, __ATOMIC_RELAXED);
		assert_int_equal(pthread_join(s[i].thread, NULL), 0);
		assert_true(s[i].count > 0);
	}
	assert_int_equal(nwrong(m), 0);
	(void)rig_commit(r->h);
	for (uint64_t pg = 0; pg < NPAGES; pg++) {
		rig_get(r->f, pg * VM_PAGE, page, VM_PAGE);
		assert_memory_equal(page, at(m, pg), VM_PAGE);
		assert_int_equal(rig_load64(page + 64), s[0].count);
		assert_int_equal(rig_load64(page + 128), s[1].count);
	}
	assert_false(vm_fileh_is_shared(r->h));
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_forked_in_a_cut_stores_and_commits_after_it),
	RIG_BOTH(a_child_forked_before_a_commit_happened_stores_and_commits_after_it),
	RIG_BOTH(many_forks_beside_threads_that_store_lose_nothing),
};

RIG_MAIN(cases)
