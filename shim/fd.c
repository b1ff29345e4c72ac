/* SPDX-License-Identifier: MIT */
/*
 * What is known about each descriptor number. The words are read without a lock: unknown, foreign, or the
 * managed file. A managed word stands for one count of that file's descriptors.
 *
 * A file found in the table stays valid only while the lock is held: close takes the word out under it before
 * it gives the count back. So: lock, look again, take a reference, unlock.
 */
#include "real.h"
#include "fd.h"

#define UNKNOWN SHIM_FD_UNKNOWN

_Atomic(uintptr_t) shim_fd_foreign = 1;
_Atomic(_Atomic(uintptr_t) *) shim_fd_chunks[SHIM_FD_NCHUNKS];
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

/* The word of fd; NULL when there is no memory for it. */
static _Atomic(uintptr_t) *word(int fd)
{
	_Atomic(_Atomic(uintptr_t) *) *slot = &shim_fd_chunks[(unsigned)fd >> SHIM_FD_CHUNK_BITS];
	_Atomic(uintptr_t) *c = atomic_load_explicit(slot, memory_order_acquire);
	_Atomic(uintptr_t) *fresh;

	if (!c) {
		int saved = errno;

		fresh = shim_real.mmap(NULL, SHIM_FD_CHUNK_LEN * sizeof(*c), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		errno = saved;
		if (fresh == MAP_FAILED)
			return NULL;
		if (atomic_compare_exchange_strong(slot, &c, fresh))
			c = fresh;
		else
			(void)shim_real.munmap(fresh, SHIM_FD_CHUNK_LEN * sizeof(*c));
	}
	return &c[(unsigned)fd & (SHIM_FD_CHUNK_LEN - 1)];
}

/* Put val at fd; the file that was there, its count now the caller's, or NULL. */
static struct pol_file *exchange(int fd, uintptr_t val)
{
	_Atomic(uintptr_t) *w;
	uintptr_t old;

	if (fd < 0 || (!SHIM_FD_IS_FILE(val) && shim_fd_word(fd) == val))
		return NULL;
	w = word(fd);
	if (!w) {
		if (SHIM_FD_IS_FILE(val))
			(void)pol_fd_close((struct pol_file *)val);
		return NULL;
	}
	shim_fd_lock();
	old = atomic_exchange_explicit(w, val, memory_order_acq_rel);
	shim_fd_unlock();
	return SHIM_FD_IS_FILE(old) ? (struct pol_file *)old : NULL;
}

static uintptr_t foreign(void)
{
	return atomic_load_explicit(&shim_fd_foreign, memory_order_acquire);
}

void shim_fd_named(void)
{
	(void)atomic_fetch_add_explicit(&shim_fd_foreign, 2, memory_order_acq_rel);
}

/* pol_fd_open; *ret_word: what is known from now on, a file counted. */
static int look_at(int fd, uintptr_t *ret_word)
{
	uintptr_t since = foreign(); /* from before: a name that comes meanwhile counts */
	struct pol_file *m = NULL;
	int err = pol_fd_open(fd, &m);

	if (err == 1)
		shim_fd_named(); /* by another of its names it was not managed so far */
	*ret_word = err < 0 || !m ? since : (uintptr_t)m;
	return err < 0 ? err : 0;
}

/* Known from now on. A file that was there before has been closed behind our back. */
static void set(int fd, uintptr_t val)
{
	struct pol_file *old = exchange(fd, val);

	if (old)
		(void)pol_fd_close(old);
}

bool shim_fd_is_managed(int fd)
{
	return SHIM_FD_IS_FILE(shim_fd_word(fd));
}

bool shim_fd_is_hidden(int fd)
{
	return pol_fd_is_ours(fd) && !shim_is_stranger();
}

bool shim_fd_forget(int fd)
{
	uintptr_t w = shim_fd_word(fd);

	if ((w & 1) && fd >= 0)
		atomic_compare_exchange_strong(word(fd), &w, UNKNOWN);
	return SHIM_FD_IS_FILE(w);
}

struct pol_file *shim_fd_get(int fd)
{
	struct pol_file *m = NULL;
	uintptr_t w;

	shim_fd_lock();
	w = shim_fd_word(fd);
	if (SHIM_FD_IS_FILE(w)) {
		m = (struct pol_file *)w;
		pol_file_get(m);
	}
	shim_fd_unlock();
	return m;
}

/* What fd is has to be found out: inherited, received, or opened inside libc, or files got names since. Two
 * threads that look at once both count; the loser gives its count back. seen: what was known. */
static void look(int fd, uintptr_t seen)
{
	uintptr_t found = foreign();
	_Atomic(uintptr_t) *w;
	int flags, saved = errno;

	flags = shim_real.fcntl(fd, F_GETFL);
	errno = saved;
	if (flags < 0)
		return;
	if (!pol_fd_is_ours(fd))
		(void)look_at(fd, &found); /* what cannot be managed is told by mmap, which asks again */
	w = word(fd);
	if ((!w || !atomic_compare_exchange_strong(w, &seen, found)) && SHIM_FD_IS_FILE(found))
		(void)pol_fd_close((struct pol_file *)found);
}

bool shim_begin(int fd, struct shim_scope *s)
{
	uintptr_t w = shim_fd_word(fd);

	if (w == foreign())
		return false;
	shim_enter(s);
	if (!SHIM_FD_IS_FILE(w))
		look(fd, w);
	s->m = shim_fd_get(fd);
	if (s->m && pol_file_is_live(s->m, fd))
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
	uintptr_t found = foreign();

	if (!(flags & O_PATH))
		(void)look_at(fd, &found); /* what cannot be managed is told by mmap, which asks again */
	set(fd, found);
}

int shim_fd_for_map(int fd, struct pol_file **ret_m)
{
	int err, flags, saved = errno;
	uintptr_t found;

	*ret_m = NULL;
	flags = shim_real.fcntl(fd, F_GETFL);
	errno = saved;
	if (flags < 0 || (flags & O_PATH) || pol_fd_is_ours(fd))
		return 0; /* the kernel has an error for it */
	err = look_at(fd, &found);
	if (SHIM_FD_IS_FILE(found) && shim_fd_word(fd) == found)
		(void)pol_fd_close((struct pol_file *)found); /* as known: counted already */
	else
		set(fd, found);
	if (SHIM_FD_IS_FILE(found))
		*ret_m = shim_fd_get(fd);
	return err;
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

	return m ? pol_fd_close_locked(m, fd) : 0;
}
