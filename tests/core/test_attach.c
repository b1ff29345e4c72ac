/* SPDX-License-Identifier: MIT */
/*
 * A handle in a process that is no relative by fork: it is made from the descriptors of one who has it. The newcomers of these
 * tests are forked before there is any handle, and get the descriptors over a socket. In them nothing is asserted: they tell by
 * their exit status, and by words on the board.
 */
#include "rig.h"
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

enum { NPAGES = 64, WAIT_MSEC = 5000 };

static struct {
	uint32_t step; /* (atomic) */
	uint32_t stop; /* (atomic) */
} *board;
static int line[2]; /* of the owner, of the newcomers */

static char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

static void say(uint32_t step)
{
	__atomic_store_n(&board->step, step, __ATOMIC_SEQ_CST);
}

static void await(uint32_t step)
{
	while (__atomic_load_n(&board->step, __ATOMIC_SEQ_CST) < step)
		(void)sched_yield();
}

static void until_stopped(void)
{
	while (!__atomic_load_n(&board->stop, __ATOMIC_SEQ_CST))
		(void)sched_yield();
}

static void end(pid_t pid)
{
	__atomic_store_n(&board->stop, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(rig_reap(pid), 0);
}

/* ---- handing over ---- */

union control {
	char room[CMSG_SPACE(VM_SHARE_NFDS * sizeof(int))];
	struct cmsghdr align;
};

static void send_fds(int s, const int *fds)
{
	union control c = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(VM_SHARE_NFDS * sizeof(int));
	memcpy(CMSG_DATA(h), fds, VM_SHARE_NFDS * sizeof(int));
	assert_int_equal(sendmsg(s, &msg, 0), 1);
}

static void receive_fds(int s, int *fds)
{
	union control c;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};

	fds[0] = fds[1] = -1;
	if (recvmsg(s, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), VM_SHARE_NFDS * sizeof(int));
}

/* Before anything is open. */
static void begin(struct rig *r, uint64_t size)
{
	if (!board) {
		board = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(board, MAP_FAILED);
	}
	memset(board, 0, sizeof(*board));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
	r->f = rig_file_make(size);
}

static void give(struct rig *r)
{
	int fds[VM_SHARE_NFDS];

	assert_int_equal(vm_fileh_share(r->h, fds), 0);
	send_fds(line[0], fds);
}

static void open_here(struct rig *r)
{
	r->h = rig_handle(r->f, r->load);
}

static int attach(struct rig *r, const int *fds)
{
	return vm_fileh_attach(&r->f->file, NULL, fds, WAIT_MSEC, &r->h);
}

/* In a newcomer: r->h is what the owner gives. */
static char *join(struct rig *r)
{
	int fds[VM_SHARE_NFDS], err;
	void *m = NULL;

	receive_fds(line[1], fds);
	err = attach(r, fds);
	(void)close(fds[0]);
	(void)close(fds[1]);
	if (!err)
		err = vm_map(r->h, NULL, NPAGES * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, true, &m);
	if (err)
		_exit(100);
	return m;
}

static void finish(struct rig *r)
{
	(void)close(line[0]);
	(void)close(line[1]);
	(void)r;
}

/* ---- stores ---- */

static void a_newcomer_sees_stores_that_nobody_committed_and_its_own_are_seen(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);
		int wrong = rig_load8(at(m, 3)) != 77 || (uint8_t)rig_load8(at(m, 5)) != rig_byte(5);

		rig_store8(at(m, 4), 78);
		say(1);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	rig_store8(at(m, 3), 77);
	give(r);
	await(1);
	assert_int_equal(rig_load8(at(m, 4)), 78);
	vm_check();
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	end(pid);
	finish(r);
}

static void a_commit_of_a_newcomer_holds_what_the_owner_stored(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		(void)join(r);
		await(1);
		int err = rig_try_commit(r->h);

		say(2);
		_exit(err != 0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	rig_store8(at(m, 4), 78);
	say(1);
	await(2);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	assert_int_equal(rig_commit(r->h), 0);
	end(pid);
	finish(r);
}

static void stores_of_two_processes_into_one_page_are_both_kept(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		for (uint64_t i = 1; i <= 20000; i++)
			rig_store64(at(m, 7) + 8, i);
		say(1);
		until_stopped();
		_exit(0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);
	uint64_t n[2];

	give(r);
	for (uint64_t i = 1; i <= 20000; i++) {
		rig_store64(at(m, 7), i);
		if (i % 1000 == 0)
			(void)rig_commit(r->h);
	}
	await(1);
	(void)rig_commit(r->h);
	rig_get(r->f, 7 * VM_PAGE, n, sizeof(n));
	assert_int_equal(n[0], 20000);
	assert_int_equal(n[1], 20000);
	end(pid);
	finish(r);
}

/* Stores a number to one page, then to another: never may the second be ahead. */
static void a_cut_is_one_instant_for_newcomers_too(struct rig *r)
{
	const unsigned ncommits = rig_is_tsan() ? 20 : 100;

	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		for (uint64_t n = 1; !__atomic_load_n(&board->stop, __ATOMIC_RELAXED); n++) {
			rig_store64(at(m, 10), n);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			rig_store64(at(m, 11), n);
		}
		_exit(0);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);
	uint64_t first, second, last = 0;

	rig_store64(at(m, 10), 0);
	rig_store64(at(m, 11), 0);
	give(r);
	for (unsigned c = 0; c < ncommits || !last; c++) {
		(void)rig_commit(r->h);
		rig_get(r->f, 10 * VM_PAGE, &first, 8);
		rig_get(r->f, 11 * VM_PAGE, &second, 8);
		assert_true(first == second || first == second + 1);
		assert_true(first >= last);
		last = first;
	}
	end(pid);
	finish(r);
}

static void a_discard_and_an_invalidation_reach_a_newcomer(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		rig_store8(at(m, 3), 77);
		say(1);
		await(2);
		int wrong = (uint8_t)rig_load8(at(m, 3)) != rig_byte(3);

		wrong |= rig_load8(at(m, 9)) != 99;
		say(3);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	await(1);
	assert_int_equal((uint8_t)rig_load8(at(m, 9)), rig_byte(9));
	rig_discard(r->h);
	rig_put_byte(r->f, 9 * VM_PAGE, 99);
	rig_invalidate(r->h, 9, 1);
	say(2);
	await(3);
	end(pid);
	finish(r);
}

static void both_see_a_new_size(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		await(1);
		int wrong = vm_fileh_size(r->h) != 10 * VM_PAGE || rig_touch(at(m, 10)) != SIGBUS;

		rig_resize(r->h, 20 * VM_PAGE);
		wrong |= rig_load8(at(m, 10)) != 0;
		rig_store8(at(m, 19), 7);
		say(2);
		until_stopped();
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	rig_store8(at(m, 30), 1);
	give(r);
	rig_resize(r->h, 10 * VM_PAGE);
	say(1);
	await(2);
	assert_int_equal(rig_load8(at(m, 19)), 7);
	(void)rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 20 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 19 * VM_PAGE), 7);
	assert_int_equal(rig_get_byte(r->f, 12 * VM_PAGE), 0);
	end(pid);
	finish(r);
}

static void a_newcomer_of_another_engine_loses_nothing(struct rig *r)
{
	if (!rig_is_uffd())
		skip();
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		vm_engine_ops = &vm_engine_segv;
		char *m = join(r);

		for (uint32_t i = 0; i < 20; i++) {
			await(2 * i);
			rig_store8(at(m, i), (char)(i + 1));
			say(2 * i + 1);
		}
		await(40);
		_exit(rig_load8(at(m, 50)) != 5 || rig_try_commit(r->h));
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	for (uint32_t i = 0; i < 20; i++) {
		await(2 * i + 1);
		assert_int_equal(rig_load8(at(m, i)), i + 1);
		(void)rig_commit(r->h);
		assert_int_equal(rig_get_byte(r->f, i * VM_PAGE), i + 1);
		if (i == 19)
			rig_store8(at(m, 50), 5);
		say(2 * i + 2);
	}
	end(pid);
	assert_int_equal(rig_get_byte(r->f, 50 * VM_PAGE), 5);
	finish(r);
}

/* ---- coming and going ---- */

static void what_a_killed_newcomer_stored_is_committed(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		rig_store8(at(m, 3), 77);
		(void)kill(getpid(), SIGKILL);
	}
	open_here(r);
	give(r);
	assert_int_equal(rig_reap(pid), -SIGKILL);
	(void)rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	finish(r);
}

static void a_newcomer_goes_on_when_the_owner_is_gone_and_closes_the_backend_as_the_last(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		char *m = join(r);

		say(1);
		await(2);
		int wrong = rig_load8(at(m, 3)) != 77;

		rig_store8(at(m, 4), 78);
		wrong |= rig_try_commit(r->h);
		wrong |= vm_unmap(m, NPAGES * VM_PAGE) || vm_fileh_close(r->h);
		_exit(wrong);
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	await(1);
	rig_store8(at(m, 3), 77);
	rig_unmap(m, NPAGES);
	assert_int_equal(rig_close(r->h), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_CLOSE), 0);
	assert_int_equal(rig_ncalls(r->f, RIG_DETACH), 1);
	say(2);
	end(pid);
	assert_int_equal(rig_ncalls(r->f, RIG_CLOSE), 1);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 77);
	assert_int_equal(rig_get_byte(r->f, 4 * VM_PAGE), 78);
	finish(r);
}

static void newcomers_come_and_go_while_the_owner_commits(struct rig *r)
{
	const unsigned n = rig_is_tsan() ? 3 : 30;
	pid_t pid[30];

	begin(r, NPAGES * VM_PAGE);
	for (unsigned i = 0; i < n; i++) {
		pid[i] = rig_fork();
		if (!pid[i]) {
			char *m = join(r);

			__atomic_add_fetch((uint64_t *)at(m, 8), 1, __ATOMIC_SEQ_CST);
			_exit(vm_unmap(m, NPAGES * VM_PAGE) || vm_fileh_close(r->h));
		}
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);
	uint64_t before = rig_load64(at(m, 8)), now;

	for (unsigned i = 0; i < n; i++) {
		give(r);
		(void)rig_commit(r->h);
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(rig_reap(pid[i]), 0);
	assert_int_equal(rig_load64(at(m, 8)), before + n);
	(void)rig_commit(r->h);
	rig_get(r->f, 8 * VM_PAGE, &now, 8);
	assert_int_equal(now, before + n);
	finish(r);
}

static void until_told(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	say(1);
	await(2);
}

static void a_newcomer_waits_for_who_is_busy_only_so_long(struct rig *r)
{
	begin(r, NPAGES * VM_PAGE);
	pid_t pid = rig_fork();

	if (!pid) {
		int fds[VM_SHARE_NFDS], err;

		receive_fds(line[1], fds);
		await(1);
		err = vm_fileh_attach(&r->f->file, NULL, fds, 300, &r->h);
		say(2);
		if (err == -EBUSY)
			err = attach(r, fds);
		_exit(err || vm_fileh_close(r->h));
	}
	open_here(r);
	char *m = rig_map(r->h, 0, NPAGES);

	give(r);
	rig_store8(at(m, 3), 77);
	rig_hook_at(r->f, RIG_COMMIT, until_told, NULL);
	(void)rig_commit(r->h);
	rig_hook_at(r->f, RIG_COMMIT, NULL, NULL);
	end(pid);
	finish(r);
}

/* ---- what is refused ---- */

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	for (int fd = 1 << 19; fd < (1 << 19) + 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void refused(struct rig *r, const int *fds, int err)
{
	struct vm_fileh *h = r->h;
	int before = count_fds();

	assert_int_equal(attach(r, fds), err);
	r->h = h;
	assert_int_equal(count_fds(), before);
	assert_false(vm_fileh_is_shared(h));
}

static void what_is_no_such_handle_is_refused(struct rig *r)
{
	struct vm_ctl *ctl;
	int fds[VM_SHARE_NFDS], other = memfd_create("other", MFD_CLOEXEC);

	begin(r, NPAGES * VM_PAGE);
	open_here(r);
	assert_int_equal(vm_fileh_share(r->h, fds), 0);
	ctl = r->h->ctl;

	refused(r, (int[]){other, fds[1]}, -EPROTO);
	assert_int_equal(ftruncate(other, VM_CTL_LEN), 0);
	refused(r, (int[]){other, fds[1]}, -EPROTO);
	refused(r, (int[]){-1, fds[1]}, -EBADF);
	refused(r, (int[]){fds[0], -1}, -EBADF);
	ctl->version++;
	refused(r, fds, -EPROTO);
	ctl->version--;
	ctl->len++;
	refused(r, fds, -EPROTO);
	ctl->len--;
	ctl->ino++;
	refused(r, fds, -ESTALE);
	ctl->ino--;
	ctl->ops[0]++;
	refused(r, fds, -EMEDIUMTYPE);
	ctl->ops[0]--;
	rig_fail(r->f, RIG_ATTACH, 1, EIO);
	refused(r, fds, -EIO);
	(void)close(other);
	finish(r);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_newcomer_sees_stores_that_nobody_committed_and_its_own_are_seen),
	RIG_BOTH(a_commit_of_a_newcomer_holds_what_the_owner_stored),
	RIG_BOTH(stores_of_two_processes_into_one_page_are_both_kept),
	RIG_BOTH(a_cut_is_one_instant_for_newcomers_too),
	RIG_BOTH(a_discard_and_an_invalidation_reach_a_newcomer),
	RIG_BOTH(both_see_a_new_size),
	RIG_BOTH(a_newcomer_of_another_engine_loses_nothing),
	RIG_BOTH(what_a_killed_newcomer_stored_is_committed),
	RIG_BOTH(a_newcomer_goes_on_when_the_owner_is_gone_and_closes_the_backend_as_the_last),
	RIG_BOTH(newcomers_come_and_go_while_the_owner_commits),
	RIG_BOTH(a_newcomer_waits_for_who_is_busy_only_so_long),
	RIG_EAGER(what_is_no_such_handle_is_refused),
};

RIG_MAIN(cases)
