/* SPDX-License-Identifier: MIT */
/* txmap run: set the environment, become the program. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_args {
	struct cli_settings settings;
	char **command;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run_args *a = state->input;
	struct cli_settings *s = &a->settings;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = s;
		return 0;
	case 'p':
		if (!*arg || !strcmp(arg, "!"))
			argp_error(state, "--path: an empty glob");
		cli_settings_add(&s->globs, &s->nglobs, cli_glob_absolute(arg));
		return 0;
	case ARGP_KEY_ARG:
		a->command = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the program's */
		return 0;
	case ARGP_KEY_END:
		if (!a->command)
			argp_error(state, "no COMMAND");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The preloaded object: beside this command (a build), or where `make install` puts it. */
static char *find_library(void)
{
	static const char *const places[] = {"libtxmap.so", "../lib/txmap/libtxmap.so"};
	char exe[PATH_MAX], *path, *real;
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[len > 0 ? len : 0] = 0;
	len = len > 0 ? strrchr(exe, '/') - exe : 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (asprintf(&path, "%.*s/%s", (int)len, exe, places[i]) < 0)
			cli_need(NULL);
		real = realpath(path, NULL);
		free(path);
		if (real)
			return real;
	}
#ifdef TXMAP_LIB
	return realpath(TXMAP_LIB, NULL);
#else
	return NULL;
#endif
}

static void set_env(const char *name, const char *value)
{
	if (setenv(name, value, 1))
		cli_need(NULL);
}

static void set_setting(const char *pair)
{
	size_t len = strcspn(pair, "=");
	char *name;

	if (asprintf(&name, "TXMAP_%.*s", (int)len, pair) < 0)
		cli_need(NULL);
	for (char *p = name; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	set_env(name, pair + len + 1);
	free(name);
}

static void set_preload(const char *library)
{
	const char *others = getenv("LD_PRELOAD");
	char *value;

	if (!others || !*others) {
		set_env("LD_PRELOAD", library);
		return;
	}
	if (asprintf(&value, "%s:%s", library, others) < 0)
		cli_need(NULL);
	set_env("LD_PRELOAD", value);
	free(value);
}

int cli_run(int argc, char **argv, bool json)
{
	static const struct argp_option options[] = {
		{"path", 'p', "GLOB", 0, "Manage the files that match; may repeat; a leading ! excludes", 0},
		{0}};
	static const struct argp_child children[] = {{&cli_settings_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		options, parse, "COMMAND [ARG]...", "Run COMMAND with its mapped files managed.", children,
		NULL,	 NULL};
	struct run_args a = {0};
	const struct pol_config *config;
	char *library, *paths, *program;
	int status;

	(void)json; /* what is printed is the program's */
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a))
		return CLI_USAGE;
	config = cli_settings_load(&a.settings);
	if (!config->nrules)
		cli_error("no --path and no rule: nothing will be managed");
	status = cli_program_check(a.command[0], &program);
	if (status)
		return status;
	library = find_library();
	if (!library || access(library, R_OK)) {
		cli_error("libtxmap.so is neither beside this command nor in ../lib/txmap");
		return CLI_FAILED;
	}
	if (strpbrk(library, ": ")) {
		cli_error("%s: LD_PRELOAD cannot name a file with a blank or a colon", library);
		return CLI_FAILED;
	}
	for (size_t i = 0; i < a.settings.nset; i++)
		set_setting(a.settings.set[i]);
	paths = cli_settings_paths(&a.settings);
	if (paths)
		set_setting(paths);
	set_preload(library);
	execv(program, a.command);
	if (errno == ENOEXEC) /* a script without "#!": as execvp, by the shell */
		execvp(a.command[0], a.command);
	cli_error("%s: %s", program, strerror(errno));
	return errno == ENOENT ? CLI_NOT_FOUND : CLI_NOT_EXECUTABLE;
}
