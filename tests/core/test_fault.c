/* SPDX-License-Identifier: MIT */
#include "rig.h"

static void a_fault_that_is_not_ours_is_left_to_the_program(struct rig *r)
{
	char *own = mmap(NULL, VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(rig_touch(own), SIGSEGV);
	rig_open(r, VM_PAGE);
	(void)rig_map(r->h, 0, 1);
	assert_int_equal(rig_touch(own), SIGSEGV);
	assert_int_equal(rig_touch(NULL), SIGSEGV);
	assert_int_equal(munmap(own, VM_PAGE), 0);
}

static void a_signal_that_somebody_sent_is_not_a_fault(struct rig *r)
{
	siginfo_t info = {.si_signo = SIGSEGV, .si_code = SI_USER};

	rig_open(r, VM_PAGE);
	info.si_addr = rig_map(r->h, 0, 1);
	assert_int_equal(vm_fault(&info, NULL), 0);
	info.si_code = SI_TKILL;
	assert_int_equal(vm_fault(&info, NULL), 0);
}

static void what_the_program_forbade_itself_stays_forbidden(struct rig *r)
{
	char *m;

	rig_open(r, 4 * VM_PAGE);
	m = rig_map_with(r->h, 0, 4, PROT_READ, MAP_SHARED);
	assert_int_equal(rig_touch(m), 0);
	assert_int_equal(rig_store(m, 'x'), SIGSEGV);
	assert_int_equal(rig_store(m + VM_PAGE, 'x'), SIGSEGV); /* never touched before */
	assert_int_equal(rig_ndirty(r->h), 0);
}

/* A program that stores to one place and commits, again and again, faults there each time. */
static void one_place_can_be_stored_to_and_committed_any_number_of_times(struct rig *r)
{
	char *m;

	rig_open(r, VM_PAGE);
	m = rig_map(r->h, 0, 1);
	for (uint64_t i = 1; i <= 12000; i++) {
		rig_store64(m, i);
		rig_commit(r->h);
	}
	assert_int_equal(r->f->txid, 12000);
}

/* ---- what the kernel meets ---- */

static ssize_t read_into(int fd, char *buf, size_t len)
{
	ssize_t n;

	do
		assert_int_equal(vm_prepare(buf, len, true), 0);
	while ((n = read(fd, buf, len)) < 0 && errno == EFAULT);
	return n;
}

static void a_system_call_stores_into_prepared_pages(struct rig *r)
{
	char *m, text[3 * VM_BLKSIZE];
	int p[2];

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	memset(text, 'k', sizeof(text));
	assert_int_equal(pipe(p), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(write(p[1], text, sizeof(text)), sizeof(text));
		assert_int_equal(read_into(p[0], m + 20 * VM_PAGE + 100, sizeof(text)), sizeof(text));
		assert_int_equal(rig_ndirty(r->h), 4);
		assert_int_equal((uint8_t)rig_load8(m + 20 * VM_PAGE + 99), rig_byte(20));
		rig_discard(r->h);
	}
	assert_int_equal(write(p[1], text, sizeof(text)), sizeof(text));
	assert_int_equal(read_into(p[0], m + 20 * VM_PAGE + 100, sizeof(text)), sizeof(text));
	assert_int_equal(rig_try_commit(r->h), 0);
	assert_int_equal(rig_get_byte(r->f, 20 * VM_PAGE + 100), 'k');
	assert_int_equal(rig_get_byte(r->f, 23 * VM_PAGE + 99), 'k');
	assert_int_equal(rig_get_byte(r->f, 23 * VM_PAGE + 100), rig_byte(23));
	/* and reads from them */
	rig_invalidate(r->h, 0, 64);
	assert_int_equal(vm_prepare(m + 30 * VM_PAGE, 2 * VM_PAGE, false), 0);
	assert_int_equal(write(p[1], m + 30 * VM_PAGE, 2 * VM_PAGE), 2 * VM_PAGE);
	assert_int_equal(read(p[0], text, 2 * VM_PAGE), 2 * VM_PAGE);
	assert_int_equal((uint8_t)text[0], rig_byte(30));
	assert_int_equal((uint8_t)text[VM_PAGE], rig_byte(31));
	assert_int_equal(rig_ndirty(r->h), 0);
	assert_int_equal(close(p[0]) | close(p[1]), 0);
}

static void preparing_what_is_not_ours_does_nothing(struct rig *r)
{
	char c;

	rig_open(r, VM_PAGE);
	(void)rig_map(r->h, 0, 1);
	assert_int_equal(vm_prepare(&c, 1, true), 0);
	assert_int_equal(vm_prepare(NULL, SIZE_MAX, false), 0); /* all there is, page by page only where it is ours */
	assert_int_equal(vm_prepare(&c, 0, true), 0);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void preparing_reports_what_cannot_be_loaded(struct rig *r)
{
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	rig_fail_page(r->f, 40, EIO);
	assert_int_equal(vm_load_mapped(m + 40 * VM_PAGE, 1), -EIO);
	if (!rig_is_uffd())
		assert_int_equal(vm_prepare(m + 39 * VM_PAGE, 2 * VM_PAGE, false), -EIO);
	assert_int_equal(vm_prepare(m + 30 * VM_PAGE, VM_PAGE, false), 0);
}

/* ---- frozen ---- */

struct toucher {
	char *p;
	bool store, done;
	int sig;
};

static void *touch(void *arg)
{
	struct toucher *t = arg;

	t->sig = t->store ? rig_store(t->p, 't') : rig_touch(t->p);
	__atomic_store_n(&t->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void freeze(struct vm_fileh *h, bool all)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	assert_int_equal(vm_freeze(h, NULL, all), 0);
	assert_int_equal(vm_harvest(h), 0);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

static void thaw(struct vm_fileh *h)
{
	vm_lock(&vm_map_lock);
	vm_fileh_lock(h);
	vm_thaw(h);
	vm_fileh_unlock(h);
	vm_unlock(&vm_map_lock);
}

static void a_store_into_a_frozen_page_waits_for_the_thaw(struct rig *r)
{
	struct toucher a = {.store = true}, b = {.store = false};
	pthread_t ta, tb;
	char buf;

	rig_open(r, 8 * VM_PAGE);
	a.p = rig_map(r->h, 0, 8);
	b.p = a.p + VM_PAGE;
	rig_store8(a.p, 'x');
	(void)rig_load8(b.p);
	freeze(r->h, false);
	assert_int_equal(pthread_create(&ta, NULL, touch, &a), 0);
	assert_int_equal(pthread_create(&tb, NULL, touch, &b), 0);
	assert_int_equal(pthread_join(tb, NULL), 0); /* who only looks goes on */
	for (unsigned i = 0; i < 1000; i++)
		(void)sched_yield();
	assert_false(__atomic_load_n(&a.done, __ATOMIC_ACQUIRE));
	assert_int_equal(rig_read(r->h, &buf, 1, 0), 1);
	assert_int_equal(buf, 'x');
	thaw(r->h);
	assert_int_equal(pthread_join(ta, NULL), 0);
	assert_int_equal(a.sig, 0);
	assert_int_equal(rig_load8(a.p), 't');
	assert_int_equal(rig_ndirty(r->h), 1);
}

static void a_look_at_what_is_frozen_for_all_waits_for_the_thaw(struct rig *r)
{
	struct toucher a = {.store = false};
	pthread_t t;

	rig_open(r, 8 * VM_PAGE);
	a.p = rig_map(r->h, 0, 8);
	(void)rig_load8(a.p);
	freeze(r->h, false);
	freeze(r->h, true);
	assert_int_equal(pthread_create(&t, NULL, touch, &a), 0);
	for (unsigned i = 0; i < 1000; i++)
		(void)sched_yield();
	assert_false(__atomic_load_n(&a.done, __ATOMIC_ACQUIRE));
	thaw(r->h);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(a.sig, 0);
}

static const struct rig_case cases[] = {
	RIG_EAGER(a_fault_that_is_not_ours_is_left_to_the_program),
	RIG_EAGER(a_signal_that_somebody_sent_is_not_a_fault),
	RIG_BOTH(what_the_program_forbade_itself_stays_forbidden),
	RIG_EAGER(one_place_can_be_stored_to_and_committed_any_number_of_times),
	RIG_BOTH(a_system_call_stores_into_prepared_pages),
	RIG_EAGER(preparing_what_is_not_ours_does_nothing),
	RIG_LAZY(preparing_reports_what_cannot_be_loaded),
	RIG_BOTH(a_store_into_a_frozen_page_waits_for_the_thaw),
	RIG_BOTH(a_look_at_what_is_frozen_for_all_waits_for_the_thaw),
};
RIG_MAIN(cases)
