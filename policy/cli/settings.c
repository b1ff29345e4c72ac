/* SPDX-License-Identifier: MIT */
/* Settings given to the command, and names as the user writes them. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_settings_add(char ***list, size_t *n, char *text)
{
	*list = cli_need(realloc(*list, (*n + 2) * sizeof(**list)));
	(*list)[(*n)++] = cli_need(text);
	(*list)[*n] = NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct cli_settings *s = state->input;

	switch (key) {
	case 'c':
		s->config = realpath(arg, NULL);
		if (!s->config) {
			cli_error("%s: cannot open the settings file: %s", arg, strerror(errno));
			exit(CLI_CONFIG);
		}
		return 0;
	case 's':
		if (!strchr(arg, '='))
			argp_error(state, "--set %s: not KEY=VALUE", arg);
		cli_settings_add(&s->set, &s->nset, strdup(arg));
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"config", 'c', "FILE", 0, "Settings file, see txmap.conf(5)", 0},
	{"set", 's', "KEY=VALUE", 0, "One setting; may repeat", 0},
	{0},
};
const struct argp cli_settings_argp = {.options = options, .parser = parse};

/* The length of the leading directories that hold no glob character. */
static size_t plain_dir_len(const char *glob)
{
	size_t len = strcspn(glob, "*?[\\");

	while (len && glob[len - 1] != '/')
		len--;
	return len;
}

void cli_put_escaped(FILE *f, const char *plain)
{
	for (; *plain; plain++) {
		if (strchr("*?[\\", *plain))
			fputc('\\', f);
		fputc(*plain, f);
	}
}

char *cli_glob_absolute(const char *glob)
{
	bool exclude = *glob == '!', plain;
	char *out = NULL, *dir, *real;
	size_t len;
	FILE *f = cli_need(open_memstream(&out, &len));

	glob += exclude;
	if (exclude)
		fputc('!', f);
	plain = !glob[strcspn(glob, "*?[\\")];
	real = plain && *glob ? realpath(glob, NULL) : NULL;
	if (real) { /* a name that exists: what it really is */
		cli_put_escaped(f, real);
		goto out;
	}
	len = plain_dir_len(glob);
	dir = cli_need(len ? strndup(glob, len) : strdup("."));
	real = realpath(dir, NULL);
	free(dir);
	if (real) {
		cli_put_escaped(f, real);
		fprintf(f, "%s%s", real[1] ? "/" : "", glob + len);
	} else if (*glob == '/') {
		fputs(glob, f);
	} else {
		real = cli_need(getcwd(NULL, 0));
		cli_put_escaped(f, real);
		fprintf(f, "/%s", glob);
	}
out:
	free(real);
	if (fclose(f))
		cli_need(NULL);
	return out;
}

char *cli_settings_paths(const struct cli_settings *s)
{
	char *out = NULL;
	size_t len;
	FILE *f;

	if (!s->nglobs)
		return NULL;
	f = cli_need(open_memstream(&out, &len));
	fputs("paths=", f);
	for (size_t i = 0; i < s->nglobs; i++) {
		if (i)
			fputc(':', f);
		for (const char *p = s->globs[i]; *p; p++) {
			if (*p == ':')
				fputc('\\', f);
			fputc(*p, f);
			if (*p == '\\' && p[1])
				fputc(*++p, f);
		}
	}
	if (fclose(f))
		cli_need(NULL);
	return out;
}

const struct pol_config *cli_settings_load(const struct cli_settings *s)
{
	const struct pol_config *c;
	char **extra = NULL, *paths = cli_settings_paths(s);
	size_t n = 0;
	char err[1024];

	if (s->config && setenv("TXMAP_CONFIG", s->config, 1))
		cli_need(NULL);
	for (size_t i = 0; i < s->nset; i++)
		cli_settings_add(&extra, &n, s->set[i]);
	if (paths)
		cli_settings_add(&extra, &n, paths);
	if (pol_config_load(environ, (const char *const *)extra, &c, err, sizeof(err))) {
		cli_error("%s", err);
		exit(CLI_CONFIG);
	}
	free(extra); /* the settings keep copies */
	free(paths);
	return c;
}
