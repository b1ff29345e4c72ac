/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <dirent.h>

static unsigned nfds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static void opening_and_closing_leaves_nothing(struct rig *r)
{
	struct rig_file *f = rig_file_make(100 * VM_PAGE);
	unsigned fds = nfds();
	struct vm_fileh *h;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(vm_fileh_open(&f->file, NULL, r->load, &h), 0);
		assert_int_equal(vm_fileh_size(h), 100 * VM_PAGE);
		rig_unmap(rig_map(h, 0, 100), 100);
		assert_int_equal(vm_fileh_close(h), 0);
	}
	assert_int_equal(rig_ncalls(f, RIG_OPEN), 3);
	assert_int_equal(rig_ncalls(f, RIG_CLOSE), 3);
	assert_int_equal(rig_ncalls(f, RIG_DETACH), 0);
	assert_int_equal(nfds(), fds);
	assert_null(vm_filehs);
}

static void uncommitted_stores_are_gone_with_the_handle(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	rig_store8(m, 'x');
	rig_unmap(m, 8);
	assert_int_equal(rig_close(r->h), 0);
	assert_int_equal(rig_get_byte(r->f, 0), rig_byte(0));
	r->h = rig_handle(r->f, r->load);
	m = rig_map(r->h, 0, 8);
	assert_int_equal((uint8_t)rig_load8(m), rig_byte(0));
}

static void what_the_backend_says_at_close_is_passed_on(struct rig *r)
{
	rig_open(r, VM_PAGE);
	rig_fail(r->f, RIG_CLOSE, 1, EIO);
	assert_int_equal(rig_close(r->h), -EIO);
	assert_null(vm_filehs);
}

static void a_backend_that_cannot_open_is_no_handle(struct rig *r)
{
	struct rig_file *f = rig_file_make(VM_PAGE);
	unsigned fds = nfds();
	struct vm_fileh *h = NULL;

	rig_fail(f, RIG_OPEN, 1, EACCES);
	assert_int_equal(vm_fileh_open(&f->file, NULL, r->load, &h), -EACCES);
	assert_int_equal(rig_ncalls(f, RIG_CLOSE), 0);
	rig_fail(f, RIG_GETSIZE, 1, EIO);
	assert_int_equal(vm_fileh_open(&f->file, NULL, r->load, &h), -EIO);
	assert_int_equal(rig_ncalls(f, RIG_CLOSE), 1);
	assert_null(h);
	assert_int_equal(nfds(), fds);
}

static void opening_leaves_nothing_when_a_host_call_fails(struct rig *r)
{
	struct rig_file *f = rig_file_make(8 * VM_PAGE);
	unsigned fds = nfds();
	bool failed = true;
	struct vm_fileh *h;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	for (unsigned nth = 1; failed; nth++) {
		int err;

		faulty_arm(FAULTY_ALL, nth, EMFILE, 0);
		err = vm_fileh_open(&f->file, NULL, r->load, &h);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		if (!err)
			assert_int_equal(vm_fileh_close(h), 0);
		assert_int_equal(nfds(), fds);
		assert_null(vm_filehs);
		assert_int_equal(rig_ncalls(f, RIG_OPEN), rig_ncalls(f, RIG_CLOSE));
	}
}

static void a_handle_with_mappings_cannot_be_closed(struct rig *r)
{
	pid_t pid;

	rig_open(r, VM_PAGE);
	pid = rig_fork();
	if (!pid) {
		(void)close(2); /* what it says is not what is tested */
		(void)signal(SIGABRT, SIG_DFL);
		(void)rig_map(r->h, 0, 1);
		(void)vm_fileh_close(r->h);
		_exit(0);
	}
	assert_int_equal(rig_reap(pid), -SIGABRT);
}

static void two_handles_of_two_files_do_not_mix(struct rig *r)
{
	struct rig_file *f2 = rig_file_make(8 * VM_PAGE);
	struct vm_fileh *h2 = rig_handle(f2, r->load);
	char *a, *b;

	rig_open(r, 8 * VM_PAGE);
	a = rig_map(r->h, 0, 8);
	b = rig_map(h2, 0, 8);
	rig_store8(a + VM_PAGE, 'a');
	rig_store8(b + 2 * VM_PAGE, 'b');
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(f2, 2 * VM_PAGE), rig_byte(2));
	rig_invalidate(r->h, 0, 8);
	assert_int_equal(rig_ndirty(h2), 1);
	assert_int_equal(rig_load8(b + 2 * VM_PAGE), 'b');
	assert_int_equal(rig_commit(h2), 1);
	assert_int_equal(rig_get_byte(f2, 2 * VM_PAGE), 'b');
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), 'a');
}

static void facts_are_exact(struct rig *r)
{
	struct vm_fileh_stat st;
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	vm_fileh_stat(r->h, true, &st);
	assert_int_equal(st.npages_resident, rig_is_lazy(r) ? 0 : 64);
	assert_false(st.stored_here);
	rig_store8(m, 'x');
	vm_fileh_stat(r->h, true, &st);
	assert_int_equal(st.npages_dirty, 1);
	assert_true(st.stored_here);
	assert_false(st.size_dirty);
	assert_int_equal(st.txid, 0);
	rig_commit(r->h);
	vm_fileh_stat(r->h, true, &st);
	assert_int_equal(st.txid, 1);
	assert_false(st.stored_here);
}

static void a_size_alone_keeps_its_author_through_a_partial_invalidation(struct rig *r)
{
	struct vm_fileh_stat st;

	rig_open(r, 8 * VM_PAGE);
	rig_resize(r->h, 9 * VM_PAGE);
	rig_invalidate(r->h, 2, 1);
	vm_fileh_stat(r->h, true, &st);
	assert_true(st.size_dirty);
	assert_true(st.stored_here); /* else its release would commit nothing */
}

/* ---- killed in the middle ---- */

static void a_size_that_a_killed_process_was_changing_is_whole_again(struct rig *r)
{
	for (int longer = 0; longer < 2; longer++) {
		struct vm_fileh_stat st;
		pid_t pid;
		char *m;

		rig_open(r, 8 * VM_PAGE);
		m = rig_map(r->h, 0, 16);
		for (unsigned pg = 0; pg < 8; pg++)
			rig_store8(m + pg * VM_PAGE, 'k');
		assert_int_equal(rig_ndirty(r->h), 8);
		pid = rig_fork();
		if (!pid) {
			vm_fileh_lock(r->h);
			if (longer)
				vm_fileh_peer(r->h)->nwriters++;
			if (vm_ram_resize(&r->h->ram, (longer ? 12 : 5) * VM_PAGE))
				_exit(1);
			if (longer)
				vm_fileh_unlock(r->h);
			(void)kill(getpid(), SIGKILL);
		}
		assert_int_equal(rig_reap(pid), -SIGKILL);
		rig_commit(r->h);
		vm_check();
		vm_fileh_stat(r->h, true, &st);
		assert_int_equal(st.size, (longer ? 8 : 5) * VM_PAGE);
		assert_int_equal(rig_size(r->f), (longer ? 8 : 5) * VM_PAGE);
		assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 'k');
		assert_int_equal(rig_touch(m + 9 * VM_PAGE), SIGBUS);
	}
}

static void optional_operations_are_passed_on(struct rig *r)
{
	rig_open(r, VM_PAGE);
	assert_int_equal(vm_fileh_reserve(r->h, 0, 100), 0);
	rig_fail(r->f, RIG_RESERVE, 1, ENOSPC);
	assert_int_equal(vm_fileh_reserve(r->h, 0, 100), -ENOSPC);
	assert_int_equal(vm_fileh_checkpoint(r->h), 0);
	rig_fail(r->f, RIG_IDLE, 1, EIO);
	assert_int_equal(vm_fileh_idle(r->h), -EIO);
	assert_int_equal(vm_fileh_idle(r->h), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_IDLE), 2);
	assert_int_equal(rig_ncalls(r->f, RIG_CHECKPOINT), 1);
}

static void a_small_file_is_loaded_at_once_and_a_large_one_on_touch(struct rig *r)
{
	struct rig_file *small = rig_file_make(10 * VM_PAGE), *large = rig_file_make_sparse(1ull << 36);
	char page[VM_BLKSIZE];
	struct vm_fileh *h;

	(void)r;
	memset(page, 'd', sizeof(page));
	h = rig_handle(small, VM_LOAD_AUTO);
	assert_false(h->lazy);
	h = rig_handle(large, VM_LOAD_AUTO);
	assert_false(h->lazy); /* there is no data in it */
	for (uint64_t pg = 0; pg < 3000; pg++)
		rig_put(large, pg * 5 * VM_PAGE, page, sizeof(page));
	h = rig_handle(large, VM_LOAD_AUTO);
	assert_int_equal(h->lazy, vm_can_load_lazily());
}

/* Whose locks a fork takes, one after the other: so must another process that has the same ones. */
static void handles_are_in_the_order_of_their_files_however_they_were_opened(struct rig *r)
{
	static const uint64_t ino[] = {7, 3, 9, 5, 1};
	uint64_t last = 0;

	(void)r;
	for (size_t i = 0; i < sizeof(ino) / sizeof(*ino); i++) {
		struct rig_file *f = rig_file_make(VM_PAGE);

		f->file.dev = 1 + ino[i] % 2;
		f->file.ino = ino[i];
		(void)rig_handle(f, VM_LOAD_EAGER);
	}
	for (struct vm_fileh *h = vm_filehs; h; h = h->next) {
		uint64_t now = h->ctl->dev * 100 + h->ctl->ino;

		assert_true(now > last);
		last = now;
	}
	assert_int_equal(last, 209);
}

static const struct rig_case cases[] = {
	RIG_BOTH(opening_and_closing_leaves_nothing),
	RIG_BOTH(uncommitted_stores_are_gone_with_the_handle),
	RIG_EAGER(what_the_backend_says_at_close_is_passed_on),
	RIG_BOTH(a_backend_that_cannot_open_is_no_handle),
	RIG_BOTH(opening_leaves_nothing_when_a_host_call_fails),
	RIG_EAGER(a_handle_with_mappings_cannot_be_closed),
	RIG_BOTH(two_handles_of_two_files_do_not_mix),
	RIG_BOTH(facts_are_exact),
	RIG_BOTH(a_size_alone_keeps_its_author_through_a_partial_invalidation),
	RIG_BOTH(a_size_that_a_killed_process_was_changing_is_whole_again),
	RIG_EAGER(optional_operations_are_passed_on),
	RIG_EAGER(handles_are_in_the_order_of_their_files_however_they_were_opened),
	RIG_EAGER(a_small_file_is_loaded_at_once_and_a_large_one_on_touch),
};
RIG_MAIN(cases)
