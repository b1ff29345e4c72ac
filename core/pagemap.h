/* SPDX-License-Identifier: MIT */
/* Per-page facts by file page offset, O(1), sparse, shared between processes. The handle's lock is held. */
#ifndef VM_PAGEMAP_H
#define VM_PAGEMAP_H

#include "types.h"

/* fd: home of the memfd that holds the bytes from base on. */
void vm_pagemap_init(struct vm_pagemap *pm, int *fd, uint64_t base);
void vm_pagemap_fini(struct vm_pagemap *pm);
/* Make [start, stop) usable: after 0, vm_pagemap_at cannot fail there. -EFBIG, -ENOMEM. */
int vm_pagemap_reserve(struct vm_pagemap *pm, uint64_t start, uint64_t stop);
/* The byte of pgoff; *ret_n bytes follow each other from there. It is an error to ask for a page that was
 * never reserved. */
uint8_t *vm_pagemap_at(struct vm_pagemap *pm, uint64_t pgoff, uint64_t *ret_n);
/* The byte of pgoff, also when it was never reserved: EMPTY. */
uint8_t vm_pagemap_peek(struct vm_pagemap *pm, uint64_t pgoff);
/* First page of [start, stop) in that state, or stop. Unreserved windows count as EMPTY. */
uint64_t vm_pagemap_find(struct vm_pagemap *pm, uint64_t start, uint64_t stop, uint8_t state);
/* First page of [start, stop) not in that state, or stop. What lies below VM_MAX_PGOFF was reserved. */
uint64_t vm_pagemap_find_not(struct vm_pagemap *pm, uint64_t start, uint64_t stop, uint8_t state);

#endif
