/* SPDX-License-Identifier: MIT */
/* Which descriptors of the program are managed files. */
#ifndef SHIM_FD_H
#define SHIM_FD_H

#include "enter.h"

/* Enter, with the live file behind fd in s->m; false, and not entered, when there is none. Looks at
 * descriptors that nobody looked at yet. */
bool shim_begin(int fd, struct shim_scope *s);
/* Leave. Passes ret on as a libc result. */
ssize_t shim_end(struct shim_scope *s, ssize_t ret);

/* All below: entered. */

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
