/* SPDX-License-Identifier: MIT */
/* userfaultfd(2) and PAGEMAP_SCAN, driven; for the uffd engine. */
#ifndef VM_UFFD_H
#define VM_UFFD_H

#include "internal.h"

/* Open both descriptors and, unless that was done before in this kernel, try them with a real store. 0, or
 * -errno with *ret_why a static string. */
int vm_uffd_open(bool probed, const char **ret_why);
void vm_uffd_close(void);
/* Are kernel accesses to missing pages served, too? */
bool vm_uffd_is_full(void);
int vm_uffd_register(uintptr_t addr, size_t len, bool missing);
int vm_uffd_unregister(uintptr_t addr, size_t len);
/* Write-protect a range; absent pages get a mark. */
int vm_uffd_protect(uintptr_t addr, size_t len);
/* Calls fn for each run of [start, stop) that was stored into, and protects it again. Map lock held. */
int vm_uffd_scan(uintptr_t start, uintptr_t stop, void (*fn)(uintptr_t start, uintptr_t stop, void *arg), void *arg);
/* The descriptor (it can be moved: ask each time), and an ioctl on it, tried again on EAGAIN. */
int vm_uffd_fd(void);
int vm_uffd_ioctl(unsigned long request, void *arg);

/* ---- uffd_armed.c: regions of a mapping, and which are armed; map lock held ---- */

/* Regions are counted from v->start's on. */
uint64_t vm_region_of(const struct vma *v, uint64_t pgoff);
/* Pages of region r that v shows. */
void vm_region_pages(const struct vma *v, uint64_t r, uint64_t *ret_start, uint64_t *ret_stop);
bool vm_is_armed(const struct vma *v, uint64_t r);
int vm_armed_alloc(struct vma *v);
void vm_armed_free(struct vma *v);
int vm_armed_split(struct vma *v, struct vma *tail);
/* The first regions at or after start, neighbours, in each of which ram holds a page; stop: there are none.
 * Only the first page of each is looked for: to find where runs of pages end takes a walk over all of them.
 */
uint64_t vm_held_regions(const struct vma *v, uint64_t start, uint64_t stop, uint64_t *ret_stop);
int vm_protect_pages(const struct vma *v, uint64_t start, uint64_t stop);
/* Note what was stored into [start, stop), whole regions, which are armed then. Handle lock held. */
int vm_scan_regions(struct vma *v, uint64_t start, uint64_t stop);
/* Arm all regions that [start, stop) touches. Handle lock held unless v is fresh. */
int vm_arm(struct vma *v, uint64_t start, uint64_t stop);
/* Arm v as far as the file goes, by the lock as vm_arm: is that done in no time? All of it. Or a piece, and
 * no handle lock held; 1: there is more. v is not fresh any more when all is done: the caller gives its
 * rights. */
bool vm_settles_at_once(const struct vma *v);
int vm_settle_all(struct vma *v);
int vm_settle_some(struct vma *v);

/* ---- uffd_thread.c: the thread that serves first touches of lazy mappings ---- */

int vm_uffd_need_thread(void);
void vm_uffd_thread_fork_child(void);

#endif
