/* SPDX-License-Identifier: MIT */
/*
 * What is known about each descriptor number. One word a number, in chunks that appear on demand, read
 * without a lock: UNKNOWN, FOREIGN, or the managed file. A managed word stands for one count of that file's
 * descriptors.
 *
 * A file found in the table stays valid only while the lock is held: close takes the word out under it before
 * it gives the count back. So: lock, look again, take a reference, unlock.
 */
#include "real.h"
#include "fd.h"
#include <sys/resource.h>

#define UNKNOWN 0u
#define FOREIGN 1u /* looked at: not managed */

#define CHUNK_BITS 17
#define CHUNK_LEN  (1u << CHUNK_BITS)
#define NCHUNKS	   (1u << (31 - CHUNK_BITS))

static _Atomic(_Atomic(uintptr_t) *) chunks[NCHUNKS];
static pthread_mutex_t lock =
	PTHREAD_MUTEX_INITIALIZER; /* removal against reference; async signals blocked */

void shim_fd_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void shim_fd_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static uintptr_t peek(int fd)
{
	_Atomic(uintptr_t) *c;

	if (fd < 0)
		return FOREIGN;
	c = atomic_load_explicit(&chunks[(unsigned)fd >> CHUNK_BITS], memory_order_acquire);
	return c ? atomic_load_explicit(&c[(unsigned)fd & (CHUNK_LEN - 1)], memory_order_acquire) : UNKNOWN;
}

/* The word of fd; NULL when there is no memory for it. */
static _Atomic(uintptr_t) *word(int fd)
{
	_Atomic(_Atomic(uintptr_t) *) *slot = &chunks[(unsigned)fd >> CHUNK_BITS];
	_Atomic(uintptr_t) *c = atomic_load_explicit(slot, memory_order_acquire);
	_Atomic(uintptr_t) *fresh;

	if (!c) {
		int saved = errno;

		fresh = shim_real.mmap(NULL, CHUNK_LEN * sizeof(*c), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		errno = saved;
		if (fresh == MAP_FAILED)
			return NULL;
		if (atomic_compare_exchange_strong(slot, &c, fresh))
			c = fresh;
		else
			(void)shim_real.munmap(fresh, CHUNK_LEN * sizeof(*c));
	}
	return &c[(unsigned)fd & (CHUNK_LEN - 1)];
}

/* Put val at fd; the file that was there, its count now the caller's, or NULL. */
static struct pol_file *exchange(int fd, uintptr_t val)
{
	_Atomic(uintptr_t) *w;
	uintptr_t old;

	if (fd < 0 || (val <= FOREIGN && peek(fd) == val))
		return NULL;
	w = word(fd);
	if (!w) {
		if (val > FOREIGN)
			(void)pol_fd_close((struct pol_file *)val);
		return NULL;
	}
	shim_fd_lock();
	old = atomic_exchange_explicit(w, val, memory_order_acq_rel);
	shim_fd_unlock();
	return old > FOREIGN ? (struct pol_file *)old : NULL;
}

/* Known from now on: m (counted) or not managed. A file that was there before has been closed behind our
 * back. */
static void set(int fd, struct pol_file *m)
{
	struct pol_file *old = exchange(fd, m ? (uintptr_t)m : FOREIGN);

	if (old)
		(void)pol_fd_close(old);
}

bool shim_fd_is_managed(int fd)
{
	return peek(fd) > FOREIGN;
}

/* Where policy can keep its descriptors: high. Below, the answer needs no lock, so nothing to enter for. */
static int hidden_floor(void)
{
	static atomic_int floor_fd;
	struct rlimit rl;
	int fd = atomic_load_explicit(&floor_fd, memory_order_relaxed);

	if (fd)
		return fd;
	fd = shim_real.getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < 1024 ? (int)rl.rlim_cur / 2 : 512;
	atomic_store_explicit(&floor_fd, fd, memory_order_relaxed);
	return fd;
}

bool shim_fd_is_hidden(int fd)
{
	struct shim_scope s;
	bool ours;

	if (fd < hidden_floor())
		return pol_fd_is_ours(fd) && !shim_is_stranger();
	shim_enter(&s);
	ours = pol_fd_is_ours(fd);
	shim_leave(&s);
	return ours && !shim_is_stranger();
}

bool shim_fd_forget(int fd)
{
	uintptr_t w = peek(fd);

	if (w == FOREIGN && fd >= 0)
		atomic_compare_exchange_strong(word(fd), &w, UNKNOWN);
	return w > FOREIGN;
}

struct pol_file *shim_fd_get(int fd)
{
	struct pol_file *m = NULL;
	uintptr_t w;

	shim_fd_lock();
	w = peek(fd);
	if (w > FOREIGN) {
		m = (struct pol_file *)w;
		pol_file_get(m);
	}
	shim_fd_unlock();
	return m;
}

/* Nobody looked at fd before: inherited, received, or opened inside libc. Two threads that look at once both
 * count; the loser gives its count back. */
static void look(int fd)
{
	struct pol_file *m = NULL;
	_Atomic(uintptr_t) *w;
	uintptr_t expected = UNKNOWN;
	int flags, saved = errno;

	flags = shim_real.fcntl(fd, F_GETFL);
	errno = saved;
	if (flags < 0)
		return;
	if (pol_fd_is_ours(fd) || pol_fd_open(fd, flags, &m) < 0)
		m = NULL;
	w = word(fd);
	if ((!w || !atomic_compare_exchange_strong(w, &expected, m ? (uintptr_t)m : FOREIGN)) && m)
		(void)pol_fd_close(m);
}

bool shim_begin(int fd, struct shim_scope *s)
{
	uintptr_t w = peek(fd);

	if (w == FOREIGN)
		return false;
	shim_enter(s);
	if (w == UNKNOWN)
		look(fd);
	s->m = shim_fd_get(fd);
	if (s->m && pol_file_is_live(s->m))
		return true;
	(void)shim_end(s, 0);
	return false;
}

ssize_t shim_end(struct shim_scope *s, ssize_t ret)
{
	if (s->m)
		pol_file_put(s->m);
	shim_leave(s);
	return shim_return(ret);
}

void shim_fd_opened(int fd, int flags)
{
	struct pol_file *m = NULL;

	/* What cannot be managed is told by mmap, which asks again. */
	if ((flags & O_PATH) || pol_fd_open(fd, flags, &m) < 0)
		m = NULL;
	set(fd, m);
}

int shim_fd_for_map(int fd, struct pol_file **ret_m)
{
	struct pol_file *m = NULL;
	int err, flags, saved = errno;

	*ret_m = NULL;
	flags = shim_real.fcntl(fd, F_GETFL);
	errno = saved;
	if (flags < 0 || (flags & O_PATH) || pol_fd_is_ours(fd))
		return 0; /* the kernel has an error for it */
	err = pol_fd_open(fd, flags, &m);
	if (err < 0)
		m = NULL;
	if (m && peek(fd) == (uintptr_t)m)
		(void)pol_fd_close(m); /* as known: counted already */
	else
		set(fd, m);
	if (m)
		*ret_m = shim_fd_get(fd);
	return err < 0 ? err : 0;
}

void shim_fd_duped(int oldfd, int newfd)
{
	struct pol_file *m = shim_fd_get(oldfd);
	struct pol_file *old;

	if (m)
		pol_fd_dup(m);
	old = exchange(newfd, m ? (uintptr_t)m : UNKNOWN);
	if (old) /* closed behind our back */
		(void)pol_fd_close(old);
	if (m)
		pol_file_put(m);
}

int shim_fd_closing(int fd)
{
	struct pol_file *m = exchange(fd, UNKNOWN);

	return m ? pol_fd_close(m) : 0;
}
