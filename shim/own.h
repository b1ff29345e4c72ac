/* SPDX-License-Identifier: MIT */
/*
 * Our own wrappers for our own use, where just what the program would get is wanted. They have hidden names,
 * since a call to an exported one could end up in another library in front of us.
 */
#ifndef SHIM_OWN_H
#define SHIM_OWN_H

#include "real.h"

#define CALL(family, name, aliases) extern __typeof__(name) shim_own_##name;
#include "calls.def"
#undef CALL

/* Is f a stream that wrap_stdio.c made? It closes its descriptor by our own close. */
_Bool shim_is_on_our_calls(FILE *f);

#endif
