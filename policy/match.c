/* SPDX-License-Identifier: MIT */
/* Globs on canonical paths. */
#include "config.h"

#include <limits.h>
#include <string.h>

/* Does the set at *glob ("[a-c]", "[!x]") contain c? Moves *glob behind it. Without a closing bracket the
 * '[' is a plain character, and *glob stays. */
static bool set_contains(const char **glob, char c, bool *ret_is_set)
{
	const char *p = *glob + 1;
	bool negate = *p == '!' || *p == '^';
	bool found = false;

	if (negate)
		p++;
	for (const char *first = p; *p && (*p != ']' || p == first); p++) {
		unsigned char low, high;

		if (*p == '\\' && p[1])
			p++;
		low = high = (unsigned char)*p;
		if (p[1] == '-' && p[2] && p[2] != ']') {
			p += 2;
			if (*p == '\\' && p[1])
				p++;
			high = (unsigned char)*p;
		}
		if ((unsigned char)c >= low && (unsigned char)c <= high)
			found = true;
	}
	*ret_is_set = *p == ']';
	if (*ret_is_set)
		*glob = p + 1;
	return found != negate && c != '/';
}

/* One step of the glob that stands for exactly one character. Returns whether it accepts c. */
static bool step_accepts(const char **glob, char c)
{
	bool is_set, accepts;

	switch (**glob) {
	case '?':
		++*glob;
		return c != '/';
	case '[':
		accepts = set_contains(glob, c, &is_set);
		if (is_set)
			return accepts;
		break;
	case '\\':
		if ((*glob)[1])
			++*glob;
		break;
	}
	return *(*glob)++ == c;
}

/* Every reachable place in path is kept at once instead of trying one and coming back, so that no glob takes
 * longer than its length times the path's. */
bool pol_match(const char *glob, const char *path)
{
	const char *start = glob;
	char reached[PATH_MAX + 1]; /* reached[i]: the glob so far matches the first i characters of path */
	size_t len;

	for (; *glob && !strchr("*?[\\", *glob); glob++, path++) { /* nearly every other path ends here */
		if (*glob != *path)
			return false;
	}
	len = strlen(path);
	if (len > PATH_MAX)
		return false; /* the kernel has no such path */
	memset(reached, 0, len + 1);
	reached[0] = 1;

	while (*glob) {
		if (glob[0] == '*' && glob[1] == '*') {
			bool is_between = (glob == start || glob[-1] == '/') && glob[2] == '/';
			bool any = false;

			/* between slashes it stands for whole components, also for none */
			glob += is_between ? 3 : 2;
			for (size_t i = 0; i <= len; i++) {
				bool now = reached[i];

				if (any && (!is_between || path[i - 1] == '/'))
					reached[i] = 1;
				any |= now;
			}
		} else if (*glob == '*') {
			glob++;
			for (size_t i = 1; i <= len; i++)
				reached[i] |= reached[i - 1] && path[i - 1] != '/';
		} else {
			const char *next = glob;

			(void)step_accepts(&next, 0); /* where it ends does not depend on the character */
			for (size_t i = len; i > 0; i--) {
				const char *step = glob;

				reached[i] = reached[i - 1] && step_accepts(&step, path[i - 1]);
			}
			reached[0] = 0;
			glob = next;
		}
	}
	return reached[len];
}
