/* SPDX-License-Identifier: MIT */
/*
 * The host calls that core and policy use.
 *
 * Every call to the kernel that can fail goes through this one table, for two reasons: a test can make the
 * Nth call fail, and our own work never enters a libc name that the preloaded object exports.
 *
 * Each returns what the system call returns, or -errno; errno itself is never touched, and none is a
 * cancellation point. All are safe in signal handlers.
 */
#ifndef VM_SYS_H
#define VM_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct iovec;
struct msghdr;
struct pollfd;
struct rlimit;
struct sockaddr;
struct stat;
struct statfs;
struct statx;
struct timespec;

struct vm_sys {
	int (*openat)(int dirfd, const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	ssize_t (*read)(int fd, void *buf, size_t len);
	ssize_t (*write)(int fd, const void *buf, size_t len);
	ssize_t (*pread)(int fd, void *buf, size_t len, off_t off);
	ssize_t (*pwrite)(int fd, const void *buf, size_t len, off_t off);
	ssize_t (*preadv)(int fd, const struct iovec *iov, int niov, off_t off);
	ssize_t (*pwritev)(int fd, const struct iovec *iov, int niov, off_t off);
	int (*fsync)(int fd);
	int (*fdatasync)(int fd);
	int (*ftruncate)(int fd, off_t len);
	int (*fallocate)(int fd, int mode, off_t off, off_t len);
	int (*sync_file_range)(int fd, off_t off, off_t len, unsigned flags);
	ssize_t (*copy_file_range)(int from, off_t *from_off, int to, off_t *to_off, size_t len);
	off_t (*lseek)(int fd, off_t off, int whence);
	int (*fstat)(int fd, struct stat *ret_st);
	int (*statx)(int fd, unsigned mask, struct statx *ret_st); /* of a descriptor */
	int (*fstatat)(int dirfd, const char *path, struct stat *ret_st, int flags);
	int (*fstatfs)(int fd, struct statfs *ret_st);
	int (*faccessat)(int dirfd, const char *path, int mode);
	int (*mkdirat)(int dirfd, const char *path, mode_t mode);
	int (*fchown)(int fd, uid_t uid, gid_t gid);
	int (*fchmod)(int fd, mode_t mode);
	int (*flock)(int fd, int operation);
	int (*fcntl)(int fd, int cmd, long arg);
	int (*renameat)(int olddirfd, const char *oldpath, int newdirfd, const char *newpath);
	int (*renameat2)(int olddirfd, const char *oldpath, int newdirfd, const char *newpath, unsigned flags);
	int (*linkat)(int olddirfd, const char *oldpath, int newdirfd, const char *newpath);
	int (*unlinkat)(int dirfd, const char *path, int flags);
	ssize_t (*readlinkat)(int dirfd, const char *path, char *buf, size_t len);
	int (*memfd_create)(const char *name, unsigned flags);
	void *(*mmap)(void *addr, size_t len, int prot, int flags, int fd, off_t off); /* see vm_sys_err */
	int (*munmap)(void *addr, size_t len);
	int (*mprotect)(void *addr, size_t len, int prot);
	void *(*mremap)(void *old, size_t old_len, size_t new_len, int flags, void *new_addr);
	int (*madvise)(void *addr, size_t len, int advice);
	int (*msync)(void *addr, size_t len, int flags);
	int (*mlock2)(const void *addr, size_t len, unsigned flags); /* flags 0: also where there is only mlock */
	void *(*shmat)(int id, const void *addr, int flags);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	int (*poll)(struct pollfd *fds, unsigned nfds, int msec); /* msec < 0: for ever */
	int (*accept4)(int fd, int flags);			  /* whose address nobody asks for */
	int (*bind)(int fd, const struct sockaddr *addr, unsigned len);
	int (*connect)(int fd, const struct sockaddr *addr, unsigned len);
	int (*getsockopt)(int fd, int level, int opt, void *ret_val, unsigned *len);
	ssize_t (*sendmsg)(int fd, const struct msghdr *msg, int flags);
	ssize_t (*recvmsg)(int fd, struct msghdr *msg, int flags);
	int (*getrlimit)(int resource, struct rlimit *ret_rl);
	int (*userfaultfd)(int flags);
	int (*futex)(uint32_t *word, int op, uint32_t val, const struct timespec *timeout);
	int (*sigprocmask)(int how, const uint64_t *set, uint64_t *ret_old); /* the kernel's 64 bit mask */
	int (*clock_gettime)(int clock, struct timespec *ret_ts);
	ssize_t (*getrandom)(void *buf, size_t len, unsigned flags);
	int (*gettid)(void);
	int (*get_robust_list)(void *ret_head); /* of the calling thread: struct robust_list_head ** */
	int (*getpid)(void);
	void (*exit_group)(int status); /* does not return */
};

/* The table in use: vm_sys_linux (raw system calls) unless a test put another one here. */
extern const struct vm_sys *vm_sys;
extern const struct vm_sys vm_sys_linux;

/* mmap and mremap: is the address an error? Then it is -errno, as the kernel returns it. */
static inline int vm_sys_err(const void *addr)
{
	return (uintptr_t)addr >= (uintptr_t)-4095 ? (int)(intptr_t)addr : 0;
}

/* mmap(2) of memory for ourselves, and a growth of it that may move it: not where the program's holes are
 * (own.c). */
void *vm_own_map(size_t len, int prot, int flags, int fd, off_t off);
void *vm_own_grow(void *p, size_t len, size_t new_len);

/* Any other call: its result, or -errno. */
long vm_sys_raw(long nr, long a, long b, long c, long d, long e, long f);
/* One that makes a descriptor of ours: when the program's soft limit leaves none, beyond it. */
long vm_sys_fd(long nr, long a, long b, long c, long d);

/* Whole-buffer forms: go on after short counts and EINTR. 0 or -errno; reading past the end gives zeros. */
int vm_sys_pread_full(int fd, void *buf, size_t len, off_t off);
/* Does pwrite write where it is told to although the descriptor has O_APPEND (Linux 6.9)? */
bool vm_sys_ignores_append(void);
int vm_sys_pwrite_full(int fd, const void *buf, size_t len, off_t off);

#endif
