/* SPDX-License-Identifier: MIT */
/* Settings: the sources, laid over each other, and the rule of a path. */
#include "config_priv.h"
#include "vm.h"
#include "vm_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum opt_scope { PROC, RULE };

static const struct {
	const char *name;
	enum opt_scope scope;
	const char *def, *values, *meaning;
} opts[POL_OPT_N] = {
#define OPT(name, scope, def, values, meaning) [POL_OPT_##name] = {#name, scope, def, values, meaning},
#include "options.def"
#undef OPT
};

const char *pol_opt_name(enum pol_opt o)
{
	return opts[o].name;
}

const char *pol_opt_default(enum pol_opt o)
{
	return opts[o].def;
}

const char *pol_opt_values(enum pol_opt o)
{
	return opts[o].values;
}

const char *pol_opt_meaning(enum pol_opt o)
{
	return opts[o].meaning;
}

bool pol_opt_is_process_wide(enum pol_opt o)
{
	return opts[o].scope == PROC;
}

const char *pol_opt_names(void)
{
	static const char names[] =
#define OPT(name, scope, def, values, meaning) " " #name
#include "options.def"
#undef OPT
		;

	return names + 1;
}

int pol_opt_find(const char *name, size_t len)
{
	for (int o = 0; o < POL_OPT_N; o++) {
		if (strlen(opts[o].name) == len && !memcmp(opts[o].name, name, len))
			return o;
	}
	return -1;
}

const char *pol_origin_name(enum pol_origin o)
{
	static const char *const names[] = {
		[POL_FROM_BUILTIN] = "builtin", [POL_FROM_DEFAULTS] = "defaults",    [POL_FROM_RULE] = "rule",
		[POL_FROM_ENV] = "environment", [POL_FROM_CMDLINE] = "command line",
	};

	return names[o];
}

/* ---- memory ---- */

struct pol_chunk {
	struct pol_chunk *next;
	size_t len;
};

#define CHUNK_LEN (64u << 10)
#define ALIGN	  sizeof(max_align_t)

void *pol_arena_alloc(struct pol_arena *a, size_t len)
{
	char *mem;

	len = (len + ALIGN - 1) & ~(ALIGN - 1);
	if (len > a->left) {
		size_t head = (sizeof(struct pol_chunk) + ALIGN - 1) & ~(ALIGN - 1);
		size_t chunk_len = len + head > CHUNK_LEN ? len + head : CHUNK_LEN;
		struct pol_chunk *chunk = vm_own_map(chunk_len, PROT_READ | PROT_WRITE,
						       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (vm_sys_err(chunk))
			return NULL;
		*chunk = (struct pol_chunk){a->chunks, chunk_len};
		a->chunks = chunk;
		a->next = (char *)chunk + head;
		a->left = chunk_len - head;
	}
	mem = a->next;
	a->next += len;
	a->left -= len;
	return mem;
}

char *pol_arena_strndup(struct pol_arena *a, const char *text, size_t len)
{
	char *copy = pol_arena_alloc(a, len + 1);

	if (copy)
		memcpy(copy, text, len);
	return copy;
}

void pol_arena_free(struct pol_arena *a)
{
	for (struct pol_chunk *next, *c = a->chunks; c; c = next) {
		next = c->next;
		(void)vm_sys->munmap(c, c->len); /* ours, whole: cannot fail */
	}
	*a = (struct pol_arena){0};
}

/* ---- the result ---- */

/* Lay the sources over each other, the nearest on top. */
static void resolve(const struct pol_reader *rd, const struct pol_given *own, struct pol_rule *r,
		    struct pol_config *c)
{
	for (int o = 0; o < POL_OPT_N; o++) {
		const struct pol_given *sources[] = {
			[POL_FROM_DEFAULTS] = &rd->defaults,
			[POL_FROM_RULE] = own,
			[POL_FROM_ENV] = &rd->env,
			[POL_FROM_CMDLINE] = &rd->cmdline,
		};
		const char *reason;

		r->text[o] = opts[o].def;
		for (int from = POL_FROM_DEFAULTS; from <= POL_FROM_CMDLINE; from++) {
			if (!sources[from] || !sources[from]->text[o])
				continue;
			r->text[o] = sources[from]->text[o];
			r->origin[o] = (enum pol_origin)from;
			r->origin_line[o] = sources[from]->line[o];
			r->origin_file[o] = from <= POL_FROM_RULE ? rd->file : NULL;
		}
		(void)pol_value_parse((enum pol_opt)o, r->text[o], r, c,
				      &reason); /* was checked where it stands */
	}
}

/* su and sudo may leave another user's: a directory of ours in there would be in that one's way. */
static bool is_anothers(const char *dir)
{
	struct stat st;

	return !vm_sys->fstatat(AT_FDCWD, dir, &st, 0) && st.st_uid != geteuid();
}

static int find_runtime_dir(struct pol_reader *rd, char *const *envp, struct pol_config *c)
{
	char dir[64];
	const char *base = NULL;
	int saved = errno;

	if (c->runtime_dir)
		return 0;
	for (; envp && *envp && !base; envp++) {
		if (!strncmp(*envp, "XDG_RUNTIME_DIR=/", 17))
			base = *envp + 16;
	}
	if (base && !is_anothers(base)) {
		size_t len = strlen(base);
		char *path = pol_arena_alloc(&rd->arena, len + sizeof("/txmap"));

		if (!path)
			return pol_no_memory(rd);
		memcpy(path, base, len);
		memcpy(path + len, "/txmap", sizeof("/txmap"));
		c->runtime_dir = path;
		return 0;
	}
	(void)snprintf(dir, sizeof(dir), "%s/txmap-%u",
		       vm_sys->faccessat(AT_FDCWD, "/run", W_OK) ? "/tmp" : "/run", geteuid());
	errno = saved;
	c->runtime_dir = pol_arena_strndup(&rd->arena, dir, strlen(dir));
	return c->runtime_dir ? 0 : pol_no_memory(rd);
}

static int check_signals(struct pol_reader *rd, const struct pol_config *c)
{
	static const enum pol_opt names[] = {POL_OPT_commit_signal, POL_OPT_discard_signal,
					     POL_OPT_invalidate_signal};
	const int signos[] = {c->commit_signal, c->discard_signal, c->invalidate_signal};

	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < i; j++) {
			if (signos[i] && signos[i] == signos[j])
				return pol_bad(rd, "%s and %s are both %s; allowed: one signal for each",
					       opts[names[j]].name, opts[names[i]].name,
					       c->process.text[names[i]]);
		}
	}
	return 0;
}

static int not_together(struct pol_reader *rd, const struct pol_rule *r, enum pol_opt one, enum pol_opt other,
			const char *allowed)
{
	return pol_bad(rd, "%s = %s and %s = %s%s%s: allowed with it: %s", opts[one].name, r->text[one], opts[other].name,
		       r->text[other], *r->name ? " of rule " : "", r->name, allowed);
}

/* What a rule says may not fit together. */
static int check_rule(struct pol_reader *rd, const struct pol_rule *r)
{
	if (r->snapshot && r->load == VM_LOAD_LAZY) /* a snapshot is taken at once */
		return not_together(rd, r, POL_OPT_share, POL_OPT_load, "auto eager");
	if (r->snapshot && strcmp(r->backend, "file"))
		return not_together(rd, r, POL_OPT_share, POL_OPT_backend, "file");
	if (r->group && r->snapshot)
		return not_together(rd, r, POL_OPT_scope, POL_OPT_share, "user");
	if (r->group && strcmp(r->backend, "file"))
		return not_together(rd, r, POL_OPT_scope, POL_OPT_backend, "file");
	return 0;
}

/* The journal of a group: in the rule's journal directory, else where its first path has no wildcard yet. */
static int name_group(struct pol_reader *rd, struct pol_rule *r)
{
	const char *dir = r->journal_dir, *name = *r->name ? r->name : "group", *const *g = r->globs;
	size_t len, room;
	char *path;

	if (!r->group)
		return 0;
	while (**g == '!')
		g++;
	len = dir ? strlen(dir) : strcspn(*g, "*?[\\");
	if (!dir) {
		dir = *g;
		while (dir[len] != '/')
			len--;
	}
	while (len && dir[len - 1] == '/')
		len--;
	room = len + strlen(name) + sizeof("/..txmap");
	path = pol_arena_alloc(&rd->arena, room);
	if (!path)
		return pol_no_memory(rd);
	(void)snprintf(path, room, "%.*s/.%s.txmap", (int)len, dir, name);
	r->group_journal = path;
	return 0;
}

static int build(struct pol_reader *rd, char *const *envp, struct pol_config **ret)
{
	static const char *const no_globs[] = {NULL};
	struct pol_config *c = pol_arena_alloc(&rd->arena, sizeof(*c));
	struct pol_rule *rule;
	int err;

	if (!c)
		return pol_no_memory(rd);
	c->rules = rule = pol_arena_alloc(&rd->arena, rd->nrules * sizeof(*c->rules));
	if (!rule)
		return pol_no_memory(rd);
	c->nrules = rd->nrules;
	for (const struct pol_given_rule *g = rd->rules; g; g = g->next, rule++) {
		const char **globs = pol_arena_alloc(&rd->arena, (g->nglobs + 1) * sizeof(*globs));

		if (!globs)
			return pol_no_memory(rd);
		rule->name = g->name;
		rule->globs = globs;
		for (const struct pol_glob *glob = g->globs; glob; glob = glob->next)
			*globs++ = glob->text;
		resolve(rd, &g->values, rule, c);
		err = check_rule(rd, rule) ?: name_group(rd, rule);
		if (err)
			return err;
	}
	c->process.name = "";
	c->process.globs = no_globs;
	resolve(rd, NULL, &c->process, c);
	err = check_signals(rd, c) ?: find_runtime_dir(rd, envp, c);
	*ret = c;
	return err;
}

int pol_config_load(char *const *envp, const char *const *extra, const struct pol_config **ret, char *err,
		    size_t errlen)
{
	struct pol_reader rd = {.err = err, .errlen = errlen};
	struct pol_config *c = NULL;
	int rc;

	rd.rules_tail = &rd.rules;
	rc = pol_read_env(&rd, envp);
	for (; !rc && extra && *extra; extra++)
		rc = pol_read_pair(&rd, POL_FROM_CMDLINE, &rd.cmdline, *extra);
	if (!rc)
		rc = pol_read_paths(&rd);
	if (!rc && rd.file)
		rc = pol_read_file(&rd);
	if (!rc)
		rc = build(&rd, envp, &c);
	if (rc) {
		pol_arena_free(&rd.arena);
		return rc;
	}
	*ret = c;
	return 0;
}

/* A journal is never managed, whatever the globs say. */
bool pol_is_journal(const char *path)
{
	const char *name = strrchr(path, '/');
	size_t len;

	if (!name || name[1] != '.')
		return false;
	len = strlen(name);
	return len > 8 && !strcmp(name + len - 6, ".txmap");
}

const struct pol_rule *pol_config_rule(const struct pol_config *c, const char *path)
{
	if (pol_is_journal(path))
		return NULL;
	for (size_t i = 0; i < c->nrules; i++) {
		bool in = false, out = false;

		for (const char *const *g = c->rules[i].globs; *g; g++) {
			if (**g == '!')
				out |= pol_match(*g + 1, path);
			else
				in |= pol_match(*g, path);
		}
		if (in && !out)
			return &c->rules[i];
	}
	return NULL;
}
