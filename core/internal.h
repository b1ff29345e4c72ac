/* SPDX-License-Identifier: MIT */
/*
 * What core's files use of each other. Unless said otherwise functions return 0 or -errno.
 * "map lock": vm_map_lock; "handle lock": fileh->ctl->lock.
 */
#ifndef VM_INTERNAL_H
#define VM_INTERNAL_H

#include "bug.h"
#include "pagemap.h"
#include "types.h"

static inline uint64_t vm_npages(uint64_t len)
{
	return (len + VM_PAGE - 1) >> VM_PAGE_SHIFT;
}

static inline size_t vm_page_up(size_t len)
{
	return (len + VM_PAGE - 1) & ~(VM_PAGE - 1);
}

/* ---- runs.c: growing lists of page runs ---- */

/* Append [start, stop); merges with the last one when they touch. -ENOMEM. */
int vm_runs_add(struct vm_runs *r, uint64_t start, uint64_t stop);
void vm_runs_free(struct vm_runs *r);

/* ---- page.c: states; handle lock held ---- */

enum vm_page_state vm_page_state(struct vm_fileh *h, uint64_t pgoff);
/* Pages of [start, stop) that are EMPTY, from start on and without a gap: now LOADING. Returns where it
 * ended. */
uint64_t vm_page_begin_load(struct vm_fileh *h, uint64_t start, uint64_t stop);
/* Who had the handle's lock died: it may have been counting. */
void vm_page_recount(struct vm_fileh *h);
void vm_page_end_load(struct vm_fileh *h, uint64_t start, uint64_t stop, bool loaded);
/* Stored into: LOADED and STORING pages become DIRTY, EMPTY ones too; LOADING ones are left. */
void vm_page_mark_dirty(struct vm_fileh *h, uint64_t start, uint64_t stop);
/* All DIRTY pages become STORING and are appended to runs. -ENOMEM: none did. */
int vm_page_begin_store(struct vm_fileh *h, struct vm_runs *runs);
/* All STORING pages become LOADED; the commit has happened. */
void vm_page_mark_stored(struct vm_fileh *h);
/* All STORING pages become DIRTY again. */
void vm_page_store_failed(struct vm_fileh *h);
/* Pages of [start, stop) become EMPTY; LOADING ones stay and are thrown away when they arrive (ctl->gen).
 * Returns how many were dropped. */
uint64_t vm_page_drop(struct vm_fileh *h, uint64_t start, uint64_t stop);
/* If somebody's stores are lost from view (ctl->suspect), any page in ram may have been stored into: each is
 * compared with the storage. */
int vm_page_suspect(struct vm_fileh *h);
/* An engine saw that [start, stop) may have been stored into. Tells false alarms apart where it costs
 * nothing. */
void vm_page_note_stored(struct vm_fileh *h, uint64_t start, uint64_t stop);

/* ---- ram.c ---- */

int vm_ram_open(struct vm_ram *r, uint64_t size);
void vm_ram_close(struct vm_ram *r);
int vm_ram_resize(struct vm_ram *r, uint64_t size);
/* Put npages at pgoff; what lies beyond size is cut. */
int vm_ram_fill(struct vm_ram *r, uint64_t pgoff, size_t npages, const void *buf, uint64_t size);
/* The same for pages that are missing: on an error they still are. */
int vm_ram_fill_missing(struct vm_ram *r, uint64_t pgoff, size_t npages, const void *buf, uint64_t size);
/* Copy pages out; beyond the end zeros. */
int vm_ram_copy(struct vm_ram *r, uint64_t pgoff, size_t npages, void *buf);
/* Zero pages where there are none. */
int vm_ram_hold(struct vm_ram *r, uint64_t start, uint64_t stop);
/* Free the pages of [start, stop): every mapping in every process faults again. */
int vm_ram_punch(struct vm_ram *r, uint64_t start, uint64_t stop);
/* First page of [start, stop) that ram holds, or stop; *ret_stop: the end of that run, which takes a walk
 * over it. */
uint64_t vm_ram_first(struct vm_ram *r, uint64_t start, uint64_t stop);
uint64_t vm_ram_next(struct vm_ram *r, uint64_t start, uint64_t stop, uint64_t *ret_stop);

/* ---- fileh.c ---- */

extern struct vm_fileh *vm_filehs; /* handles of the process, in the order of vm_fileh_is_before (map lock) */
/* By their files: the same in each process that has both. */
bool vm_fileh_is_before(const struct vm_fileh *a, const struct vm_fileh *b);
/* Keep the handle while working for a fault. Map lock held. */
void vm_fileh_pin(struct vm_fileh *h);
void vm_fileh_unpin(struct vm_fileh *h); /* no lock held */
/* Parts of opening. alloc: nothing but f is known of it; enlist: forks take it along from now on. */
int vm_fileh_alloc(struct vm_bigfile *f, struct vm_fileh **ret_h);
int vm_fileh_map_ctl(struct vm_fileh *h);
void vm_fileh_close_ctl(struct vm_fileh *h);
void vm_fileh_enlist(struct vm_fileh *h);
/* Once no fault is being served for it. */
void vm_fileh_unlist(struct vm_fileh *h);

/* ---- share.c ---- */

void vm_ctl_ops_name(const struct vm_backend_ops *ops, char *ret_name);

/* ---- peer.c ---- */

#define VM_WAIT_MSEC 200 /* how often a waiter looks whether those it waits for still live */

/* Take and release the handle's lock; repairs what a dead holder left. */
void vm_fileh_lock(struct vm_fileh *h);
void vm_fileh_unlock(struct vm_fileh *h);
void vm_fileh_repair(struct vm_fileh *h);
/* The lock was taken over from one that died. Held. */
void vm_fileh_inherit(struct vm_fileh *h);
/* Wait for a change of the handle: handle lock held, released meanwhile. Looks for dead peers now and then. */
void vm_fileh_wait(struct vm_fileh *h);
void vm_fileh_wait_msec(struct vm_fileh *h, unsigned msec);
void vm_peer_fork_child(void);
/* Enter this process as a peer that is busy: it dies, and others notice. No lock held. -EBUSY: another one
 * was for msec. */
int vm_fileh_attach_busy(struct vm_fileh *h, unsigned msec);
/* Become the only one who commits, discards, invalidates or resizes. No lock held. */
void vm_fileh_begin_busy(struct vm_fileh *h);
void vm_fileh_end_busy(struct vm_fileh *h);
/* Set the gate and wait until nobody whom it keeps out is inside. Handle lock held; busy. */
void vm_fileh_gate(struct vm_fileh *h, enum vm_gate gate);
struct vm_peer *vm_fileh_peer(struct vm_fileh *h);
/* Enter this process into ctl->peers. Handle lock held. -EAGAIN: table full. */
int vm_fileh_attach_peer(struct vm_fileh *h);
/* Are there others in ctl->peers? Handle lock held. */
bool vm_fileh_has_others(struct vm_fileh *h);

/* ---- owners.c: robust mutexes of the program; map lock held, and the handle's ---- */

/* No handle's lock needed. */
void vm_owners_begin(void);
void vm_owners_fork_child(void);
/* What the threads of this process hold in its mappings of h, which may not be stored into now or soon. */
void vm_owners_note(struct vm_fileh *h);
/* They may be stored into again. */
void vm_owners_go_on(struct vm_fileh *h);
/* This process has no mapping of it any more. Map lock not needed. */
void vm_owners_leave(struct vm_fileh *h);
/* All threads of a peer are dead. Map lock not needed. */
void vm_owners_died(struct vm_fileh *h, unsigned peer);

/* ---- writeout.c ---- */

/* vm_fileh_begin_busy of all, in the order that all processes share. */
void vm_begin_busy(struct vm_fileh **h, unsigned n);
/* h takes part in the commit. Busy, no lock held. -EBUSY: its storage was changed. */
int vm_part_begin(struct vm_fileh *h, bool overwrite);
/* Keep writers out, and look whether there is anything to commit in any of them, also of the others' stores.
 * Busy, no lock held. */
int vm_look(struct vm_fileh **h, unsigned n, bool *ret_changed);
/* Is there anything to commit, as far as is known? Handle lock held. */
bool vm_fileh_is_changed(struct vm_fileh *h);

/* ---- vma.c: the address map ---- */

extern struct vm_lock vm_map_lock;
/* The i-th mapping by address; n of them (map lock). */
extern struct vma **vm_vmas;
extern size_t vm_nvmas;
/* Index of the first mapping that ends after addr. */
size_t vm_vma_index(uintptr_t addr);
struct vma *vm_vma_at(uintptr_t addr);
/* Is any of [start, stop) ours? */
bool vm_vma_touches(uintptr_t start, uintptr_t stop);
static inline uint64_t vm_vma_pgstop(const struct vma *v)
{
	return v->pgoff + ((v->stop - v->start) >> VM_PAGE_SHIFT);
}
static inline uintptr_t vm_vma_addr(const struct vma *v, uint64_t pgoff)
{
	return v->start + ((pgoff - v->pgoff) << VM_PAGE_SHIFT);
}
int vm_vma_insert(struct vma *v);
/* What is removed and not inserted again before the map lock goes is to be published. */
void vm_vma_remove(struct vma *v);
struct vma *vm_vma_alloc(void);
void vm_vma_free(struct vma *v);
/* Cut mappings so that none crosses start or stop. */
int vm_vma_split(uintptr_t start, uintptr_t stop);
/* Publish the bounds that vm_is_mapped looks at without a lock. */
void vm_vma_publish(void);
/* Calls fn for every shared mapping of h in this process, with the part of [start, stop) that it shows. Stops
 * at the first error. */
int vm_vma_for_each(struct vm_fileh *h, uint64_t start, uint64_t stop,
		    int (*fn)(struct vma *v, uint64_t start, uint64_t stop));

/* ---- map.c; map lock held ---- */

/* The map lock, once neither h (may be NULL) nor a handle mapped in [start, stop) is frozen. No lock held.
 * -EAGAIN: not within msec, and the lock is not held. */
int vm_map_lock_thawed(struct vm_fileh *h, uintptr_t start, uintptr_t stop, unsigned msec);
/* vm_map, -EAGAIN when h stays frozen for msec. No lock held. */
int vm_map_within(struct vm_fileh *h, void *addr, size_t len, int prot, int flags, uint64_t off, bool writable,
		  unsigned msec, void **ret_addr);
/* v, which the kernel has just mapped, becomes one of ours. */
int vm_vma_track(struct vm_fileh *h, struct vma *v);
/* The protection that v should have. */
int vm_vma_reprotect(struct vma *v);
/* fn for each of our mappings within [start, stop), after cutting them at the ends. */
int vm_vma_for_range(uintptr_t start, uintptr_t stop, int (*fn)(struct vma *v));
/* They are none of ours any more, which is to be published. */
void vm_vma_untrack_range(uintptr_t start, uintptr_t stop);
/* Around the call that takes away or replaces all that is mapped in [start, stop): what was stored there is
 * known, and nobody stores meanwhile. If it failed everything is as before. */
int vm_vma_begin_unmap(uintptr_t start, uintptr_t stop);
void vm_vma_end_unmap(uintptr_t start, uintptr_t stop, bool is_unmapped);

/* ---- stale.c; map lock held ---- */

/* Our mappings in [start, stop) were unmapped behind our back, by a bare system call. What was stored there
 * since the last harvest is not known: all of it may have been. */
int vm_vma_drop_gone(uintptr_t start, uintptr_t stop);
/* Looks which of them are, and drops those; returns how many there were. With locked (may be NULL), whose
 * lock is held, only that handle's. */
size_t vm_vma_drop_stale(uintptr_t start, uintptr_t stop, struct vm_fileh *locked);

/* ---- load.c ---- */

/* Load the EMPTY pages of [start, stop); pages being loaded by others are waited for. No lock held. */
int vm_load(struct vm_fileh *h, uint64_t start, uint64_t stop);
/* Read the committed content of [start, stop) into buf, as the handle sees it (size_low). No lock held. */
int vm_load_read(struct vm_fileh *h, uint64_t start, size_t npages, void *buf, uint64_t size_low);
/* The size grew from was to size (bytes): load what private mappings show of that, since a page that they
 * read would be in ram without anybody's knowing. Busy or a writer inside, no lock held. */
int vm_load_private(struct vm_fileh *h, uint64_t was, uint64_t size);
/* Load what [addr, addr + len) shows of lazy handles. No lock held. */
int vm_load_mapped(const void *addr, size_t len);
/* Replace the content of loaded pages by the storage's, without their ever being gone. Busy, gate closed,
 * frozen. */
int vm_load_again(struct vm_fileh *h, uint64_t start, uint64_t stop);

/* ---- engine.c ---- */

extern const struct vm_engine_ops *vm_engine_ops;
extern const struct vm_engine_ops vm_engine_uffd, vm_engine_segv;
/* Harvest all mappings of h in this process. Map and handle lock held. */
int vm_harvest(struct vm_fileh *h);
/* The same, and 1 when there was something, unless no thread of this process had a page fault since the last
 * time, which a store would have been. */
int vm_harvest_if_touched(struct vm_fileh *h);
/* A thread ends that was counted in what the others are told of the last harvest: it holds no more. No lock held. */
void vm_harvest_doubt(void);
/* The same, and all that a process that was killed may have stored counts as stored. */
int vm_harvest_all(struct vm_fileh *h);
/* Some of what the engine left for later (h->unsettled). Is there more? No lock held. */
bool vm_settle(struct vm_fileh *h);
/* Stores (loads, too, when all) into this process's mappings of h wait until thaw. runs NULL: everywhere. Map
 * and handle lock held. */
int vm_freeze(struct vm_fileh *h, const struct vm_runs *runs, bool all);
void vm_thaw(struct vm_fileh *h);
/* In a forked child, before its mappings are armed. */
void vm_engine_fork_child(void);

/* ---- hold.c ---- */

/* Has the program given the file a size that is not committed, be it for a moment? */
static inline bool vm_size_is_changed(const struct vm_ctl *ctl)
{
	return ctl->size != ctl->size_committed || ctl->size_low < ctl->size_committed;
}

/* Busy, no lock held. On an error nothing is held. */
int vm_hold(struct vm_fileh *h, struct vm_held *ret);
/* seen: the handle shows what others committed. */
void vm_let_go(struct vm_fileh *h, struct vm_held *held, bool seen);
/* Take in what others committed, as one instant. -EBUSY: a page or the size of that was changed here, too;
 * with overwrite that stays as it is. Busy, no lock held; the gate is open afterwards. */
int vm_catch_up(struct vm_fileh *h, const struct vm_held *held, bool overwrite, struct vm_commit_result *ret);

/* ---- cut.c ---- */

/* Store all that changed in h[n] up to one instant. Busy, gates closed for writers, no lock held; files that
 * have changed by the look have begun. */
int vm_cut(struct vm_fileh **h, unsigned n, bool overwrite);
int vm_need_scratch(struct vm_fileh *h);

/* ---- thread.c ---- */

#define VM_STAT_LEN	512 /* of /proc/PID/stat: as far as it is looked at */
#define VM_STAT_MINFLT	10
#define VM_STAT_MAJFLT	12
#define VM_STAT_THREADS 20
#define VM_STAT_STARTED 22

/* Can nobody but the calling thread store into this process's memory? */
bool vm_thread_is_alone(void);
void vm_thread_fork_child(void);
/* Is /proc there, and of our PID namespace? Not after a chroot(2), say. */
bool vm_process_is_visible(void);
/* Without looking there; false when it cannot be known. */
bool vm_process_has_ended(int32_t pid);
/* Of a process; pid 0: this one. What /proc/PID/stat says of it ('R', 'S', 'T', 'Z' ...); 0: it cannot be
 * known. */
char vm_process_state(int32_t pid);
/* /proc/PID/stat, "PID (NAME) STATE ...", to be read more than once: a descriptor or -errno; where it goes on
 * after the name, whatever is in that, NULL: it cannot be known; and the number in field n of it (proc(5)). */
int vm_process_open_stat(int32_t pid);
const char *vm_process_read_stat(int fd, char text[VM_STAT_LEN]);
uint64_t vm_process_field(const char *p, int n);
/* What all its threads ran so far, in nanoseconds; 0: it cannot be known. */
uint64_t vm_process_ran(int32_t pid);
/* When it was started, in the kernel's ticks since boot; 0: it cannot be known. */
uint64_t vm_process_started(int32_t pid);
/* Its threads, one whose main thread ended included; 0: it cannot be known. */
unsigned vm_process_nthreads(int32_t pid);
/* Of this process: one thread, and helpers; and how many threads those are. */
bool vm_process_has_one_thread(void);
unsigned vm_process_nknown(void);

/* ---- idle.c ---- */

/* Did none of the others store since its last harvest? false: it cannot be known. Handle lock held. */
bool vm_others_are_idle(struct vm_fileh *h);
/* Forget what is kept for that. */
void vm_idle_fini(struct vm_fileh *h);

/* ---- ask.c ---- */

/* Have the others do it. Busy, no lock held. -ETIMEDOUT: one that runs does not answer; or the first error of
 * theirs. */
int vm_ask(struct vm_fileh *h, enum vm_ask ask);
/* In two steps; what begin finds is asked, who comes later was told. */
void vm_ask_begin(struct vm_fileh *h, enum vm_ask ask);
int vm_ask_end(struct vm_fileh *h);
/* What both rest on; self: by this process's server, too. Handle lock held. */
void vm_ask_post(struct vm_fileh *h, enum vm_ask ask, bool self);
/* The others go on; not waited for. Busy, no lock held. */
void vm_ask_thaw(struct vm_fileh *h);
/* 0: nobody is stopped without having answered; else a number that is another one when one of those went on
 * meanwhile, be it for a moment. Handle lock held. */
uint64_t vm_ask_stopped(struct vm_fileh *h);
/* Is what was asked last so for all who have the handle now, and did those that are stopped not go on? Handle lock
 * held. */
bool vm_ask_still_holds(struct vm_fileh *h, uint64_t stopped);
/* Answer what others ask, from now on until vm_serve_end. Map lock held / no lock held. */
int vm_serve(struct vm_fileh *h);
void vm_serve_end(struct vm_fileh *h);
/* There is something to settle. */
void vm_serve_wake(struct vm_fileh *h);

/* ---- fault.c ---- */

/* Wait until touches of h go on, for msec at most. No lock held; h is pinned. */
void vm_wait_for_thaw(struct vm_fileh *h, unsigned msec);
/* What to load around a touched page: handle's readahead state. Map lock held. */
void vm_readahead(struct vm_fileh *h, uint64_t pgoff, uint64_t *ret_start, uint64_t *ret_stop);

/* ---- resize.c, invalidate.c ---- */

/* The file grows from size, to stop at least: what was stored beyond its end, in its last page, is nowhere. */
int vm_zero_tail(struct vm_fileh *h, uint64_t size, uint64_t stop);
/* The size of ram and ctl to size. Busy; map and handle lock held; gate closed. */
int vm_set_size_locked(struct vm_fileh *h, uint64_t size);
/* vm_fileh_resize for one who is busy. Gate closed, no lock held. */
int vm_fileh_resize_busy(struct vm_fileh *h, uint64_t size);

/* ---- fdtab.c ---- */

void vm_fdlimit_fork_prepare(void);
void vm_fdlimit_fork_parent(void);
void vm_fdlimit_fork_child(void);
void vm_fd_fork_prepare(void);
void vm_fd_fork_parent(void);
void vm_fd_fork_child(void);

#endif
