/* SPDX-License-Identifier: MIT */
/* The txmap command: what its subcommands share. */
#ifndef POL_CLI_H
#define POL_CLI_H

#include "config.h"

#include <argp.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <sys/types.h>

/* Exit status */
enum cli_exit {
	CLI_DONE = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NO_TARGET = 3,
	CLI_PARTLY = 4,
	CLI_CONFIG = 78,
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
};

/* Each subcommand: its arguments, argv[0] being "txmap NAME"; json: asked for before the subcommand's name.
 * Returns the exit status. */
int cli_run(int argc, char **argv, bool json);
int cli_status(int argc, char **argv, bool json);
int cli_commit(int argc, char **argv, bool json);
int cli_discard(int argc, char **argv, bool json);
int cli_invalidate(int argc, char **argv, bool json);
int cli_snapshot(int argc, char **argv, bool json);
int cli_recover(int argc, char **argv, bool json);
int cli_check(int argc, char **argv, bool json);
int cli_doctor(int argc, char **argv, bool json);
int cli_config(int argc, char **argv, bool json);

/* ---- main.c ---- */

/* "txmap: text" to stderr. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* malloc's NULL ends the command: nothing here can go on without memory. */
void *cli_need(void *mem);
/* Print and free. */
void cli_print_json(struct json_object *doc);
/* The value of key as text, "-" when there is none. */
const char *cli_json_text(struct json_object *o, const char *key);
/* The status for ndone that worked and nfailed that did not. */
int cli_exit_status(unsigned ndone, unsigned nfailed);

/* ---- settings.c: --config, --set, --path; canonical paths ---- */

struct cli_settings {
	char **set; /* KEY=VALUE, NULL-terminated */
	size_t nset;
	char **globs; /* of --path, absolute */
	size_t nglobs;
	char *config; /* canonical, or NULL */
};
extern const struct argp cli_settings_argp; /* --config, --set; input: struct cli_settings * */
/* glob as the user wrote it, seen from the current directory: absolute, and canonical as far as its
 * directories are plain names that exist. A leading '!' stays. */
char *cli_glob_absolute(const char *glob);
/* path as a glob that matches only itself. */
void cli_put_escaped(FILE *f, const char *path);
/* Load the settings, or say what is wrong and exit with 78. */
const struct pol_config *cli_settings_load(const struct cli_settings *s);
/* "paths=..." of the globs, or NULL when there are none. */
char *cli_settings_paths(const struct cli_settings *s);
void cli_settings_add(char ***list, size_t *n, char *text);

/* ---- target.c: which processes, and talking to them ---- */

struct cli_target {
	pid_t pid;  /* 0: any */
	char *glob; /* or NULL */
	bool all;
	bool json;
};
extern const struct argp cli_target_argp; /* --path, --all, --json, PID; input: struct cli_target * */
bool cli_target_is_given(const struct cli_target *t);
/* Send request (one line, no newline) to each process of the target. fn gets each answer; it owns nothing.
 * Returns the number of processes that were there. */
typedef void cli_reply_fn(pid_t pid, struct json_object *reply, void *arg);
unsigned cli_ask(const struct cli_target *t, const char *request, cli_reply_fn *fn, void *arg);
/* word with %XX for everything odd; to be freed. */
char *cli_encode(const char *word);
/* An error reply as the socket would give it. */
struct json_object *cli_reply_error(int err, const char *text);

/* No process has what was asked for: says so, and the exit status. */
int cli_no_target(const struct cli_target *t);

/* ---- program.c ---- */

/* Can the program be interposed? 0 and its path; or an exit status, after saying why not. */
int cli_program_check(const char *name, char **ret_path);

/* ---- table.c ---- */

struct libscols_table;
/* Columns by name; a leading '>' aligns right. */
struct libscols_table *cli_table(const char *const *columns);
void cli_table_row(struct libscols_table *t, ...); /* as many strings as there are columns */
void cli_table_print(struct libscols_table *t);	   /* and free */
void cli_table_free(struct libscols_table *t);

#endif
