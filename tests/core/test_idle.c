/* SPDX-License-Identifier: MIT */
/* Processes that sleep are not asked what they stored, and nothing that they stored is missed. */
#include "faulty_sys.h"
#include "rig.h"
#include "uapi.h"
#include <sched.h>

enum { NPAGES = 16 };

/* A child that does what it is told, and sleeps in between. */
struct child {
	pid_t pid;
	int tell, told;
};

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static void *sleep_for_ever(void *arg)
{
	for (;;)
		(void)pause();
	return arg;
}

static int without_scans(int fd, unsigned long request, void *arg)
{
	if (request != PAGEMAP_SCAN)
		return vm_sys_linux.ioctl(fd, request, arg);
	return -EPERM;
}

/* A seccomp filter that does not know the call. */
static void lock_itself_in(void)
{
	static struct vm_sys filtered;

	filtered = vm_sys_linux;
	filtered.ioctl = without_scans;
	faulty_use(&filtered);
}

/* 's': store to page 3; 'f': take no scans any more; 't': start a thread; 'c': end a helper thread, that of another handle; 'q': end. */
static void obey(char what, uint8_t n, char *m, struct vm_fileh *other)
{
	pthread_t t;

	if (what == 's')
		rig_store8(at(m, 3), (char)n);
	else if (what == 'f')
		lock_itself_in();
	else if (what == 't' && pthread_create(&t, NULL, sleep_for_ever, NULL))
		_exit(2);
	else if (what == 'c' && vm_fileh_close(other))
		_exit(3);
	else if (what == 'q')
		_exit(0);
}

static struct child start(char *m, struct vm_fileh *other)
{
	int down[2], up[2];
	struct child c;
	char what[2];

	assert_int_equal(pipe2(down, O_CLOEXEC), 0);
	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	c = (struct child){.pid = rig_fork(), .tell = down[1], .told = up[0]};
	if (!c.pid) {
		while (write(up[1], "", 1) == 1 && read(down[0], what, 2) == 2)
			obey(what[0], (uint8_t)what[1], m, other);
		_exit(1);
	}
	(void)close(down[0]);
	(void)close(up[1]);
	assert_int_equal(read(c.told, what, 1), 1); /* it is there */
	return c;
}

static void until_it_sleeps(const struct child *c)
{
	while (vm_process_state(c->pid) != 'S')
		(void)sched_yield();
}

static void tell(const struct child *c, char what, uint8_t n)
{
	char done;

	assert_int_equal(write(c->tell, (char[]){what, (char)n}, 2), 2);
	assert_int_equal(read(c->told, &done, 1), 1);
	until_it_sleeps(c);
}

static void end(const struct child *c)
{
	assert_int_equal(write(c->tell, "q", 2), 2);
	assert_int_equal(rig_reap(c->pid), 0);
	(void)close(c->tell);
	(void)close(c->told);
}

/* A commit of a store of this process; was anybody asked? */
static bool commit_asks(struct rig *r, char *m, uint8_t n)
{
	uint32_t seq = r->h->ctl->ask_seq;

	rig_store8(at(m, 5), (char)n);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 5 * VM_PAGE), n);
	return r->h->ctl->ask_seq != seq;
}

/* It is asked at first, and its first answers cost it page faults of its own. */
static void until_nobody_is_asked(struct rig *r, char *m, const struct child *c)
{
	for (unsigned i = 0; i < 1000; i++) {
		until_it_sleeps(c);
		if (!commit_asks(r, m, (uint8_t)i))
			return;
	}
	fail_msg("a child that sleeps is asked each time");
}

static char *open_and_map(struct rig *r)
{
	if (!rig_is_uffd() || rig_is_tsan())
		skip(); /* who protects by itself counts no faults; a sanitizer's thread is one of the program's */
	rig_open(r, NPAGES * VM_PAGE);
	return rig_map(r->h, 0, NPAGES);
}

static void a_child_that_sleeps_is_not_asked(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);

	until_nobody_is_asked(r, m, &c);
	for (uint8_t i = 0; i < 50; i++)
		assert_false(commit_asks(r, m, i));
	end(&c);
}

static void what_a_child_stores_between_two_sleeps_is_committed(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);

	for (uint8_t i = 1; i < 50; i++) {
		if (i % 5 == 0)
			until_nobody_is_asked(r, m, &c);
		tell(&c, 's', i);
		if (i % 2)
			(void)rig_commit(r->h);
		else
			assert_true(commit_asks(r, m, i));
		assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), i);
	}
	end(&c);
}

/* Whose pages cannot be watched any more has no page faults to show for its stores. */
static void a_child_that_locked_itself_in_is_asked(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);

	tell(&c, 'f', 0);
	for (uint8_t i = 1; i < 20; i++) {
		tell(&c, 's', i);
		for (unsigned n = 0; n < 3; n++)
			(void)commit_asks(r, m, i);
		assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), i);
	}
	end(&c);
}

static void a_child_with_another_thread_is_asked(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);

	until_nobody_is_asked(r, m, &c);
	tell(&c, 't', 0);
	for (uint8_t i = 0; i < 50; i++) {
		until_it_sleeps(&c);
		assert_true(commit_asks(r, m, i));
	}
	end(&c);
}

/* Where one of txmap's own threads ended, one of the program's could take its place in the count. */
static void a_child_of_which_a_helper_thread_ended_is_asked(struct rig *r)
{
	char *m = open_and_map(r);
	struct vm_fileh *other = rig_handle(rig_file_make(VM_PAGE), r->load);
	struct child c = start(m, other);
	struct vm_peer *p;

	until_nobody_is_asked(r, m, &c);
	p = &r->h->ctl->peers[!r->h->peer];
	assert_int_equal(p->pid, c.pid);
	assert_true(p->nfaults);
	tell(&c, 'c', 0);
	while (__atomic_load_n(&p->nfaults, __ATOMIC_SEQ_CST))
		(void)sched_yield();
	assert_true(commit_asks(r, m, 1));
	until_nobody_is_asked(r, m, &c); /* it is known again */
	end(&c);
}

static void a_number_that_another_process_has_got_is_not_taken_for_the_child(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);

	until_nobody_is_asked(r, m, &c);
	r->h->ctl->peers[!r->h->peer].started++; /* as if the one that is seen there were another one */
	assert_true(commit_asks(r, m, 1));
	r->h->ctl->peers[!r->h->peer].started--;
	end(&c);
}

static void a_child_that_is_stopped_and_did_not_store_costs_nothing(struct rig *r)
{
	char *m = open_and_map(r);
	struct child c = start(m, NULL);
	int status;

	until_nobody_is_asked(r, m, &c);
	assert_int_equal(kill(c.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
	assert_false(commit_asks(r, m, 7));
	assert_false(r->h->ctl->suspect);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	tell(&c, 's', 9);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 9);
	end(&c);
}

static void more_children_than_are_watched_are_asked(struct rig *r)
{
	enum { N = VM_MAX_WATCHED + 1 };
	char *m = open_and_map(r);
	struct child c[N];

	for (unsigned i = 0; i < N; i++)
		c[i] = start(m, NULL);
	for (uint8_t i = 0; i < 20; i++)
		assert_true(commit_asks(r, m, i));
	end(&c[0]);
	for (unsigned i = 1; i < N; i++)
		until_it_sleeps(&c[i]);
	until_nobody_is_asked(r, m, &c[1]);
	for (unsigned i = 1; i < N; i++)
		end(&c[i]);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_child_that_sleeps_is_not_asked),
	RIG_BOTH(what_a_child_stores_between_two_sleeps_is_committed),
	RIG_BOTH(a_child_that_locked_itself_in_is_asked),
	RIG_BOTH(a_child_with_another_thread_is_asked),
	RIG_BOTH(a_child_of_which_a_helper_thread_ended_is_asked),
	RIG_BOTH(a_number_that_another_process_has_got_is_not_taken_for_the_child),
	RIG_BOTH(a_child_that_is_stopped_and_did_not_store_costs_nothing),
	RIG_BOTH(more_children_than_are_watched_are_asked),
};

RIG_MAIN(cases)
