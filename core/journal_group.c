/* SPDX-License-Identifier: MIT */
/* The journal of a group: which files it is of, and how large they are. */
#define _GNU_SOURCE 1
#include "journal_priv.h"
#include "bug.h"
#include "recover.h"
#include "vm_sys.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

void *vm_files_alloc(size_t entry_size)
{
	/* most of it is never touched, and takes no memory */
	void *p = vm_own_map(VM_JOURNAL_NFILES * entry_size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return vm_sys_err(p) ? NULL : p;
}

void vm_files_free(void *table, size_t entry_size)
{
	if (table)
		(void)vm_sys->munmap(table,
				     VM_JOURNAL_NFILES * entry_size); /* a whole mapping: cannot fail */
}

/* ---- building a transaction ---- */

int vm_journal_add_size(struct vm_journal *j, uint32_t file, uint64_t size, uint64_t cut)
{
	BUG_ON(!file || file >= VM_JOURNAL_NFILES || cut > size ||
	       j->file[file].attempt == j->attempt); /* J7 */
	j->file[file].attempt = j->attempt;
	return vm_journal_add_run(j, size, &cut, sizeof(cut), VM_RUN_SIZE | file << VM_RUN_FILE_SHIFT);
}

int vm_journal_add_name(struct vm_journal *j, uint32_t file, const struct vm_journal_name *name)
{
	struct {
		struct vm_name_record r;
		char path[PATH_MAX];
	} rec = {.r = {.dev = name->dev,
		       .ino = name->ino,
		       .igen = name->igen,
		       .flags = name->is_unlinked ? VM_NAME_UNLINKED : 0}};
	size_t len = strlen(name->path) + 1;

	BUG_ON(!file || file >= VM_JOURNAL_NFILES || len == 1);
	if (len > sizeof(rec.path))
		return -ENAMETOOLONG;
	memcpy(rec.path, name->path, len);
	return vm_journal_add_run(j, 0, &rec, sizeof(rec.r) + len, VM_RUN_NAME | file << VM_RUN_FILE_SHIFT);
}

/* ---- what a journal says of its files ---- */

/* 1: this run is a note. */
static int note_at(const struct vm_run *run, const uint8_t *bytes, struct vm_journal_name *name,
		   struct vm_journal_note *ret)
{
	struct vm_name_record rec;

	*ret = (struct vm_journal_note){.file = vm_run_file(run)};
	if (vm_run_kind(run) == VM_RUN_SIZE && run->len == sizeof(ret->cut)) {
		ret->size = run->off;
		memcpy(&ret->cut, bytes, sizeof(ret->cut));
		return 1;
	}
	if (vm_run_kind(run) != VM_RUN_NAME || run->len <= sizeof(rec) || bytes[run->len - 1])
		return 0;
	memcpy(&rec, bytes, sizeof(rec));
	*name = (struct vm_journal_name){.dev = rec.dev,
					 .ino = rec.ino,
					 .igen = rec.igen,
					 .is_unlinked = rec.flags & VM_NAME_UNLINKED,
					 .path = (const char *)bytes + sizeof(rec)};
	ret->name = name;
	return 1;
}

static int frame_notes(const struct vm_frame *fr, vm_journal_note_fn *fn, void *arg)
{
	const uint8_t *p = (const uint8_t *)(fr + 1), *stop = p + fr->len;
	int err = 0;

	while (!err && p < stop) {
		struct vm_journal_name name;
		struct vm_journal_note note;
		struct vm_run run;

		p = vm_run_at(p, stop, &run);
		if (!p)
			return -EUCLEAN;
		if (note_at(&run, p, &name, &note))
			err = fn(&note, arg);
		p += run.len;
	}
	return err;
}

int vm_journal_notes(int fd, uint64_t from, uint64_t to, vm_journal_note_fn *fn, void *arg)
{
	struct vm_frame *fr = vm_frame_alloc();
	int err = fr ? 0 : -ENOMEM;

	while (!err && from < to) {
		err = vm_frame_load(fd, from, fr);
		if (!err) {
			from += vm_frame_space(fr);
			err = frame_notes(fr, fn, arg);
		}
	}
	vm_frame_free(fr);
	return err;
}

/* ---- checkpoint ---- */

struct syncing {
	struct vm_journal *j;
	const struct vm_journal_files *files;
};

static int sync_noted(const struct vm_journal_note *note, void *arg)
{
	struct syncing *s = arg;
	struct vm_journal_file *f = &s->j->file[note->file % VM_JOURNAL_NFILES];
	int fd, err;

	if (note->name || f->synced == s->j->nsyncs)
		return 0;
	fd = vm_file_get(s->files, note->file);
	if (fd == VM_FILE_GONE)
		return 0;
	err = fd < 0 ? fd : vm_journal_datasync(fd);
	if (!err)
		f->synced = s->j->nsyncs;
	return err;
}

int vm_journal_sync_files(struct vm_journal *j, const struct vm_journal_files *files, uint64_t to)
{
	struct syncing s = {j, files};

	j->nsyncs++;
	return vm_journal_notes(j->fd, VM_JOURNAL_START, to, sync_noted, &s);
}
