/* SPDX-License-Identifier: MIT */
/* Recording: host calls that change files of one directory go to the kernel and into a trace. */
#ifndef RECORD_H
#define RECORD_H

#include "disk.h"

/* Record what happens in dir, which holds now. One recording at a time. */
void record_start(const char *dir, const struct disk *now, struct trace *ret);
/* From then on host calls go to the kernel; but for syncs, which have nothing to do: the disks are made here. */
void record_stop(void);
/* An event that no host call makes: versions. Nothing while nobody records. */
void record_mark(enum event_kind kind, uint64_t version);
/* The nth write or sync from now on fails with err, a write after half of it; 0: none does. */
void record_fail(unsigned nth, int err);
/* From now on files can grow by so many bytes by being written; UINT64_MAX: as they like. A resize takes no room. */
void record_room(uint64_t bytes);
/* Did one of these fail since it was last set? */
bool record_has_failed(void);

#endif
