/* SPDX-License-Identifier: MIT */
/*
 * Host calls that fail when told to. While armed, vm_sys points to a table that forwards to vm_sys_linux,
 * counts the calls of the chosen kinds, and makes the Nth fail, once or from then on for ever.
 */
#ifndef FAULTY_SYS_H
#define FAULTY_SYS_H

#include "vm_sys.h"

/* name, argument list, arguments; all return a number. */
#define FAULTY_CALLS(X)                                                                                      \
	X(int, openat, (int a, const char *b, int c, mode_t d), (a, b, c, d))                                \
	X(ssize_t, preadv, (int a, const struct iovec *b, int c, off_t d), (a, b, c, d))                     \
	X(int, fsync, (int a), (a))                                                                          \
	X(int, fdatasync, (int a), (a))                                                                      \
	X(int, ftruncate, (int a, off_t b), (a, b))                                                          \
	X(int, fallocate, (int a, int b, off_t c, off_t d), (a, b, c, d))                                    \
	X(off_t, lseek, (int a, off_t b, int c), (a, b, c))                                                  \
	X(int, fstat, (int a, struct stat *b), (a, b))                                                       \
	X(int, statx, (int a, unsigned b, struct statx *c), (a, b, c))                                       \
	X(int, fstatfs, (int a, struct statfs *b), (a, b))                                                   \
	X(int, faccessat, (int a, const char *b, int c), (a, b, c))                                          \
	X(int, mkdirat, (int a, const char *b, mode_t c), (a, b, c))                                         \
	X(int, fstatat, (int a, const char *b, struct stat *c, int d), (a, b, c, d))                         \
	X(int, fchown, (int a, uid_t b, gid_t c), (a, b, c))                                                 \
	X(int, fchmod, (int a, mode_t b), (a, b))                                                            \
	X(int, flock, (int a, int b), (a, b))                                                                \
	X(int, fcntl, (int a, int b, long c), (a, b, c))                                                     \
	X(int, renameat, (int a, const char *b, int c, const char *d), (a, b, c, d))                         \
	X(int, renameat2, (int a, const char *b, int c, const char *d, unsigned e), (a, b, c, d, e))         \
	X(int, sync_file_range, (int a, off_t b, off_t c, unsigned d), (a, b, c, d))                         \
	X(ssize_t, copy_file_range, (int a, off_t *b, int c, off_t *d, size_t e), (a, b, c, d, e))           \
	X(int, linkat, (int a, const char *b, int c, const char *d), (a, b, c, d))                           \
	X(int, unlinkat, (int a, const char *b, int c), (a, b, c))                                           \
	X(ssize_t, readlinkat, (int a, const char *b, char *c, size_t d), (a, b, c, d))                      \
	X(int, memfd_create, (const char *a, unsigned b), (a, b))                                            \
	X(int, mprotect, (void *a, size_t b, int c), (a, b, c))                                              \
	X(int, madvise, (void *a, size_t b, int c), (a, b, c))                                               \
	X(int, msync, (void *a, size_t b, int c), (a, b, c))                                                 \
	X(int, ioctl, (int a, unsigned long b, void *c), (a, b, c))                                          \
	X(int, userfaultfd, (int a), (a))                                                                    \
	X(ssize_t, getrandom, (void *a, size_t b, unsigned c), (a, b, c))

enum faulty_kind {
#define X(ret, name, decl, args) FAULTY_##name,
	FAULTY_CALLS(X)
#undef X
		FAULTY_read,
	FAULTY_pread,
	FAULTY_write,
	FAULTY_pwrite,
	FAULTY_pwritev,
	FAULTY_mmap,
	FAULTY_mremap,
	FAULTY_NKINDS
};
#define FAULTY_BIT(name) (1ull << FAULTY_##name)
#define FAULTY_ALL	 ((1ull << FAULTY_NKINDS) - 1)

/* How it fails. */
#define FAULTY_FOR_EVER 1u /* this one and all later ones of the kinds */
#define FAULTY_SHORT	2u /* a read or write (not a vectored one) does half and says so: no error */
#define FAULTY_TORN	4u /* a write writes half and then fails */
#define FAULTY_MINE	8u /* only calls of the thread that armed are counted, and fail */

/* kinds: bits; nth counts from 1, 0: only count; err: positive. */
void faulty_arm(uint64_t kinds, unsigned nth, int err, unsigned how);
/* Back to vm_sys_linux. Returns the number of calls of the kinds since faulty_arm. */
unsigned faulty_disarm(void);
/* Told of each call that is counted, n being its number; NULL: nobody is. */
void faulty_tell(void (*fn)(enum faulty_kind kind, unsigned n));
const char *faulty_name(enum faulty_kind kind);
/* Put another table in use, also while helper threads run. */
void faulty_use(const struct vm_sys *sys);
/* Did a call fail (or come short) since faulty_arm? */
bool faulty_has_failed(void);

#endif
