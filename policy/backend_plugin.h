/* SPDX-License-Identifier: MIT */
#ifndef POL_BACKEND_PLUGIN_H
#define POL_BACKEND_PLUGIN_H

#include "vm_backend.h"

/* Load "SO[:ARG]"; see pol_backend_get. The object stays loaded. */
const struct vm_backend_ops *pol_plugin_load(const char *spec, const char **ret_arg, char *err, size_t errlen);

#endif
