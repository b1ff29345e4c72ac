/* SPDX-License-Identifier: MIT */
/*
 * Policy, as the shim sees it: which files are managed, when they commit, and to what.
 *
 * The shim asks "is this ours?" with the two lookups (pol_file_of_fd, pol_addr_is_managed) and forwards
 * the call here or to libc. Results are 0, counts, or -errno. Unless said otherwise calls are made with
 * asynchronous signals blocked (shim_enter).
 */
#ifndef POL_H
#define POL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct iovec;
struct stat;
struct pol_file; /* one managed file: rule, bigfile, handle, counts */

/* ---- process ---- */

/* Read the settings. 1: rules exist, txmap is active; 0: inert. A wrong setting ends the process with one
 * line and status 78 (EX_CONFIG). Runs once; later calls return the same. */
int pol_start(void);

/* Around fork. The child's helper threads and control socket come back under its own pid. */
void pol_fork_prepare(void);
void pol_fork_parent(void);
void pol_fork_child(void);

/* What only the shim can see of the program's surroundings, as a warning: "OBJECT: TEXT". */
void pol_warn(const char *object, const char *text);

/* The main thread is about to end, and the process with it once all others have, too: those of ours do not
 * count. */
void pol_main_thread_ends(void);

/* The events of policy/trigger.c that may commit. */
enum pol_event {
	POL_EV_MSYNC,
	POL_EV_MSYNC_ASYNC,
	POL_EV_FSYNC,
	POL_EV_RELEASE,
	POL_EV_EXIT,
	POL_EV_TERM,
	POL_EV_MUNMAP,
	POL_EV_EXEC,
	POL_EV_UNLOCK,
	POL_EV_LOCK, /* the program has just been given one: what others stored is taken in, if the rule says so */
	POL_EV_INTERVAL,
	POL_EV_DIRTY,
	POL_EV_N
};
/* Something happened to m: commit if its rule says so. 0, or -errno of the commit that was due. */
int pol_event(struct pol_file *m, enum pol_event ev);
/* The same for every managed file of the process (exit, term, exec). */
int pol_event_all(enum pol_event ev);

/* ---- descriptors ---- */

/* A descriptor of the program was just opened (or is looked at for the first time): does a rule match its
 * file? 0 and *ret_m = NULL: no. A file: yes, counted as one more descriptor of it, until pol_fd_close; the
 * result is 1 when none of it was known before, by whatever name: a journal left by a crash was replayed
 * then, and what is wrong with it is in the log. That a file cannot be managed is told by pol_mmap. -errno:
 * there is no memory to know it. */
int pol_fd_open(int fd, struct pol_file **ret_m);
/* One more descriptor of m (dup). */
void pol_fd_dup(struct pol_file *m);
/* One descriptor of m is about to be closed: the last one, without a mapping, is the release. The result is
 * the release commit's. Call before the real close. */
int pol_fd_close(struct pol_file *m);
/* The same for the descriptor fd, with which locks of the program may go. */
int pol_fd_close_locked(struct pol_file *m, int fd);
/* Path about to be opened with O_TRUNC, or truncate(2)'d: the managed file with a live handle behind it,
 * counted as by pol_fd_open, or NULL. */
struct pol_file *pol_file_of_path(int dirfd, const char *path, bool follow);
/* The same for a file that was looked up already. */
struct pol_file *pol_file_of_stat(const struct stat *st);
/* Could a file of this inode number be found by that? Lock-free. */
bool pol_inode_may_be_known(ino_t ino);
/* Names are about to change: old becomes new (which goes, or with RENAME_EXCHANGE becomes old), or with new =
 * NULL old goes. The journals of live files go by their names: these files are held until pol_rename_end,
 * which is told whether it happened. -errno: it must not. */
struct pol_rename {
	struct pol_file *m[2]; /* either may be NULL */
};
int pol_rename_begin(int olddirfd, const char *old, int newdirfd, const char *new, struct pol_rename *ret);
void pol_rename_end(struct pol_rename *r, bool done);
/* Counted reference while the shim works with m. */
void pol_file_get(struct pol_file *m);
void pol_file_put(struct pol_file *m);
/* A stdio stream that nobody sees is about to be, or is, on m. -EOPNOTSUPP, said in the log: m is live, and
 * what goes through the stream would pass the mappings by. */
int pol_file_has_stream(struct pol_file *m);
/* Does m have a live handle (was it ever mapped, here or by a process that it is shared with)? Without one,
 * descriptor calls go to libc. fd is of it. Cheap when nobody has it live. */
bool pol_file_is_live(struct pol_file *m, int fd);
/* Number of live files in the process, and one more when another process may have one live that this one has
 * open; lock-free. 0: the shim has nothing to look up. */
unsigned pol_nlive(void);

/* ---- calls on a descriptor of a live file ---- */

/* fd is the program's descriptor: it carries the file position and flags (O_APPEND, O_DSYNC). off < 0: use
 * and move the position. flags: RWF_*. Bytes or -errno. */
ssize_t pol_read(struct pol_file *m, int fd, const struct iovec *iov, int niov, off_t off, int flags);
ssize_t pol_write(struct pol_file *m, int fd, const struct iovec *iov, int niov, off_t off, int flags);
off_t pol_lseek(struct pol_file *m, int fd, off_t off, int whence);
int pol_truncate(struct pol_file *m, off_t len);
/* Around a call that sets the file's times, which is no change by somebody else. */
void pol_times_begin(struct pol_file *m);
void pol_times_end(struct pol_file *m);
int pol_fallocate(struct pol_file *m, int mode, off_t off, off_t len);
/* Put the handle's size (and block count) over what the kernel said. */
void pol_fix_stat(struct pol_file *m, struct stat *st);
off_t pol_size(struct pol_file *m);

/* ---- mappings ---- */

/* Called before a mapping that the kernel gave the program becomes a managed one; set by the shim at start. */
void pol_set_range_hook(void (*added)(const void *addr, size_t len));
/* Is any byte of the range in a managed mapping? Lock-free when nothing is mapped. */
bool pol_addr_is_managed(const void *addr, size_t len);
/* mmap of a matching descriptor. -ENOTSUP: not managed after all (on_error=passthrough, or MAP_PRIVATE of
 * a file without a live handle): forward to libc. */
int pol_mmap(struct pol_file *m, int fd, void *addr, size_t len, int prot, int flags, off_t off, void **ret_addr);
int pol_munmap(void *addr, size_t len);
/* mmap with MAP_FIXED of something that is none of ours, over something that is. */
int pol_mmap_other(void *addr, size_t len, int prot, int flags, int fd, off_t off, void **ret_addr);
/* shmat with SHM_REMAP, the same; len is the segment's. */
int pol_shmat(int id, void *addr, size_t len, int flags, void **ret_addr);
/* Something that is none of ours was placed where something of ours was believed to be. */
void pol_mapped_other(void *addr, size_t len);
int pol_msync(void *addr, size_t len, int flags);
int pol_mprotect(void *addr, size_t len, int prot);
int pol_madvise(void *addr, size_t len, int advice);
/* mlock2, or mlock with flags 0. */
int pol_mlock(const void *addr, size_t len, unsigned flags);
int pol_remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags);
int pol_mremap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr);
/* Buffers that the kernel is about to read (write = false) or fill. 0 or -errno. Cheap when not managed. */
int pol_prepare(const void *addr, size_t len, bool write);

/* ---- the kernel ---- */

/* A system call past libc: its result, or -errno. Any time, anywhere. */
long pol_syscall(long nr, long a, long b, long c, long d, long e, long f);

/* ---- signals ---- */

/* SIGSEGV or SIGBUS: 1 resolved; 0 the program's own; -errno: ours, but no page can be had. */
int pol_fault(const siginfo_t *info, void *ucontext);
/* A fault inside our own code: one line and a backtrace; the shim lets the default action happen. */
void pol_crash(const siginfo_t *info, void *ucontext);
/* Does signo trigger something by the settings, or default-terminate with the term trigger on? */
bool pol_signal_is_trigger(int signo);
/* Which signals must have our handler now: bit signo-1. Changes when the first file becomes managed. */
uint64_t pol_signals_wanted(void);
/* signo arrived. Hands work to the helper thread, or (default-action TERM/INT/HUP) commits before the shim
 * lets the default action happen. Signal handler context. */
void pol_signal(int signo, bool is_default);
/* Called by policy when pol_signals_wanted() changed; set by the shim at start. */
void pol_set_signals_hook(void (*changed)(void));

/* ---- descriptors and memory that are ours ---- */

bool pol_fd_is_ours(int fd);
/* The program puts its own descriptor at fd: ours there moves away. */
int pol_fd_make_room(int fd);

#endif
