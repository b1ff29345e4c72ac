/* SPDX-License-Identifier: MIT */
/* Who takes calls away from us: libraries that are loaded so that they find libc's functions before ours, and
 * other preloads. They are left alone, but not unsaid. */
#include "real.h"
#include "enter.h"
#include "load.h"
#include <dlfcn.h>
#include <string.h>

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

static void tell_deep(const char *file)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct shim_scope s;

	if (atomic_flag_test_and_set(&told))
		return;
	shim_enter(&s);
	pol_warn(file, "is loaded with RTLD_DEEPBIND, by a name without a directory: what it and the "
		       "libraries that come "
		       "with it map is NOT managed");
	shim_leave(&s);
}

/* Found by its path alone: then it does not matter who calls. */
static bool is_by_path(const char *file)
{
	return strchr(file, '/') && !strchr(file, '$');
}

static void *open_deep(const char *file, int mode)
{
	void *handle = shim_real.dlopen(file, mode);
	int saved = errno;

	if (handle)
		shim_redirect_deep(handle);
	errno = saved;
	return handle;
}

JUMPS SHIM_EXPORT void *dlopen(const char *file, int mode)
{
	if (__builtin_expect(!shim_real.dlopen, 0))
		shim_resolve();
	if (__builtin_expect(mode & RTLD_DEEPBIND, 0) && file && !shim_is_idle()) {
		if (is_by_path(file))
			return open_deep(file, mode);
		tell_deep(file);
	}
	JUMP shim_real.dlopen(file, mode);
}

void shim_check_front(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int (*front)(void *addr, size_t len, int flags);
	Dl_info found;

	if (atomic_flag_test_and_set(&told))
		return;
	*(void **)&front = dlsym(RTLD_DEFAULT, "msync");
	if (!front || shim_is_in_us(*(void **)&front) || !dladdr(*(void **)&front, &found))
		return;
	if (!front((void *)1, 1, MS_SYNC)) /* which the kernel refuses in any case */
		pol_warn(found.dli_fname,
			 "answers msync and the like before txmap sees them: they commit NOTHING, the other "
			 "events do; preload it after libtxmap.so");
}

#include "alias.h"
