/* SPDX-License-Identifier: MIT */
/*
 * The virtual memory manager: files of blocks, mapped into memory, changed there, and written out as
 * transactions.
 *
 *	bigfile  blocks behind a backend (vm_backend.h)
 *	fileh    an open handle on a bigfile: pages in RAM, the dirty set, the size
 *	vma      one mapping of a fileh into the address space
 *
 * Results are 0 or -errno. Calls are safe from several threads and from signal handlers, but must be made
 * with asynchronous signals blocked (the caller's duty: one place in the shim does it). Sizes and offsets are
 * bytes unless named pgoff or npages. Ranges are half-open.
 *
 * It is an error to call anything here from a backend operation.
 */
#ifndef VM_H
#define VM_H

#include "vm_backend.h"
#include "vm_sys.h"
#include <stdbool.h>
#include <signal.h>

struct vm_fileh;

enum vm_engine { VM_ENGINE_AUTO, VM_ENGINE_UFFD, VM_ENGINE_SEGV };
enum vm_load { VM_LOAD_AUTO, VM_LOAD_EAGER, VM_LOAD_LAZY };
enum vm_on_dirty { VM_DIRTY_DROP, VM_DIRTY_KEEP, VM_DIRTY_FAIL };

/* ---- process ---- */

/* Probe engines and prepare this process; once, before any other call; later calls do nothing. */
int vm_start(enum vm_engine engine);
/* Could vm_start succeed? Leaves nothing open. */
int vm_probe(enum vm_engine engine);
/* The engine in use and, in words, why a better one is not (a static string, or NULL). */
enum vm_engine vm_engine(const char **ret_why);
/* Can the engine load a page on first touch even when the kernel touches it? */
bool vm_can_load_lazily(void);

/* Around fork(2): prepare takes every lock in order, the other two release them; the child re-arms its
 * mappings before it returns. Call with asynchronous signals blocked. After an error mappings are gone from the
 * child, all of those of a handle that is lost.
 * prepare is -EAGAIN, with no lock taken, when a mapping stays frozen for msec. Who froze it may need a lock of the
 * caller's: without those vm_fork_wait returns when it is to be tried again. */
int vm_fork_prepare(unsigned msec);
void vm_fork_wait(void);
void vm_fork_parent(void);
int vm_fork_child(void);

/* A SIGSEGV or SIGBUS arrived. 1: it was a page fault of ours, now resolved, go on. 0: not ours.
 * -errno: ours, but the page cannot be had (SIGBUS is due); -ENXIO: it lies beyond the end. Signal handler
 * context. */
int vm_fault(const siginfo_t *info, void *ucontext);

/* Called around waiting, for our locks or for another thread's commit, load or invalidation, by embedders
 * that have a lock of their own (Python's GIL), which the other may need. Either may be NULL. release returns
 * a token that reacquire gets back. Any context that may touch a mapping, the handler of a fault too. */
struct vm_lock_hook {
	void *(*release)(void);
	void (*reacquire)(void *token);
};
void vm_set_lock_hook(const struct vm_lock_hook *hook);

/* A helper thread, all signals blocked, detached: it does not store into the program's memory, and is not
 * counted as one that might. It has begun when this returns. */
int vm_thread_start(void *(*fn)(void *arg), void *arg, size_t stack_len);
#define VM_STACK_LEN (128ul << 10) /* enough for core */
/* In a helper: has the main thread ended, and every other one that is no helper? */
bool vm_thread_is_last(void);

/* ---- handles ---- */

/* Open f's backend (with arg) and a handle on it. f must stay until vm_fileh_close returned. load: when pages
 * are filled. */
int vm_fileh_open(struct vm_bigfile *f, const char *arg, enum vm_load load, struct vm_fileh **ret_h);
/* The handle for another process: descriptors of it, which stay ours; ret_fds[VM_SHARE_NFDS]. From now on
 * this process answers what others ask. It is an error to close the handle meanwhile. */
#define VM_SHARE_NFDS 2
int vm_fileh_share(struct vm_fileh *h, int *ret_fds);
/* A handle on what another process has open, from (copies of) its descriptors, which stay the caller's. What
 * is stored by one is seen by the other, and any of them commits all of it.
 * -EPROTO: they are no such descriptors, or of another version. -ESTALE: they are of another file than f.
 * -EMEDIUMTYPE: f has another backend. -EOPNOTSUPP: f's backend cannot share. -EBUSY: one of the others was
 * in the middle of something for msec. */
int vm_fileh_attach(struct vm_bigfile *f, const char *arg, const int *fds, unsigned msec, struct vm_fileh **ret_h);
/* Other processes that have the handle and do not leave, at most max; returns how many. leaves: this process
 * does, from now on. Children that are just being forked are waited for, a second at most. */
unsigned vm_fileh_others(struct vm_fileh *h, bool leaves, int32_t *ret_pids, unsigned max);
#define VM_MAX_OTHERS 192
/* f's open_write, with nobody else at the storage. */
int vm_fileh_open_write(struct vm_fileh *h);
/* Close the handle and, when no other process has it, the backend. It is an error to close a handle that has
 * mappings. Uncommitted stores are gone. The result is the backend's; the handle is gone in any case. */
int vm_fileh_close(struct vm_fileh *h);
/* Could this process, a forked child, not become one that has h: there are VM_MAX_OTHERS, or it is in a PID
 * namespace of its own? Then it is an error to do anything but close it. */
bool vm_fileh_is_lost(const struct vm_fileh *h);
/* Do other living processes have the handle, too? */
bool vm_fileh_is_shared(struct vm_fileh *h);
/* The size in bytes as the program sees it. */
uint64_t vm_fileh_size(struct vm_fileh *h);
/* Change the size: seen at once, in the file at commit. */
int vm_fileh_resize(struct vm_fileh *h, uint64_t size);
/* Make [off, off + len) zeros, as a store would; the size does not change. */
int vm_fileh_zero(struct vm_fileh *h, uint64_t off, uint64_t len);

/* Read or write like preadv/pwritev, on the handle. Returns bytes or -errno (also -EFAULT, as the kernel).
 * vm_fileh_write with off == VM_APPEND writes at the end; *ret_off (may be NULL) is where. */
#define VM_APPEND UINT64_MAX
ssize_t vm_fileh_read(struct vm_fileh *h, const struct iovec *iov, int niov, uint64_t off);
ssize_t vm_fileh_write(struct vm_fileh *h, const struct iovec *iov, int niov, uint64_t off, uint64_t *ret_off);

/* SEEK_DATA/SEEK_HOLE on the handle: the offset, or -errno. */
off_t vm_fileh_seek(struct vm_fileh *h, off_t off, int whence);

/* ---- transactions ---- */

struct vm_commit_result {
	uint64_t txid;	/* of the last transaction: this one, or the one before when nothing had changed */
	uint64_t npages; /* pages written out */
	bool conflict;	 /* with -EBUSY: it is this file that somebody else changed */
	bool overwrote;	 /* others had committed something since the snapshot that this commit replaced: */
	uint64_t noverwritten; /* so many pages, and maybe the size */
};
/* Write out all that was stored before some instant during the call, one instant for all of h[n], all or
 * nothing. durable: return only when it survives power loss. On an error nothing was written and every page
 * is as dirty as before. ret[n]: one for each; a file in which nothing changed takes no part.
 * -EBUSY: the storage of a file that takes part was changed by somebody else and overwrite is false.
 * Of a handle that shows a snapshot: the same when others committed a page that is dirty here, or the size
 * and it was changed here, too; nothing has changed then. Otherwise the snapshot is the storage as of this
 * commit; that may be so also when there is another error.
 * It is an error to give several whose backend has no transactions over files (VM_COMMIT_PART), or whose
 * backends differ, or one of them twice. */
int vm_commit(struct vm_fileh **h, unsigned n, bool durable, bool overwrite, struct vm_commit_result *ret);
/* Forget all uncommitted stores, those before one instant for all of h[n]; back to the storage's state and
 * size, also what others made of it since the snapshot. After an error some stores may be gone and others
 * not: then a commit with one of those files fails until a discard has succeeded. */
int vm_discard(struct vm_fileh **h, unsigned n);
/* The same for one. */
static inline int vm_fileh_commit(struct vm_fileh *h, bool durable, bool overwrite, struct vm_commit_result *ret)
{
	return vm_commit(&h, 1, durable, overwrite, ret);
}
static inline int vm_fileh_discard(struct vm_fileh *h)
{
	return vm_discard(&h, 1);
}
/* A copy of a file that is being made elsewhere. */
struct vm_copy {
	/* It has the first len bytes of the committed content now, and nothing else; what it had before is gone.
	 * May be called again, when something was committed meanwhile. 1: it is empty instead; what is committed
	 * will be stored. No lock held; it may be called beside commits. */
	int (*base)(struct vm_copy *c, uint64_t len);
	/* Pages of it; later ones replace earlier ones. No lock held. */
	int (*store)(struct vm_copy *c, uint64_t pgoff, size_t npages, const void *buf);
	/* results: */
	uint64_t size;	 /* in bytes: what was stored beyond it is none of it */
	uint64_t txid;	 /* of the last transaction before it */
	uint64_t npages; /* that were stored since that */
	/* core's own: of what the base was made; one of the two rises when it becomes another */
	uint64_t base_txid, base_gen;
};
/* Copy what a commit would make of the storage of h[n] to c[n]: all that was stored before some instant during
 * the call, one instant for all. Nothing is committed, nothing dropped. Nobody waits while the first base is
 * made; commits, and what else waits for them, wait for the rest. Conflicts are as for a commit. After an error
 * the copies are nothing. Several need no common backend; it is an error to give one of them twice. */
int vm_copy_out(struct vm_fileh **h, struct vm_copy **c, unsigned n, bool overwrite);
/* The storage changed: pages of [off, off + len) are loaded again on next touch. len 0: to the end; the size
 * is read again when the whole file is invalidated. *ret_npages: pages dropped (may be NULL).
 * -EBUSY: VM_DIRTY_FAIL and a page is dirty; or one that others committed since the snapshot is, and would
 * stay; or VM_DIRTY_KEEP, the storage changed, and a process was killed or is stopped: which are dirty is unknown.
 * Nothing was dropped. */
int vm_fileh_invalidate(struct vm_fileh *h, uint64_t off, uint64_t len, enum vm_on_dirty on_dirty,
			uint64_t *ret_npages);
/* Look whether the storage was changed by somebody else: then all of it is invalidated. anyway: clean pages
 * are loaded again also when it does not seem so. 1: it was changed; 0; -errno. */
struct vm_dropped {
	uint64_t npages;
	uint64_t ndirty; /* of them with stores that were not committed */
};
int vm_fileh_refresh(struct vm_fileh *h, bool anyway, enum vm_on_dirty on_dirty, struct vm_dropped *ret);
/* Committed data to its final place. */
int vm_fileh_checkpoint(struct vm_fileh *h);
/* The process may end, or begin another program, at any moment: others who have the handle know all its
 * stores; if there are none, nothing is left behind in storage that is not needed. The handle stays usable. */
int vm_fileh_idle(struct vm_fileh *h);
/* Between these two nothing is committed, and storage has no journal or the like by f->path, which may
 * change. moved: it did. An error of begin (what was committed could not be brought in place): nothing is
 * held. */
int vm_fileh_rename_begin(struct vm_fileh *h);
void vm_fileh_rename_end(struct vm_fileh *h, bool moved);
/* Around a change of the storage's times by the program: nobody else may be at the storage meanwhile. */
void vm_fileh_times_begin(struct vm_fileh *h);
void vm_fileh_times_end(struct vm_fileh *h);
/* Reserve space in storage for [off, off + len), so that a commit there does not fail for lack of it.
 * -EOPNOTSUPP: the backend cannot. */
int vm_fileh_reserve(struct vm_fileh *h, uint64_t off, uint64_t len);

struct vm_fileh_stat {
	uint64_t size;
	uint64_t npages_resident; /* pages in RAM */
	uint64_t npages_dirty;	  /* exact when harvest was asked for */
	uint64_t txid;		  /* last transaction */
	bool size_dirty;	  /* is the size uncommitted? */
	bool stored_here;	  /* did this process store anything since it attached or last committed? */
};
void vm_fileh_stat(struct vm_fileh *h, bool harvest, struct vm_fileh_stat *ret);

/* ---- mappings ---- */

/* mmap(2) of the handle: addr, len, prot, flags as there (MAP_SHARED or MAP_PRIVATE); off a page multiple.
 * writable: may PROT_WRITE be asked for now or later? */
int vm_map(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable,
	   void **ret_addr);
/* Does [addr, addr + len) touch a mapping of ours? Cheap; no lock when nothing is mapped. */
bool vm_is_mapped(const void *addr, size_t len);
/* munmap, mprotect, madvise, mremap of a range that touches mappings of ours (and maybe others too): the
 * kernel's results. */
int vm_unmap(void *addr, size_t len);
int vm_protect(void *addr, size_t len, int prot);
int vm_advise(void *addr, size_t len, int advice);
/* mlock2(2), or mlock(2) with flags 0. */
int vm_mlock(const void *addr, size_t len, unsigned flags);
/* remap_file_pages(2) of a range that begins in a mapping of ours. */
int vm_remap_file_pages(void *addr, size_t len, int prot, size_t pgoff, int flags);
int vm_remap(void *old, size_t old_len, size_t new_len, int flags, void *new_addr, void **ret_addr);
/* How long vm_remap waits for a commit or an invalidation that holds still what it would move, before it
 * answers -EAGAIN: 10 seconds, unless set here. */
void vm_set_remap_wait(unsigned msec);
/* mmap(2) with MAP_FIXED of something that is none of ours, over mappings of ours; they stay when it fails. */
int vm_map_other(void *addr, size_t len, int prot, int flags, int fd, uint64_t off, void **ret_addr);
/* shmat(2) with SHM_REMAP, the same. len: the segment's. */
int vm_attach_segment(int id, void *addr, size_t len, int flags, void **ret_addr);
/* The kernel has just placed something that is none of ours at [addr, addr + len), which it took for free:
 * what was ours there was unmapped by a call that we did not see. */
void vm_forget_gone(void *addr, size_t len);
/* The private mappings that the process has of the file behind fd itself, but those of code, become mappings
 * of h, with what was stored into them. Signals of faults must come to vm_fault already. tell hears of each
 * before. -errno: some may be as before. */
int vm_adopt_private(struct vm_fileh *h, int fd, void (*tell)(const void *addr, size_t len));
/* Calls fn for the handles mapped in [addr, addr + len), neighbours that are the same once, with no lock
 * held. */
typedef void vm_mapped_fn(struct vm_fileh *h, void *arg);
void vm_for_each_mapped(void *addr, size_t len, vm_mapped_fn *fn, void *arg);
/* Number of this process's mappings of h. */
unsigned vm_fileh_nvmas(struct vm_fileh *h);
/* Make [addr, addr + len) ready for the kernel to read (or, write, to store into), so that a system call
 * meets no protected page. Ranges that are not ours are skipped. 0, or -errno when a load failed. */
int vm_prepare(const void *addr, size_t len, bool write);

/* ---- views: a mapping that threads use, resize and close ---- */

/*
 * For an embedder whose threads share one object with a mapping in it: a Python mmap, a Java buffer. The
 * struct lies in that object, and must stay as long as the object can be called; its fields are core's. It is
 * an error to give its memory to vm_unmap, vm_remap or vm_forget.
 *
 * A *user* is inside for one access, an *export* lasts as long as somebody keeps a pointer. No call waits for
 * either:
 *
 *	-EBADF   closed
 *	-EAGAIN  being resized; for a resize also: others are inside. Trying again can help
 *	-EBUSY   for a resize: exported. Trying again helps once the exports have ended
 *
 * Where several hold: closed, being resized, exported, in use. A use costs one atomic operation and takes no
 * lock.
 *
 * A forked child has the mapping and a copy of the struct; users that were inside in other threads are inside
 * there for ever, so that its close gives nothing back.
 */
struct vm_view {
	uint64_t state;		/* who is there (atomic) */
	struct vm_fileh *fileh; /* (fixed) */
	uint64_t off;		/* (fixed) */
	int prot;		/* (fixed) */
	bool can_resize;	/* shared and writable (fixed) */
	void *addr;		/* written by the one who resizes, when nobody else is there */
	size_t len;		/* bytes, as asked for (atomic: an export may see it grow) */
	size_t maplen;		/* bytes that are mapped (the one who resizes or disposes) */
	void (*gone)(struct vm_view *v); /* (fixed) */
};

/* Map [off, off + len) of h as vm_map does; flags: MAP_SHARED or MAP_PRIVATE. gone (may be NULL) is called
 * once the mapping is no more, in the thread that was the last one out, with no lock held: it may close h and
 * free v. On an error v is nothing. */
int vm_view_open(struct vm_view *v, struct vm_fileh *h, size_t len, int prot, int flags, uint64_t off,
		 void (*gone)(struct vm_view *v));
/* Begin and end a use. [*ret_addr, *ret_addr + *ret_len) stays as it is in between. It is an error to leave
 * without having entered, or to touch the memory afterwards. leave: the result of the unmapping, if that was
 * due. */
int vm_view_enter(struct vm_view *v, void **ret_addr, size_t *ret_len);
int vm_view_leave(struct vm_view *v);
/* The same for memory that is handed to somebody: it stays at its address until the unexport, also after a
 * close. */
int vm_view_export(struct vm_view *v, void **ret_addr, size_t *ret_len);
int vm_view_unexport(struct vm_view *v);
/* Make the view len long and the file end with it, at off + len: both or, on an error, neither; then address,
 * bytes and what is uncommitted are as before. The mapping may move (*ret_addr, may be NULL), but not while
 * it is exported: then it grows where it is, or -EBUSY. ninside: how often the calling thread has entered; it
 * is not counted against itself, and only a thread that says so is not. It is an error to say more than is
 * true. Besides those above: -EINVAL (len 0, or no such offset), -EACCES (read-only or private), and those of
 * vm_fileh_resize and vm_map. Waits for a commit of the handle like vm_fileh_resize, and keeps no user out
 * meanwhile. */
int vm_view_resize(struct vm_view *v, size_t len, unsigned ninside, void **ret_addr);
/* Always accepted, at any time: users and exports that are there stay, new ones are refused, the last one out
 * gives the mapping back. Closing again does nothing, unless giving it back has failed: then it tries again.
 * The result is that of the unmapping, if it was due. */
int vm_view_close(struct vm_view *v);

/* ---- descriptors of ours ---- */

/* Move *fd out of the way of the program's: high and close-on-exec, and remember where it is kept. *fd may
 * change later (vm_fd_move). 0 or -errno with *fd closed. */
int vm_fd_adopt(int *fd);
/* The same for a copy of fd, which stays as it is: nothing is closed, so no fcntl lock of the program's is
 * dropped. */
int vm_fd_adopt_copy(int fd, int *home);
/* The same without moving it. */
int vm_fd_adopt_in_place(int *fd);
/* Close *fd, which was adopted; sets it to -1. */
void vm_fd_drop(int *fd);
/* Exchange the numbers at two homes. */
void vm_fd_swap(int *a, int *b);
bool vm_fd_is_ours(int fd);
/* The program is about to put something of its own at fd: move ours away. */
int vm_fd_move(int fd);

/* ---- checks ---- */

/* Print a backtrace of the calling thread to stderr, or from ucontext when it is not NULL. Any context. */
void vm_backtrace(void *ucontext);

/* Walk all invariants of docs/invariants.md; aborts with a backtrace when one does not hold. */
void vm_check(void);

#endif
