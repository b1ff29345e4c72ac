/* SPDX-License-Identifier: MIT */
/* Aliasable memory for the overlay: a memfd. Anonymous memory would not do: one page of it cannot be mapped
 * at a second place or in an unrelated process. */
#include "internal.h"
#include "uapi.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int vm_ram_open(struct vm_ram *r, uint64_t size)
{
	int err;

	r->fd = vm_sys->memfd_create("txmap", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (r->fd == -EINVAL) /* older than 6.3 */
		r->fd = vm_sys->memfd_create("txmap", MFD_CLOEXEC);
	if (r->fd < 0)
		return r->fd;
	err = vm_fd_adopt(&r->fd);
	if (!err)
		err = vm_ram_resize(r, size);
	if (err)
		vm_ram_close(r);
	return err;
}

void vm_ram_close(struct vm_ram *r)
{
	vm_fd_drop(&r->fd);
}

int vm_ram_resize(struct vm_ram *r, uint64_t size)
{
	return vm_sys->ftruncate(r->fd, (off_t)size);
}

int vm_ram_fill(struct vm_ram *r, uint64_t pgoff, size_t npages, const void *buf, uint64_t size)
{
	uint64_t off = pgoff << VM_PAGE_SHIFT, len = npages << VM_PAGE_SHIFT;

	if (off >= size)
		return 0;
	if (len > size - off)
		len = size - off;
	return vm_sys_pwrite_full(r->fd, buf, len, (off_t)off);
}

int vm_ram_fill_missing(struct vm_ram *r, uint64_t pgoff, size_t npages, const void *buf, uint64_t size)
{
	int err = vm_ram_fill(r, pgoff, npages, buf, size);

	if (err)
		(void)vm_ram_punch(r, pgoff, pgoff + npages); /* the error to report is err */
	return err;
}

int vm_ram_copy(struct vm_ram *r, uint64_t pgoff, size_t npages, void *buf)
{
	return vm_sys_pread_full(r->fd, buf, npages << VM_PAGE_SHIFT, (off_t)(pgoff << VM_PAGE_SHIFT));
}

int vm_ram_punch(struct vm_ram *r, uint64_t start, uint64_t stop)
{
	if (start >= stop)
		return 0;
	return vm_sys->fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)(start << VM_PAGE_SHIFT), (off_t)((stop - start) << VM_PAGE_SHIFT));
}

int vm_ram_hold(struct vm_ram *r, uint64_t start, uint64_t stop)
{
	if (start >= stop)
		return 0;
	return vm_sys->fallocate(r->fd, FALLOC_FL_KEEP_SIZE, (off_t)(start << VM_PAGE_SHIFT),
				 (off_t)((stop - start) << VM_PAGE_SHIFT));
}

uint64_t vm_ram_first(struct vm_ram *r, uint64_t start, uint64_t stop)
{
	off_t data = vm_sys->lseek(r->fd, (off_t)(start << VM_PAGE_SHIFT), SEEK_DATA);

	if (data == -ENXIO) /* nothing from here on */
		return stop;
	if (data < 0) /* who cannot know takes everything for held: a page too much is dirty, none is missed */
		return start;
	start = (uint64_t)data >> VM_PAGE_SHIFT;
	return start < stop ? start : stop;
}

uint64_t vm_ram_next(struct vm_ram *r, uint64_t start, uint64_t stop, uint64_t *ret_stop)
{
	off_t hole;

	*ret_stop = stop;
	start = vm_ram_first(r, start, stop);
	if (start == stop)
		return stop;
	hole = vm_sys->lseek(r->fd, (off_t)(start << VM_PAGE_SHIFT), SEEK_HOLE);
	if (hole >= 0 && vm_npages((uint64_t)hole) < stop)
		*ret_stop = vm_npages((uint64_t)hole);
	return start;
}
