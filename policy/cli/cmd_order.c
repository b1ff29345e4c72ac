/* SPDX-License-Identifier: MIT */
/* txmap commit, discard, invalidate: orders to running processes. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct order_args {
	struct cli_target target;
	const char *verb;
	const char *offset, *length; /* invalidate */
	unsigned ndone, nfailed;
	struct json_object *results; /* with --json */
};

static void take_reply(pid_t pid, struct json_object *reply, void *arg)
{
	struct order_args *a = arg;
	bool ok = !strcmp(cli_json_text(reply, "ok"), "true");

	if (ok ? !strcmp(cli_json_text(reply, "files"), "0")
	       : !strcmp(cli_json_text(reply, "errno"), "ENOENT"))
		return; /* nothing of the target in this process */
	a->ndone += ok;
	a->nfailed += !ok;
	if (!ok)
		cli_error("%s: pid %d: %s (%s)", a->verb, pid, cli_json_text(reply, "error"),
			  cli_json_text(reply, "errno"));
	if (a->target.json) {
		json_object_object_add(reply, "pid", json_object_new_int(pid));
		json_object_array_add(a->results, json_object_get(reply));
	} else if (ok && !strcmp(a->verb, "commit")) {
		printf("txid %s  pid %d  files %s  pages %s  bytes %s  usec %s\n",
		       cli_json_text(reply, "txid"), pid, cli_json_text(reply, "files"),
		       cli_json_text(reply, "pages"), cli_json_text(reply, "bytes"),
		       cli_json_text(reply, "usec"));
	} else if (ok) {
		printf("pid %d  files %s  pages %s\n", pid, cli_json_text(reply, "files"),
		       cli_json_text(reply, "pages"));
	}
}

static void check_size(struct argp_state *state, const char *option, const char *text)
{
	uint64_t n;

	if (pol_parse_size(text, &n))
		argp_error(state, "%s %s: not a size (bytes, or with K M G T)", option, text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct order_args *a = state->input;
	bool is_invalidate = !strcmp(a->verb, "invalidate");

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->target;
		return 0;
	case 'o':
		check_size(state, "--offset", arg);
		a->offset = arg;
		return is_invalidate ? 0 : ARGP_ERR_UNKNOWN;
	case 'l':
		check_size(state, "--length", arg);
		a->length = arg;
		return is_invalidate ? 0 : ARGP_ERR_UNKNOWN;
	case ARGP_KEY_END:
		if (!cli_target_is_given(&a->target))
			argp_error(state, "no TARGET: a pid, --path GLOB, or --all");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&cli_target_argp, 0, NULL, 0}, {0}};

static int order(struct order_args *a)
{
	char *path, *request;

	/* invalidate wants a path: without one, every file */
	path = cli_encode(a->target.glob ? a->target.glob : strcmp(a->verb, "invalidate") ? "" : "/**");
	if (asprintf(&request, "%s %s%s%s%s%s", a->verb, path, a->offset || a->length ? " " : "",
		     a->offset	 ? a->offset
		     : a->length ? "0"
				 : "",
		     a->offset || a->length ? " " : "",
		     a->length	 ? a->length
		     : a->offset ? "0"
				 : "") < 0)
		cli_need(NULL);
	a->results = cli_need(json_object_new_array());
	(void)cli_ask(&a->target, request, take_reply, a);
	free(request);
	free(path);
	if (!a->ndone && !a->nfailed) {
		json_object_put(a->results);
		return cli_no_target(&a->target);
	}
	if (a->target.json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(!a->nfailed));
		json_object_object_add(doc, "results", a->results);
		cli_print_json(doc);
	} else {
		json_object_put(a->results);
	}
	return cli_exit_status(a->ndone, a->nfailed);
}

int cli_commit(int argc, char **argv, bool json)
{
	static const struct argp argp = {NULL,
					 parse,
					 "PID\n--path GLOB\n--all",
					 "Commit, wait until it is durable, print the transaction id.",
					 children,
					 NULL,
					 NULL};
	struct order_args a = {.verb = "commit", .target.json = json};

	return argp_parse(&argp, argc, argv, 0, NULL, &a) ? CLI_USAGE : order(&a);
}

int cli_discard(int argc, char **argv, bool json)
{
	static const struct argp argp = {
		NULL, parse, "PID\n--path GLOB\n--all", "Drop uncommitted stores.", children, NULL, NULL};
	struct order_args a = {.verb = "discard", .target.json = json};

	return argp_parse(&argp, argc, argv, 0, NULL, &a) ? CLI_USAGE : order(&a);
}

int cli_invalidate(int argc, char **argv, bool json)
{
	static const struct argp_option options[] = {
		{"offset", 'o', "N", 0, "From this byte on (K M G T)", 0},
		{"length", 'l', "N", 0, "So many bytes; 0: to the end", 0},
		{0},
	};
	static const struct argp argp = {
		options, parse, "PID\n--path GLOB\n--all", "Load again what changed in the file.", children,
		NULL,	 NULL};
	struct order_args a = {.verb = "invalidate", .target.json = json};

	return argp_parse(&argp, argc, argv, 0, NULL, &a) ? CLI_USAGE : order(&a);
}
