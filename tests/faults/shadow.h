/* SPDX-License-Identifier: MIT */
/*
 * A disk that keeps only what was synced: host calls go on to the table in use, and what they do to the files of
 * one directory is noted. A failed sync loses what was written before it, for good: no later one brings it.
 *
 * It lies in memory that forked children share: they write, are gone, and their parent cuts the power.
 */
#ifndef SHADOW_H
#define SHADOW_H

/* What dir holds now is on the disk. */
void shadow_start(const char *dir);
/* From now on host calls are noted, by whatever thread; they go on to the present table. */
void shadow_use(void);
/* Make dir what the disk holds. Files that have the same name there as now keep their inodes. */
void shadow_cut_power(void);

#endif
