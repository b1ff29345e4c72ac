/* SPDX-License-Identifier: MIT */
/*
 * txmap snapshot: a live file is copied by a process that has it, one of several that share it; a file that
 * nobody has, by us.
 */
#include "backends.h"
#include "cli.h"
#include "copy_out.h"
#include "log.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What one process is to copy, or, with pid 0, we. */
struct share {
	pid_t pid;
	char **paths;
	size_t npaths;
	bool all; /* all that it has of the target */
	struct share *next;
};

struct snapshot_args {
	struct cli_target target;
	struct cli_settings settings;
	char *words[2]; /* [PID] OUT */
	unsigned nwords;
	bool force;
	char *out; /* absolute */
	struct share *shares, *own;
	size_t nfiles;
	unsigned ndone, nfailed;
	struct json_object *results;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct snapshot_args *a = state->input;
	char *end;
	long pid;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->target;
		state->child_inputs[1] = &a->settings;
		return 0;
	case 'f':
		a->force = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->nwords == 2)
			return ARGP_ERR_UNKNOWN;
		a->words[a->nwords++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (a->nwords == 2) {
			pid = strtol(a->words[0], &end, 10);
			if (*end || pid <= 0 || pid > INT32_MAX)
				argp_error(state, "%s: not a pid", a->words[0]);
			a->target.pid = (pid_t)pid;
		}
		if (!cli_target_is_given(&a->target) || (a->target.all && a->target.pid))
			argp_error(state, "a TARGET, which is a pid, --path GLOB, or --all, and OUT");
		if (!a->nwords || !*a->words[a->nwords - 1])
			argp_error(state, "no OUT");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- who copies what ---- */

static struct share *share_of(struct snapshot_args *a, const char *path)
{
	for (struct share *s = a->shares; s; s = s->next)
		for (size_t i = 0; i < s->npaths; i++)
			if (!strcmp(s->paths[i], path))
				return s;
	return NULL;
}

static struct share *add_share(struct snapshot_args *a, pid_t pid)
{
	struct share *s = cli_need(calloc(1, sizeof(*s)));

	s->pid = pid;
	s->all = true;
	s->next = a->shares;
	a->shares = s;
	return s;
}

static void add_path(struct snapshot_args *a, struct share *s, const char *path)
{
	cli_settings_add(&s->paths, &s->npaths, cli_need(strdup(path)));
	a->nfiles++;
}

static void take_status(pid_t pid, struct json_object *reply, void *arg)
{
	struct snapshot_args *a = arg;
	struct share *s = add_share(a, pid);
	struct json_object *files;

	if (!strcmp(cli_json_text(reply, "errno"), "ECONNRESET"))
		return; /* it ended just now, and has nothing any more */
	if (!json_object_object_get_ex(reply, "files", &files) ||
	    !json_object_is_type(files, json_type_array)) {
		cli_error("snapshot: pid %d: %s", pid, cli_json_text(reply, "error"));
		a->nfailed++;
		return;
	}
	for (size_t i = 0; i < json_object_array_length(files); i++) {
		struct json_object *file = json_object_array_get_idx(files, i);
		const char *path = cli_json_text(file, "path");
		struct share *other;

		if (a->target.glob && !pol_match(a->target.glob, path))
			continue;
		other = share_of(a, path);
		if (!other) {
			add_path(a, s, path);
			continue;
		}
		s->all = false;
		if (!strcmp(cli_json_text(file, "share"), "process")) {
			cli_error("snapshot: %s: pids %d and %d each have a state of their own of it "
				  "(share=process): "
				  "name one by its pid",
				  path, other->pid, pid);
			a->nfailed++;
		}
	}
}

/* Files that match, and that no process told of. */
static void find_own(struct snapshot_args *a)
{
	glob_t g;

	if (!a->target.glob || a->target.pid || glob(a->target.glob, GLOB_NOSORT, NULL, &g))
		return;
	a->own = add_share(a, 0);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		char *path = realpath(g.gl_pathv[i], NULL);
		struct stat st;

		if (path && !stat(path, &st) && S_ISREG(st.st_mode) && pol_match(a->target.glob, path) &&
		    !pol_is_journal(path) && !share_of(a, path))
			add_path(a, a->own, path);
		free(path);
	}
	globfree(&g);
}

/* ---- copying ---- */

static void put_result(struct snapshot_args *a, pid_t pid, struct json_object *reply)
{
	bool ok = !strcmp(cli_json_text(reply, "ok"), "true");

	a->ndone += ok;
	a->nfailed += !ok;
	if (!ok)
		cli_error("%s", cli_json_text(reply, "error"));
	if (pid)
		json_object_object_add(reply, "pid", json_object_new_int(pid));
	if (a->target.json)
		json_object_array_add(a->results, json_object_get(reply));
	else if (ok)
		printf("files %s  instants %s  bytes %s  reflinked %s  pid %s\n",
		       cli_json_text(reply, "files"), cli_json_text(reply, "instants"),
		       cli_json_text(reply, "bytes"), cli_json_text(reply, "reflinked"),
		       cli_json_text(reply, "pid"));
}

static void take_reply(pid_t pid, struct json_object *reply, void *arg)
{
	put_result(arg, pid, reply);
}

/* path NULL: all that the process has of the target. */
static void order(struct snapshot_args *a, pid_t pid, const char *path)
{
	const struct cli_target to = {.pid = pid, .json = a->target.json};
	char *glob = NULL, *from, *out = cli_encode(a->out), *request;
	size_t len;
	FILE *f;

	if (path) {
		f = cli_need(open_memstream(&glob, &len));
		cli_put_escaped(f, path);
		if (fclose(f))
			cli_need(NULL);
	}
	from = cli_encode(glob ? glob : a->target.glob ? a->target.glob : "/**");
	if (asprintf(&request, "snapshot %s %s%s", from, out, a->force ? " force" : "") < 0)
		cli_need(NULL);
	if (!cli_ask(&to, request, take_reply, a)) {
		cli_error("snapshot: pid %d: it ended", pid);
		a->nfailed++;
	}
	free(request);
	free(from);
	free(glob);
	free(out);
}

static void show_progress(uint64_t done, uint64_t total, void *arg)
{
	static uint64_t last;
	uint64_t percent = total ? done / (total / 100 + 1) : 100;

	if (percent == last)
		return;
	last = percent;
	fprintf(stderr, "\r%s: %u %%", (const char *)arg, (unsigned)percent);
	if (done >= total)
		fputs("\r\033[K", stderr);
}

/* A file that no process has. */
static void copy_own(struct snapshot_args *a, char *path)
{
	struct pol_copy_out *c = cli_need(calloc(1, sizeof(*c)));
	const struct pol_config *config = cli_settings_load(&a->settings);
	const struct pol_rule *rule = pol_config_rule(config, path);
	struct pol_journal_report r;
	struct json_object *o;
	char text[sizeof(r.text) + 2 * PATH_MAX];
	int err;

	c->replace = a->force;
	c->arg = path;
	c->progress = isatty(STDERR_FILENO) ? show_progress : NULL;
	err = pol_journal_copy(path, rule ? rule->journal_dir : config->process.journal_dir, c, a->out,
			       a->nfiles > 1, &r);
	if (err) {
		snprintf(text, sizeof(text), "%s: snapshot to %s: %s: %s", path, *c->out ? c->out : a->out,
			 *r.text ? r.text : c->what, pol_errno_name(err));
		o = cli_reply_error(err, text);
	} else {
		o = cli_need(json_object_new_object());
		json_object_object_add(o, "ok", json_object_new_boolean(true));
		json_object_object_add(o, "txid", json_object_new_uint64(r.last_txid));
		json_object_object_add(o, "files", json_object_new_int(1));
		json_object_object_add(o, "instants", json_object_new_int(1));
		json_object_object_add(o, "reflinked", json_object_new_int(c->reflinked));
		json_object_object_add(o, "bytes", json_object_new_uint64(c->copy.size));
	}
	put_result(a, 0, o);
	json_object_put(o);
	free(c);
}

/* Two files with one name cannot lie in one directory. */
static bool has_one_name_twice(const struct snapshot_args *a)
{
	for (const struct share *s = a->shares; s; s = s->next)
		for (size_t i = 0; i < s->npaths; i++)
			for (const struct share *t = s; t; t = t->next)
				for (size_t j = t == s ? i + 1 : 0; j < t->npaths; j++)
					if (!strcmp(strrchr(s->paths[i], '/'), strrchr(t->paths[j], '/'))) {
						cli_error("snapshot: %s and %s have one name", s->paths[i],
							  t->paths[j]);
						return true;
					}
	return false;
}

static int copy_all(struct snapshot_args *a)
{
	const struct cli_target all = {.pid = a->target.pid, .all = a->target.all, .json = true};
	struct stat st;

	(void)cli_ask(&all, "status", take_status, a);
	if (!a->target.all)
		find_own(a);
	if (!a->nfiles && !a->nfailed)
		return cli_no_target(&a->target);
	if (has_one_name_twice(a))
		return CLI_FAILED;
	if (a->nfiles > 1 && (stat(a->out, &st) || !S_ISDIR(st.st_mode))) {
		cli_error("snapshot to %s: %zu files go into a directory: ENOTDIR", a->out, a->nfiles);
		return CLI_FAILED;
	}
	for (struct share *s = a->shares; s; s = s->next)
		for (size_t i = 0; i < s->npaths; i++)
			if (!s->pid)
				copy_own(a, s->paths[i]);
			else if (!s->all)
				order(a, s->pid, s->paths[i]);
			else if (!i)
				order(a, s->pid, NULL);
	return cli_exit_status(a->ndone, a->nfailed);
}

int cli_snapshot(int argc, char **argv, bool json)
{
	static const struct argp_option options[] = {
		{"force", 'f', NULL, 0, "Replace OUT if it exists", 0},
		{0},
	};
	static const struct argp_child children[] = {
		{&cli_target_argp, 0, NULL, 0}, {&cli_settings_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		options,
		parse,
		"PID OUT\n--path GLOB OUT\n--all OUT",
		"Copy files as their programs see them now, the programs running on.",
		children,
		NULL,
		NULL};
	struct snapshot_args a = {.target.json = json};
	int status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return CLI_USAGE;
	a.out = a.words[a.nwords - 1];
	if (*a.out != '/') {
		char *dir = cli_need(getcwd(NULL, 0));

		if (asprintf(&a.out, "%s/%s", strcmp(dir, "/") ? dir : "", a.out) < 0)
			cli_need(NULL);
	}
	a.results = cli_need(json_object_new_array());
	status = copy_all(&a);
	if (a.target.json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(status == CLI_DONE));
		json_object_object_add(doc, "results", a.results);
		cli_print_json(doc);
	}
	return status;
}
