/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <sys/mman.h>
#include <sys/resource.h>

static int plain(void)
{
	int fd = open("/dev/null", O_RDONLY);

	assert_true(fd >= 0);
	return fd;
}

static void what_is_adopted_is_high_and_close_on_exec(struct rig *r)
{
	int fd = plain(), was = fd;

	(void)r;
	assert_int_equal(vm_fd_adopt(&fd), 0);
	assert_true(fd > 100);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fcntl(was, F_GETFD), -1);
	assert_true(vm_fd_is_ours(fd));
	assert_false(vm_fd_is_ours(was));
	assert_false(vm_fd_is_ours(-1));
	was = fd;
	vm_fd_drop(&fd);
	assert_int_equal(fd, -1);
	assert_false(vm_fd_is_ours(was));
	assert_int_equal(fcntl(was, F_GETFD), -1);
	vm_fd_drop(&fd); /* nothing to do */
}

static void what_the_program_wants_moves_away_and_works_on(struct rig *r)
{
	struct vm_ram ram;
	char buf[4] = "abc";
	int was;

	(void)r;
	assert_int_equal(vm_ram_open(&ram, VM_PAGE), 0);
	was = ram.fd;
	assert_int_equal(vm_fd_move(was), 0);
	assert_int_not_equal(ram.fd, was);
	assert_int_equal(fcntl(was, F_GETFD), -1);
	assert_true(fcntl(ram.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(vm_fd_is_ours(ram.fd));
	assert_int_equal(pwrite(ram.fd, buf, 4, 0), 4);
	assert_int_equal(vm_fd_move(was), 0); /* not ours any more: nothing to do */
	vm_ram_close(&ram);
}

static void two_homes_can_exchange_their_numbers(struct rig *r)
{
	int a = plain(), b = plain(), num_a, num_b;

	(void)r;
	assert_int_equal(vm_fd_adopt(&a), 0);
	assert_int_equal(vm_fd_adopt(&b), 0);
	num_a = a;
	num_b = b;
	vm_fd_swap(&a, &b);
	assert_int_equal(a, num_b);
	assert_int_equal(b, num_a);
	vm_fd_drop(&a);
	assert_int_equal(fcntl(num_b, F_GETFD), -1);
	assert_true(fcntl(num_a, F_GETFD) >= 0);
	vm_fd_drop(&b);
}

static void a_handle_goes_on_when_its_descriptors_move(struct rig *r)
{
	char *m;

	rig_open(r, 64 * VM_PAGE);
	m = rig_map(r->h, 0, 64);
	rig_store8(m, 'a');
	assert_int_equal(vm_fd_move(r->h->ram.fd), 0);
	assert_int_equal(vm_fd_move(r->h->ctl_fd), 0);
	vm_check();
	rig_store8(m + 40 * VM_PAGE, 'b');
	assert_int_equal(rig_commit(r->h), 2);
	assert_int_equal(vm_fileh_peer(r->h)->ctl_fd, r->h->ctl_fd);
}

static void a_limit_that_leaves_no_high_numbers_is_lived_with(struct rig *r)
{
	struct rlimit rl = {24, 24}, old;
	pid_t pid;

	(void)r;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	pid = fork();
	if (!pid) {
		int fd = open("/dev/null", O_RDONLY), low = fd, err;

		(void)setrlimit(RLIMIT_NOFILE, &rl);
		err = vm_fd_adopt(&fd);
		_exit(!err && fd >= low && fcntl(fd, F_GETFD) & FD_CLOEXEC && vm_fd_is_ours(fd) ? 0 : 1);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void a_program_that_has_no_numbers_left_keeps_those_it_has_and_its_limit(struct rig *r)
{
	pid_t pid = fork();

	(void)r;
	if (pid == 0) {
		struct rlimit rl, now;
		int fd, last = 0, next;

		if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_max < 128)
			_exit(0);
		rl.rlim_cur = 64;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
		while ((next = dup(0)) >= 0)
			last = next;
		fd = vm_sys->memfd_create("full", MFD_CLOEXEC);
		if (fd < 64 || vm_fd_adopt(&fd) || fd < 64 || !vm_fd_is_ours(fd) || dup(0) >= 0)
			_exit(1);
		(void)getrlimit(RLIMIT_NOFILE, &now);
		(void)close(last);
		_exit(now.rlim_cur == rl.rlim_cur && now.rlim_max == rl.rlim_max && dup(0) == last ? 0 : 2);
	}
	assert_int_equal(rig_reap(pid), 0);
}

static void what_cannot_be_adopted_is_closed_and_reported(struct rig *r)
{
	int fd = plain(), was = fd;

	(void)r;
	faulty_arm(FAULTY_BIT(fcntl), 1, EMFILE, FAULTY_FOR_EVER);
	assert_int_equal(vm_fd_adopt(&fd), -EMFILE);
	(void)faulty_disarm();
	assert_int_equal(fd, -1);
	assert_int_equal(fcntl(was, F_GETFD), -1);
}

static void what_cannot_move_stays_and_works(struct rig *r)
{
	int fd = plain(), was;

	(void)r;
	assert_int_equal(vm_fd_adopt(&fd), 0);
	was = fd;
	faulty_arm(FAULTY_BIT(fcntl), 1, EMFILE, FAULTY_FOR_EVER);
	assert_int_equal(vm_fd_move(fd), -EMFILE);
	(void)faulty_disarm();
	assert_int_equal(fd, was);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	vm_fd_drop(&fd);
}

static const struct rig_case cases[] = {
	RIG_EAGER(what_is_adopted_is_high_and_close_on_exec),
	RIG_EAGER(what_the_program_wants_moves_away_and_works_on),
	RIG_EAGER(two_homes_can_exchange_their_numbers),
	RIG_BOTH(a_handle_goes_on_when_its_descriptors_move),
	RIG_EAGER(a_limit_that_leaves_no_high_numbers_is_lived_with),
	RIG_EAGER(a_program_that_has_no_numbers_left_keeps_those_it_has_and_its_limit),
	RIG_EAGER(what_cannot_be_adopted_is_closed_and_reported),
	RIG_EAGER(what_cannot_move_stays_and_works),
};
RIG_MAIN(cases)
