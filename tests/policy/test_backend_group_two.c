/* SPDX-License-Identifier: MIT */
/* Processes that have different files of one group, and one of them is killed. */
#define _GNU_SOURCE 1
#include "group_rig.h"
#include "dying.h"

#include <pthread.h>
#include <signal.h>

/* Another process, which does what it is told: a letter, then a byte. */
struct other {
	pid_t pid;
	int to, from;
};
static struct other one, two;

enum { LIVE = 'l', COMMIT = 'c', LAZY = 'z', BYTE = 'b', END = 'e', DIE = 'd', QUIT = 'q' };

/* What it answers is errno, or the byte that its files are. */
static uint8_t do_order(unsigned mask, uint8_t order, uint8_t arg)
{
	static uint8_t buf[SIZE];
	int err = 0;

	for (unsigned i = 0; i < NFILES; i++) {
		if (!(mask & 1u << i))
			continue;
		if (order == LIVE)
			err = try_live(i) ?: err;
		else if (order == END)
			err = ops->close(&file[i].f) ?: err;
		else if (order == BYTE)
			err = ops->loadblk(&file[i].f, 0, NPAGES, buf) ?: -buf[SIZE / 2];
	}
	if (order == COMMIT || order == LAZY)
		err = try_commit(mask, arg, order == COMMIT ? VM_COMMIT_DURABLE : 0);
	else if (order == DIE)
		die_at(arg);
	return (uint8_t)(err < 0 ? -err : err);
}

static void be_other(unsigned mask, int from, int to)
{
	uint8_t in[2], out;

	while (read(from, in, 2) == 2 && in[0] != QUIT) {
		out = do_order(mask, in[0], in[1]);
		if (write(to, &out, 1) != 1)
			break;
	}
	_exit(0);
}

/* Comes of a process that has nothing of the group: no relative. */
static void start(struct other *o, unsigned mask)
{
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	o->pid = fork();
	assert_true(o->pid >= 0);
	if (!o->pid) {
		close(in[1]);
		close(out[0]);
		be_other(mask, in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	o->to = in[1];
	o->from = out[0];
}

/* -1: it is dead. */
static int tell(struct other *o, uint8_t order, uint8_t arg)
{
	uint8_t msg[2] = {order, arg}, answer;

	assert_int_equal(write(o->to, msg, 2), 2);
	return read(o->from, &answer, 1) == 1 ? answer : -1;
}

static void stop(struct other *o)
{
	uint8_t quit[2] = {QUIT, 0};

	if (!o->pid)
		return;
	(void)!write(o->to, quit, 2);
	close(o->to);
	close(o->from);
	assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
	o->pid = 0;
}

static int setup_two(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	be_quick();
	return setup(state);
}

static int teardown_two(void **state)
{
	stop(&one);
	stop(&two);
	return teardown(state);
}

static void two_processes_with_files_of_a_group_commit_in_turn(void **state)
{
	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0), 0);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	for (uint8_t byte = '1'; byte <= '9'; byte++) {
		assert_int_equal(tell(&one, COMMIT, byte), 0);
		assert_int_equal(tell(&two, COMMIT, (uint8_t)(byte + 20)), 0);
		assert_int_equal(byte_of(file[0].path), byte);
		assert_int_equal(byte_of(file[2].path), byte + 20);
	}
	assert_int_equal(nentries(run_dir), 1);
	assert_int_equal(tell(&one, END, 0), 0);
	assert_int_equal(tell(&two, COMMIT, 'x'), 0);
	assert_int_equal(byte_of(file[2].path), 'x');
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* One is killed at each call of a commit; what the other commits is there, and then one's is whole, or none. */
static void a_process_is_killed_in_its_commit_and_the_other_goes_on(void **state)
{
	unsigned nbefore = 0, nin_place = 0;
	uint8_t n = 0;
	int answer;

	(void)state;
	start(&two, 4);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	do {
		uint8_t byte, at_once;

		start(&one, 3);
		assert_int_equal(tell(&one, LIVE, 0), 0);
		assert_true(tell(&one, COMMIT, '1') <= 1); /* 1: they were so */
		(void)tell(&one, DIE, ++n);
		answer = tell(&one, COMMIT, '2');
		stop(&one);
		at_once = byte_of(file[1].path);
		assert_int_equal(tell(&two, COMMIT, n), 0);
		assert_int_equal(byte_of(file[2].path), n);
		byte = byte_of(file[0].path);
		assert_true(byte == '1' || byte == '2');
		assert_int_equal(byte_of(file[1].path), byte);
		nbefore += byte == '1';
		nin_place += at_once != '2' && byte == '2';
	} while (answer < 0);
	assert_true(nbefore > 1 && nin_place > 3);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* The same, and then all are gone: recovery makes the same of it. */
static void what_the_killed_one_committed_is_recovered_when_all_are_dead(void **state)
{
	struct pol_journal_report rep;
	uint8_t n = 0;
	int answer;

	(void)state;
	do {
		uint8_t byte;

		start(&one, 3);
		start(&two, 4);
		assert_int_equal(tell(&two, LIVE, 0) | tell(&one, LIVE, 0), 0);
		make_file(2);
		assert_true(tell(&one, COMMIT, '1') <= 1);
		assert_int_equal(tell(&two, LAZY, '7'), 0);
		(void)tell(&one, DIE, ++n);
		answer = tell(&one, COMMIT, '2');
		stop(&two);
		stop(&one);
		assert_int_equal(pol_journal_check(file[2].path, NULL, &rep), 0);
		assert_int_equal(rep.state, POL_JOURNAL_REPLAY);
		assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), 0);
		byte = byte_of(file[0].path);
		assert_true(byte == '1' || byte == '2');
		assert_int_equal(byte_of(file[1].path), byte);
		assert_int_equal(byte_of(file[2].path), '7');
		for (unsigned i = 0; i < NFILES; i++)
			assert_false(box_has(file[i].stub));
		assert_false(box_has(group_journal));
	} while (answer < 0);
	assert_true(n > 5);
}

/* Nobody has told the other one; its next commit syncs, and brings in place, what the first one left in the
 * journal; which is no stranger's change. */
static void a_lazy_commit_of_another_process_is_brought_in_place_by_name(void **state)
{
	(void)state;
	start(&two, 4);
	go_live(0);
	go_live(1);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(ops->changed(&file[0].f, 0), 0);
	assert_int_equal(ops->changed(&file[1].f, 0), 0);
	assert_loads(0);
	commit(3, '8');
	assert_loads(1);
}

/* The file cannot be found by name, but who has it lives: the other leaves it to that one. */
static void what_only_the_other_process_can_reach_is_left_to_it(void **state)
{
	char away[400];

	(void)state;
	start(&two, 4);
	go_live(0);
	go_live(1);
	assert_int_equal(tell(&two, LIVE, 0), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[0].path, away), 0);
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(byte_of(away), 'a');
	assert_int_equal(tell(&two, BYTE, 0), '6');
	assert_loads(0);
	commit(3, '7');
	assert_int_equal(byte_of(away), '7');
	assert_int_equal(byte_of(file[2].path), '6');
	assert_int_equal(rename(away, file[0].path), 0);
}

/* ... or is dead: then the journal stays, with all in it, until it can be recovered. */
static void what_nobody_can_reach_keeps_the_journal(void **state)
{
	struct pol_journal_report rep;
	char away[400];

	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0) | tell(&two, LIVE, 0), 0);
	assert_int_equal(tell(&one, LAZY, '5'), 0);
	stop(&one);
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[0].path, away), 0);
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(tell(&two, COMMIT, '7'), 0);
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_int_equal(tell(&two, END, 0), 0);
	assert_true(box_has(group_journal));
	assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), -EUCLEAN);
	assert_non_null(strstr(rep.text, "a.dat: is missing"));
	assert_int_equal(rename(away, file[0].path), 0);
	assert_int_equal(pol_journal_recover(file[2].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_clean();
}

/* It was not brought in place while it could not be reached: then the journal must not start over later, either. */
static void a_file_that_comes_back_too_late_gets_its_commits_by_recovery(void **state)
{
	struct pol_journal_report rep;
	char away[400];

	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0) | tell(&two, LIVE, 0), 0);
	assert_int_equal(tell(&one, LAZY, '5'), 0);
	stop(&one);
	(void)snprintf(away, sizeof(away), "%s/away", box.dir);
	assert_int_equal(rename(file[0].path, away), 0);
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	assert_int_equal(rename(away, file[0].path), 0);
	assert_int_equal(try_live(0), -EUCLEAN); /* its content is not what was committed */
	assert_int_equal(tell(&two, COMMIT, '7'), 0);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(pol_journal_recover(file[0].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_int_equal(byte_of(file[2].path), '7');
	assert_clean();
}

static int sync_and_die(int fd)
{
	(void)fd;
	_exit(7);
}

/* It was on the disk, and nobody saw it. */
static void what_a_killed_child_did_not_finish_does_not_come_back(void **state)
{
	struct pol_journal_report rep;
	int status;
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	pid = fork();
	if (!pid) {
		quick.fdatasync = sync_and_die;
		(void)try_commit(7, '2', VM_COMMIT_DURABLE);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_int_equal(ops->mend(&file[2].f), 0);
	assert_loads(0);
	crash_all();
	assert_int_equal(pol_journal_recover(file[1].path, NULL, NULL, NULL, &rep), 0);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(byte_of(file[i].path), '1');
}

/* Of a file whose process was killed, while others of the group live. */
static void who_opens_a_file_sees_what_a_killed_process_committed(void **state)
{
	struct pol_journal_report rep;

	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0) | tell(&two, LIVE, 0), 0);
	assert_int_equal(tell(&one, LAZY, '5'), 0);
	stop(&one);
	assert_int_equal(byte_of(file[0].path), 'a');
	go_live(0);
	memset(file[0].now, '5', SIZE);
	assert_loads(0);
	assert_int_equal(byte_of(file[0].path), '5');
	assert_true(box_has(file[1].stub));
	assert_int_equal(pol_journal_recover(file[1].path, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_CLEAN);
	assert_false(box_has(file[1].stub));
	assert_int_equal(byte_of(file[1].path), '5');
	assert_int_equal(tell(&two, COMMIT, '6'), 0);
	commit(1, '7');
	assert_int_equal(byte_of(file[0].path), '7');
	end(0);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* And who only reads. */
static void a_reader_sees_what_a_killed_process_committed(void **state)
{
	static uint8_t shared[VM_BACKEND_SHARED], buf[SIZE];
	struct vm_bigfile f = {
		.ops = ops, .path = file[0].path, .shared = shared, .shared_len = sizeof(shared)};

	(void)state;
	start(&one, 3);
	start(&two, 4);
	assert_int_equal(tell(&one, LIVE, 0) | tell(&two, LIVE, 0), 0);
	assert_int_equal(tell(&one, LAZY, '5'), 0);
	stop(&one);
	f.fd = open(file[0].path, O_RDONLY);
	assert_int_equal(ops->open(&f, group_journal), 0);
	assert_int_equal(ops->open_write(&f), -EBADF);
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[99], '5');
	assert_int_equal(ops->close(&f), 0);
	close(f.fd);
	assert_int_equal(tell(&two, END, 0), 0);
	assert_clean();
}

/* One process writes, another only reads, and both have one overlay: what is not in the file yet is in the group's
 * journal; and when the writer was killed, in the file. */
static void a_reader_beside_a_writer_looks_into_the_groups_journal(void **state)
{
	static uint8_t buf[SIZE];
	struct vm_bigfile f;
	uint64_t size;

	(void)state;
	go_live(0);
	go_live(1);
	f = (struct vm_bigfile){.ops = ops,
				.path = file[0].path,
				.fd = open(file[0].path, O_RDONLY),
				.shared = file[0].f.shared,
				.shared_len = VM_BACKEND_SHARED,
				.dev = file[0].f.dev,
				.ino = file[0].f.ino};
	assert_int_equal(ops->attach(&f, group_journal), 0);
	assert_int_equal(try_commit(3, '5', 0), 0);
	assert_int_equal(byte_of(file[0].path), 'a');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, file[0].now, SIZE);
	assert_int_equal(ops->getsize(&f, &size), 0);
	assert_int_equal(size, SIZE);
	assert_int_equal(ops->changed(&f, 0), 0);
	commit(3, '6');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_memory_equal(buf, file[0].now, SIZE);
	assert_int_equal(try_commit(3, '7', 0), 0);
	f.shared = memcpy(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
			  f.shared, 1024);
	pol_file_priv(&f)->shared = f.shared;
	crash_all();
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[5], '7');
	go_live(2); /* recovers */
	assert_int_equal(byte_of(file[0].path), '7');
	assert_int_equal(ops->loadblk(&f, 0, NPAGES, buf), 0);
	assert_int_equal(buf[5], '7');
	ops->detach(&f);
	close(f.fd);
}

enum { NROUNDS = 300 };

/* One file at all that can be done with it, while another thread commits the others. */
static void *use_the_third(void *arg)
{
	uint8_t buf[VM_BLKSIZE];
	uint64_t size;
	long nbad = 0;

	(void)arg;
	for (unsigned n = 0; n < NROUNDS; n++) {
		uint8_t byte = (uint8_t)('A' + n % 26);

		nbad += try_commit(4, byte, n % 2 ? VM_COMMIT_DURABLE : 0) != 0;
		nbad += ops->loadblk(&file[2].f, n % NPAGES, 1, buf) || buf[n] != byte;
		nbad += ops->changed(&file[2].f, 0) != 0;
		nbad += ops->getsize(&file[2].f, &size) || size != SIZE;
		if (n % 5 == 0)
			nbad += ops->checkpoint(&file[2].f) != 0;
		if (n % 17 == 0)
			nbad += ops->idle(&file[2].f) != 0;
	}
	return (void *)nbad;
}

static void threads_of_a_process_use_different_files_of_a_group(void **state)
{
	pthread_t thread;
	void *nbad;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	assert_int_equal(pthread_create(&thread, NULL, use_the_third, NULL), 0);
	for (unsigned n = 0; n < NROUNDS; n++) {
		assert_int_equal(try_commit(3, (uint8_t)('a' + n % 26), n % 3 ? VM_COMMIT_DURABLE : 0), 0);
		assert_loads(n % 2);
	}
	assert_int_equal(pthread_join(thread, &nbad), 0);
	assert_null(nbad);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_loads(i);
		end(i);
		assert_int_equal(byte_of(file[i].path), file[i].now[0]);
	}
	assert_clean();
}

static void a_forked_child_commits_another_subset(void **state)
{
	uint8_t byte = 0;
	int status;
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < NFILES; i++)
		go_live(i);
	commit(7, '1');
	do {
		byte++;
		pid = fork();
		if (!pid) {
			die_at(byte);
			if (try_commit(5, 'c', VM_COMMIT_DURABLE))
				_exit(1);
			for (unsigned i = 0; i < NFILES; i++)
				ops->detach(&file[i].f);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
		for (unsigned i = 0; i < NFILES; i++)
			assert_int_equal(ops->mend(&file[i].f), 0);
		commit(2, byte);
		assert_int_equal(byte_of(file[1].path), byte);
		status = WEXITSTATUS(status);
		assert_int_equal(byte_of(file[0].path), byte_of(file[2].path));
		assert_true(byte_of(file[0].path) == 'c' || byte_of(file[0].path) == (byte == 1 ? '1' : 'p'));
		commit(5, 'p');
	} while (status == 9);
	assert_true(byte > 5);
	for (unsigned i = 0; i < NFILES; i++)
		end(i);
	assert_clean();
}

int main(void)
{
#define TWO(fn) cmocka_unit_test_setup_teardown(fn, setup_two, teardown_two)
	const struct CMUnitTest tests[] = {
		TWO(two_processes_with_files_of_a_group_commit_in_turn),
		TWO(a_process_is_killed_in_its_commit_and_the_other_goes_on),
		TWO(what_the_killed_one_committed_is_recovered_when_all_are_dead),
		TWO(a_lazy_commit_of_another_process_is_brought_in_place_by_name),
		TWO(what_only_the_other_process_can_reach_is_left_to_it),
		TWO(what_nobody_can_reach_keeps_the_journal),
		TWO(a_file_that_comes_back_too_late_gets_its_commits_by_recovery),
		TWO(what_a_killed_child_did_not_finish_does_not_come_back),
		TWO(who_opens_a_file_sees_what_a_killed_process_committed),
		TWO(a_reader_sees_what_a_killed_process_committed),
		TWO(a_reader_beside_a_writer_looks_into_the_groups_journal),
		TWO(threads_of_a_process_use_different_files_of_a_group),
		TWO(a_forked_child_commits_another_subset),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
