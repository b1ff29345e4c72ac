/* SPDX-License-Identifier: MIT */
/* Between config.c, config_file.c and config_value.c; nobody else includes this. */
#ifndef POL_CONFIG_PRIV_H
#define POL_CONFIG_PRIV_H

#include "config.h"

/* Memory that is only ever given back as a whole: the settings are read in a constructor inside other
 * people's programs, where malloc may not be up yet. */
struct pol_arena {
	struct pol_chunk *chunks;
	char *next;
	size_t left;
};
/* Zeroed, aligned for any type; NULL: no memory. */
void *pol_arena_alloc(struct pol_arena *a, size_t len);
char *pol_arena_strndup(struct pol_arena *a, const char *text, size_t len);
void pol_arena_free(struct pol_arena *a);

/* The values one source gives; NULL: it gives none. */
struct pol_given {
	const char *text[POL_OPT_N];
	unsigned line[POL_OPT_N];
};

struct pol_glob {
	struct pol_glob *next;
	const char *text;
};

/* A rule as it stands in a file (or in `paths`), before the other sources are laid over it. */
struct pol_given_rule {
	struct pol_given_rule *next;
	const char *name;
	unsigned line;
	struct pol_given values;
	struct pol_glob *globs, **globs_tail;
	size_t nglobs, nincluding; /* nincluding: those without a leading '!' */
};

struct pol_reader {
	struct pol_arena arena;
	char *err;
	size_t errlen;
	const char *file; /* the settings file, or NULL */
	struct pol_given defaults, env, cmdline;
	struct pol_given_rule *rules, **rules_tail; /* in file order */
	size_t nrules;
};

/* Where a value stands, for the message when it is wrong. */
struct pol_where {
	enum pol_origin origin;
	const char *file;
	unsigned line;
};

/* One line into rd->err, control characters replaced; returns -EINVAL. */
int pol_bad(struct pol_reader *rd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int pol_no_memory(struct pol_reader *rd);
/* "FILE:LINE: KEY = VALUE: REASON; allowed: ALLOWED", or the like for the other sources. */
int pol_bad_value(struct pol_reader *rd, const struct pol_where *at, const char *key, const char *value,
		  const char *reason, const char *allowed);
/* The setting of that name, or -1. */
int pol_opt_find(const char *name, size_t len);
bool pol_opt_is_process_wide(enum pol_opt o);
const char *pol_opt_default(enum pol_opt o);
const char *pol_opt_allowed(enum pol_opt o, char *buf, size_t len);
/* The names of all settings, separated by blanks. */
const char *pol_opt_names(void);

/* Check a value and note it for o in g. */
int pol_give(struct pol_reader *rd, const struct pol_where *at, struct pol_given *g, enum pol_opt o,
	     const char *value);
struct pol_given_rule *pol_give_rule(struct pol_reader *rd, const char *name, unsigned line);
/* Add a glob to rule; -EINVAL with the message when it cannot match a canonical path. */
int pol_give_glob(struct pol_reader *rd, const struct pol_where *at, const char *key,
		  struct pol_given_rule *rule, const char *text, size_t len);

/* One setting of the environment ("COMMIT=none") or of the command line ("commit=none") into g. */
int pol_read_pair(struct pol_reader *rd, enum pol_origin origin, struct pol_given *g, const char *pair);
/* All of TXMAP_*; rd->file from TXMAP_CONFIG. */
int pol_read_env(struct pol_reader *rd, char *const *envp);
/* The unnamed rule of `paths`: globs joined by ':', "\:" being a plain colon. It comes first. */
int pol_read_paths(struct pol_reader *rd);

/* config_file.c: read rd->file into defaults and rules. */
int pol_read_file(struct pol_reader *rd);

/* config_value.c: parse text into the fields of r and c. 0, or -EINVAL and why in words (a static string).
 * What is kept points into text. */
int pol_value_parse(enum pol_opt o, const char *text, struct pol_rule *r, struct pol_config *c,
		    const char **ret_reason);

#endif
