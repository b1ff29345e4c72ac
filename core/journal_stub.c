/* SPDX-License-Identifier: MIT */
/*
 * A member's stub. The record is durable before a header is: so a header that verifies is never without it, and
 * a record with headers that are neither whole nor zero had some, which are damaged.
 */
#define _GNU_SOURCE 1
#include "journal_priv.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* The record: a frame but for its magic, with the path for payload. */
struct stub {
	struct vm_frame fr;
	char path[PATH_MAX];
};

static int write_record(int fd, uint64_t group, const char *path)
{
	struct stub s = {.fr = {.magic = VM_JOURNAL_STUB_MAGIC, .salt = group, .offset = VM_JOURNAL_START}};
	size_t len = strlen(path) + 1;
	int err;

	if (len > sizeof(s.path))
		return -ENAMETOOLONG;
	memcpy(s.path, path, len);
	s.fr.len = (uint32_t)len;
	s.fr.payload_sum = vm_frame_payload_sum(s.path, len);
	s.fr.sum = vm_frame_sum(&s.fr);
	err = vm_sys->ftruncate(fd, 0);
	if (!err)
		err = vm_sys_pwrite_full(fd, &s, vm_frame_space(&s.fr), VM_JOURNAL_START);
	return err ? err : vm_journal_datasync(fd);
}

int vm_journal_write_stub(int fd, const struct vm_journal_id *id, uint64_t group, const char *path)
{
	struct vm_journal_header h = {.magic = VM_JOURNAL_MAGIC,
				      .version = VM_JOURNAL_VERSION_GROUP,
				      .len = sizeof(h),
				      .generation = 1,
				      .dev = id->dev,
				      .ino = id->ino,
				      .igen = id->igen,
				      .kind = VM_JOURNAL_STUB,
				      .group = group};
	int err = vm_journal_random(&h.salt);

	memcpy(h.name, id->name, sizeof(h.name));
	h.sum = vm_journal_header_sum(&h);
	if (!err)
		err = write_record(fd, group, path);
	for (uint32_t slot = 0; !err && slot < 2; slot++)
		err = vm_journal_write_slot(fd, slot, &h);
	return err ? err : vm_journal_datasync(fd);
}

static int read_record(int fd, struct stub *ret)
{
	struct vm_frame *fr = &ret->fr;
	int err = vm_sys_pread_full(fd, ret, sizeof(*ret), VM_JOURNAL_START);

	if (err)
		return err;
	if (fr->magic != VM_JOURNAL_STUB_MAGIC || fr->offset != VM_JOURNAL_START ||
	    fr->sum != vm_frame_sum(fr) || fr->len < 2 || fr->len > sizeof(ret->path) ||
	    fr->payload_sum != vm_frame_payload_sum(ret->path, fr->len) ||
	    memchr(ret->path, 0, fr->len) != ret->path + fr->len - 1)
		return -EUCLEAN;
	return 0;
}

int vm_journal_read_stub(int fd, char *ret_path)
{
	struct stub s;
	int err = read_record(fd, &s);

	if (!err)
		memcpy(ret_path, s.path, s.fr.len);
	return err;
}

int vm_journal_verify_stub(int fd, const struct vm_journal_header *h)
{
	struct stub s;
	int err = read_record(fd, &s);

	if (err)
		return err;
	return !h || s.fr.salt == h->group ? 0 : -EUCLEAN;
}
