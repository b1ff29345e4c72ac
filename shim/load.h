/* SPDX-License-Identifier: MIT */
#ifndef SHIM_LOAD_H
#define SHIM_LOAD_H

/* A file is managed: is there a preload before us that answers the program's msync itself, as libeatmydata
 * does? It is said in the log, once. Between shim_enter and shim_leave. */
void shim_check_front(void);

/* deep.c: the calls of what was loaded with RTLD_DEEPBIND come to us. */
void shim_redirect_deep(void *handle);

#endif
