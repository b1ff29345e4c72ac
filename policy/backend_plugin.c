/* SPDX-License-Identifier: MIT */
/* Storage that others bring: a shared object that exports txmap_backend (core/api/vm_backend.h). */
#include "backend_plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The first operation that is missing and must be there, or NULL. */
static const char *missing_op(const struct vm_backend_ops *ops)
{
	return !ops->open	? "open"
	       : !ops->close	? "close"
	       : !ops->getsize	? "getsize"
	       : !ops->loadblk	? "loadblk"
	       : !ops->begin	? "begin"
	       : !ops->storeblk ? "storeblk"
	       : !ops->commit	? "commit"
	       : !ops->abort	? "abort"
				: NULL;
}

static const struct vm_backend_ops *check_ops(const char *so, void *handle, char *err, size_t errlen)
{
	const struct vm_backend_ops *ops = dlsym(handle, "txmap_backend");

	if (!ops) {
		(void)snprintf(err, errlen, "plugin %s exports no txmap_backend", so);
		return NULL;
	}
	if (ops->abi != VM_BACKEND_ABI) {
		(void)snprintf(err, errlen, "plugin %s is built for backend ABI %u, this program has %u", so,
			       ops->abi, VM_BACKEND_ABI);
		return NULL;
	}
	if (missing_op(ops)) {
		(void)snprintf(err, errlen, "plugin %s has no operation %s", so, missing_op(ops));
		return NULL;
	}
	return ops;
}

const struct vm_backend_ops *pol_plugin_load(const char *spec, const char **ret_arg, char *err, size_t errlen)
{
	const char *colon = spec ? strchr(spec, ':') : NULL;
	const struct vm_backend_ops *ops;
	char so[PATH_MAX];
	void *handle;
	size_t len;

	if (!spec || !*spec || spec == colon) {
		(void)snprintf(err, errlen,
			       "backend plugin: names no shared object (plugin:/path/to.so[:ARG])");
		return NULL;
	}
	len = colon ? (size_t)(colon - spec) : strlen(spec);
	/* without a slash the dynamic linker would search elsewhere */
	if (len >= sizeof(so) || !memchr(spec, '/', len)) {
		(void)snprintf(err, errlen, "backend plugin: %.*s is not a path with a /", (int)len, spec);
		return NULL;
	}
	memcpy(so, spec, len);
	so[len] = 0;
	handle = dlmopen(LM_ID_BASE, so, RTLD_NOW | RTLD_LOCAL); /* dlopen, by a name that the shim leaves alone */
	if (!handle) {
		const char *why = dlerror();

		(void)snprintf(err, errlen, "plugin %s cannot be loaded: %s", so,
			       why ? why : "unknown reason");
		return NULL;
	}
	ops = check_ops(so, handle, err, errlen);
	if (!ops)
		(void)dlclose(handle); /* it was of no use */
	else
		*ret_arg = colon ? colon + 1 : NULL;
	return ops;
}
