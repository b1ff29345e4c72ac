/* SPDX-License-Identifier: MIT */
/*
 * Host calls by raw system calls: no errno, no libc wrapper, no cancellation point.
 *
 * The stubs are our own because libc's syscall(2) sets errno. struct stat is the kernel's own layout on
 * the two architectures here, so it is handed through.
 */
#include "sys_stub.h"
#include "vm_sys.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20 /* linux/fs.h of 6.9 */
#endif

long vm_sys_raw(long nr, long a, long b, long c, long d, long e, long f)
{
	return sys6(nr, a, b, c, d, e, f);
}

static inline long sys3(long nr, long a, long b, long c)
{
	return sys6(nr, a, b, c, 0, 0, 0);
}

static inline long sys4(long nr, long a, long b, long c, long d)
{
	return sys6(nr, a, b, c, d, 0, 0);
}

static int sys_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	return (int)vm_sys_fd(__NR_openat, dirfd, (long)path, flags, (long)mode);
}

static int sys_close(int fd)
{
	return (int)sys3(__NR_close, fd, 0, 0);
}

static ssize_t sys_read(int fd, void *buf, size_t len)
{
	return sys3(__NR_read, fd, (long)buf, (long)len);
}

static ssize_t sys_write(int fd, const void *buf, size_t len)
{
	return sys3(__NR_write, fd, (long)buf, (long)len);
}

static ssize_t sys_pread(int fd, void *buf, size_t len, off_t off)
{
	return sys4(__NR_pread64, fd, (long)buf, (long)len, off);
}

/* Beyond RLIMIT_FSIZE the kernel also sends SIGXFSZ. A store through a mapping never does that to a program:
 * where ours are made signals are blocked, and the error is enough. */
static long without_sigxfsz(long ret)
{
	const uint64_t xfsz = 1ull << (SIGXFSZ - 1);
	const struct timespec now = {0};

	if (ret == -EFBIG)
		(void)sys4(__NR_rt_sigtimedwait, (long)&xfsz, 0, (long)&now, sizeof(xfsz)); /* none is there: well */
	return ret;
}

static bool no_noappend; /* older than 6.9 */

/* Where it says, also on a descriptor that the program shares with us and set O_APPEND on. */
static ssize_t sys_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	struct iovec iov = {(void *)buf, len};
	ssize_t n;

	if (!__atomic_load_n(&no_noappend, __ATOMIC_RELAXED)) {
		n = without_sigxfsz(sys6(__NR_pwritev2, fd, (long)&iov, 1, off, 0, RWF_NOAPPEND));
		if (n != -EOPNOTSUPP && n != -ENOSYS)
			return n;
		__atomic_store_n(&no_noappend, true, __ATOMIC_RELAXED);
	}
	return without_sigxfsz(sys4(__NR_pwrite64, fd, (long)buf, (long)len, off));
}

bool vm_sys_ignores_append(void)
{
	int fd = vm_sys->memfd_create("txmap-try", 1u /* MFD_CLOEXEC */);

	if (fd < 0)
		return false;
	(void)sys_pwrite(fd, "", 1, 0); /* finds out */
	(void)vm_sys->close(fd);
	return !__atomic_load_n(&no_noappend, __ATOMIC_RELAXED);
}

static ssize_t sys_preadv(int fd, const struct iovec *iov, int niov, off_t off)
{
	return sys6(__NR_preadv, fd, (long)iov, niov, off, 0, 0);
}

static ssize_t sys_pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	return without_sigxfsz(sys6(__NR_pwritev, fd, (long)iov, niov, off, 0, 0));
}

static int sys_fsync(int fd)
{
	return (int)sys3(__NR_fsync, fd, 0, 0);
}

static int sys_fdatasync(int fd)
{
	return (int)sys3(__NR_fdatasync, fd, 0, 0);
}

static int sys_ftruncate(int fd, off_t len)
{
	return (int)without_sigxfsz(sys3(__NR_ftruncate, fd, len, 0));
}

static int sys_fallocate(int fd, int mode, off_t off, off_t len)
{
	return (int)without_sigxfsz(sys4(__NR_fallocate, fd, mode, off, len));
}

static int sys_sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
	return (int)sys4(__NR_sync_file_range, fd, off, len, flags);
}

static ssize_t sys_copy_file_range(int from, off_t *from_off, int to, off_t *to_off, size_t len)
{
	return without_sigxfsz(sys6(__NR_copy_file_range, from, (long)from_off, to, (long)to_off, (long)len, 0));
}

static off_t sys_lseek(int fd, off_t off, int whence)
{
	return sys3(__NR_lseek, fd, off, whence);
}

static int sys_fstat(int fd, struct stat *ret_st)
{
	return (int)sys3(__NR_fstat, fd, (long)ret_st, 0);
}

static int sys_statx(int fd, unsigned mask, struct statx *ret_st)
{
	return (int)sys6(__NR_statx, fd, (long)"", 0x1000 /* AT_EMPTY_PATH */, mask, (long)ret_st, 0);
}

static int sys_fstatat(int dirfd, const char *path, struct stat *ret_st, int flags)
{
	return (int)sys4(__NR_newfstatat, dirfd, (long)path, (long)ret_st, flags);
}

static int sys_fchown(int fd, uid_t uid, gid_t gid)
{
	return (int)sys3(__NR_fchown, fd, (long)uid, (long)gid);
}

static int sys_fchmod(int fd, mode_t mode)
{
	return (int)sys3(__NR_fchmod, fd, (long)mode, 0);
}

static int sys_flock(int fd, int operation)
{
	return (int)sys3(__NR_flock, fd, operation, 0);
}

static int sys_fcntl(int fd, int cmd, long arg)
{
	return (int)vm_sys_fd(__NR_fcntl, fd, cmd, arg, 0);
}

static int sys_renameat(int olddirfd, const char *oldpath, int newdirfd, const char *newpath)
{
	return (int)sys4(__NR_renameat, olddirfd, (long)oldpath, newdirfd, (long)newpath);
}

static int sys_renameat2(int olddirfd, const char *oldpath, int newdirfd, const char *newpath, unsigned flags)
{
	return (int)sys6(__NR_renameat2, olddirfd, (long)oldpath, newdirfd, (long)newpath, flags, 0);
}

static int sys_linkat(int olddirfd, const char *oldpath, int newdirfd, const char *newpath)
{
	return (int)sys6(__NR_linkat, olddirfd, (long)oldpath, newdirfd, (long)newpath, 0, 0);
}

static int sys_unlinkat(int dirfd, const char *path, int flags)
{
	return (int)sys3(__NR_unlinkat, dirfd, (long)path, flags);
}

static ssize_t sys_readlinkat(int dirfd, const char *path, char *buf, size_t len)
{
	return sys4(__NR_readlinkat, dirfd, (long)path, (long)buf, (long)len);
}

static int sys_memfd_create(const char *name, unsigned flags)
{
	return (int)vm_sys_fd(__NR_memfd_create, (long)name, flags, 0, 0);
}

static void *sys_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return (void *)sys6(__NR_mmap, (long)addr, (long)len, prot, flags, fd, off);
}

static int sys_munmap(void *addr, size_t len)
{
	return (int)sys3(__NR_munmap, (long)addr, (long)len, 0);
}

static int sys_mprotect(void *addr, size_t len, int prot)
{
	return (int)sys3(__NR_mprotect, (long)addr, (long)len, prot);
}

static void *sys_mremap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr)
{
	return (void *)sys6(__NR_mremap, (long)old, (long)old_len, (long)new_len, flags, (long)new_addr, 0);
}

static int sys_madvise(void *addr, size_t len, int advice)
{
	return (int)sys3(__NR_madvise, (long)addr, (long)len, advice);
}

static int sys_msync(void *addr, size_t len, int flags)
{
	return (int)sys3(__NR_msync, (long)addr, (long)len, flags);
}

static int sys_mlock2(const void *addr, size_t len, unsigned flags)
{
	if (!flags)
		return (int)sys3(__NR_mlock, (long)addr, (long)len, 0);
	return (int)sys3(__NR_mlock2, (long)addr, (long)len, flags);
}

static void *sys_shmat(int id, const void *addr, int flags)
{
	return (void *)sys3(__NR_shmat, id, (long)addr, flags);
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
	return (int)sys3(__NR_ioctl, fd, (long)request, (long)arg);
}

static int sys_userfaultfd(int flags)
{
	return (int)vm_sys_fd(__NR_userfaultfd, flags, 0, 0, 0);
}

static int sys_futex(uint32_t *word, int op, uint32_t val, const struct timespec *timeout)
{
	return (int)sys4(__NR_futex, (long)word, op, (long)val, (long)timeout);
}

static int sys_sigprocmask(int how, const uint64_t *set, uint64_t *ret_old)
{
	return (int)sys4(__NR_rt_sigprocmask, how, (long)set, (long)ret_old, sizeof(uint64_t));
}

static int sys_clock_gettime(int clock, struct timespec *ret_ts)
{
	return (int)sys3(__NR_clock_gettime, clock, (long)ret_ts, 0);
}

static ssize_t sys_getrandom(void *buf, size_t len, unsigned flags)
{
	return sys3(__NR_getrandom, (long)buf, (long)len, flags);
}

static int sys_get_robust_list(void *ret_head)
{
	size_t len;

	return (int)sys3(__NR_get_robust_list, 0, (long)ret_head, (long)&len);
}

static int sys_gettid(void)
{
	return (int)sys3(__NR_gettid, 0, 0, 0);
}

static int sys_fstatfs(int fd, struct statfs *ret_st)
{
	return (int)sys3(__NR_fstatfs, fd, (long)ret_st, 0);
}

static int sys_faccessat(int dirfd, const char *path, int mode)
{
	return (int)sys3(__NR_faccessat, dirfd, (long)path, mode);
}

static int sys_mkdirat(int dirfd, const char *path, mode_t mode)
{
	return (int)sys3(__NR_mkdirat, dirfd, (long)path, (long)mode);
}

static int sys_poll(struct pollfd *fds, unsigned nfds, int msec)
{
	struct timespec ts = {.tv_sec = msec / 1000, .tv_nsec = msec % 1000 * 1000000l};

	return (int)sys6(__NR_ppoll, (long)fds, nfds, msec < 0 ? 0 : (long)&ts, 0, 0, 0);
}

static int sys_accept4(int fd, int flags)
{
	return (int)vm_sys_fd(__NR_accept4, fd, 0, 0, flags);
}

static int sys_bind(int fd, const struct sockaddr *addr, unsigned len)
{
	return (int)sys3(__NR_bind, fd, (long)addr, len);
}

static int sys_connect(int fd, const struct sockaddr *addr, unsigned len)
{
	return (int)sys3(__NR_connect, fd, (long)addr, len);
}

static int sys_getsockopt(int fd, int level, int opt, void *ret_val, unsigned *len)
{
	return (int)sys6(__NR_getsockopt, fd, level, opt, (long)ret_val, (long)len, 0);
}

static ssize_t sys_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return sys3(__NR_sendmsg, fd, (long)msg, flags);
}

static ssize_t sys_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return sys3(__NR_recvmsg, fd, (long)msg, flags);
}

static int sys_getrlimit(int resource, struct rlimit *ret_rl)
{
	return (int)sys4(__NR_prlimit64, 0, resource, 0, (long)ret_rl);
}

static int sys_getpid(void)
{
	return (int)sys3(__NR_getpid, 0, 0, 0);
}

static void sys_exit_group(int status)
{
	for (;;)
		(void)sys3(__NR_exit_group, status, 0, 0);
}

const struct vm_sys vm_sys_linux = {
	.openat = sys_openat,
	.close = sys_close,
	.read = sys_read,
	.write = sys_write,
	.pread = sys_pread,
	.pwrite = sys_pwrite,
	.preadv = sys_preadv,
	.pwritev = sys_pwritev,
	.fsync = sys_fsync,
	.fdatasync = sys_fdatasync,
	.ftruncate = sys_ftruncate,
	.fallocate = sys_fallocate,
	.sync_file_range = sys_sync_file_range,
	.copy_file_range = sys_copy_file_range,
	.lseek = sys_lseek,
	.fstat = sys_fstat,
	.statx = sys_statx,
	.fstatat = sys_fstatat,
	.fstatfs = sys_fstatfs,
	.faccessat = sys_faccessat,
	.mkdirat = sys_mkdirat,
	.fchown = sys_fchown,
	.fchmod = sys_fchmod,
	.flock = sys_flock,
	.fcntl = sys_fcntl,
	.renameat = sys_renameat,
	.renameat2 = sys_renameat2,
	.linkat = sys_linkat,
	.unlinkat = sys_unlinkat,
	.readlinkat = sys_readlinkat,
	.memfd_create = sys_memfd_create,
	.mmap = sys_mmap,
	.munmap = sys_munmap,
	.mprotect = sys_mprotect,
	.mremap = sys_mremap,
	.madvise = sys_madvise,
	.msync = sys_msync,
	.mlock2 = sys_mlock2,
	.shmat = sys_shmat,
	.ioctl = sys_ioctl,
	.poll = sys_poll,
	.accept4 = sys_accept4,
	.bind = sys_bind,
	.connect = sys_connect,
	.getsockopt = sys_getsockopt,
	.sendmsg = sys_sendmsg,
	.recvmsg = sys_recvmsg,
	.getrlimit = sys_getrlimit,
	.userfaultfd = sys_userfaultfd,
	.futex = sys_futex,
	.sigprocmask = sys_sigprocmask,
	.clock_gettime = sys_clock_gettime,
	.getrandom = sys_getrandom,
	.gettid = sys_gettid,
	.get_robust_list = sys_get_robust_list,
	.exit_group = sys_exit_group,
	.getpid = sys_getpid,
};

const struct vm_sys *vm_sys = &vm_sys_linux;
