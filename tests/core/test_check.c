/* SPDX-License-Identifier: MIT */
/* vm_check dies of each invariant that is broken on purpose; and everything at once, bounded, against it. */
#include "rig.h"

static bool dies_when(struct rig *r, void (*damage)(struct vm_fileh *h))
{
	int status;
	pid_t pid;

	assert_int_equal(vm_fork_prepare(VM_FOREVER), 0);
	pid = fork();
	if (!pid) {
		(void)close(2); /* what it says is not what is tested */
		(void)signal(SIGABRT, SIG_DFL);
		if (vm_fork_child())
			_exit(99);
		damage(r->h);
		vm_check();
		_exit(0);
	}
	vm_fork_parent();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void nothing(struct vm_fileh *h)
{
	(void)h;
}

static void overlap(struct vm_fileh *h)
{
	(void)h;
	vm_vmas[0]->stop = vm_vmas[1]->start + VM_PAGE;
}

static void strange_handle(struct vm_fileh *h)
{
	(void)h;
	vm_vmas[0]->fileh = (struct vm_fileh *)vm_vmas[1];
}

static void miscounted_mappings(struct vm_fileh *h)
{
	h->nvmas++;
}

static void miscounted_pages(struct vm_fileh *h)
{
	h->ctl->npages[VM_DIRTY]++;
}

static void page_beyond_the_end(struct vm_fileh *h)
{
	if (vm_pagemap_reserve(&h->pagemap, 1000, 1001))
		_exit(98);
	vm_fileh_lock(h);
	vm_page_mark_dirty(h, 1000, 1001);
	vm_fileh_unlock(h);
}

static void size_low_above(struct vm_fileh *h)
{
	h->ctl->size_low = h->ctl->size + 1;
}

static void storing_and_nobody_busy(struct vm_fileh *h)
{
	struct vm_runs runs = {0};

	vm_fileh_lock(h);
	vm_page_mark_dirty(h, 0, 1);
	if (vm_page_begin_store(h, &runs))
		_exit(98);
	vm_fileh_unlock(h);
}

static void gate_left_closed(struct vm_fileh *h)
{
	h->ctl->gate = VM_GATE_CLOSED;
}

static void ram_of_another_size(struct vm_fileh *h)
{
	if (vm_ram_resize(&h->ram, h->ctl->size + VM_PAGE))
		_exit(98);
}

static void another_process_in_our_place(struct vm_fileh *h)
{
	vm_fileh_peer(h)->pid++;
}

static void a_broken_invariant_aborts(struct rig *r)
{
	static void (*const damages[])(struct vm_fileh *h) = {
		overlap,	storing_and_nobody_busy, miscounted_mappings, miscounted_pages,
		page_beyond_the_end, size_low_above,	 strange_handle,      gate_left_closed,
		ram_of_another_size, another_process_in_our_place,
	};

	for (unsigned i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		rig_open(r, 64 * VM_PAGE);
		(void)rig_map(r->h, 0, 8);
		(void)rig_map(r->h, 8, 8);
		assert_int_equal(vm_load(r->h, 0, 16), 0);
		assert_false(dies_when(r, nothing));
		print_message("damage %u\n", i);
		assert_true(dies_when(r, damages[i]));
		/* the damage is in memory shared with the child: this handle is beyond use */
		rig_abandon(r);
	}
}

static void a_page_in_ram_that_nobody_knows_aborts(struct rig *r)
{
	char page[VM_BLKSIZE] = "x";
	pid_t pid;

	rig_open(r, 64 * VM_PAGE);
	pid = rig_fork();
	if (!pid) {
		(void)close(2); /* what it says is not what is tested */
		(void)signal(SIGABRT, SIG_DFL);
		if (vm_ram_fill(&r->h->ram, 30, 1, page, 64 * VM_PAGE))
			_exit(98);
		vm_check();
		_exit(0);
	}
	assert_int_equal(rig_reap(pid), -SIGABRT);
	rig_abandon(r);
}

/* ---- everything at once ---- */

enum { NPAGES = 96, NTHREADS = 4 };

struct stress {
	struct vm_fileh *h;
	char *m; /* mapped all the time */
	unsigned seed;
	unsigned nops;
	int err;
};

static unsigned draw(struct stress *s, unsigned n)
{
	return (unsigned)rand_r(&s->seed) % n;
}

/* What a resize of another thread may make impossible. */
static bool is_possible(int sig)
{
	return sig == 0 || sig == SIGBUS;
}

static int map_store_unmap(struct stress *s)
{
	uint64_t pg = draw(s, NPAGES - 8), n = 1 + draw(s, 8);
	void *p;
	int err = vm_map(s->h, NULL, n * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, pg * VM_PAGE, true, &p);

	if (err)
		return err;
	if (!is_possible(rig_store(p, 'm')))
		return -EIO;
	if (draw(s, 2)) {
		err = vm_remap(p, n * VM_PAGE, (n + 1) * VM_PAGE, MREMAP_MAYMOVE, NULL, &p);
		n++;
	}
	if (!err && !is_possible(rig_touch(p)))
		return -EIO;
	return err ? err : vm_unmap(p, n * VM_PAGE);
}

static int one(struct stress *s)
{
	uint64_t off = draw(s, NPAGES * VM_PAGE - 64);
	struct vm_commit_result res;
	struct vm_fileh_stat st;
	char buf[64];
	ssize_t n;

	switch (draw(s, 20)) {
	case 0:
		return vm_fileh_commit(s->h, draw(s, 2), true, &res);
	case 1:
		return vm_fileh_discard(s->h);
	case 2:
		return vm_fileh_invalidate(s->h, off, 1 + draw(s, 9 * VM_PAGE), VM_DIRTY_KEEP, NULL);
	case 3:
		return vm_fileh_invalidate(s->h, draw(s, 2) ? off : 0, 0, VM_DIRTY_DROP, NULL);
	case 4:
		return vm_fileh_resize(s->h, (NPAGES / 2 + draw(s, NPAGES / 2)) * VM_PAGE + draw(s, 2) * 77);
	case 5:
	case 6:
		n = rig_write(s->h, "written", 8, off);
		return n == 8 ? 0 : (int)n ?: -EIO;
	case 7:
		n = rig_read(s->h, buf, sizeof(buf), off);
		return n >= 0 ? 0 : (int)n;
	case 8:
		return map_store_unmap(s);
	case 9:
		vm_fileh_stat(s->h, true, &st);
		return st.npages_dirty <= NPAGES + 1 ? 0 : -ERANGE;
	case 10:
		return vm_fileh_zero(s->h, off, draw(s, 5 * VM_PAGE));
	case 11:
		vm_check();
		return 0;
	default:
		return is_possible(draw(s, 3) ? rig_store(s->m + off, 's') : rig_touch(s->m + off)) ? 0 : -EIO;
	}
}

static void *work(void *arg)
{
	struct stress *s = arg;

	for (unsigned i = 0; !s->err && i < s->nops; i++)
		s->err = one(s);
	return NULL;
}

static void four_threads_that_do_everything_break_no_invariant(struct rig *r)
{
	struct stress s[NTHREADS];
	pthread_t t[NTHREADS];
	char ram[VM_BLKSIZE], file[VM_BLKSIZE];
	char *m;

	rig_open(r, NPAGES * VM_PAGE);
	m = rig_map(r->h, 0, NPAGES);
	for (unsigned i = 0; i < NTHREADS; i++) {
		s[i] = (struct stress){.h = r->h, .m = m, .seed = 100 + i, .nops = rig_is_tsan() ? 400 : 2500};
		assert_int_equal(pthread_create(&t[i], NULL, work, &s[i]), 0);
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(s[i].err, 0);
	}
	vm_check();
	assert_int_equal(vm_fileh_nvmas(r->h), 1);
	/* a commit makes storage and memory equal */
	assert_int_equal(rig_try_commit(r->h), 0);
	assert_int_equal(rig_ndirty(r->h), 0);
	assert_int_equal(rig_size(r->f), vm_fileh_size(r->h));
	for (uint64_t pg = 0; pg < vm_npages(rig_size(r->f)); pg++) {
		memset(ram, 0, sizeof(ram));
		assert_true(rig_read(r->h, ram, VM_PAGE, pg * VM_PAGE) > 0);
		rig_get(r->f, pg * VM_PAGE, file, VM_PAGE);
		assert_memory_equal(ram, file, VM_PAGE);
	}
}

static const struct rig_case cases[] = {
	RIG_EAGER(a_broken_invariant_aborts),
	RIG_LAZY(a_page_in_ram_that_nobody_knows_aborts),
	RIG_BOTH(four_threads_that_do_everything_break_no_invariant),
};
RIG_MAIN(cases)
