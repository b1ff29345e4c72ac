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

/* One thread, and helpers. */
static bool is_one_left(void)
{
	struct stat st;

	/* a directory has a link for each subdirectory, and two: here one for each thread */
	return !vm_sys->fstatat(AT_FDCWD, "/proc/self/task", &st, 0) &&
	       st.st_nlink == 3 + __atomic_load_n(&nhelpers, __ATOMIC_SEQ_CST);
}

bool vm_thread_is_alone(void)
{
	return !is_helper && is_one_left(); /* a helper works while the program runs */
}

bool vm_thread_is_last(void)
{
	char text[64], *state = NULL;
	ssize_t n;
	int fd;

	if (!is_one_left())
		return false;
	/* "PID (NAME) STATE ...": of the main thread, which counts for as long as the process lives */
	fd = vm_sys->openat(AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	n = vm_sys->read(fd, text, sizeof(text));
	(void)vm_sys->close(fd); /* was only read */
	for (ssize_t i = 0; i + 2 < n; i++)
		if (text[i] == ')')
			state = &text[i + 2];
	return state && *state == 'Z';
}

void vm_thread_fork_child(void)
{
	nhelpers = 0;
	is_helper = 0;
}
