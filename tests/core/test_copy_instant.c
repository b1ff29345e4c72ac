/* SPDX-License-Identifier: MIT */
/* Copies of a handle's content: one instant. */
#include "copy_rig.h"
#include <sys/prctl.h>

enum { NPAGES = 300 }; /* more than are copied in one go */

struct storer {
	char *m[2];
	bool stop;	   /* (atomic) */
	bool is_elsewhere; /* a process does it */
};

/* Page 0, 1, ... get 1, then all of them 2, ...; odd ones in the second file, if there is one. */
static void *store_in_order(void *arg)
{
	struct storer *s = arg;

	for (uint64_t n = 1; !__atomic_load_n(&s->stop, __ATOMIC_RELAXED); n++)
		for (unsigned pg = 0; pg < NPAGES; pg++)
			put_release(s->m[pg % 2] + pg * VM_PAGE + 8, n);
	return NULL;
}

/* Copy n files, many times, while a thread stores and the files are committed now and then. */
static void check_instants(struct rig *r, struct vm_fileh **h, struct storer *s, unsigned n)
{
	struct copy c[2] = {0};
	struct vm_copy *vm[2];
	pthread_t thread;

	for (unsigned pg = 0; pg < NPAGES && !s->is_elsewhere; pg++)
		put_release(s->m[pg % 2] + pg * VM_PAGE + 8, 0);
	for (unsigned i = 0; i < n; i++) {
		copy_init(&c[i], r, NPAGES, false); /* any file */
		vm[i] = &c[i].vm;
	}
	if (!s->is_elsewhere)
		assert_int_equal(pthread_create(&thread, NULL, store_in_order, s), 0);
	for (unsigned i = 0; i < (rig_is_tsan() ? 6 : 15); i++) {
		uint64_t first, last = UINT64_MAX, now;

		assert_int_equal(vm_copy_out(h, vm, n, false), 0);
		first = rig_load64(c[0].mem + 8);
		for (unsigned pg = 0; pg < NPAGES; pg++) {
			now = rig_load64(c[pg % n].mem + pg * VM_PAGE + 8);
			assert_true(now <= last);
			assert_true(first - now <= 1);
			last = now;
		}
		if (i % 3 == 0)
			rig_commit(h[i % n]);
	}
	__atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
	if (!s->is_elsewhere)
		assert_int_equal(pthread_join(thread, NULL), 0);
	for (unsigned i = 0; i < n; i++)
		copy_free(&c[i]);
}

static void a_copy_is_one_instant_beside_threads_and_commits(struct rig *r)
{
	struct storer s = {0};

	rig_open(r, NPAGES * VM_PAGE);
	s.m[0] = s.m[1] = rig_map(r->h, 0, NPAGES);
	check_instants(r, &r->h, &s, 1);
	rig_commit(r->h);
	for (unsigned pg = 0; pg < NPAGES; pg++) {
		uint64_t now;

		rig_get(r->f, pg * VM_PAGE + 8, &now, sizeof(now));
		assert_int_equal(now, rig_load64(s.m[0] + pg * VM_PAGE + 8)); /* no store was lost */
	}
}

/* One word, then another, after the first one's page was copied and before the second one's is. With the segv engine
 * nobody gets so far. */
static void store_both(struct copy *c)
{
	put_release(c->first, rig_load64(c->first) + 1);
	put_release(c->second, rig_load64(c->second) + 1);
}

static void have_both_stored(struct copy *c)
{
	char byte = 0;

	assert_int_equal(write(c->to, &byte, 1), 1);
	assert_int_equal(read(c->from, &byte, 1), 1);
}

static void *wait_for_end(void *fd)
{
	char byte;

	return read(*(int *)fd, &byte, 1) == 0 ? NULL : fd;
}

/* second is at off2 of the last file. */
static void check_both(struct vm_fileh **h, unsigned n, uint64_t off2, struct copy *c)
{
	struct vm_copy *vm[] = {&c[0].vm, &c[1].vm};
	pthread_t other; /* so that somebody could store */
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(pthread_create(&other, NULL, wait_for_end, &p[0]), 0);
	assert_int_equal(vm_copy_out(h, vm, n, false), 0);
	assert_int_equal(close(p[1]), 0);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_int_equal(close(p[0]), 0);
	assert_int_equal(rig_load64(c[0].first), 3);
	assert_int_equal(rig_load64(c[0].mem), rig_load64(c[n - 1].mem + off2));
	for (unsigned i = 0; i < n; i++)
		copy_free(&c[i]);
}

static void stores_while_pages_are_copied_do_not_tear_the_copy(struct rig *r)
{
	struct copy c[2];

	if (!rig_is_uffd())
		return;
	rig_open(r, NPAGES * VM_PAGE);
	copy_init(&c[0], r, NPAGES, true);
	c[0].first = rig_map(r->h, 0, NPAGES);
	c[0].second = c[0].first + (NPAGES - 1) * VM_PAGE;
	c[0].in_store = store_both;
	for (unsigned pg = 0; pg < NPAGES; pg++)
		put_release(c[0].first + pg * VM_PAGE, 1);
	check_both(&r->h, 1, (NPAGES - 1) * VM_PAGE, c);
}

static void nor_do_those_into_another_file(struct rig *r)
{
	struct rig_file *other = rig_file_make(VM_PAGE);
	struct vm_fileh *h[2];
	struct copy c[2];

	if (!rig_is_uffd())
		return;
	other->file.ino = 1; /* not the same as that of the first */
	rig_open(r, VM_PAGE);
	h[0] = r->h;
	h[1] = rig_handle(other, r->load);
	for (unsigned i = 0; i < 2; i++)
		copy_init(&c[i], r, 1, true);
	c[1].f = other;
	c[0].first = rig_map(h[0], 0, 1);
	c[0].second = rig_map(h[1], 0, 1);
	c[0].in_store = store_both;
	put_release(c[0].first, 1);
	put_release(c[0].second, 1);
	check_both(h, 2, 0, c);
}

static void nor_do_those_of_another_process(struct rig *r)
{
	int to[2], from[2];
	struct copy c[2];
	pid_t pid;
	char byte;

	if (!rig_is_uffd())
		return;
	assert_int_equal(pipe(to) | pipe(from), 0);
	rig_open(r, NPAGES * VM_PAGE);
	copy_init(&c[0], r, NPAGES, true);
	c[0].first = rig_map(r->h, 0, NPAGES);
	c[0].second = c[0].first + (NPAGES - 1) * VM_PAGE;
	c[0].in_store = have_both_stored;
	c[0].to = to[1];
	c[0].from = from[0];
	for (unsigned pg = 0; pg < NPAGES; pg++)
		put_release(c[0].first + pg * VM_PAGE, 1);
	pid = rig_fork();
	if (!pid) {
		(void)close(to[1]);
		while (read(to[0], &byte, 1) == 1) {
			store_both(&c[0]);
			if (write(from[1], &byte, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	check_both(&r->h, 1, (NPAGES - 1) * VM_PAGE, c);
	assert_int_equal(close(to[1]), 0);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(close(to[0]) | close(from[0]) | close(from[1]), 0);
}

static void copies_of_several_files_are_one_instant(struct rig *r)
{
	struct rig_file *other = rig_file_make(NPAGES * VM_PAGE);
	struct vm_fileh *h[2];
	struct storer s = {0};

	other->file.ino = 1; /* not the same as that of the first */
	rig_open(r, NPAGES * VM_PAGE);
	h[0] = r->h;
	h[1] = rig_handle(other, r->load);
	s.m[0] = rig_map(h[0], 0, NPAGES);
	s.m[1] = rig_map(h[1], 0, NPAGES);
	check_instants(r, h, &s, 2);
}

static void a_copy_is_one_instant_beside_another_process(struct rig *r)
{
	struct storer *s = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	assert_ptr_not_equal(s, MAP_FAILED);
	rig_open(r, NPAGES * VM_PAGE);
	s->m[0] = s->m[1] = rig_map(r->h, 0, NPAGES);
	for (unsigned pg = 0; pg < NPAGES; pg++)
		put_release(s->m[0] + pg * VM_PAGE + 8, 0);
	pid = rig_fork();
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail */
		(void)store_in_order(s);
		_exit(0);
	}
	s->is_elsewhere = true;
	check_instants(r, &r->h, s, 1);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(munmap(s, VM_PAGE), 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_copy_is_one_instant_beside_threads_and_commits),
	RIG_BOTH(stores_while_pages_are_copied_do_not_tear_the_copy),
	RIG_BOTH(nor_do_those_into_another_file),
	RIG_BOTH(nor_do_those_of_another_process),
	RIG_BOTH(copies_of_several_files_are_one_instant),
	RIG_BOTH(a_copy_is_one_instant_beside_another_process),
};
RIG_MAIN(cases)
