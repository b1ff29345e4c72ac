/* SPDX-License-Identifier: MIT */
/* How many threads could be storing: those of the process, less the helpers that never do. */
#include "internal.h"
#include <fcntl.h>
#include <sys/stat.h>

static uint32_t nhelpers;	   /* (atomic) */
static __thread uint8_t is_helper;

void vm_thread_begin(void)
{
	is_helper = 1;
	__atomic_add_fetch(&nhelpers, 1, __ATOMIC_SEQ_CST);
}

bool vm_thread_is_alone(void)
{
	struct stat st;

	/* a helper works while the program runs */
	if (is_helper || vm_sys->fstatat(AT_FDCWD, "/proc/self/task", &st, 0))
		return false;
	/* a directory has a link for each subdirectory, and two: here one for each thread */
	return st.st_nlink == 3 + __atomic_load_n(&nhelpers, __ATOMIC_SEQ_CST);
}

void vm_thread_fork_child(void)
{
	nhelpers = 0;
	is_helper = 0;
}
