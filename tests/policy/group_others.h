/* SPDX-License-Identifier: MIT */
/* Other processes, which have files of the same group and do what they are told. */
#ifndef GROUP_OTHERS_H
#define GROUP_OTHERS_H

#include "group_rig.h"
#include "dying.h"

#include <signal.h>

/* Another process, which does what it is told: a letter, then a byte. */
struct other {
	pid_t pid;
	int to, from;
};
static struct other one, two;

enum { LIVE = 'l', COMMIT = 'c', LAZY = 'z', BYTE = 'b', END = 'e', DIE = 'd', QUIT = 'q' };

/* What it answers is errno, or the byte that its files are. */
static inline uint8_t do_order(unsigned mask, uint8_t order, uint8_t arg)
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

static inline void be_other(unsigned mask, int from, int to)
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
static inline void start(struct other *o, unsigned mask)
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
static inline int tell(struct other *o, uint8_t order, uint8_t arg)
{
	uint8_t msg[2] = {order, arg}, answer;

	assert_int_equal(write(o->to, msg, 2), 2);
	return read(o->from, &answer, 1) == 1 ? answer : -1;
}

static inline void stop(struct other *o)
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

static inline int setup_two(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	be_quick();
	return setup(state);
}

static inline int teardown_two(void **state)
{
	stop(&one);
	stop(&two);
	return teardown(state);
}

#define TWO(fn) cmocka_unit_test_setup_teardown(fn, setup_two, teardown_two)

#endif
