/* SPDX-License-Identifier: MIT */
/* Tables for people. */
#include "cli.h"

#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>

static void need(bool ok)
{
	if (!ok)
		cli_need(NULL);
}

struct libscols_table *cli_table(const char *const *columns)
{
	struct libscols_table *t = cli_need(scols_new_table());

	for (; *columns; columns++) {
		bool right = **columns == '>';

		need(scols_table_new_column(t, *columns + right, 0, right ? SCOLS_FL_RIGHT : 0));
	}
	return t;
}

void cli_table_row(struct libscols_table *t, ...)
{
	struct libscols_line *line = cli_need(scols_table_new_line(t, NULL));
	va_list ap;

	va_start(ap, t);
	for (size_t i = 0; i < scols_table_get_ncols(t); i++)
		need(!scols_line_set_data(line, i, va_arg(ap, const char *)));
	va_end(ap);
}

void cli_table_print(struct libscols_table *t)
{
	need(!scols_print_table(t));
	scols_unref_table(t);
}

void cli_table_free(struct libscols_table *t)
{
	scols_unref_table(t);
}
