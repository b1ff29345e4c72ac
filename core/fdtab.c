/* SPDX-License-Identifier: MIT */
/*
 * Our own descriptors: kept high and close-on-exec, and known, so that the program can neither close them
 * nor be surprised by them. Each has one home, the variable that holds its number; when the program wants
 * that very number, ours moves and the home is rewritten.
 */
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/mman.h>

#define MAX_OWN 65536u /* several per managed file */

static struct vm_lock lock = VM_LOCK_INIT(VM_RANK_FD);
static int **homes;	/* (lock) array of MAX_OWN, [0, nhomes) used */
static unsigned nhomes; /* (lock) */
static int lowest = INT32_MAX; /* no descriptor of ours was ever below (atomic) */

/* The place to look for free numbers: above what programs use, below their limit. */
static int floor_fd(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur > 1u << 20)
		return 1 << 19;
	return rl.rlim_cur > 64 ? (int)(rl.rlim_cur - rl.rlim_cur / 4) : (int)(rl.rlim_cur / 2);
}

static int move_high(int fd)
{
	int high = vm_sys->fcntl(fd, F_DUPFD_CLOEXEC, floor_fd());

	if (high == -EMFILE || high == -EINVAL)
		high = vm_sys->fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return high;
}

static void note_lowest(int fd)
{
	if (fd < lowest)
		__atomic_store_n(&lowest, fd, __ATOMIC_RELEASE);
}

static int **find_locked(int fd)
{
	for (unsigned i = 0; i < nhomes; i++)
		if (*homes[i] == fd)
			return &homes[i];
	return NULL;
}

int vm_fd_adopt(int *fd)
{
	int high = move_high(*fd), err = 0;

	(void)vm_sys->close(*fd); /* replaced by high, or given up */
	*fd = -1;
	if (high < 0)
		return high;
	vm_lock(&lock);
	if (!homes) {
		void *p = vm_sys->mmap(NULL, MAX_OWN * sizeof(*homes), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		err = vm_sys_err(p);
		if (!err)
			homes = p;
	}
	if (!err && nhomes == MAX_OWN)
		err = -EMFILE;
	if (!err) {
		*fd = high;
		homes[nhomes++] = fd;
		note_lowest(high);
	}
	vm_unlock(&lock);
	if (err)
		(void)vm_sys->close(high); /* the error to report is err */
	return err;
}

void vm_fd_drop(int *fd)
{
	vm_lock(&lock);
	if (*fd >= 0) {
		int **slot = find_locked(*fd);

		BUG_ON(!slot || *slot != fd);
		*slot = homes[--nhomes];
		(void)vm_sys->close(*fd); /* a close error says nothing that a sync did not say before */
		*fd = -1;
	}
	vm_unlock(&lock);
}

void vm_fd_swap(int *a, int *b)
{
	int t;

	vm_lock(&lock);
	t = *a;
	*a = *b;
	*b = t;
	vm_unlock(&lock);
}

bool vm_fd_is_ours(int fd)
{
	bool ours;

	if (fd < __atomic_load_n(&lowest, __ATOMIC_ACQUIRE))
		return false;
	vm_lock(&lock);
	ours = find_locked(fd);
	vm_unlock(&lock);
	return ours;
}

int vm_fd_move(int fd)
{
	int err = 0, high, **slot;

	vm_lock(&lock);
	slot = find_locked(fd);
	if (slot) {
		high = move_high(fd);
		if (high < 0) {
			err = high;
		} else {
			/* users read the home each time; a system call already inside keeps its file */
			**slot = high;
			note_lowest(high);
			(void)vm_sys->close(fd);
		}
	}
	vm_unlock(&lock);
	if (slot && !err)
		vm_fileh_fds_moved();
	return err;
}

void vm_fd_fork_child(void)
{
	vm_lock_reinit(&lock);
}
