/* SPDX-License-Identifier: MIT */
/*
 * The settings file: [section], key = value, comments after ';' (at the start of a line or after a blank) or
 * '#' (at the start).
 *
 * Not by inih: it cuts lines at 200 and names at 50 characters without a word, does not tell the handler the
 * line number that every message here names, is silent about a section without keys, and brings fopen and
 * malloc into a constructor that runs inside strangers' processes.
 */
#include "config_priv.h"
#include "vm_sys.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE (1u << 20)

struct section {
	struct pol_given *values;    /* NULL: before the first section */
	struct pol_given_rule *rule; /* NULL: [defaults] */
	bool had_defaults;
};

/* The whole file, zero-terminated, in the arena. */
static int read_whole(struct pol_reader *rd, char **ret_text, size_t *ret_len)
{
	char *text = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n;
	int fd, err = 0;

	fd = vm_sys->openat(AT_FDCWD, rd->file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
	if (fd < 0)
		return pol_bad(rd, "%s: cannot open the settings file: %s (%s)", rd->file,
			       strerrordesc_np(-fd), pol_errno_name(fd));
	if (!vm_sys->fstat(fd, &st) && S_ISFIFO(st.st_mode)) {
		/* it can be read once, but every process that is started reads the settings */
		err = pol_bad(rd, "%s: cannot read the settings file: a pipe", rd->file);
		goto close;
	}
	text = pol_arena_alloc(&rd->arena, MAX_FILE + 1);
	if (!text) {
		err = pol_no_memory(rd);
		goto close;
	}
	do {
		n = vm_sys->read(fd, text + len, MAX_FILE + 1 - len);
		if (n > 0)
			len += (size_t)n;
	} while ((n > 0 && len <= MAX_FILE) || n == -EINTR);
	if (n < 0)
		err = pol_bad(rd, "%s: cannot read the settings file: %s (%s)", rd->file,
			      strerrordesc_np((int)-n), pol_errno_name((int)n));
	else if (len > MAX_FILE)
		err = pol_bad(rd, "%s: settings file larger than 1 MiB", rd->file);
	else
		text[len] = 0;
close:
	(void)vm_sys->close(fd); /* only read from */
	*ret_text = text;
	*ret_len = len;
	return err;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *trim(char *text)
{
	char *end;

	for (; is_blank(*text); text++)
		;
	for (end = text + strlen(text); end > text && is_blank(end[-1]); end--)
		;
	*end = 0;
	return text;
}

/* Cut a comment off. A ';' inside a word is no comment: it is part of a name. */
static void cut_comment(char *line)
{
	for (char *p = line; *p; p++) {
		if ((*p == ';' && (p == line || is_blank(p[-1]))) || (*p == '#' && p == line)) {
			*p = 0;
			return;
		}
	}
}

static bool is_rule_name(const char *name)
{
	if (!*name || *name == '.')
		return false;
	for (; *name; name++) {
		if (!(*name >= 'a' && *name <= 'z') && !(*name >= 'A' && *name <= 'Z') &&
		    !(*name >= '0' && *name <= '9') && !strchr("_-.", *name))
			return false;
	}
	return true;
}

static int end_section(struct pol_reader *rd, const struct section *s)
{
	if (s->rule && !s->rule->nincluding)
		return pol_bad(rd, "%s:%u: [rule %s]: rule without a path; give at least one path = GLOB",
			       rd->file, s->rule->line, s->rule->name);
	return 0;
}

static int begin_section(struct pol_reader *rd, struct section *s, char *line, unsigned n)
{
	char *close = strchr(line, ']');
	char *name;
	int err = end_section(rd, s);

	if (err)
		return err;
	if (!close || close[1])
		return pol_bad(rd, "%s:%u: %s: syntax error; allowed: [defaults] or [rule NAME]", rd->file, n,
			       line);
	*close = 0;
	name = trim(line + 1);
	if (!strcmp(name, "defaults")) {
		if (s->had_defaults)
			return pol_bad(rd, "%s:%u: [defaults]: there is one already", rd->file, n);
		*s = (struct section){.values = &rd->defaults, .had_defaults = true};
		return 0;
	}
	if (strncmp(name, "rule", 4) || (name[4] && !is_blank(name[4])))
		return pol_bad(rd, "%s:%u: [%s]: unknown section; allowed: [defaults] or [rule NAME]",
			       rd->file, n, name);
	name = trim(name + 4);
	if (!is_rule_name(name))
		return pol_bad(rd, "%s:%u: [rule %s]: a rule's name is letters, digits, '_', '-', '.'",
			       rd->file, n, name);
	for (const struct pol_given_rule *r = rd->rules; r; r = r->next) {
		if (!strcmp(r->name, name))
			return pol_bad(rd, "%s:%u: [rule %s]: there is one already, at line %u", rd->file, n,
				       name, r->line);
	}
	s->rule = pol_give_rule(rd, name, n);
	if (!s->rule)
		return pol_no_memory(rd);
	s->values = &s->rule->values;
	return 0;
}

static int read_key(struct pol_reader *rd, const struct section *s, char *line, unsigned n)
{
	struct pol_where at = {s->rule ? POL_FROM_RULE : POL_FROM_DEFAULTS, rd->file, n};
	char *equals = strchr(line, '=');
	const char *key, *value;
	int o;

	if (!equals)
		return pol_bad(rd, "%s:%u: %s: syntax error; allowed: KEY = VALUE or [SECTION]", rd->file, n,
			       line);
	*equals = 0;
	key = trim(line);
	value = trim(equals + 1);
	if (!s->values)
		return pol_bad(
			rd,
			"%s:%u: %s: stands before the first section; allowed: in [defaults] or [rule NAME]",
			rd->file, n, key);
	if (!strcmp(key, "path")) {
		if (!s->rule)
			return pol_bad(rd, "%s:%u: path = %s: not in [defaults]; allowed: in [rule NAME]",
				       rd->file, n, value);
		return pol_give_glob(rd, &at, key, s->rule, value, strlen(value));
	}
	o = pol_opt_find(key, strlen(key));
	if (o < 0)
		return pol_bad(rd, "%s:%u: %s: unknown key; allowed: path %s", rd->file, n, key,
			       pol_opt_names());
	if (o == POL_OPT_paths)
		return pol_bad(rd, "%s:%u: paths: not in a file; allowed: path = GLOB in a [rule NAME]",
			       rd->file, n);
	if (s->rule && pol_opt_is_process_wide((enum pol_opt)o))
		return pol_bad(rd, "%s:%u: %s: one value for the whole process; allowed: in [defaults]",
			       rd->file, n, key);
	if (s->values->text[o])
		return pol_bad(rd, "%s:%u: %s: given already, at line %u", rd->file, n, key,
			       s->values->line[o]);
	return pol_give(rd, &at, s->values, (enum pol_opt)o, value);
}

int pol_read_file(struct pol_reader *rd)
{
	struct section s = {0};
	char *text = NULL, *next;
	size_t len = 0;
	unsigned n = 0;
	int err;

	err = read_whole(rd, &text, &len);
	if (err)
		return err;
	if (!strncmp(text, "\xef\xbb\xbf", 3)) /* byte order mark */
		text += 3, len -= 3;
	for (char *line = text; line < text + len; line = next) {
		char *end = memchr(line, '\n', (size_t)(text + len - line));

		if (!end)
			end = text + len;
		*end = 0;
		next = end + 1;
		n++;
		if (strlen(line) != (size_t)(end - line))
			return pol_bad(rd, "%s:%u: syntax error: a zero byte", rd->file, n);
		line = trim(line);
		cut_comment(line);
		line = trim(line);
		if (!*line)
			continue;
		err = *line == '[' ? begin_section(rd, &s, line, n) : read_key(rd, &s, line, n);
		if (err)
			return err;
	}
	return end_section(rd, &s);
}
