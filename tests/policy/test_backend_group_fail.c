/* SPDX-License-Identifier: MIT */
/* Files that commit together: what fails, who is refused, and why. */
#define _GNU_SOURCE 1
#include "group_rig.h"
#include "dying.h"

#include "log.h"

static int setup_quick(void **state)
{
	be_quick();
	return setup(state);
}

/* ---- calls that fail ---- */

/* One host call of a commit fails, each in its turn: all or nothing, and it works when tried again. */
static void a_commit_loses_nothing_when_a_call_fails(void **state)
{
	unsigned n = 0, nfailed = 0;
	uint8_t byte = '0';
	bool more;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	do {
		uint8_t before = byte;
		int err;

		byte = byte == '9' ? '0' : byte + 1;
		n++;
		faulty_arm(FAULTY_ALL, n, n % 2 ? EIO : ENOSPC, n % 3 ? FAULTY_TORN : 0);
		err = try_commit(7, byte, VM_COMMIT_DURABLE);
		more = n <= faulty_disarm();
		be_quick();
		assert_true(err <= 0);
		nfailed += err != 0;
		for (unsigned i = 0; i < NFILES; i++)
			assert_loads(i);
		commit(7, before);
		commit(7, byte);
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(byte_of(file[i].path), byte);
	} while (more);
	assert_true(nfailed > 2);
}

/* ... and as for a disk that is full for good, until it is not. */
static void a_full_disk_fails_the_commit_and_loses_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	faulty_arm(FAULTY_BIT(pwrite) | FAULTY_BIT(pwritev), 1, ENOSPC, FAULTY_FOR_EVER);
	assert_int_equal(try_commit(7, '2', VM_COMMIT_DURABLE), -ENOSPC);
	assert_int_equal(try_commit(5, '2', 0), -ENOSPC);
	(void)faulty_disarm();
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		assert_int_equal(byte_of(file[i].path), '1');
	}
	commit(7, '3');
	assert_int_equal(byte_of(file[1].path), '3');
}

/* The journal is on a full disk; from its beginning it has room. */
static void a_commit_that_has_no_room_at_the_end_is_written_at_the_beginning(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	faulty_arm(FAULTY_BIT(pwrite), 1, ENOSPC, 0);
	assert_int_equal(try_commit(7, '2', VM_COMMIT_DURABLE), 0);
	(void)faulty_disarm();
	be_quick();
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		assert_int_equal(byte_of(file[i].path), '2');
	}
	commit(5, '3');
	crash_all();
	assert_int_equal(byte_of(file[1].path), '2');
	assert_int_equal(byte_of(file[2].path), '3');
}

static void whatever_fails_when_it_comes_leaves_nothing(void **state)
{
	unsigned n = 0;
	int err, fds = open("/dev/null", O_RDONLY), after;

	(void)state;
	close(fds);
	do {
		/* but a lock that cannot be given up: that is none of the kernel's */
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(fcntl), ++n, EIO, 0);
		err = try_live(0);
		(void)faulty_disarm();
		be_quick();
		after = open("/dev/null", O_RDONLY);
		close(after);
		if (err)
			assert_int_equal(after, fds);
		go_live(1);
		if (err)
			go_live(0);
		commit(3, (uint8_t)('A' + n % 26));
		end(0);
		end(1);
		for (unsigned i = 0; i < NFILES; i++)
			assert_false(box_has(file[i].stub));
		assert_false(box_has(group_journal));
	} while (err || n < 60);
}

/* The end of use: what cannot be brought in place, or cannot be taken away, stays to be recovered. */
static void an_end_of_use_that_fails_is_recovered_from(void **state)
{
	struct pol_journal_report rep;
	unsigned n = 0;
	bool more;

	(void)state;
	do {
		for (unsigned i = 0; i < NFILES; i++)
			go_live(i);
		assert_true(try_commit(7, (uint8_t)('A' + n % 26), 0) >= 0);
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(fcntl), ++n, EIO, 0);
		for (unsigned i = 0; i < NFILES; i++) {
			(void)ops->close(&file[i].f);
			close(file[i].f.fd);
			memset(&file[i].f, 0, sizeof(file[i].f));
		}
		more = n <= faulty_disarm();
		be_quick();
		for (unsigned i = 0; i < NFILES; i++) {
			if (pol_journal_recover(file[i].path, NULL, NULL, NULL, &rep))
				fail_msg("%u: %s", n, rep.text);
			assert_int_equal(byte_of(file[i].path), file[i].now[0]);
			assert_false(box_has(file[i].stub));
		}
		if (box_has(group_journal))
			assert_int_equal(pol_journal_recover(group_journal, NULL, NULL, NULL, &rep), 0);
		(void)unlink(group_journal);
	} while (more);
	assert_true(n > 30);
}

/* ---- others ---- */

/* Runs fn in another process, which has nothing of ours. */
static int in_another(int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int live_until_told(int *ret_fd, int (*fn)(void))
{
	int in[2], out[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		close(in[1]);
		c = (char)fn();
		(void)!write(out[1], &c, 1);
		(void)!read(in[0], &c, 1);
		_exit(0);
	}
	close(in[0]);
	close(out[1]);
	assert_int_equal(read(out[0], &c, 1), 1);
	close(out[0]);
	assert_int_equal(c, 0);
	*ret_fd = in[1];
	return pid;
}

static void let_end(int pid, int fd)
{
	close(fd);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int live_in_other_group(void)
{
	(void)snprintf(group_journal, sizeof(group_journal), "%s/.other.txmap", box.dir);
	return try_live(0) ?: try_commit(1, '7', VM_COMMIT_DURABLE);
}

static int live_as_single(void)
{
	struct vm_bigfile *f = &file[0].f;

	*f = (struct vm_bigfile){.ops = &pol_backend_file,
				 .path = file[0].path,
				 .fd = open(file[0].path, O_RDWR),
				 .writable = 1,
				 .shared_len = VM_BACKEND_SHARED};
	f->shared = mmap(NULL, VM_BACKEND_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return pol_backend_file.open(f, NULL) ?: pol_backend_file.open_write(f);
}

static int live_here(void)
{
	return try_live(0) ?: try_commit(1, '7', VM_COMMIT_DURABLE);
}

/* What the log says while fn runs in another process. */
static bool log_says(int (*fn)(void), int expect, const char *a, const char *b)
{
	char text[4096] = "", path[400];
	size_t len;
	int got, fd;

	(void)snprintf(path, sizeof(path), "%s/log", box.dir);
	pol_log_open(POL_LOG_ERROR, path);
	got = -(int)(signed char)in_another(fn);
	pol_log_open(POL_LOG_OFF, NULL);
	fd = open(path, O_RDONLY);
	len = fd < 0 ? 0 : (size_t)read(fd, text, sizeof(text) - 1);
	text[len] = 0;
	close(fd);
	unlink(path);
	if (got == -expect && strstr(text, a) && strstr(text, b) && strchr(text, '\n') == text + len - 1)
		return true;
	print_error("%d, %s\n", got, text);
	return false;
}

static int live_here_errno(void)
{
	return try_live(0);
}

static int live_as_single_errno(void)
{
	return live_as_single();
}

static void a_file_is_in_one_group_at_a_time_and_the_refusal_names_both(void **state)
{
	int fd, pid = live_until_told(&fd, live_in_other_group);

	(void)state;
	assert_true(log_says(live_here_errno, -EBUSY, "/.other.txmap", "/.group.txmap"));
	assert_int_equal(byte_of(file[0].path), '7');
	let_end(pid, fd);
	/* it died: what it left is recovered by who opens the file, before it goes live */
	assert_true(log_says(live_here_errno, -EUCLEAN, "is a member's of another group", "a.dat"));
}

static void a_file_that_is_managed_without_a_group_is_refused_and_the_other_way_round(void **state)
{
	int fd, pid = live_until_told(&fd, live_as_single);

	(void)state;
	assert_true(log_says(live_here_errno, -EBUSY, "a.dat", "without a group"));
	let_end(pid, fd);
	pid = live_until_told(&fd, live_here);
	assert_true(log_says(live_as_single_errno, -EBUSY, "a.dat", "/.group.txmap"));
	let_end(pid, fd);
	/* it died, and the rule is another now */
	assert_true(log_says(live_as_single_errno, -EUCLEAN, "a.dat", "is a member of a group"));
}

static void a_journal_of_before_there_was_a_group_is_taken_over(void **state)
{
	int fd, pid = live_until_told(&fd, live_as_single);
	static uint8_t page[VM_BLKSIZE];

	(void)state;
	let_end(pid, fd);
	assert_int_equal(live_as_single(), 0);
	memset(page, 'q', sizeof(page));
	assert_int_equal(pol_backend_file.begin(&file[0].f), 0);
	for (unsigned pg = 0; pg < NPAGES; pg++)
		assert_int_equal(pol_backend_file.storeblk(&file[0].f, pg, 1, page, 0), 0);
	assert_int_equal(pol_backend_file.commit(&file[0].f, &(struct vm_txn){1, SIZE, SIZE}, 0), 0);
	vm_fd_drop(&pol_file_priv(&file[0].f)->j.fd); /* a crash */
	assert_int_equal(byte_of(file[0].path), 'a');
	go_live(0);
	assert_int_equal(byte_of(file[0].path), 'q');
	commit(1, '5');
}

/* Without a runtime directory it is one process's, with those that it forks. */
static void without_a_runtime_directory_others_are_refused(void **state)
{
	char away[400];
	int status, fd;
	pid_t pid;

	(void)state;
	(void)snprintf(away, sizeof(away), "%s.away", run_dir);
	assert_int_equal(rename(run_dir, away), 0);
	box_put(run_dir, "", 0); /* none can be made */
	for (unsigned i = 0; i < 2; i++)
		go_live(i);
	commit(3, '1');
	assert_int_equal(try_commit(3, '2', 0), 0);
	assert_int_equal(byte_of(file[0].path), '2'); /* nobody else could do it later */
	pid = fork();
	if (!pid)
		_exit(try_commit(2, '3', VM_COMMIT_DURABLE) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(byte_of(file[1].path), '3');
	commit(3, '4');
	for (unsigned i = 0; i < 2; i++)
		end(i);
	pid = live_until_told(&fd, live_here);
	assert_int_equal(try_live(2), -EBUSY);
	let_end(pid, fd);
	assert_int_equal(unlink(run_dir), 0);
	assert_int_equal(rename(away, run_dir), 0);
}

int main(void)
{
#define QUICK(fn) cmocka_unit_test_setup_teardown(fn, setup_quick, teardown)
	const struct CMUnitTest tests[] = {
		QUICK(a_commit_loses_nothing_when_a_call_fails),
		QUICK(a_full_disk_fails_the_commit_and_loses_nothing),
		QUICK(a_commit_that_has_no_room_at_the_end_is_written_at_the_beginning),
		QUICK(whatever_fails_when_it_comes_leaves_nothing),
		QUICK(an_end_of_use_that_fails_is_recovered_from),
		QUICK(a_file_is_in_one_group_at_a_time_and_the_refusal_names_both),
		QUICK(a_file_that_is_managed_without_a_group_is_refused_and_the_other_way_round),
		QUICK(a_journal_of_before_there_was_a_group_is_taken_over),
		QUICK(without_a_runtime_directory_others_are_refused),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
