/* SPDX-License-Identifier: MIT */
/* What the processes of a test tell each other, in memory of no handle. */
#ifndef BOARD_H
#define BOARD_H

#include "rig.h"
#include <sched.h>

static struct {
	uint32_t step; /* (atomic, futex) */
	uint32_t stop; /* (atomic) */
} *board;

/* Before anybody is forked. */
static inline void clear_board(void)
{
	if (!board) {
		board = mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(board, MAP_FAILED);
	}
	memset(board, 0, sizeof(*board));
}

static inline void say(uint32_t step)
{
	__atomic_store_n(&board->step, step, __ATOMIC_SEQ_CST);
}

static inline void await(uint32_t step)
{
	while (__atomic_load_n(&board->step, __ATOMIC_SEQ_CST) < step)
		(void)sched_yield();
}

static inline bool is_stopped(void)
{
	return __atomic_load_n(&board->stop, __ATOMIC_SEQ_CST);
}

static inline void until_stopped(void)
{
	while (!is_stopped())
		(void)sched_yield();
}

static inline void end(pid_t pid)
{
	__atomic_store_n(&board->stop, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(rig_reap(pid), 0);
}

#endif
