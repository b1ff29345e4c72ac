/* SPDX-License-Identifier: MIT */
/* txmap status */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct status_args {
	struct cli_target target;
	struct libscols_table *table;
	struct json_object *processes;
	unsigned nprocesses, nfailed;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct status_args *a = state->input;

	(void)arg;
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[0] = &a->target;
	return 0;
}

static uint64_t number_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_uint64(v) : 0;
}

static void put_file(struct status_args *a, struct json_object *process, struct json_object *file)
{
	uint64_t usec = number_of(file, "last_commit_usec");
	time_t t = (time_t)(usec / 1000000);
	bool recovery = !strcmp(cli_json_text(file, "needs_recovery"), "true");
	bool on_disk = !strcmp(cli_json_text(file, "on_disk"), "true");
	bool size_dirty = !strcmp(cli_json_text(file, "size_dirty"), "true");
	char when[32] = "-", dirty[32];
	struct tm tm;

	if (usec && localtime_r(&t, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	snprintf(dirty, sizeof(dirty), "%s%s", cli_json_text(file, "dirty"), size_dirty ? "+size" : "");
	cli_table_row(a->table, cli_json_text(process, "pid"), cli_json_text(process, "comm"),
		      cli_json_text(process, "engine"), cli_json_text(file, "size"),
		      cli_json_text(file, "pages"), dirty, cli_json_text(file, "txid"), when,
		      recovery ? "needed" : "-", on_disk ? "yes" : "no", cli_json_text(file, "path"));
}

static void take_reply(pid_t pid, struct json_object *reply, void *arg)
{
	struct status_args *a = arg;
	struct json_object *files, *kept;

	if (!json_object_object_get_ex(reply, "files", &files) ||
	    !json_object_is_type(files, json_type_array)) {
		cli_error("status: pid %d: %s", pid, cli_json_text(reply, "error"));
		a->nfailed++;
		return;
	}
	kept = cli_need(json_object_new_array());
	for (size_t i = 0; i < json_object_array_length(files); i++) {
		struct json_object *file = json_object_array_get_idx(files, i);

		if (a->target.glob && !pol_match(a->target.glob, cli_json_text(file, "path")))
			continue;
		json_object_array_add(kept, json_object_get(file));
		put_file(a, reply, file);
	}
	if (a->target.glob && !json_object_array_length(kept)) {
		json_object_put(kept);
		return;
	}
	if (!json_object_array_length(kept))
		cli_table_row(a->table, cli_json_text(reply, "pid"), cli_json_text(reply, "comm"),
			      cli_json_text(reply, "engine"), "-", "-", "-", "-", "-", "-", "-", "-");
	a->nprocesses++;
	json_object_object_add(reply, "files", kept);
	json_object_array_add(a->processes, json_object_get(reply));
}

int cli_status(int argc, char **argv, bool json)
{
	static const struct argp_child children[] = {{&cli_target_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {NULL,
					 parse,
					 "[PID]\n--path GLOB\n--all",
					 "Show the managed files of running processes.",
					 children,
					 NULL,
					 NULL};
	struct status_args a = {.target.json = json};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return CLI_USAGE;
	a.table =
		cli_table((const char *const[]){">PID", "COMM", "ENGINE", ">SIZE", ">PAGES", ">DIRTY",
						">TXID", "LAST COMMIT", "RECOVERY", "ON DISK", "PATH", NULL});
	a.processes = cli_need(json_object_new_array());
	(void)cli_ask(&a.target, "status", take_reply, &a);
	if (a.target.json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(!a.nfailed));
		json_object_object_add(doc, "processes", a.processes);
		cli_print_json(doc);
		cli_table_free(a.table);
	} else {
		json_object_put(a.processes);
		cli_table_print(a.table);
	}
	if (a.nprocesses || a.nfailed)
		return cli_exit_status(a.nprocesses, a.nfailed);
	if (a.target.pid || a.target.glob) {
		cli_error("no process under txmap %s",
			  a.target.glob ? "has a managed file that matches" : "has this pid");
		return CLI_NO_TARGET;
	}
	if (!a.target.json)
		cli_error("no process runs under txmap");
	return CLI_DONE;
}
