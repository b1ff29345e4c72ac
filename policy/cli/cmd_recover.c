/* SPDX-License-Identifier: MIT */
/* txmap recover, txmap check: files that no process has managed just now. */
#include "backends.h"
#include "cli.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct recover_args {
	struct cli_settings settings;
	char **paths;
	size_t npaths;
	bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recover_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->settings;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_ARG:
		cli_settings_add(&a->paths, &a->npaths, strdup(arg));
		return 0;
	case ARGP_KEY_END:
		if (!a->npaths)
			argp_error(state, "no PATH");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {{"json", 'j', NULL, 0, "One JSON document on stdout", 0}, {0}};
static const struct argp_child children[] = {{&cli_settings_argp, 0, NULL, 0}, {0}};

static void show_progress(uint64_t done, uint64_t total, void *arg)
{
	static unsigned last = 101;
	unsigned percent = total ? (unsigned)((double)done * 100 / (double)total) : 100;

	if (percent == last)
		return;
	last = percent;
	fprintf(stderr, "\r%s: %u %%", (const char *)arg, percent);
	if (percent >= 100)
		fputs("\r\033[K", stderr);
}

static const char *state_name(enum pol_journal_state state)
{
	static const char *const names[] = {
		[POL_JOURNAL_NONE] = "clean",	   [POL_JOURNAL_CLEAN] = "clean",
		[POL_JOURNAL_IN_USE] = "in use",   [POL_JOURNAL_REPLAY] = "needs recovery",
		[POL_JOURNAL_DAMAGED] = "damaged", [POL_JOURNAL_FOREIGN] = "foreign journal",
	};

	return names[state];
}

static struct json_object *result(const char *path, const char *state, int err,
				  const struct pol_journal_report *r)
{
	struct json_object *o = cli_need(json_object_new_object());

	json_object_object_add(o, "ok", json_object_new_boolean(!err));
	json_object_object_add(o, "path", json_object_new_string(path));
	json_object_object_add(o, "state", json_object_new_string(state));
	if (err)
		json_object_object_add(o, "errno", json_object_new_string(pol_errno_name(err)));
	json_object_object_add(o, "commits", json_object_new_uint64(r->ncommits));
	json_object_object_add(o, "first_txid", json_object_new_uint64(r->first_txid));
	json_object_object_add(o, "last_txid", json_object_new_uint64(r->last_txid));
	json_object_object_add(o, "bytes_kept", json_object_new_uint64(r->bytes_kept));
	json_object_object_add(o, "bytes_dropped", json_object_new_uint64(r->bytes_dropped));
	json_object_object_add(o, "size", json_object_new_uint64(r->size));
	json_object_object_add(o, "text", json_object_new_string(r->text));
	return o;
}

/* One path: 0 when it is as it should be afterwards. */
static int do_path(const struct recover_args *a, const struct pol_config *config, const char *arg,
		   bool recover, struct json_object *results)
{
	struct pol_journal_report r = {0};
	char *path = realpath(arg, NULL);
	const char *state = "unknown", *dir;
	const struct pol_rule *rule;
	int err;

	if (!path) {
		err = -errno;
		snprintf(r.text, sizeof(r.text), "%s: %s", arg, strerror(-err));
		path = cli_need(strdup(arg));
	} else {
		rule = pol_config_rule(config, path);
		dir = rule ? rule->journal_dir : config->process.journal_dir;
		if (recover)
			err = pol_journal_recover(path, dir, isatty(STDERR_FILENO) ? show_progress : NULL,
						  path, &r);
		else
			err = pol_journal_check(path, dir, &r);
		if (!err || r.state != POL_JOURNAL_NONE)
			state = recover && r.state == POL_JOURNAL_REPLAY && !err ? "recovered"
										 : state_name(r.state);
		if (!err && !recover && r.state == POL_JOURNAL_REPLAY)
			err = -EUCLEAN;
		if (!err && (r.state == POL_JOURNAL_DAMAGED || r.state == POL_JOURNAL_FOREIGN))
			err = -EUCLEAN;
	}
	if (a->json)
		json_object_array_add(results, result(path, state, err, &r));
	else if (!err || (!recover && r.state == POL_JOURNAL_REPLAY))
		printf("%s\n", *r.text ? r.text : path); /* the text names the path and the state */
	else
		cli_error("%s (%s, %s)", *r.text ? r.text : path, state, pol_errno_name(err));
	free(path);
	return err;
}

static int do_paths(const struct recover_args *a, bool recover)
{
	const struct pol_config *config = cli_settings_load(&a->settings);
	struct json_object *results = cli_need(json_object_new_array());
	unsigned ndone = 0, nfailed = 0, nmissing = 0;

	for (size_t i = 0; i < a->npaths; i++) {
		int err = do_path(a, config, a->paths[i], recover, results);

		ndone += !err;
		nfailed += err != 0;
		nmissing += err == -ENOENT || err == -ENOTDIR;
	}
	if (a->json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(!nfailed));
		json_object_object_add(doc, "results", results);
		cli_print_json(doc);
	} else {
		json_object_put(results);
	}
	return nmissing == a->npaths ? CLI_NO_TARGET : cli_exit_status(ndone, nfailed);
}

int cli_recover(int argc, char **argv, bool json)
{
	static const struct argp argp = {
		options,  parse, "PATH...", "Bring files that a crash left behind to their last commit.",
		children, NULL,	 NULL};
	struct recover_args a = {.json = json};

	return argp_parse(&argp, argc, argv, 0, NULL, &a) ? CLI_USAGE : do_paths(&a, true);
}

int cli_check(int argc, char **argv, bool json)
{
	static const struct argp argp = {
		options,   parse,
		"PATH...", "Say whether files are clean, need recovery or are damaged; change nothing.",
		children,  NULL,
		NULL};
	struct recover_args a = {.json = json};

	return argp_parse(&argp, argc, argv, 0, NULL, &a) ? CLI_USAGE : do_paths(&a, false);
}
