/* SPDX-License-Identifier: MIT */
/*
 * libc's own functions behind the names we export. Include first: it undoes settings under which the headers
 * would rename or inline what we define.
 */
#ifndef SHIM_REAL_H
#define SHIM_REAL_H

#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#undef fread_unlocked /* libc's headers have macros for these */
#undef fwrite_unlocked

_Static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "calls.def takes foo64 for foo");

/* Exported by libc, declared by no header we can rely on. */
int pidfd_getfd(int pidfd, int fd, unsigned flags);
int __open_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
ssize_t __read_chk(int fd, void *buf, size_t len, size_t buflen);
ssize_t __pread_chk(int fd, void *buf, size_t len, off_t off, size_t buflen);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t buflen, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t buflen, int flags, struct sockaddr *from,
		       socklen_t *fromlen);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set, size_t size);
int __getgroups_chk(int n, gid_t *list, size_t size);
ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t buflen);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t len, size_t buflen);
char *__getcwd_chk(char *buf, size_t len, size_t buflen);
size_t __fread_chk(void *buf, size_t buflen, size_t size, size_t n, FILE *f);
size_t __fread_unlocked_chk(void *buf, size_t buflen, size_t size, size_t n, FILE *f);
int capget(void *head, void *data);
int capset(void *head, const void *data);
int __xstat(int ver, const char *path, struct stat *st);
int __lxstat(int ver, const char *path, struct stat *st);
int __fxstat(int ver, int fd, struct stat *st);
int __fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags);
pid_t _Fork(void);
#ifndef __USE_XOPEN_EXTENDED
sighandler_t sigset(int signo, sighandler_t handler);
int sigignore(int signo);
#endif

/* Old programs call what new ones should not. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

struct shim_real {
#define CALL(family, name, aliases) __typeof__(name) *name;
#include "calls.def"
#undef CALL
};
extern struct shim_real shim_real;

/* Fill the table; any number of times, from any thread. Calls that arrive from within (an allocator that
 * dlsym woke up) are served by bare system calls. */
void shim_resolve(void);
/* behind.c: fn is what a call of ours goes to; is the caller an object that does what calls of ours go to? */
void shim_behind_note(const void *fn);
bool shim_is_behind(const void *caller);
/* Of which object is it? */
bool shim_is_in_us(const void *fn);
bool shim_is_in_libc(const void *fn);

#define SHIM_EXPORT __attribute__((visibility("default")))

#endif
