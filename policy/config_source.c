/* SPDX-License-Identifier: MIT */
/* What the environment and the command line give, and what every source shares: checking, noting,
 * complaining. */
#include "config_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* ---- messages ---- */

int pol_bad(struct pol_reader *rd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(rd->err, rd->errlen, fmt, ap); /* a longer line is cut */
	va_end(ap);
	for (char *p = rd->err; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	}
	return -EINVAL;
}

int pol_no_memory(struct pol_reader *rd)
{
	return pol_bad(rd, "no memory for the settings");
}

int pol_bad_value(struct pol_reader *rd, const struct pol_where *at, const char *key, const char *value,
		  const char *reason, const char *allowed)
{
	char name[32] = "";

	switch (at->origin) {
	case POL_FROM_CMDLINE:
		return pol_bad(rd, "command line: %s = %.200s: %s; allowed: %s", key, value, reason, allowed);
	case POL_FROM_ENV:
		for (size_t i = 0; key[i] && i < sizeof(name) - 1; i++)
			name[i] = key[i] >= 'a' && key[i] <= 'z' ? (char)(key[i] - 'a' + 'A') : key[i];
		return pol_bad(rd, "environment: TXMAP_%s = %.200s: %s; allowed: %s", name, value, reason,
			       allowed);
	default:
		return pol_bad(rd, "%s:%u: %s = %.200s: %s; allowed: %s", at->file, at->line, key, value,
			       reason, allowed);
	}
}

/* ---- what the sources give ---- */

int pol_give(struct pol_reader *rd, const struct pol_where *at, struct pol_given *g, enum pol_opt o,
	     const char *value)
{
	struct pol_rule r = {0};
	struct pol_config c = {0};
	const char *reason;
	char allowed[256];

	/* checked here, where the place is known, even when a nearer source hides it */
	if (pol_value_parse(o, value, &r, &c, &reason))
		return pol_bad_value(rd, at, pol_opt_name(o), value, reason,
				     pol_opt_allowed(o, allowed, sizeof(allowed)));
	g->text[o] = pol_arena_strndup(&rd->arena, value, strlen(value));
	g->line[o] = at->line;
	return g->text[o] ? 0 : pol_no_memory(rd);
}

struct pol_given_rule *pol_give_rule(struct pol_reader *rd, const char *name, unsigned line)
{
	struct pol_given_rule *r = pol_arena_alloc(&rd->arena, sizeof(*r));

	if (!r)
		return NULL;
	r->name = pol_arena_strndup(&rd->arena, name, strlen(name));
	if (!r->name)
		return NULL;
	r->line = line;
	r->globs_tail = &r->globs;
	*rd->rules_tail = r;
	rd->rules_tail = &r->next;
	rd->nrules++;
	return r;
}

/* Would no canonical path match: is there a component that is empty, "." or ".."? */
static bool is_never_canonical(const char *glob)
{
	for (const char *p = glob; (p = strchr(p, '/')); p++) {
		size_t len = strcspn(p + 1, "/");

		if (len == 0 || (len == 1 && p[1] == '.') || (len == 2 && p[1] == '.' && p[2] == '.'))
			return true;
	}
	return false;
}

int pol_give_glob(struct pol_reader *rd, const struct pol_where *at, const char *key,
		  struct pol_given_rule *rule, const char *text, size_t len)
{
	struct pol_glob *g = pol_arena_alloc(&rd->arena, sizeof(*g));
	char *copy = pol_arena_strndup(&rd->arena, text, len);

	if (!g || !copy)
		return pol_no_memory(rd);
	if (copy[*copy == '!'] != '/')
		return pol_bad_value(rd, at, key, copy, "not an absolute path",
				     "a glob that starts with / or !/");
	if (is_never_canonical(copy))
		return pol_bad_value(rd, at, key, copy, "matches no canonical path",
				     "a glob without empty, '.' and '..' components");
	g->text = copy;
	*rule->globs_tail = g;
	rule->globs_tail = &g->next;
	rule->nglobs++;
	rule->nincluding += *copy != '!';
	return 0;
}

int pol_read_pair(struct pol_reader *rd, enum pol_origin origin, struct pol_given *g, const char *pair)
{
	struct pol_where at = {origin, NULL, 0};
	size_t len = strcspn(pair, "=");
	char key[32];
	int o = -1;

	if (len < sizeof(key)) {
		for (size_t i = 0; i < len; i++) {
			bool upper = pair[i] >= 'A' && pair[i] <= 'Z',
			     lower = pair[i] >= 'a' && pair[i] <= 'z';

			if (origin == POL_FROM_ENV ? lower : upper)
				key[i] = '?'; /* the other case is another name */
			else
				key[i] = upper ? (char)(pair[i] - 'A' + 'a') : pair[i];
		}
		o = pol_opt_find(key, len);
	}
	if (o < 0 && origin == POL_FROM_ENV)
		return pol_bad(rd,
			       "environment: TXMAP_%.*s: unknown setting; allowed: TXMAP_CONFIG, and TXMAP_ "
			       "with one of "
			       "(in capitals): %s",
			       (int)(len < 100 ? len : 100), pair, pol_opt_names());
	if (o < 0)
		return pol_bad(rd, "command line: %.*s: unknown key; allowed: %s",
			       (int)(len < 100 ? len : 100), pair, pol_opt_names());
	if (!pair[len])
		return pol_bad(rd, "command line: %s: no value; allowed: %s=VALUE, VALUE being %s",
			       pol_opt_name((enum pol_opt)o), pol_opt_name((enum pol_opt)o),
			       pol_opt_values((enum pol_opt)o));
	if (g->text[o] && origin == POL_FROM_ENV)
		return 0; /* as getenv: the first of a name. On the command line the last one is meant. */
	return pol_give(rd, &at, g, (enum pol_opt)o, pair + len + 1);
}

int pol_read_env(struct pol_reader *rd, char *const *envp)
{
	for (; envp && *envp; envp++) {
		int err;

		if (strncmp(*envp, "TXMAP_", 6) || !strchr(*envp, '='))
			continue;
		if (!strncmp(*envp, "TXMAP_CONFIG=", 13)) {
			if (!(*envp)[13])
				return pol_bad(
					rd,
					"environment: TXMAP_CONFIG is empty; allowed: the name of a file");
			if (!rd->file)
				rd->file = pol_arena_strndup(&rd->arena, *envp + 13, strlen(*envp + 13));
			if (!rd->file)
				return pol_no_memory(rd);
			continue;
		}
		err = pol_read_pair(rd, POL_FROM_ENV, &rd->env, *envp + 6);
		if (err)
			return err;
	}
	return 0;
}

int pol_read_paths(struct pol_reader *rd)
{
	struct pol_where at = {rd->cmdline.text[POL_OPT_paths] ? POL_FROM_CMDLINE : POL_FROM_ENV, NULL, 0};
	const char *text = rd->cmdline.text[POL_OPT_paths] ?: rd->env.text[POL_OPT_paths];
	struct pol_given_rule *rule;

	if (!text || !*text)
		return 0;
	rule = pol_give_rule(rd, "", 0);
	if (!rule)
		return pol_no_memory(rd);
	for (const char *p = text;; p++) {
		const char *start = p;
		int err;

		for (; *p && *p != ':'; p++) {
			if (*p == '\\' && p[1])
				p++;
		}
		err = pol_give_glob(rd, &at, "paths", rule, start, (size_t)(p - start));
		if (err)
			return err;
		if (!*p)
			break;
	}
	if (!rule->nincluding)
		return pol_bad_value(rd, &at, "paths", text, "only excludes",
				     "at least one glob without a leading '!'");
	return 0;
}
