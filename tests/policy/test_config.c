/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config.h"
#include "log.h"
#include "pol.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENV(...)   ((char *const[]){__VA_ARGS__, NULL})
#define EXTRA(...) ((const char *const[]){__VA_ARGS__, NULL})

static char dir[64];
static char file_path[96];	     /* the settings file */
static char config_env[128];	     /* TXMAP_CONFIG=... */
static const struct pol_config *cfg; /* of the last load */
static char err[1024];

static void write_file(const char *text)
{
	FILE *f = fopen(file_path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int load(char *const *envp, const char *const *extra)
{
	cfg = NULL;
	err[0] = 0;
	return pol_config_load(envp, extra, &cfg, err, sizeof(err));
}

static int load_file(const char *text)
{
	write_file(text);
	return load(ENV(config_env), NULL);
}

/* The load is refused with one line that holds every one of the words. */
#define REFUSED(load, ...)                                                                                   \
	do {                                                                                                 \
		const char *const words_[] = {__VA_ARGS__};                                                  \
		assert_int_equal(load, -EINVAL);                                                             \
		assert_null(strchr(err, '\n'));                                                              \
		for (size_t i_ = 0; i_ < sizeof(words_) / sizeof(words_[0]); i_++) {                         \
			if (!strstr(err, words_[i_]))                                                        \
				fail_msg("\"%s\" does not say \"%s\"", err, words_[i_]);                     \
		}                                                                                            \
	} while (0)

/* ---- sources ---- */

static void without_settings_there_is_no_rule_and_every_default(void **state)
{
	(void)state;
	assert_int_equal(load(ENV("PATH=/bin", "HOME=/"), NULL), 0);
	assert_int_equal(cfg->nrules, 0);
	assert_null(pol_config_rule(cfg, "/srv/a"));
	assert_string_equal(cfg->process.text[POL_OPT_commit], "msync,fsync,release,exit,term");
	assert_int_equal(cfg->process.commit, 1u << POL_EV_MSYNC | 1u << POL_EV_MSYNC_ASYNC |
						      1u << POL_EV_FSYNC | 1u << POL_EV_RELEASE |
						      1u << POL_EV_EXIT | 1u << POL_EV_TERM);
	assert_int_equal(cfg->process.invalidate, POL_INV_MANUAL);
	assert_int_equal(cfg->process.on_invalid_dirty, VM_DIRTY_DROP);
	assert_false(cfg->process.lazy);
	assert_false(cfg->process.overwrite);
	assert_string_equal(cfg->process.backend, "file");
	assert_null(cfg->process.journal_dir);
	assert_int_equal(cfg->process.on_error, POL_REFUSE);
	assert_int_equal(cfg->engine, VM_ENGINE_AUTO);
	assert_int_equal(cfg->commit_signal, 0);
	assert_true(cfg->control);
	assert_int_equal(cfg->log, POL_LOG_WARN);
	assert_null(cfg->log_file);
	for (int o = 0; o < POL_OPT_N; o++)
		assert_int_equal(cfg->process.origin[o], POL_FROM_BUILTIN);
}

static void the_nearer_source_wins_and_is_named(void **state)
{
	const struct pol_rule *r;

	(void)state;
	write_file("[defaults]\n"
		   "durability = lazy\n"
		   "conflict = overwrite\n"
		   "load = eager\n"
		   "on_error = passthrough\n"
		   "[rule one]\n"
		   "path = /one/*\n"
		   "conflict = fail\n"
		   "load = lazy\n"
		   "on_error = refuse\n");
	assert_int_equal(load(ENV(config_env, "TXMAP_LOAD=auto", "TXMAP_ON_ERROR=refuse"),
			      EXTRA("on_error=passthrough")),
			 0);
	r = pol_config_rule(cfg, "/one/x");
	assert_non_null(r);
	assert_string_equal(r->name, "one");

	assert_int_equal(r->origin[POL_OPT_commit], POL_FROM_BUILTIN);
	assert_null(r->origin_file[POL_OPT_commit]);

	assert_true(r->lazy);
	assert_int_equal(r->origin[POL_OPT_durability], POL_FROM_DEFAULTS);
	assert_string_equal(r->origin_file[POL_OPT_durability], file_path);
	assert_int_equal(r->origin_line[POL_OPT_durability], 2);

	assert_false(r->overwrite);
	assert_int_equal(r->origin[POL_OPT_conflict], POL_FROM_RULE);
	assert_int_equal(r->origin_line[POL_OPT_conflict], 8);

	assert_int_equal(r->load, VM_LOAD_AUTO);
	assert_int_equal(r->origin[POL_OPT_load], POL_FROM_ENV);
	assert_null(r->origin_file[POL_OPT_load]);

	assert_int_equal(r->on_error, POL_PASSTHROUGH);
	assert_int_equal(r->origin[POL_OPT_on_error], POL_FROM_CMDLINE);

	assert_true(cfg->process.overwrite); /* a path without a rule: [defaults] */
}

static void of_a_name_twice_the_environment_means_the_first_and_the_command_line_the_last(void **state)
{
	(void)state;
	assert_int_equal(load(ENV("TXMAP_LOG=debug", "TXMAP_LOG=off"), EXTRA("load=lazy", "load=eager")), 0);
	assert_int_equal(cfg->log, POL_LOG_DEBUG);
	assert_int_equal(cfg->process.load, VM_LOAD_EAGER);
}

static void the_unnamed_rule_comes_before_those_of_the_file(void **state)
{
	(void)state;
	write_file("[rule a]\npath=/srv/a*\n[rule b]\npath=/srv/*\n");
	assert_int_equal(load(ENV(config_env, "TXMAP_PATHS=/srv/ab*:/x\\:y"), NULL), 0);
	assert_int_equal(cfg->nrules, 3);
	assert_string_equal(pol_config_rule(cfg, "/srv/abc")->name, "");
	assert_string_equal(pol_config_rule(cfg, "/x:y")->name, "");
	assert_string_equal(pol_config_rule(cfg, "/srv/a")->name, "a");
	assert_string_equal(pol_config_rule(cfg, "/srv/b")->name, "b");
	assert_null(pol_config_rule(cfg, "/x"));
}

static void an_exclamation_mark_excludes_wherever_it_stands(void **state)
{
	(void)state;
	assert_int_equal(load_file("[rule a]\npath = !/srv/no*\npath = /srv/*\npath = !/srv/x\n"), 0);
	assert_non_null(pol_config_rule(cfg, "/srv/a"));
	assert_null(pol_config_rule(cfg, "/srv/nothing"));
	assert_null(pol_config_rule(cfg, "/srv/x"));
}

static void a_journal_is_never_managed(void **state)
{
	(void)state;
	assert_int_equal(load(ENV("TXMAP_PATHS=/**"), NULL), 0);
	assert_null(pol_config_rule(cfg, "/srv/.a.gdbm.txmap"));
	assert_non_null(pol_config_rule(cfg, "/srv/a.gdbm.txmap"));
	assert_non_null(pol_config_rule(cfg, "/srv/.txmap"));
}

static void comments_blanks_and_line_ends_are_no_part_of_a_value(void **state)
{
	(void)state;
	assert_int_equal(load_file("\xef\xbb\xbf# first\r\n"
				   "  ; second\r\n"
				   "[defaults]  ; third\r\n"
				   "  commit\t=  fsync , release  ; fourth\r\n"
				   "[ rule  a.b-C_1 ]\r\n"
				   "path=/srv/a;b#c\r\n"
				   "\r\n"
				   "journal = /var/j d"),
			 0);
	assert_string_equal(cfg->process.text[POL_OPT_commit], "fsync , release");
	assert_int_equal(cfg->process.commit, 1u << POL_EV_FSYNC | 1u << POL_EV_RELEASE);
	assert_string_equal(pol_config_rule(cfg, "/srv/a;b#c")->name, "a.b-C_1");
	assert_string_equal(cfg->rules[0].journal_dir, "/var/j d");
}

static void long_lines_and_many_rules_are_read_whole(void **state)
{
	char *text = NULL, path[4096];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	(void)state;
	for (int i = 0; i < 2000; i++)
		fprintf(f, "[rule r%d]\npath = /srv/%d/*\n", i, i);
	memset(path, 'x', sizeof(path) - 1);
	memcpy(path, "/", 1);
	path[4000] = 0;
	fprintf(f, "[rule long]\npath = %s\n", path);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(load_file(text), 0);
	free(text);
	assert_int_equal(cfg->nrules, 2001);
	assert_string_equal(pol_config_rule(cfg, "/srv/1999/a")->name, "r1999");
	assert_string_equal(pol_config_rule(cfg, path)->name, "long");
}

static void the_runtime_directory_follows_the_session_or_the_user(void **state)
{
	char want[64];

	(void)state;
	assert_int_equal(load(ENV("XDG_RUNTIME_DIR=/run/user/7"), NULL), 0);
	assert_string_equal(cfg->runtime_dir, "/run/user/7/txmap");
	assert_int_equal(load(ENV("XDG_RUNTIME_DIR=/run/user/7", "TXMAP_RUNTIME_DIR=/x"), NULL), 0);
	assert_string_equal(cfg->runtime_dir, "/x");
	assert_int_equal(load(ENV("XDG_RUNTIME_DIR=relative"), NULL), 0);
	snprintf(want, sizeof(want), "%s/txmap-%u", access("/run", W_OK) ? "/tmp" : "/run", geteuid());
	assert_string_equal(cfg->runtime_dir, want);
}

/* ---- refusals ---- */

static void every_setting_refuses_nonsense_from_each_source(void **state)
{
	(void)state;
	for (int o = 0; o < POL_OPT_N; o++) {
		const char *name = pol_opt_name((enum pol_opt)o);
		char env[64], arg[64], text[128], upper[32];
		size_t i;

		for (i = 0; name[i]; i++)
			upper[i] = name[i] == '_' ? '_' : (char)(name[i] - 'a' + 'A');
		upper[i] = 0;
		snprintf(env, sizeof(env), "TXMAP_%s=non sense", upper);
		snprintf(arg, sizeof(arg), "%s=non sense", name);
		snprintf(text, sizeof(text), "\n[defaults]\n%s = non sense\n", name);
		REFUSED(load(ENV(env), NULL), "environment", upper, "non sense", "allowed: ");
		REFUSED(load(NULL, EXTRA(arg)), "command line", name, "non sense", "allowed: ");
		REFUSED(load_file(text), file_path, ":3: ", name, "allowed: ");
	}
}

static void a_wrong_value_is_refused_even_when_a_nearer_one_hides_it(void **state)
{
	(void)state;
	write_file("[defaults]\nload = laszy\n");
	REFUSED(load(ENV(config_env, "TXMAP_LOAD=lazy"), EXTRA("load=eager")), ":2: ", "laszy");
}

static void unknown_names_are_refused(void **state)
{
	(void)state;
	REFUSED(load(ENV("TXMAP_COMIT=none"), NULL), "TXMAP_COMIT", "unknown setting", "allowed");
	REFUSED(load(ENV("TXMAP_commit=none"), NULL), "TXMAP_commit", "unknown setting");
	REFUSED(load(ENV("TXMAP_=none"), NULL), "unknown setting");
	REFUSED(load(ENV("TXMAP_CONFIG="), NULL), "TXMAP_CONFIG", "empty");
	REFUSED(load(NULL, EXTRA("comit=none")), "comit", "unknown key");
	REFUSED(load(NULL, EXTRA("commit")), "commit", "no value");
	assert_int_equal(load(ENV("TXMAPX=1", "XTXMAP_Y=1", "TXMAP=1"), NULL), 0);
}

static void a_message_is_one_line_whatever_the_value_holds(void **state)
{
	static char huge[100000];

	(void)state;
	REFUSED(load(NULL, EXTRA("commit=a\nb\033[31m")), "a?b?[31m");
	memset(huge, 'x', sizeof(huge) - 1);
	memcpy(huge, "commit=", 7);
	REFUSED(load(NULL, EXTRA(huge)), "unknown event", "allowed: ");
}

static void a_glob_that_can_match_nothing_is_refused(void **state)
{
	(void)state;
	REFUSED(load(ENV("TXMAP_PATHS=a.db"), NULL), "TXMAP_PATHS", "a.db", "not an absolute path");
	REFUSED(load(ENV("TXMAP_PATHS=/a:"), NULL), "not an absolute path");
	REFUSED(load(ENV("TXMAP_PATHS=!a"), NULL), "not an absolute path");
	REFUSED(load(ENV("TXMAP_PATHS=/a/../b"), NULL), "canonical");
	REFUSED(load(ENV("TXMAP_PATHS=/a//b"), NULL), "canonical");
	REFUSED(load(ENV("TXMAP_PATHS=/a/./b"), NULL), "canonical");
	REFUSED(load(ENV("TXMAP_PATHS=/a/"), NULL), "canonical");
	REFUSED(load(ENV("TXMAP_PATHS=!/a:!/b"), NULL), "only excludes");
	REFUSED(load_file("[rule a]\npath = a.db\n"), ":2: ", "path = a.db", "not an absolute path");
	assert_int_equal(load(ENV("TXMAP_PATHS="), NULL), 0);
	assert_int_equal(cfg->nrules, 0);
}

static void a_wrong_file_is_refused_with_its_line(void **state)
{
	(void)state;
	REFUSED(load_file("[defaults]\nnonsense\n"), file_path, ":2: ", "syntax error", "KEY = VALUE");
	REFUSED(load_file("\n[defaults\n"), ":2: ", "syntax error");
	REFUSED(load_file("[defaults] x\n"), ":1: ", "syntax error");
	REFUSED(load_file("[default]\n"), ":1: ", "unknown section");
	REFUSED(load_file("[rules a]\n"), ":1: ", "unknown section");
	REFUSED(load_file("[rule]\npath=/a\n"), ":1: ", "name");
	REFUSED(load_file("[rule a/b]\npath=/a\n"), ":1: ", "name");
	REFUSED(load_file("[rule .]\npath=/a\n"), ":1: ", "name");
	REFUSED(load_file("[rule a]\npath=/a\n[rule a]\npath=/b\n"), ":3: ", "already, at line 1");
	REFUSED(load_file("[defaults]\n[defaults]\n"), ":2: ", "already");
	REFUSED(load_file("[rule a]\npath=/a\n[rule b]\ncommit=none\n"), ":3: ", "rule without a path");
	REFUSED(load_file("[rule a]\npath=!/a\n[defaults]\n"), ":1: ", "rule without a path");
	REFUSED(load_file("load = lazy\n"), ":1: ", "before the first section");
	REFUSED(load_file("[defaults]\nload = lazy\n\nload = lazy\n"), ":4: ", "already, at line 2");
	REFUSED(load_file("[defaults]\npath = /a\n"), ":2: ", "not in [defaults]");
	REFUSED(load_file("[defaults]\npaths = /a\n"), ":2: ", "not in a file");
	REFUSED(load_file("[rule a]\npath = /a\nengine = uffd\n"), ":3: ", "engine", "whole process",
		"[defaults]");
	REFUSED(load_file("[rule a]\npath = /a\nfoo = 1\n"), ":3: ", "foo", "unknown key", "allowed: path ");
}

static void a_file_that_cannot_be_read_is_refused_with_the_reason(void **state)
{
	char env[128];
	int fd;

	(void)state;
	snprintf(env, sizeof(env), "TXMAP_CONFIG=%s/missing", dir);
	REFUSED(load(ENV(env), NULL), "/missing", "No such file or directory", "ENOENT");
	snprintf(env, sizeof(env), "TXMAP_CONFIG=%s", dir);
	REFUSED(load(ENV(env), NULL), dir, "Is a directory", "EISDIR");
	fd = open(file_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write(fd, "[defaults]\nload\0=lazy\n", 22), 22);
	close(fd);
	REFUSED(load(ENV(config_env), NULL), ":2: ", "zero byte");
	assert_int_equal(truncate(file_path, (1 << 20) + 1), 0);
	REFUSED(load(ENV(config_env), NULL), "larger than 1 MiB");
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR") ?: "/var/tmp";

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", tmp);
	if (!mkdtemp(dir))
		return -1;
	snprintf(file_path, sizeof(file_path), "%s/t.conf", dir);
	snprintf(config_env, sizeof(config_env), "TXMAP_CONFIG=%s", file_path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(file_path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_settings_there_is_no_rule_and_every_default),
		cmocka_unit_test(the_nearer_source_wins_and_is_named),
		cmocka_unit_test(
			of_a_name_twice_the_environment_means_the_first_and_the_command_line_the_last),
		cmocka_unit_test(the_unnamed_rule_comes_before_those_of_the_file),
		cmocka_unit_test(an_exclamation_mark_excludes_wherever_it_stands),
		cmocka_unit_test(a_journal_is_never_managed),
		cmocka_unit_test(comments_blanks_and_line_ends_are_no_part_of_a_value),
		cmocka_unit_test(long_lines_and_many_rules_are_read_whole),
		cmocka_unit_test(the_runtime_directory_follows_the_session_or_the_user),
		cmocka_unit_test(every_setting_refuses_nonsense_from_each_source),
		cmocka_unit_test(a_wrong_value_is_refused_even_when_a_nearer_one_hides_it),
		cmocka_unit_test(unknown_names_are_refused),
		cmocka_unit_test(a_message_is_one_line_whatever_the_value_holds),
		cmocka_unit_test(a_glob_that_can_match_nothing_is_refused),
		cmocka_unit_test(a_wrong_file_is_refused_with_its_line),
		cmocka_unit_test(a_file_that_cannot_be_read_is_refused_with_the_reason),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
