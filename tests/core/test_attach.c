/* SPDX-License-Identifier: MIT */
/* Newcomers come and go; they wait for who is busy, and are refused what is no handle of theirs. */
#include "attach_rig.h"

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
	ctl->size_low = ctl->size + 1;
	refused(r, fds, -EPROTO);
	ctl->size_low = ctl->size;
	ctl->size_committed = ctl->size = UINT64_MAX;
	refused(r, fds, -EPROTO);
	ctl->size_committed = ctl->size = ctl->size_low;
	ctl->npages[VM_DIRTY] = UINT64_MAX;
	refused(r, fds, -EPROTO);
	ctl->npages[VM_DIRTY] = 0;
	ctl->lock.rank = VM_RANK_LIMIT; /* one that the lock itself takes */
	refused(r, fds, -EPROTO);
	ctl->lock.rank = VM_RANK_FILEH;
	ctl->lock.is_shared = false;
	refused(r, fds, -EPROTO);
	ctl->lock.is_shared = true;
	ctl->ops[0]++;
	refused(r, fds, -EMEDIUMTYPE);
	ctl->ops[0]--;
	rig_fail(r->f, RIG_ATTACH, 1, EIO);
	refused(r, fds, -EIO);
	(void)close(other);
	finish(r);
}

/* A copy of the control block that whoever gave it can cut, or whose lock nobody gives back. */
static void what_can_be_taken_from_under_us_or_never_be_locked_is_refused(struct rig *r)
{
	struct vm_ctl *copy;
	int fds[VM_SHARE_NFDS], forged = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	begin(r, NPAGES * VM_PAGE);
	open_here(r);
	assert_int_equal(vm_fileh_share(r->h, fds), 0);
	assert_int_equal(ftruncate(forged, VM_CTL_LEN), 0);
	copy = mmap(NULL, VM_CTL_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, forged, 0);
	/* by the kernel: who answers others has the lock now and then */
	assert_int_equal(pread(fds[0], copy, sizeof(*copy), 0), sizeof(*copy));
	refused(r, (int[]){forged, fds[1]}, -EPROTO);
	refused(r, (int[]){fds[0], line[0]}, -EPROTO); /* a socket */
	assert_int_equal(fcntl(forged, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	copy->lock.robust.word = 1; /* init has it */
	attach_msec = 100;
	refused(r, (int[]){forged, fds[1]}, -EBUSY);
	copy->lock.robust.word = 0;
	copy->busy_pid = INT32_MAX;
	refused(r, (int[]){forged, fds[1]}, -EBUSY);
	attach_msec = WAIT_MSEC;
	munmap(copy, VM_CTL_LEN);
	/* and the real one cannot be cut */
	assert_int_equal(ftruncate(fds[0], 4096), -1);
	assert_int_equal(errno, EPERM);
	(void)close(forged);
	finish(r);
}

/* Who may not look at another user's descriptors goes by when that process was started. */
static void a_number_that_is_another_users_process_now_is_nobody(struct rig *r)
{
	uid_t was = geteuid();
	struct vm_peer *p;

	rig_open(r, NPAGES * VM_PAGE);
	p = &r->h->ctl->peers[5];
	assert_true(was || !seteuid(65534));
	*p = (struct vm_peer){.pid = 1, .ctl_fd = 3, .started = vm_process_started(1)};
	assert_true(p->started > 0 || vm_process_started(0) > 0);
	assert_true(vm_fileh_is_shared(r->h));
	*p = (struct vm_peer){.pid = 1, .ctl_fd = 3, .started = vm_process_started(1) + 1, .may_store = 1};
	assert_false(vm_fileh_is_shared(r->h));
	assert_int_equal(p->pid, 0);
	assert_true(r->h->ctl->suspect); /* what it stored is looked for */
	assert_int_equal(seteuid(was), 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(what_a_killed_newcomer_stored_is_committed),
	RIG_BOTH(a_newcomer_goes_on_when_the_owner_is_gone_and_closes_the_backend_as_the_last),
	RIG_BOTH(newcomers_come_and_go_while_the_owner_commits),
	RIG_BOTH(a_newcomer_waits_for_who_is_busy_only_so_long),
	RIG_EAGER(a_number_that_is_another_users_process_now_is_nobody),
	RIG_EAGER(what_is_no_such_handle_is_refused),
	RIG_EAGER(what_can_be_taken_from_under_us_or_never_be_locked_is_refused),
};

RIG_MAIN(cases)
