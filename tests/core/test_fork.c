/* SPDX-License-Identifier: MIT */
/* fork, exec and kill: processes that have a handle together, and come and go. In a child nothing is
 * asserted: it tells by its exit status. */
#include "rig.h"
#include <sched.h>

enum { NPAGES = 64 };

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static char *open_and_map(struct rig *r)
{
	rig_open(r, NPAGES * VM_PAGE);
	return rig_map(r->h, 0, NPAGES);
}

/* Pages whose first byte is not what the file holds. */
static int nwrong(char *m)
{
	int n = 0;

	for (uint64_t pg = 0; pg < NPAGES; pg++)
		n += (uint8_t)rig_load8(at(m, pg)) != rig_byte(pg);
	return n;
}

/* ---- what parent and child see ---- */

static void a_child_loads_what_was_not_loaded_and_its_stores_are_the_parents(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	(void)rig_touch(m);
	pid = rig_fork();
	if (!pid) {
		int n = nwrong(m);

		for (uint64_t pg = 0; pg < NPAGES; pg++)
			rig_store8(at(m, pg) + 1, (char)(pg + 1));
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(nwrong(m), 0);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_load8(at(m, pg) + 1), pg + 1);
	(void)rig_commit(r->h);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE + 1), pg + 1);
}

static void parent_and_child_may_touch_the_same_pages_first(struct rig *r)
{
	for (unsigned i = 0; i < 10; i++) {
		char *m = open_and_map(r);
		pid_t pid = rig_fork();

		if (!pid)
			_exit(nwrong(m));
		assert_int_equal(nwrong(m), 0);
		assert_int_equal(rig_reap(pid), 0);
		rig_unmap(m, NPAGES);
		assert_int_equal(rig_close(r->h), 0);
	}
}

static void stores_made_before_a_fork_are_in_the_next_commit(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	rig_store8(at(m, 5), 1);
	pid = rig_fork();
	if (!pid)
		_exit(rig_load8(at(m, 5)) != 1);
	assert_int_equal(rig_reap(pid), 0);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), 1);
}

static void a_child_commits_its_stores_and_the_parent_sees_them_committed(struct rig *r)
{
	char *m = open_and_map(r);
	struct vm_fileh_stat st;
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 7), 1);
		_exit(rig_try_commit(r->h) ? 1 : 0);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(rig_get_byte(r->f, 7 * VM_PAGE), 1);
	vm_fileh_stat(r->h, false, &st);
	assert_int_equal(st.txid, 1);
	assert_int_equal(rig_commit(r->h), 0);
}

/* What is not inherited leaves holes in the child's addresses, the highest of which is where the next mapping
 * goes: what is kept about a large mapping, a thread's stack. */
static void a_child_has_all_mappings_at_their_places(struct rig *r)
{
	char *m[NPAGES];
	pid_t pid;

	rig_open(r, NPAGES * VM_PAGE);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		m[pg] = rig_map(r->h, pg, 1);
	(void)rig_map(r->h, 0, 1 << 17); /* lies below those */
	pid = rig_fork();
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < NPAGES; pg++)
			n += rig_touch(m[pg]) || (uint8_t)rig_load8(m[pg]) != rig_byte(pg);
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void a_child_of_a_child_shares_too(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		pid = rig_fork();
		if (!pid) {
			rig_store8(at(m, 3) + 1, 1);
			_exit(nwrong(m));
		}
		_exit(rig_reap(pid));
	}
	assert_int_equal(rig_reap(pid), 0);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE + 1), 1);
}

/* clone(2) without a word to us, at a moment when no thread is inside. */
static void a_child_made_behind_our_back_sees_and_makes_no_zeros(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	(void)rig_touch(m);
	vm_lock(&vm_map_lock);
	pid = fork();
	vm_unlock(&vm_map_lock);
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < NPAGES; pg++) {
			int sig = rig_touch(at(m, pg));

			n += !sig && (uint8_t)rig_load8(at(m, pg)) != rig_byte(pg);
		}
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(nwrong(m), 0);
}

static void a_child_has_the_protections_that_the_parent_asked_for(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	assert_int_equal(vm_protect(at(m, 4), 4 * VM_PAGE, PROT_READ), 0);
	assert_int_equal(vm_protect(at(m, 8), 4 * VM_PAGE, PROT_NONE), 0);
	pid = rig_fork();
	if (!pid) {
		int n = 0;

		for (uint64_t pg = 0; pg < 12; pg++) {
			n += rig_touch(at(m, pg)) != (pg >= 8 ? SIGSEGV : 0);
			n += rig_store(at(m, pg), 1) != (pg >= 4 ? SIGSEGV : 0);
		}
		_exit(n);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void a_child_unmaps_and_closes_and_the_parent_goes_on(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 9), 1);
		rig_unmap(m, NPAGES);
		_exit(rig_close(r->h) || rig_ncalls(r->f, RIG_CLOSE) || rig_ncalls(r->f, RIG_DETACH) != 1);
	}
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	assert_false(r->h->ctl->suspect); /* munmap told */
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 9 * VM_PAGE), 1);
	rig_unmap(m, NPAGES);
	assert_int_equal(rig_close(r->h), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CLOSE), 1);
}

/* ---- ends ---- */

static void what_a_killed_child_stored_is_in_the_parents_next_commit(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid = rig_fork();

	if (!pid) {
		rig_store8(at(m, 11), 1);
		rig_store8(at(m, 40), 1);
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	rig_store8(at(m, 12), 1);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 11 * VM_PAGE), 1);
	assert_int_equal(rig_get_byte(r->f, 12 * VM_PAGE), 1);
	assert_int_equal(rig_get_byte(r->f, 40 * VM_PAGE), 1);
	assert_false(vm_fileh_is_shared(r->h));
}

static pid_t owner;

/* The backend's transaction ends with the process that had it. */
static void die_in_a_transaction(struct rig_file *f, uint64_t pgoff)
{
	(void)pgoff;
	if (getpid() == owner)
		return;
	for (size_t i = 0; i < f->norder; i++)
		f->how[f->order[i]] = 0;
	f->norder = 0;
	f->in_txn = f->busy = false;
	(void)kill(getpid(), SIGKILL);
}

static void child_dies_in(struct rig *r, enum rig_op op)
{
	char *m = open_and_map(r);
	pid_t pid;

	owner = getpid();
	rig_hook_at(r->f, op, die_in_a_transaction, NULL);
	pid = rig_fork();
	if (!pid) {
		for (uint64_t pg = 0; pg < NPAGES; pg += 2)
			rig_store8(at(m, pg), (char)-1);
		(void)rig_try_commit(r->h);
		_exit(1);
	}
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	rig_store8(at(m, 1), (char)-1);
	(void)rig_commit(r->h);
	for (uint64_t pg = 0; pg < NPAGES; pg++)
		assert_int_equal(rig_get_byte(r->f, pg * VM_PAGE), pg % 2 && pg > 1 ? rig_byte(pg) : 0xff);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void a_child_that_dies_while_it_stores_leaves_its_commit_to_the_parent(struct rig *r)
{
	child_dies_in(r, RIG_STOREBLK);
}

static void a_child_that_dies_before_its_commit_happened_leaves_it_to_the_parent(struct rig *r)
{
	child_dies_in(r, RIG_COMMIT);
}

static void die_in_a_load(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (getpid() != owner)
		(void)kill(getpid(), SIGKILL);
}

static void pages_that_a_child_died_loading_are_loaded_by_the_parent(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	owner = getpid();
	rig_hook_at(r->f, RIG_LOADBLK, die_in_a_load, NULL);
	pid = rig_fork();
	if (!pid)
		_exit(nwrong(m));
	assert_int_equal(rig_reap(pid), -SIGKILL);
	assert_int_equal(nwrong(m), 0);
}

static void wait_for_word(int fd)
{
	char byte;

	while (vm_sys->read(fd, &byte, 1) == -EINTR)
		;
}

static void a_child_that_runs_another_program_is_gone(struct rig *r)
{
	char *m = open_and_map(r);
	int here[2], end[2];
	pid_t pid;

	assert_int_equal(pipe(here), 0);
	assert_int_equal(pipe(end), 0);
	pid = rig_fork();
	if (!pid) {
		rig_store8(at(m, 20), 1);
		(void)dup2(end[0], 0);
		(void)dup2(here[1], 1);
		(void)close(end[1]);
		(void)execl("/bin/sh", "sh", "-c", "echo; read nothing; exit 0", NULL);
		_exit(1);
	}
	(void)close(end[0]);
	wait_for_word(here[0]);
	assert_int_equal(kill(pid, 0), 0);
	assert_false(vm_fileh_is_shared(r->h));
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 20 * VM_PAGE), 1);
	(void)close(end[1]);
	assert_int_equal(rig_reap(pid), 0);
	(void)close(here[0]);
	(void)close(here[1]);
}

/* Our descriptors move out of the program's way; others must not take us for dead. */
static void a_child_whose_descriptors_moved_is_still_there(struct rig *r)
{
	int here[2], end[2], was;
	pid_t pid;

	(void)open_and_map(r);
	assert_int_equal(pipe(here), 0);
	assert_int_equal(pipe(end), 0);
	was = r->h->ctl_fd;
	pid = rig_fork();
	if (!pid) {
		int err = vm_fd_move(was);

		(void)close(end[1]);
		if (err || r->h->ctl_fd == was || dup2(end[0], was) != was)
			_exit(1);
		(void)!write(here[1], "", 1);
		wait_for_word(end[0]);
		_exit(0);
	}
	(void)close(end[0]);
	wait_for_word(here[0]);
	assert_true(vm_fileh_is_shared(r->h));
	(void)close(end[1]);
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	(void)close(here[0]);
	(void)close(here[1]);
}

static void a_fork_beyond_the_number_of_processes_says_so_and_harms_nobody(struct rig *r)
{
	struct vm_peer *peers;
	pid_t pid;

	(void)open_and_map(r);
	peers = r->h->ctl->peers;
	for (unsigned i = 1; i < VM_MAX_PEERS; i++)
		peers[i] = (struct vm_peer){.pid = getpid()};
	vm_fork_prepare();
	pid = fork();
	if (!pid)
		_exit(vm_fork_child() == -EAGAIN ? 0 : 1);
	vm_fork_parent();
	assert_int_equal(rig_reap(pid), 0);
	for (unsigned i = 1; i < VM_MAX_PEERS; i++)
		peers[i] = (struct vm_peer){0};
	(void)rig_commit(r->h);
}

/* ---- forks beside other threads ---- */

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
	bool stop; /* (atomic) */
	uint64_t count;
};

static void *storer_main(void *arg)
{
	struct storer *s = arg;

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

static void *go_on(void *arg)
{
	int *fds = arg;

	(void)write(fds[1], "", 1);
	wait_for_word(fds[2]);
	_exit(0);
}

static void a_child_whose_main_thread_ended_is_still_there(struct rig *r)
{
	int fds[4]; /* here, go on */
	pid_t pid;

	(void)open_and_map(r);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	pid = rig_fork();
	if (!pid) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, go_on, fds))
			_exit(1);
		pthread_exit(NULL);
	}
	wait_for_word(fds[0]);
	while (vm_process_state(pid) != 'Z')
		(void)sched_yield();
	assert_true(vm_fileh_is_shared(r->h));
	assert_int_equal(write(fds[3], "", 1), 1);
	assert_int_equal(rig_reap(pid), 0);
	assert_false(vm_fileh_is_shared(r->h));
	for (unsigned i = 0; i < 4; i++)
		(void)close(fds[i]);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_loads_what_was_not_loaded_and_its_stores_are_the_parents),
	RIG_BOTH(parent_and_child_may_touch_the_same_pages_first),
	RIG_BOTH(stores_made_before_a_fork_are_in_the_next_commit),
	RIG_BOTH(a_child_commits_its_stores_and_the_parent_sees_them_committed),
	RIG_BOTH(a_child_has_all_mappings_at_their_places),
	RIG_BOTH(a_child_of_a_child_shares_too),
	RIG_BOTH(a_child_made_behind_our_back_sees_and_makes_no_zeros),
	RIG_BOTH(a_child_has_the_protections_that_the_parent_asked_for),
	RIG_BOTH(a_child_unmaps_and_closes_and_the_parent_goes_on),
	RIG_BOTH(what_a_killed_child_stored_is_in_the_parents_next_commit),
	RIG_BOTH(a_child_that_dies_while_it_stores_leaves_its_commit_to_the_parent),
	RIG_BOTH(a_child_that_dies_before_its_commit_happened_leaves_it_to_the_parent),
	RIG_LAZY(pages_that_a_child_died_loading_are_loaded_by_the_parent),
	RIG_BOTH(a_child_that_runs_another_program_is_gone),
	RIG_EAGER(a_child_whose_main_thread_ended_is_still_there),
	RIG_EAGER(a_child_whose_descriptors_moved_is_still_there),
	RIG_BOTH(a_fork_beyond_the_number_of_processes_says_so_and_harms_nobody),
	RIG_BOTH(a_child_forked_in_a_cut_stores_and_commits_after_it),
	RIG_BOTH(a_child_forked_before_a_commit_happened_stores_and_commits_after_it),
	RIG_BOTH(many_forks_beside_threads_that_store_lose_nothing),
};

RIG_MAIN(cases)
