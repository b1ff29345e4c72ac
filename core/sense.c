/* SPDX-License-Identifier: MIT */
/* Frames that verify must also make sense: a writer with a fault, or one who forges, made those that do not. */
#include "recover.h"

#include <errno.h>
#include <string.h>

/* A file of a group. */
struct vm_sense_file {
	uint64_t seq;	   /* of the last commit that it had a part in */
	uint64_t size_seq; /* ... a size */
	bool is_named;
};

int vm_sense_init(struct vm_sense *s, bool is_group)
{
	memset(s, 0, sizeof(*s));
	if (!is_group)
		return 0;
	s->file = vm_files_alloc(sizeof(*s->file));
	return s->file ? 0 : -ENOMEM;
}

void vm_sense_fini(struct vm_sense *s)
{
	vm_files_free(s->file, sizeof(*s->file));
}

/* The file has a part in this commit: it needs a size in it, and a name. */
static void take_part(struct vm_sense *s, struct vm_sense_file *f)
{
	if (f->seq == s->seq)
		return;
	f->seq = s->seq;
	s->nlacking += 1u + !f->is_named;
}

static bool note_size(struct vm_sense *s, struct vm_sense_file *f, const struct vm_run *run,
		      const uint8_t *bytes)
{
	uint64_t cut;

	if (run->len != sizeof(cut) || f->size_seq == s->seq)
		return false;
	memcpy(&cut, bytes, sizeof(cut));
	take_part(s, f);
	f->size_seq = s->seq;
	s->nlacking--;
	return cut <= run->off;
}

static bool note_name(struct vm_sense *s, struct vm_sense_file *f, const struct vm_run *run,
		      const uint8_t *bytes)
{
	size_t fixed = sizeof(struct vm_name_record);

	if (run->off || run->len < fixed + 2 ||
	    memchr(bytes + fixed, 0, run->len - fixed) != bytes + run->len - 1)
		return false;
	s->nlacking -= !f->is_named && f->seq == s->seq;
	f->is_named = true;
	return true;
}

static bool run_makes_sense(struct vm_sense *s, const struct vm_run *run, const uint8_t *bytes)
{
	struct vm_sense_file *f;

	if (!s->file)
		return !(run->flags & ~VM_RUN_BASE);
	if (!vm_run_file(run) || vm_run_file(run) >= VM_JOURNAL_NFILES)
		return false;
	f = &s->file[vm_run_file(run)];
	switch (vm_run_kind(run)) {
	case VM_RUN_SIZE:
		return note_size(s, f, run, bytes);
	case VM_RUN_NAME:
		return note_name(s, f, run, bytes);
	case VM_RUN_BASE:
	case 0:
		take_part(s, f);
		return true;
	default:
		return false;
	}
}

bool vm_sense_frame(struct vm_sense *s, const struct vm_frame *fr)
{
	const uint8_t *p = (const uint8_t *)(fr + 1), *stop = p + fr->len;
	struct vm_run run;

	s->seq = fr->seq;
	while (p < stop) {
		p = vm_run_at(p, stop, &run);
		if (!p || !run_makes_sense(s, &run, p))
			return false;
		p += run.len;
	}
	if (!(fr->flags & VM_FRAME_COMMIT))
		return true;
	if (s->file)
		return !fr->size && !fr->cut && !s->nlacking;
	return fr->size <= (uint64_t)INT64_MAX && fr->cut <= fr->size;
}
