/* SPDX-License-Identifier: MIT */
/* Which descriptors of the program are managed files. */
#ifndef SHIM_FD_H
#define SHIM_FD_H

#include "enter.h"

/* What is known about a descriptor number: nothing; that it is not managed, and since when; or the managed
 * file. */
#define SHIM_FD_UNKNOWN ((uintptr_t)0)
#define SHIM_FD_IS_FILE(word) ((word) && !((word)&1))
/* Files got names, or one became managed: what was not may be since. Moves by 2, and is odd: no pointer. */
extern _Atomic(uintptr_t) shim_fd_foreign;

#define SHIM_FD_CHUNK_BITS 17
#define SHIM_FD_CHUNK_LEN  (1u << SHIM_FD_CHUNK_BITS)
#define SHIM_FD_NCHUNKS	   (1u << (31 - SHIM_FD_CHUNK_BITS))

/* One word a number, in chunks that appear on demand. */
extern _Atomic(_Atomic(uintptr_t) *) shim_fd_chunks[SHIM_FD_NCHUNKS];

static inline uintptr_t shim_fd_word(int fd)
{
	_Atomic(uintptr_t) *c;

	if (fd < 0)
		return atomic_load_explicit(&shim_fd_foreign, memory_order_acquire);
	c = atomic_load_explicit(&shim_fd_chunks[(unsigned)fd >> SHIM_FD_CHUNK_BITS], memory_order_acquire);
	return c ? atomic_load_explicit(&c[(unsigned)fd & (SHIM_FD_CHUNK_LEN - 1)], memory_order_acquire)
		 : SHIM_FD_UNKNOWN;
}

/* No need to have entered: is it known to be none of ours? */
static inline bool shim_fd_is_foreign(int fd)
{
	return shim_fd_word(fd) == atomic_load_explicit(&shim_fd_foreign, memory_order_acquire);
}

/* Enter, with the live file behind fd in s->m; false, and not entered, when there is none. Looks at
 * descriptors that nobody looked at yet. */
bool shim_begin(int fd, struct shim_scope *s);
/* Leave. Passes ret on as a libc result. */
ssize_t shim_end(struct shim_scope *s, ssize_t ret);

/* All below: entered. */

/* A file got another name: descriptors that are not managed are looked at anew. */
void shim_fd_named(void);
/* fd was opened by the program just now. Replaces what was known about the number. */
void shim_fd_opened(int fd, int flags);
/* The file to map: what is at fd now is looked at anew, because libc opens and closes numbers behind us.
 * 0 with a reference or NULL, or the -errno with which mmap has to fail. */
int shim_fd_for_map(int fd, struct pol_file **ret_m);
/* The program put a duplicate of oldfd at newfd. */
void shim_fd_duped(int oldfd, int newfd);
/* fd is about to be closed. 0 or the -errno of a commit that was due. */
int shim_fd_closing(int fd);

/* Not entered: a descriptor of our own, which the program must not meet. */
bool shim_fd_is_hidden(int fd);
/* No need to have entered: is there anything to do before fd is closed? */
bool shim_fd_is_managed(int fd);
/* fd will be closed, or was put there by a call we do not look at: forget that it is not managed. Returns
 * whether it is managed, and then does nothing. */
bool shim_fd_forget(int fd);
/* One reference to the file behind fd, live or not, or NULL. */
struct pol_file *shim_fd_get(int fd);

void shim_fd_lock(void);
void shim_fd_unlock(void);

#endif
