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

#define MAX_OWN 65536u	  /* several per managed file */
#define MAX_FD	(1 << 20) /* no descriptor of ours has a higher number */
#define FEW	256u	  /* a limit that leaves none to spare for us */

struct own {
	int fd;
	int *home; /* followed only to rewrite it: in a forked child it can lie on the stack of a thread that
		      is gone */
};

static struct vm_lock lock = VM_LOCK_INIT(VM_RANK_FD);
static struct own *own;		     /* (lock) array of MAX_OWN, [0, nown) used */
static unsigned nown;		     /* (lock) */
static uint64_t is_own[MAX_FD / 64]; /* bit per number (lock; read without, in signal handlers, too) */

/* The place to look for free numbers: above what programs use, below their limit, or beyond it where that is
 * low (fdlimit.c). */
static int floor_fd(void)
{
	struct rlimit rl;

	if (vm_sys->getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur >= MAX_FD)
		return MAX_FD / 2;
	return (int)(rl.rlim_cur <= FEW ? rl.rlim_cur : rl.rlim_cur - rl.rlim_cur / 4);
}

static int copy_high(int fd)
{
	int high = vm_sys->fcntl(fd, F_DUPFD_CLOEXEC, floor_fd());

	if (high == -EMFILE || high == -EINVAL)
		high = vm_sys->fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (high < MAX_FD)
		return high;
	(void)vm_sys->close(high);
	return -EMFILE;
}

/* Lock held. */
static void set_own(int fd, bool own_now)
{
	uint64_t bit = 1ull << (fd % 64);

	if (own_now)
		__atomic_fetch_or(&is_own[fd / 64], bit, __ATOMIC_RELEASE);
	else
		__atomic_fetch_and(&is_own[fd / 64], ~bit, __ATOMIC_RELEASE);
}

static struct own *find_locked(int fd)
{
	for (unsigned i = 0; i < nown; i++)
		if (own[i].fd == fd)
			return &own[i];
	return NULL;
}

/* fd is ours from now on and lives at home. */
static int add(int fd, int *home)
{
	int err = 0;

	vm_lock(&lock);
	if (!own) {
		void *p = vm_own_map(MAX_OWN * sizeof(*own), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		err = vm_sys_err(p);
		if (!err)
			own = p;
	}
	if (!err && (nown == MAX_OWN || fd >= MAX_FD))
		err = -EMFILE;
	if (!err) {
		own[nown++] = (struct own){fd, home};
		*home = fd;
		set_own(fd, true);
	}
	vm_unlock(&lock);
	return err;
}

int vm_fd_adopt_copy(int fd, int *home)
{
	int high = copy_high(fd), err;

	*home = -1;
	if (high < 0)
		return high;
	err = add(high, home);
	if (err)
		(void)vm_sys->close(high); /* the error to report is err */
	return err;
}

int vm_fd_adopt_in_place(int *fd)
{
	return add(*fd, fd);
}

int vm_fd_adopt(int *fd)
{
	int low = *fd, err = vm_fd_adopt_copy(low, fd);

	(void)vm_sys->close(low); /* replaced by its copy, or given up */
	return err;
}

void vm_fd_drop(int *fd)
{
	vm_lock(&lock);
	if (*fd >= 0) {
		struct own *o = find_locked(*fd);

		BUG_ON(!o || o->home != fd);
		*o = own[--nown];
		set_own(*fd, false);
		(void)vm_sys->close(*fd); /* a close error says nothing that a sync did not say before */
		*fd = -1;
	}
	vm_unlock(&lock);
}

void vm_fd_swap(int *a, int *b)
{
	struct own *oa, *ob;
	int t;

	vm_lock(&lock);
	oa = *a >= 0 ? find_locked(*a) : NULL;
	ob = *b >= 0 ? find_locked(*b) : NULL;
	if (oa)
		oa->home = b;
	if (ob)
		ob->home = a;
	t = *a;
	*a = *b;
	*b = t;
	vm_unlock(&lock);
}

bool vm_fd_is_ours(int fd)
{
	return (unsigned)fd < MAX_FD && __atomic_load_n(&is_own[fd / 64], __ATOMIC_ACQUIRE) >> (fd % 64) & 1;
}

static int move_locked(int fd)
{
	struct own *o = find_locked(fd);
	int high;

	if (!o)
		return 0;
	high = copy_high(fd);
	if (high < 0)
		return high;
	/* users read the home each time; a system call already inside keeps its file */
	set_own(high, true);
	o->fd = *o->home = high;
	set_own(fd, false);
	(void)vm_sys->close(fd);
	return 0;
}

int vm_fd_move(int fd)
{
	struct vm_fileh *h;
	int err;

	if (!vm_fd_is_ours(fd))
		return 0;
	vm_lock(&vm_map_lock);
	for (h = vm_filehs; h && h->ctl_fd != fd; h = h->next)
		;
	if (h) /* by this number other processes see that we live: they do not look in between */
		vm_fileh_lock(h);
	vm_lock(&lock);
	err = move_locked(fd);
	vm_unlock(&lock);
	if (h) {
		vm_fileh_peer(h)->ctl_fd = h->ctl_fd;
		vm_fileh_unlock(h);
	}
	vm_unlock(&vm_map_lock);
	return err;
}

void vm_fd_fork_prepare(void)
{
	vm_lock(&lock);
	vm_fdlimit_fork_prepare();
}

void vm_fd_fork_parent(void)
{
	vm_fdlimit_fork_parent();
	vm_unlock(&lock);
}

void vm_fd_fork_child(void)
{
	vm_fdlimit_fork_child();
	vm_unlock_fork_child(&lock);
}
