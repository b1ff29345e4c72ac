/* SPDX-License-Identifier: MIT */
/* How far a file may go: the file system has an end, and the process may have a nearer one. The memory that
 * holds a live file knows neither, and a size that can never be committed must not be taken. */
#include "managed_priv.h"
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/resource.h>

#define ANY_FS_HAS INT32_MAX

/* A question about an extent there is answered before the file system looks for one. Those that do not take
 * the question (tmpfs) have no end before that of the numbers. */
bool pol_is_beyond_fs(struct pol_file *m, uint64_t size)
{
	struct fiemap map = {.fm_start = size, .fm_length = 1};

	return size > ANY_FS_HAS && m->file.fd >= 0 &&
	       vm_sys->ioctl(m->file.fd, FS_IOC_FIEMAP, &map) == -EFBIG;
}

static uint64_t own_limit(void)
{
	struct rlimit rl;

	return vm_sys->getrlimit(RLIMIT_FSIZE, &rl) || rl.rlim_cur == RLIM_INFINITY ? INT64_MAX : rl.rlim_cur;
}

static int beyond_own_limit(void)
{
	(void)raise(SIGXFSZ); /* arrives when the call ends, like one of the kernel's */
	return -EFBIG;
}

int pol_may_have_size(struct pol_file *m, uint64_t size)
{
	if (size <= vm_fileh_size(m->h))
		return 0;
	if (size > own_limit())
		return beyond_own_limit();
	return pol_is_beyond_fs(m, size) ? -EFBIG : 0;
}

int pol_room(struct pol_file *m, uint64_t off, uint64_t len, uint64_t *ret_room)
{
	uint64_t limit = own_limit();

	if (len && off >= limit)
		return beyond_own_limit();
	*ret_room = len < limit - off ? len : limit - off;
	return len && pol_is_beyond_fs(m, off + *ret_room) ? -EFBIG : 0;
}
