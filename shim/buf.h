/* SPDX-License-Identifier: MIT */
/* The program's buffers that lie in managed memory: where the engine protects pages, the kernel meets EFAULT
 * or stops short. They are made ready before the call, and again when a commit froze them in between. */
#ifndef SHIM_BUF_H
#define SHIM_BUF_H

#include "range.h"
#include <sys/uio.h>

#define SHIM_BUF_TRIES                                                                                       \
	16 /* a frozen page is released within one commit; a page that is truly bad stays EFAULT */

static inline bool shim_buf_is_managed(const void *buf, size_t len)
{
	return shim_range_is_managed(buf, len);
}
bool shim_iov_is_managed(const struct iovec *iov, int niov);

/* Make ready for the kernel to read (or, fill: to store into). errno untouched. */
void shim_buf_prepare(const void *buf, size_t len, bool fill);
/* arg may point to something of unknown length that the kernel reads and stores to. */
void shim_buf_ready_around(void *arg);
void shim_iov_prepare(const struct iovec *iov, int niov, bool fill);

/* Repeat the call with ready made before it, while the kernel says EFAULT. */
#define SHIM_READY(ready, call)                                                                              \
	__extension__({                                                                                      \
		int saved_ = errno, tries_ = SHIM_BUF_TRIES;                                                 \
		__typeof__(call) ret_;                                                                       \
		do {                                                                                         \
			errno = saved_;                                                                      \
			ready;                                                                               \
			ret_ = call;                                                                         \
		} while (ret_ == -1 && errno == EFAULT && --tries_);                                         \
		ret_;                                                                                        \
	})

#endif
