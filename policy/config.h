/* SPDX-License-Identifier: MIT */
/* Settings: where they come from, what is allowed, which rule a path belongs to. */
#ifndef POL_CONFIG_H
#define POL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum pol_invalidate { POL_INV_MANUAL, POL_INV_MSYNC, POL_INV_CHANGE, POL_INV_LOCK };
enum pol_on_error { POL_REFUSE, POL_PASSTHROUGH };
enum pol_log_level { POL_LOG_OFF, POL_LOG_ERROR, POL_LOG_WARN, POL_LOG_INFO, POL_LOG_DEBUG };

/* Index of every setting, in the order of options.def: POL_OPT_commit ... */
enum pol_opt {
#define OPT(name, scope, def, values, meaning) POL_OPT_##name,
#include "options.def"
#undef OPT
	POL_OPT_N
};

/* Where a value came from, nearest last. */
enum pol_origin {
	POL_FROM_BUILTIN,
	POL_FROM_DEFAULTS,
	POL_FROM_RULE,
	POL_FROM_ENV,
	POL_FROM_CMDLINE,
};

struct pol_rule {
	const char *name;	    /* section name; "" for the unnamed rule of TXMAP_PATHS */
	const char *const *globs;   /* NULL-terminated; a leading '!' excludes */
	const char *text[POL_OPT_N]; /* every value as text, never NULL */
	enum pol_origin origin[POL_OPT_N];
	const char *origin_file[POL_OPT_N]; /* file of DEFAULTS and RULE values, else NULL */
	unsigned origin_line[POL_OPT_N];

	/* the same, parsed */
	uint32_t commit;	    /* bit per enum pol_event (policy/api/pol.h) */
	uint64_t interval_usec;	    /* 0: none */
	uint64_t dirty_limit;	    /* bytes, 0: none */
	enum pol_invalidate invalidate;
	int on_invalid_dirty;	    /* enum vm_on_dirty */
	bool lazy;		    /* durability */
	bool snapshot;		    /* share: each process has one of its own */
	bool overwrite;		    /* conflict */
	bool group;		    /* scope */
	int load;		    /* enum vm_load */
	enum pol_on_error on_error;
	const char *backend;	    /* "file", "plugin" */
	const char *backend_arg;    /* what follows the colon, or NULL */
	const char *journal_dir;    /* NULL: beside the file */
	const char *group_journal;  /* path of the group's journal, or NULL: no group */
};

struct pol_config {
	struct pol_rule *rules;
	size_t nrules;
	struct pol_rule process; /* values of process-wide settings, and those for a path without a rule */
	int engine;		 /* enum vm_engine */
	int commit_signal;	 /* 0: none */
	int discard_signal;
	int invalidate_signal;
	bool control;
	const char *runtime_dir; /* resolved, never NULL */
	enum pol_log_level log;
	const char *log_file; /* or NULL */
};

/* Read environment, file, and extra (NULL-terminated KEY=VALUE of the command line, may be NULL).
 * 0, or -EINVAL with one line in err: file, line, key, and what is allowed. The result is allocated once and
 * stays for the life of the process. The line has no "txmap: " before it and no newline. environ-like envp is
 * given so that tests need no setenv. */
int pol_config_load(char *const *envp, const char *const *extra, const struct pol_config **ret, char *err,
		    size_t errlen);

/* The rule for a canonical path: the first in file order, the unnamed rule first; NULL: none. */
const struct pol_rule *pol_config_rule(const struct pol_config *c, const char *path);

/* Does the glob match the canonical path? '*' and '?' stay within a component, '**' crosses. */
bool pol_match(const char *glob, const char *path);

const char *pol_opt_name(enum pol_opt o);
const char *pol_opt_values(enum pol_opt o);
const char *pol_opt_meaning(enum pol_opt o);
const char *pol_origin_name(enum pol_origin o);

/* "64M" -> bytes; K M G T, powers of 1024. "5s", "200ms", "1m" -> microseconds. "USR1", "SIGUSR1", "RTMIN+3"
 * -> number. 0 or -EINVAL. */
int pol_parse_size(const char *text, uint64_t *ret);
int pol_parse_time(const char *text, uint64_t *ret_usec);
int pol_parse_signal(const char *text, int *ret_signo);

/* By its name: .NAME.txmap. */
bool pol_is_journal(const char *path);

#endif
