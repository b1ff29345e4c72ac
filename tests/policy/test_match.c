/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#define YES(glob, path) assert_true(pol_match(glob, path))
#define NO(glob, path)	assert_false(pol_match(glob, path))

static void a_plain_glob_matches_only_itself(void **state)
{
	(void)state;
	YES("/srv/a.db", "/srv/a.db");
	NO("/srv/a.db", "/srv/a.dbx");
	NO("/srv/a.db", "/srv/a.d");
	NO("/srv/a.db", "/srv/A.db");
	NO("/srv/a.db", "");
}

static void a_star_stays_within_a_component(void **state)
{
	(void)state;
	YES("/srv/*.db", "/srv/a.db");
	YES("/srv/*.db", "/srv/.db");
	YES("/srv/*", "/srv/.hidden");
	YES("/s*/a*b*c", "/srv/axxbyyc");
	YES("/srv/*a*a*b", "/srv/aaaaab");
	NO("/srv/*.db", "/srv/x/a.db");
	NO("/srv/*", "/srv/x/y");
	NO("/*", "/srv/x");
	NO("/srv/*/", "/srv/x");
}

static void a_question_mark_is_one_character_but_a_slash(void **state)
{
	(void)state;
	YES("/srv/?.db", "/srv/a.db");
	NO("/srv/?.db", "/srv/.db");
	NO("/srv/?.db", "/srv/ab.db");
	NO("/srv?a", "/srv/a");
}

static void two_stars_cross_components(void **state)
{
	(void)state;
	YES("/srv/**", "/srv/a");
	YES("/srv/**", "/srv/a/b/c");
	NO("/srv/**", "/srvx/a");
	NO("/srv/**", "/srv");
	YES("/srv/**.db", "/srv/x/y/a.db");
	YES("/**", "/a");
	YES("/srv/**/b*d/*.x", "/srv/bad/q/bed/e/bid/f.x");
	NO("/srv/**/b*d/*.x", "/srv/bad/q/bed/e/f.x");
}

static void two_stars_between_slashes_stand_for_whole_components_or_none(void **state)
{
	(void)state;
	YES("/srv/**/a.db", "/srv/a.db");
	YES("/srv/**/a.db", "/srv/x/a.db");
	YES("/srv/**/a.db", "/srv/x/y/a.db");
	NO("/srv/**/a.db", "/srv/xa.db");
	NO("/srv/**/a.db", "/srv/x/ya.db");
}

static void a_set_is_one_character_of_it(void **state)
{
	(void)state;
	YES("/a[bc]d", "/abd");
	YES("/a[bc]d", "/acd");
	NO("/a[bc]d", "/aed");
	NO("/a[bc]d", "/abcd");
	YES("/a[0-9]", "/a5");
	NO("/a[0-9]", "/ax");
	YES("/a[!0-9]", "/ax");
	YES("/a[^0-9]", "/ax");
	NO("/a[!0-9]", "/a5");
	YES("/a[]x]", "/a]");
	YES("/a[x-]", "/a-");
	YES("/a[\\]x]b", "/a]b");
	YES("/a[\xe0-\xff]", "/a\xe9");
	NO("/a[/]b", "/a/b");
	NO("/a[!x]b", "/a/b");
}

static void an_unclosed_bracket_is_a_plain_character(void **state)
{
	(void)state;
	YES("/a[b", "/a[b");
	NO("/a[b", "/ab");
	YES("/a[", "/a[");
	YES("/a[!", "/a[!");
	YES("/a[]", "/a[]");
}

static void a_backslash_makes_the_next_character_plain(void **state)
{
	(void)state;
	YES("/a\\*", "/a*");
	NO("/a\\*", "/ab");
	YES("/a\\[b]", "/a[b]");
	YES("/a\\:b", "/a:b");
	YES("/a\\\\", "/a\\");
	YES("/a\\", "/a\\");
}

static void many_stars_take_no_exponential_time(void **state)
{
	char glob[2001], path[PATH_MAX + 1];
	struct timespec t0, t1;

	(void)state;
	glob[0] = path[0] = '/';
	for (int i = 1; i < 1999; i++)
		glob[i] = i % 3 == 0 ? 'a' : '*';
	strcpy(glob + 1999, "b");
	memset(path + 1, 'a', PATH_MAX - 2);
	path[PATH_MAX - 1] = 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
	NO(glob, path);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	assert_true(t1.tv_sec - t0.tv_sec < 2);
}

static void a_path_longer_than_the_kernel_has_matches_nothing(void **state)
{
	static char path[PATH_MAX + 10];

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	NO("/**", path);
}

/* The plain definition, exponential and obvious. */
static bool obvious(const char *g, const char *p, bool after_slash)
{
	if (!*g)
		return !*p;
	if (g[0] == '*' && g[1] == '*') {
		if (after_slash && g[2] == '/') {
			if (obvious(g + 3, p, true))
				return true;
			for (; *p; p++) {
				if (*p == '/' && obvious(g + 3, p + 1, true))
					return true;
			}
			return false;
		}
		for (;; p++) {
			if (obvious(g + 2, p, false))
				return true;
			if (!*p)
				return false;
		}
	}
	if (*g == '*') {
		for (;; p++) {
			if (obvious(g + 1, p, false))
				return true;
			if (!*p || *p == '/')
				return false;
		}
	}
	return *p && (*g == '?' ? *p != '/' : *g == *p) && obvious(g + 1, p + 1, *g == '/');
}

static void every_short_glob_and_path_agree_with_the_definition(void **state)
{
	static const char glob_letters[] = "a/*?", path_letters[] = "ab/";
	unsigned nmatches = 0;

	(void)state;
	for (unsigned g = 0; g < 4 * 4 * 4 * 4 * 4 * 4; g++) {
		char glob[8] = "/";

		for (unsigned i = 0, n = g; i < 6; i++, n /= 4)
			glob[i + 1] = glob_letters[n % 4];
		if (strstr(glob, "***"))
			continue; /* nobody says what that is */
		for (unsigned p = 0; p < 3 * 3 * 3 * 3 * 3; p++) {
			char path[8] = "/";

			for (unsigned i = 0, n = p; i < 5; i++, n /= 3)
				path[i + 1] = path_letters[n % 3];
			for (unsigned len = 1; len <= 6; len++) {
				char cut[8] = "";

				memcpy(cut, path, len);
				if (pol_match(glob, cut) != obvious(glob, cut, false))
					fail_msg("%s on %s", glob, cut);
				nmatches += pol_match(glob, cut);
			}
		}
	}
	assert_true(nmatches > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_glob_matches_only_itself),
		cmocka_unit_test(a_star_stays_within_a_component),
		cmocka_unit_test(a_question_mark_is_one_character_but_a_slash),
		cmocka_unit_test(two_stars_cross_components),
		cmocka_unit_test(two_stars_between_slashes_stand_for_whole_components_or_none),
		cmocka_unit_test(a_set_is_one_character_of_it),
		cmocka_unit_test(an_unclosed_bracket_is_a_plain_character),
		cmocka_unit_test(a_backslash_makes_the_next_character_plain),
		cmocka_unit_test(many_stars_take_no_exponential_time),
		cmocka_unit_test(a_path_longer_than_the_kernel_has_matches_nothing),
		cmocka_unit_test(every_short_glob_and_path_agree_with_the_definition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
