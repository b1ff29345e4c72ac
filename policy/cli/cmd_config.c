/* SPDX-License-Identifier: MIT */
/* txmap config: the settings in force, and where each came from. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct config_args {
	struct cli_settings settings;
	char *path;
	bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct config_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->settings;
		return 0;
	case 'p':
		if (a->path)
			argp_error(state, "--path may be given once");
		a->path = realpath(arg, NULL) ?: cli_need(strdup(arg));
		if (*a->path != '/')
			argp_error(state, "--path %s: not there, and not an absolute path", arg);
		return 0;
	case 'j':
		a->json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char *origin_text(const struct pol_rule *r, enum pol_opt o, char *buf, size_t len)
{
	if (r->origin_file[o])
		snprintf(buf, len, "%s:%u", r->origin_file[o], r->origin_line[o]);
	else
		snprintf(buf, len, "%s", pol_origin_name(r->origin[o]));
	return buf;
}

static const char *value_text(const struct pol_config *c, const struct pol_rule *r, enum pol_opt o)
{
	return o == POL_OPT_runtime_dir ? c->runtime_dir : r->text[o];
}

static void print_table(const struct pol_config *c, const struct pol_rule *r)
{
	struct libscols_table *t = cli_table((const char *const[]){"KEY", "VALUE", "FROM", "MEANING", NULL});

	for (enum pol_opt o = 0; o < POL_OPT_N; o++) {
		char origin[512];

		cli_table_row(t, pol_opt_name(o), value_text(c, r, o),
			      origin_text(r, o, origin, sizeof(origin)), pol_opt_meaning(o));
	}
	cli_table_print(t);
}

static struct json_object *settings_json(const struct pol_config *c, const struct pol_rule *r)
{
	struct json_object *settings = cli_need(json_object_new_object());

	for (enum pol_opt o = 0; o < POL_OPT_N; o++) {
		struct json_object *one = cli_need(json_object_new_object());

		json_object_object_add(one, "value", json_object_new_string(value_text(c, r, o)));
		json_object_object_add(one, "origin", json_object_new_string(pol_origin_name(r->origin[o])));
		if (r->origin_file[o]) {
			json_object_object_add(one, "file", json_object_new_string(r->origin_file[o]));
			json_object_object_add(one, "line", json_object_new_int((int)r->origin_line[o]));
		}
		json_object_object_add(settings, pol_opt_name(o), one);
	}
	return settings;
}

int cli_config(int argc, char **argv, bool json)
{
	static const struct argp_option options[] = {
		{"path", 'p', "PATH", 0, "For this file", 0},
		{"json", 'j', NULL, 0, "One JSON document on stdout", 0},
		{0},
	};
	static const struct argp_child children[] = {{&cli_settings_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		options,  parse, NULL, "Show the settings in force, and where each came from.",
		children, NULL,	 NULL};
	struct config_args a = {.json = json};
	const struct pol_config *c;
	const struct pol_rule *rule;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return CLI_USAGE;
	c = cli_settings_load(&a.settings);
	rule = a.path ? pol_config_rule(c, a.path) : NULL;
	if (a.json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(true));
		json_object_object_add(doc, "path", a.path ? json_object_new_string(a.path) : NULL);
		json_object_object_add(doc, "managed", json_object_new_boolean(rule != NULL));
		json_object_object_add(doc, "rule", rule ? json_object_new_string(rule->name) : NULL);
		json_object_object_add(doc, "settings", settings_json(c, rule ? rule : &c->process));
		cli_print_json(doc);
		return CLI_DONE;
	}
	if (rule && *rule->name)
		printf("%s: managed by [rule %s]\n", a.path, rule->name);
	else if (rule)
		printf("%s: managed by the rule of `paths'\n", a.path);
	else if (a.path)
		printf("%s: not managed: no rule matches\n", a.path);
	print_table(c, rule ? rule : &c->process);
	return CLI_DONE;
}
