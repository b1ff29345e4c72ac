/* SPDX-License-Identifier: MIT */
/* userfaultfd(2) and PAGEMAP_SCAN, driven; for the uffd engine. */
#ifndef VM_UFFD_H
#define VM_UFFD_H

#include "internal.h"

/* Open both descriptors and try them with a real store. 0, or -errno with *ret_why a static string. */
int vm_uffd_open(const char **ret_why);
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

/* ---- uffd_thread.c: the thread that serves first touches of lazy mappings ---- */

int vm_uffd_need_thread(void);
void vm_uffd_thread_fork_child(void);

#endif
