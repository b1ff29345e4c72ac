/* SPDX-License-Identifier: MIT */
/* Messages for humans: one line each, "txmap[pid]: level: text". Only policy logs. */
#ifndef POL_LOG_H
#define POL_LOG_H

#include "config.h"
#include <sys/stat.h>

/* The file, if any, is there from the first message on: a process that has nothing to say leaves none. */
void pol_log_open(enum pol_log_level level, const char *file);
/* Open it now: what is said from here on may be said in a signal handler. */
void pol_log_need_file(void);
/* Is it the log file? */
bool pol_log_is_file(const struct stat *st);
/* At run time; the place stays. Any context. */
void pol_log_set_level(enum pol_log_level level);
bool pol_log_is_on(enum pol_log_level level);
/* Any context, also signal handlers: formats into a buffer on the stack, one write. A line longer than
 * 1 KiB is cut. */
void pol_log(enum pol_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "ENOSPC" for 28 (or -28). */
const char *pol_errno_name(int err);

#endif
