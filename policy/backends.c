/* SPDX-License-Identifier: MIT */
/* The backends there are. */
#include "backends.h"
#include "backend_plugin.h"

#include <stdio.h>
#include <string.h>

static const struct vm_backend_ops *const builtin[] = {
	&pol_backend_file,
};

const struct vm_backend_ops *pol_backend_get(const char *name, const char *arg, const char **ret_arg,
					     char *err, size_t errlen)
{
	if (!strcmp(name, "plugin"))
		return pol_plugin_load(arg, ret_arg, err, errlen);
	for (size_t i = 0; i < sizeof(builtin) / sizeof(*builtin); i++) {
		if (!strcmp(name, builtin[i]->name)) {
			*ret_arg = arg;
			return builtin[i];
		}
	}
	(void)snprintf(err, errlen, "backend %s is not available in this version", name);
	return NULL;
}
