/* SPDX-License-Identifier: MIT */
/* The txmap command. */
#include "cli.h"
#include "version.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv, bool json);
	const char *args, *what;
} commands[] = {
	{"run", cli_run, "[--path GLOB]... [--config FILE] [--set KEY=VALUE]... [--] COMMAND [ARG]...",
	 "run a program with its mapped files managed"},
	{"status", cli_status, "[TARGET]", "files, pages, dirty, last commit, engine, recovery needed"},
	{"commit", cli_commit, "TARGET", "commit, wait until durable, print the transaction id"},
	{"discard", cli_discard, "TARGET", "drop uncommitted stores"},
	{"invalidate", cli_invalidate, "TARGET [--offset N] [--length N]",
	 "load again what changed in the file"},
	{"snapshot", cli_snapshot, "TARGET [--force] OUT",
	 "a consistent copy of the file, the program running on"},
	{"recover", cli_recover, "PATH...", "replay a journal left by a crash"},
	{"check", cli_check, "PATH...", "clean, needs recovery, or damaged, and why"},
	{"doctor", cli_doctor, "", "what this machine and user can do"},
	{"config", cli_config, "[--path PATH]", "the settings in force, and where each came from"},
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

void cli_error(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout); /* the order of lines is what happened */
	fputs("txmap: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void *cli_need(void *mem)
{
	if (!mem) {
		cli_error("no memory");
		exit(CLI_FAILED);
	}
	return mem;
}

void cli_print_json(struct json_object *doc)
{
	puts(json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(doc);
}

const char *cli_json_text(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) && v ? json_object_get_string(v) : "-";
}

int cli_exit_status(unsigned ndone, unsigned nfailed)
{
	if (!nfailed)
		return CLI_DONE;
	return ndone ? CLI_PARTLY : CLI_FAILED;
}

static char *help(int key, const char *text, void *input)
{
	char *out = NULL;
	size_t len;
	FILE *f;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	f = cli_need(open_memstream(&out, &len));
	fputs("Commands:\n", f);
	for (size_t i = 0; i < NCOMMANDS; i++)
		fprintf(f, "  %-11s %s\n", commands[i].name, commands[i].what);
	fputs("\nTARGET is a pid, --path GLOB, or --all. `txmap COMMAND --help' tells more; so does "
	      "txmap(1).",
	      f);
	if (fclose(f))
		cli_need(NULL);
	return out;
}

struct main_args {
	bool json;
	int first; /* the subcommand's place in argv, 0: none */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct main_args *a = state->input;

	(void)arg;
	switch (key) {
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_ARG:
		a->first = state->next - 1;
		state->next = state->argc; /* the rest is the subcommand's */
		return 0;
	case ARGP_KEY_END:
		if (!a->first)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {{"json", 'j', NULL, 0, "One JSON document on stdout", 0},
						     {0}};
	static const struct argp argp = {options,
					 parse,
					 "COMMAND [ARG]...",
					 "Transactional mapped files for unmodified programs.\v",
					 NULL,
					 help,
					 NULL};
	static char name[] = "txmap";
	struct main_args a = {0};
	const struct command *c = NULL;
	char *full_name;
	int status;

	argp_program_version = "txmap " TXMAP_VERSION;
	argp_err_exit_status = CLI_USAGE;
	if (argc > 0)
		argv[0] = name;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a))
		return CLI_USAGE;
	for (size_t i = 0; i < NCOMMANDS; i++) {
		if (!strcmp(commands[i].name, argv[a.first]))
			c = &commands[i];
	}
	if (!c) {
		cli_error("%s: unknown command; `txmap --help' lists them", argv[a.first]);
		return CLI_USAGE;
	}
	if (asprintf(&full_name, "txmap %s", c->name) < 0)
		cli_need(NULL);
	argv[a.first] = full_name; /* for argp's messages */
	status = c->run(argc - a.first, argv + a.first, a.json);
	if (fflush(stdout) || ferror(stdout)) {
		cli_error("cannot write to stdout: %s", strerror(errno));
		status = CLI_FAILED;
	}
	return status;
}
