/* SPDX-License-Identifier: MIT */
#include "jrig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int ok)
{
	if (!ok)
		abort();
}

void jrig_make(struct jrig *r)
{
	struct stat st;

	memset(r, 0, sizeof(*r));
	box_make(&r->box);
	r->data_fd = open(r->box.data, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(r->data_fd >= 0 && !fstat(r->data_fd, &st));
	r->j.fd = open(r->box.journal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(r->j.fd >= 0);
	r->files.fd = r->data_fd;
	r->j.pos = &r->pos;
	r->j.limit = VM_JOURNAL_LIMIT;
	r->j.id.dev = st.st_dev;
	r->j.id.ino = st.st_ino;
	strcpy(r->j.id.name, "data");
	must(!vm_journal_init(&r->j));
	must(!vm_journal_start_over(&r->j, 0));
}

void jrig_remove(struct jrig *r)
{
	vm_journal_fini(&r->j);
	close(r->j.fd);
	close(r->data_fd);
	box_remove(&r->box);
}

int jrig_add_changes(struct vm_journal *j, uint32_t flags, const struct image *from, const struct image *to,
		     uint64_t low)
{
	uint64_t i = 0;

	while (i < to->size) {
		uint64_t start;

		while (i < to->size && to->bytes[i] == (i < low ? from->bytes[i] : 0))
			i++;
		start = i;
		while (i < to->size && to->bytes[i] != (i < low ? from->bytes[i] : 0))
			i++;
		if (start < i) {
			int err = vm_journal_add(j, start, to->bytes + start, i - start, flags);

			if (err)
				return err;
		}
	}
	return 0;
}

int jrig_commit(struct jrig *r, const struct image *from, const struct image *to, uint64_t low, bool sync)
{
	struct vm_txn txn = {.txid = r->txid + 1, .size = to->size, .size_low = low};
	int err;

	vm_journal_begin(&r->j);
	err = jrig_add_changes(&r->j, 0, from, to, low);
	if (!err)
		err = vm_journal_commit(&r->j, &txn, sync);
	if (!err)
		r->txid++;
	return err;
}
