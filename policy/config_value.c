/* SPDX-License-Identifier: MIT */
/* From a setting's text to its meaning. */
#include "config_priv.h"
#include "pol.h"
#include "vm.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Values that the contract names and this version does not have. They are refused: to ignore one would
 * promise something that is not so. word NULL: every valid value but the default. */
static const struct {
	enum pol_opt opt;
	const char *word;
} unavailable[] = {
	{POL_OPT_backend, "sqlite"}, {POL_OPT_backend, "postgres"}, {POL_OPT_memory, NULL},
	{POL_OPT_huge, "thp"},	     {POL_OPT_huge, "2M"},
};

static bool is_available(enum pol_opt o, const char *word, size_t len)
{
	for (size_t i = 0; i < sizeof(unavailable) / sizeof(unavailable[0]); i++) {
		const char *w = unavailable[i].word;

		if (unavailable[i].opt == o && (!w || (strlen(w) == len && !memcmp(w, word, len))))
			return false;
	}
	return true;
}

/* What is allowed, as options.def says it, without what is not available. */
const char *pol_opt_allowed(enum pol_opt o, char *buf, size_t len)
{
	size_t used = 0;

	if (!is_available(o, "", 0)) {
		(void)snprintf(buf, len, "%s", pol_opt_default(o));
		return buf;
	}
	for (const char *word = pol_opt_values(o); *word;
	     word += strcspn(word, " "), word += strspn(word, " ")) {
		size_t wordlen = strcspn(word, " ");

		if (is_available(o, word, strcspn(word, " :")) && used + wordlen + 2 < len)
			used += (size_t)snprintf(buf + used, len - used, "%s%.*s", used ? " " : "",
						 (int)wordlen, word);
	}
	return buf;
}

static bool is_word(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(text, word, len);
}

/* text is a decimal number: its value and what follows it. */
static int parse_number(const char *text, uint64_t *ret, const char **ret_rest)
{
	uint64_t n = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *text - '0', &n))
			return -EINVAL;
	}
	*ret = n;
	*ret_rest = text;
	return 0;
}

int pol_parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *rest, *unit;
	uint64_t n;

	if (parse_number(text, &n, &rest))
		return -EINVAL;
	if (*rest) {
		unit = strchr(units, *rest);
		if (!unit || rest[1] || __builtin_mul_overflow(n, 1ull << 10 * (unit - units + 1), &n))
			return -EINVAL;
	}
	*ret = n;
	return 0;
}

int pol_parse_time(const char *text, uint64_t *ret_usec)
{
	static const struct {
		const char *unit;
		uint64_t usec;
	} units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}, {"m", 60000000}, {"h", 3600000000}};
	const char *rest;
	uint64_t n;

	if (parse_number(text, &n, &rest))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(rest, units[i].unit))
			continue;
		if (__builtin_mul_overflow(n, units[i].usec, &n))
			return -EINVAL;
		*ret_usec = n;
		return 0;
	}
	return -EINVAL;
}

int pol_parse_signal(const char *text, int *ret_signo)
{
	const char *rest;
	uint64_t n = 0;

	if (!strncmp(text, "SIG", 3))
		text += 3;
	if (!strncmp(text, "RTMIN", 5) || !strncmp(text, "RTMAX", 5)) {
		bool is_min = text[4] == 'N';

		if (text[5] &&
		    (text[5] != (is_min ? '+' : '-') || parse_number(text + 6, &n, &rest) || *rest))
			return -EINVAL;
		if (n > (uint64_t)(SIGRTMAX - SIGRTMIN))
			return -EINVAL;
		*ret_signo = is_min ? SIGRTMIN + (int)n : SIGRTMAX - (int)n;
		return 0;
	}
	for (int signo = 1; signo < SIGRTMIN; signo++) {
		const char *name = sigabbrev_np(signo);

		if (name && !strcmp(name, text)) {
			*ret_signo = signo;
			return 0;
		}
	}
	return -EINVAL;
}

/* Signals that a trigger can be: not those that cannot be caught, and not those by which a fault arrives. */
static int parse_trigger_signal(const char *text, int *ret_signo, const char **ret_reason)
{
	static const int never[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL,
				    SIGFPE,  SIGTRAP, SIGABRT, SIGSYS};

	*ret_signo = 0;
	if (!strcmp(text, "none"))
		return 0;
	*ret_reason = "unknown signal";
	if (pol_parse_signal(text, ret_signo))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		if (*ret_signo == never[i]) {
			*ret_reason = "this signal cannot be a trigger";
			return -EINVAL;
		}
	}
	return 0;
}

static int parse_commit_word(const char *word, size_t len, struct pol_rule *r, const char **ret_reason)
{
	static const struct {
		const char *name;
		uint32_t events;
	} words[] = {
		{"msync", 1u << POL_EV_MSYNC | 1u << POL_EV_MSYNC_ASYNC},
		{"fsync", 1u << POL_EV_FSYNC},
		{"release", 1u << POL_EV_RELEASE},
		{"exit", 1u << POL_EV_EXIT},
		{"term", 1u << POL_EV_TERM},
		{"munmap", 1u << POL_EV_MUNMAP},
		{"exec", 1u << POL_EV_EXEC},
		{"unlock", 1u << POL_EV_UNLOCK},
		{"interval", 1u << POL_EV_INTERVAL},
		{"dirty", 1u << POL_EV_DIRTY},
	};
	const char *colon = memchr(word, ':', len);
	size_t namelen = colon ? (size_t)(colon - word) : len;
	uint32_t events = 0;
	char arg[32] = "";

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (is_word(word, namelen, words[i].name))
			events = words[i].events;
	}
	*ret_reason = "unknown event";
	if (!events)
		return -EINVAL;
	*ret_reason = "an event is named twice";
	if (r->commit & events)
		return -EINVAL;
	r->commit |= events;

	if (colon && len - namelen - 1 < sizeof(arg))
		memcpy(arg, colon + 1, len - namelen - 1);
	switch (events) {
	case 1u << POL_EV_INTERVAL:
		*ret_reason = "interval needs a time above zero (interval:5s; units us ms s m h)";
		return pol_parse_time(arg, &r->interval_usec) || !r->interval_usec ? -EINVAL : 0;
	case 1u << POL_EV_DIRTY:
		*ret_reason = "dirty needs a size above zero (dirty:64M; units K M G T)";
		return pol_parse_size(arg, &r->dirty_limit) || !r->dirty_limit ? -EINVAL : 0;
	default:
		*ret_reason = "this event takes no argument";
		return colon ? -EINVAL : 0;
	}
}

static int parse_commit(const char *text, struct pol_rule *r, const char **ret_reason)
{
	r->commit = 0;
	r->interval_usec = 0;
	r->dirty_limit = 0;
	if (!strcmp(text, "none"))
		return 0;
	for (;;) {
		const char *stop;
		int err;

		text += strspn(text, " \t");
		stop = text + strcspn(text, ",");
		for (; stop > text && (stop[-1] == ' ' || stop[-1] == '\t'); stop--)
			;
		err = parse_commit_word(text, (size_t)(stop - text), r, ret_reason);
		if (err)
			return err;
		text = stop + strcspn(stop, ",");
		if (!*text)
			return 0;
		text++;
	}
}

static int parse_backend(const char *text, struct pol_rule *r, const char **ret_reason)
{
	size_t len = strcspn(text, ":");

	*ret_reason = "not available in this version";
	if (!is_available(POL_OPT_backend, text, len))
		return -EINVAL;
	*ret_reason = "unknown backend";
	if (!strcmp(text, "file")) {
		r->backend = "file";
		r->backend_arg = NULL;
		return 0;
	}
	if (!is_word(text, len, "plugin"))
		return -EINVAL;
	*ret_reason = "plugin needs a shared object (plugin:/path/mine.so)";
	if (!text[len] || !text[len + 1] || text[len + 1] == ':')
		return -EINVAL;
	r->backend = "plugin";
	r->backend_arg = text + len + 1;
	return 0;
}

/* The place of text in words, which is also the value of the enum. */
static int parse_word(enum pol_opt o, const char *text, const char *const *words, int *ret,
		      const char **ret_reason)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(words[i], text))
			continue;
		*ret_reason = "not available in this version";
		if (!is_available(o, text, strlen(text)))
			return -EINVAL;
		*ret = i;
		return 0;
	}
	*ret_reason = "unknown value";
	return -EINVAL;
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int parse_absolute(const char *text, const char **ret, const char **ret_reason)
{
	*ret_reason = "not an absolute path";
	if (*text != '/')
		return -EINVAL;
	*ret = text;
	return 0;
}

static int parse_memory(const char *text, const char **ret_reason)
{
	uint64_t n;

	*ret_reason = "not a size";
	if (pol_parse_size(text, &n))
		return -EINVAL;
	*ret_reason = "not available in this version";
	return n && !is_available(POL_OPT_memory, text, strlen(text)) ? -EINVAL : 0;
}

int pol_value_parse(enum pol_opt o, const char *text, struct pol_rule *r, struct pol_config *c,
		    const char **ret_reason)
{
	int n = 0, err = 0;

	switch (o) {
	case POL_OPT_paths: /* split by the caller, who knows what to do with the pieces */
	case POL_OPT_N:
		break;
	case POL_OPT_commit:
		return parse_commit(text, r, ret_reason);
	case POL_OPT_invalidate:
		err = parse_word(o, text, WORDS("manual", "msync", "change", "lock"), &n, ret_reason);
		r->invalidate = (enum pol_invalidate)n;
		break;
	case POL_OPT_on_invalid_dirty:
		return parse_word(o, text, WORDS("drop", "keep", "fail"), &r->on_invalid_dirty, ret_reason);
	case POL_OPT_durability:
		err = parse_word(o, text, WORDS("full", "lazy"), &n, ret_reason);
		r->lazy = n == 1;
		break;
	case POL_OPT_scope:
		err = parse_word(o, text, WORDS("file", "group"), &n, ret_reason);
		r->group = n == 1;
		break;
	case POL_OPT_share:
		err = parse_word(o, text, WORDS("user", "process"), &n, ret_reason);
		r->snapshot = n == 1;
		break;
	case POL_OPT_conflict:
		err = parse_word(o, text, WORDS("fail", "overwrite"), &n, ret_reason);
		r->overwrite = n == 1;
		break;
	case POL_OPT_backend:
		return parse_backend(text, r, ret_reason);
	case POL_OPT_engine:
		return parse_word(o, text, WORDS("auto", "uffd", "segv"), &c->engine, ret_reason);
	case POL_OPT_load:
		return parse_word(o, text, WORDS("auto", "eager", "lazy"), &r->load, ret_reason);
	case POL_OPT_memory:
		return parse_memory(text, ret_reason);
	case POL_OPT_huge:
		return parse_word(o, text, WORDS("off", "thp", "2M"), &n, ret_reason);
	case POL_OPT_journal:
		r->journal_dir = NULL;
		return !strcmp(text, "beside") ? 0 : parse_absolute(text, &r->journal_dir, ret_reason);
	case POL_OPT_on_error:
		err = parse_word(o, text, WORDS("refuse", "passthrough"), &n, ret_reason);
		r->on_error = (enum pol_on_error)n;
		break;
	case POL_OPT_commit_signal:
		return parse_trigger_signal(text, &c->commit_signal, ret_reason);
	case POL_OPT_discard_signal:
		return parse_trigger_signal(text, &c->discard_signal, ret_reason);
	case POL_OPT_invalidate_signal:
		return parse_trigger_signal(text, &c->invalidate_signal, ret_reason);
	case POL_OPT_control:
		err = parse_word(o, text, WORDS("on", "off"), &n, ret_reason);
		c->control = n == 0;
		break;
	case POL_OPT_runtime_dir: /* empty: found at load */
		return !*text ? 0 : parse_absolute(text, &c->runtime_dir, ret_reason);
	case POL_OPT_log:
		err = parse_word(o, text, WORDS("off", "error", "warn", "info", "debug"), &n, ret_reason);
		c->log = (enum pol_log_level)n;
		break;
	case POL_OPT_log_file:
		c->log_file = NULL;
		return !*text ? 0 : parse_absolute(text, &c->log_file, ret_reason);
	}
	return err;
}
