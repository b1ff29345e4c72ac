/* SPDX-License-Identifier: MIT */
/* Who takes calls away from us: libraries that are loaded so that they find libc's functions before ours, and
 * other preloads. They are left alone, but not unsaid. */
#include "real.h"
#include "enter.h"
#include "load.h"
#include <dlfcn.h>

#define SHIM_TAKE_LOAD(x) x

/* libc looks at who called: libraries are searched, and namespaces chosen, by that. So what comes last is a
 * jump. */
#ifdef __clang__
#define JUMPS
#define JUMP __attribute__((musttail)) return
#else
#define JUMPS __attribute__((optimize("O2")))
#define JUMP  return
#endif

static void warn_once(atomic_flag *told, const char *object, const char *text)
{
	struct shim_scope s;

	if (atomic_flag_test_and_set(told))
		return;
	shim_enter(&s);
	pol_warn(object, text);
	shim_leave(&s);
}

static void tell_loaded_apart(const char *file)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int saved = errno;

	if (!shim_is_idle())
		warn_once(&told, file,
			  "is loaded with RTLD_DEEPBIND: what it and the libraries that come with it map is "
			  "NOT managed");
	errno = saved;
}

JUMPS SHIM_EXPORT void *dlopen(const char *file, int mode)
{
	if (__builtin_expect(mode & RTLD_DEEPBIND, 0) && file)
		tell_loaded_apart(file);
	if (__builtin_expect(!shim_real.dlopen, 0))
		shim_resolve();
	JUMP shim_real.dlopen(file, mode);
}

void shim_check_front(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int (*front)(void *addr, size_t len, int flags);
	Dl_info found, ours;

	if (atomic_flag_test_and_set(&told))
		return;
	*(void **)&front = dlsym(RTLD_DEFAULT, "msync");
	if (!front || !dladdr(*(void **)&front, &found) || !dladdr(&told, &ours) ||
	    found.dli_fbase == ours.dli_fbase)
		return;
	if (!front((void *)1, 1, MS_SYNC)) /* which the kernel refuses in any case */
		pol_warn(found.dli_fname,
			 "answers msync and the like before txmap sees them: they commit NOTHING, the other "
			 "events do; preload it after libtxmap.so");
}

#include "alias.h"
