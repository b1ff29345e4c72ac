/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config.h"
#include "pol.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define EXTRA(...) ((const char *const[]){__VA_ARGS__, NULL})

static const struct pol_config *cfg; /* of the last load */
static char err[1024];

static int load(const char *const *extra)
{
	cfg = NULL;
	err[0] = 0;
	return pol_config_load(NULL, extra, &cfg, err, sizeof(err));
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

static void sizes_have_units_of_1024(void **state)
{
	uint64_t n;

	(void)state;
	assert_int_equal(pol_parse_size("0", &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(pol_parse_size("64M", &n), 0);
	assert_int_equal(n, 64u << 20);
	assert_int_equal(pol_parse_size("3T", &n), 0);
	assert_int_equal(n, 3ull << 40);
	assert_int_equal(pol_parse_size("18446744073709551615", &n), 0);
	assert_int_equal(n, UINT64_MAX);
	for (const char *const *bad = EXTRA("", "K", "-1", "1.5M", "64m", "64MB", "64 M",
					    "18446744073709551616", "16777216T", "0x10");
	     *bad; bad++)
		assert_int_equal(pol_parse_size(*bad, &n), -EINVAL);
}

static void times_need_a_unit(void **state)
{
	uint64_t n;

	(void)state;
	assert_int_equal(pol_parse_time("5s", &n), 0);
	assert_int_equal(n, 5000000);
	assert_int_equal(pol_parse_time("200ms", &n), 0);
	assert_int_equal(n, 200000);
	assert_int_equal(pol_parse_time("1m", &n), 0);
	assert_int_equal(n, 60000000);
	for (const char *const *bad =
		     EXTRA("", "5", "s", "5 s", "5sec", "-5s", "99999999999999999999s", "6000000000000000h");
	     *bad; bad++)
		assert_int_equal(pol_parse_time(*bad, &n), -EINVAL);
}

static void signals_have_names(void **state)
{
	int n;

	(void)state;
	assert_int_equal(pol_parse_signal("USR1", &n), 0);
	assert_int_equal(n, SIGUSR1);
	assert_int_equal(pol_parse_signal("SIGHUP", &n), 0);
	assert_int_equal(n, SIGHUP);
	assert_int_equal(pol_parse_signal("RTMIN+3", &n), 0);
	assert_int_equal(n, SIGRTMIN + 3);
	assert_int_equal(pol_parse_signal("SIGRTMAX-1", &n), 0);
	assert_int_equal(n, SIGRTMAX - 1);
	for (const char *const *bad = EXTRA("", "usr1", "10", "SIG", "RTMIN+99", "RTMIN-1", "RTMIN+", "NOPE");
	     *bad; bad++)
		assert_int_equal(pol_parse_signal(*bad, &n), -EINVAL);
}

static void commit_is_a_list_of_events(void **state)
{
	(void)state;
	assert_int_equal(load(EXTRA("commit=none")), 0);
	assert_int_equal(cfg->process.commit, 0);
	assert_int_equal(load(EXTRA("commit=munmap,interval:5s,dirty:64M")), 0);
	assert_int_equal(cfg->process.commit,
			 1u << POL_EV_MUNMAP | 1u << POL_EV_INTERVAL | 1u << POL_EV_DIRTY);
	assert_int_equal(cfg->process.interval_usec, 5000000);
	assert_int_equal(cfg->process.dirty_limit, 64u << 20);
	REFUSED(load(EXTRA("commit=")), "commit", "unknown event");
	REFUSED(load(EXTRA("commit=msync,")), "unknown event");
	REFUSED(load(EXTRA("commit=none,msync")), "unknown event");
	REFUSED(load(EXTRA("commit=msync:3")), "no argument");
	REFUSED(load(EXTRA("commit=msync,msync")), "twice");
	REFUSED(load(EXTRA("commit=interval")), "interval:5s");
	REFUSED(load(EXTRA("commit=interval:0s")), "above zero");
	REFUSED(load(EXTRA("commit=dirty:0")), "above zero");
	REFUSED(load(EXTRA("commit=interval:00000000000000000000000000000000000000000000005s")), "interval");
}

static void a_backend_has_its_argument(void **state)
{
	(void)state;
	assert_int_equal(load(EXTRA("backend=plugin:/x/mine.so:a:b")), 0);
	assert_string_equal(cfg->process.backend, "plugin");
	assert_string_equal(cfg->process.backend_arg, "/x/mine.so:a:b");
	REFUSED(load(EXTRA("backend=plugin")), "shared object");
	REFUSED(load(EXTRA("backend=plugin:")), "shared object");
	REFUSED(load(EXTRA("backend=file:x")), "unknown backend");
}

static void the_same_signal_cannot_mean_two_things(void **state)
{
	(void)state;
	assert_int_equal(load(EXTRA("commit_signal=USR1", "discard_signal=RTMIN+3")), 0);
	assert_int_equal(cfg->commit_signal, SIGUSR1);
	assert_int_equal(cfg->discard_signal, SIGRTMIN + 3);
	REFUSED(load(EXTRA("commit_signal=USR1", "discard_signal=SIGUSR1")), "commit_signal",
		"discard_signal");
	REFUSED(load(EXTRA("commit_signal=KILL")), "cannot be a trigger");
	REFUSED(load(EXTRA("invalidate_signal=SEGV")), "cannot be a trigger");
}

static void what_this_version_has_not_is_refused_by_that_name(void **state)
{
	static const char *const later[] = {
		"backend=sqlite:/x", "backend=postgres:", "memory=1G", "huge=thp", "huge=2M",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
		REFUSED(load(EXTRA(later[i])), "not available in this version", "allowed: ");
	REFUSED(load(EXTRA("backend=sqlite:/x")), "allowed: file plugin:SO[:ARG]");
	assert_int_equal(load(EXTRA("memory=0", "huge=off", "share=user", "scope=file", "invalidate=msync",
				    "durability=lazy", "conflict=overwrite")),
			 0);
}

/* The group's journal of the unnamed rule with that glob. */
static const char *group_journal(const char *glob, const char *more)
{
	char paths[256];

	(void)snprintf(paths, sizeof(paths), "paths=%s", glob);
	assert_int_equal(load(EXTRA(paths, "scope=group", more)), 0);
	assert_true(cfg->rules[0].group);
	return cfg->rules[0].group_journal;
}

static void a_group_has_its_journal_where_its_first_path_has_no_wildcard_yet(void **state)
{
	(void)state;
	assert_string_equal(group_journal("/srv/db/*.dat", NULL), "/srv/db/.group.txmap");
	assert_string_equal(group_journal("/srv/**/x?.dat", NULL), "/srv/.group.txmap");
	assert_string_equal(group_journal("/srv/a[bc]/x.dat", NULL), "/srv/.group.txmap");
	assert_string_equal(group_journal("/srv/db/a.dat:/var/*", NULL), "/srv/db/.group.txmap");
	assert_string_equal(group_journal("!/tmp/x:/srv/db/*", NULL), "/srv/db/.group.txmap");
	assert_string_equal(group_journal("/*", NULL), "/.group.txmap");
	assert_string_equal(group_journal("/srv/db/*", "journal=/var/j/"), "/var/j/.group.txmap");
	assert_int_equal(load(EXTRA("paths=/srv/*", "scope=file")), 0);
	assert_null(cfg->rules[0].group_journal);
}

static void a_group_has_one_overlay_for_all_and_its_blocks_in_files(void **state)
{
	(void)state;
	REFUSED(load(EXTRA("paths=/x/*", "scope=group", "share=process")), "scope = group and share = process",
		"allowed with it: user");
	REFUSED(load(EXTRA("paths=/x/*", "scope=group", "backend=plugin:/x.so")), "allowed with it: file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_have_units_of_1024),
		cmocka_unit_test(times_need_a_unit),
		cmocka_unit_test(signals_have_names),
		cmocka_unit_test(commit_is_a_list_of_events),
		cmocka_unit_test(a_backend_has_its_argument),
		cmocka_unit_test(the_same_signal_cannot_mean_two_things),
		cmocka_unit_test(a_group_has_its_journal_where_its_first_path_has_no_wildcard_yet),
		cmocka_unit_test(a_group_has_one_overlay_for_all_and_its_blocks_in_files),
		cmocka_unit_test(what_this_version_has_not_is_refused_by_that_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
