/* SPDX-License-Identifier: MIT */
/* Reading the settings while the host fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config.h"
#include "vm_sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static char file_path[96];	     /* the settings file */
static char config_env[128];	     /* TXMAP_CONFIG=... */
static const struct pol_config *cfg; /* of the last load */
static char err[1024];

static struct vm_sys failing;
static int fail_at, ncalls, nopen;

static bool fails(void)
{
	return ++ncalls == fail_at;
}

static int f_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = fails() ? -EMFILE : vm_sys_linux.openat(dirfd, path, flags, mode);

	nopen += fd >= 0;
	return fd;
}

static int f_close(int fd)
{
	nopen--;
	return vm_sys_linux.close(fd);
}

static ssize_t f_read(int fd, void *buf, size_t len)
{
	return fails() ? -EIO : vm_sys_linux.read(fd, buf, len > 7 ? 7 : len); /* short counts are normal */
}

static long mapped;

static void *f_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (fails())
		return (void *)(intptr_t)-ENOMEM;
	mapped += (long)len;
	return vm_sys_linux.mmap(addr, len, prot, flags, fd, off);
}

static int f_munmap(void *addr, size_t len)
{
	mapped -= (long)len;
	return vm_sys_linux.munmap(addr, len);
}

static void a_host_call_that_fails_is_reported_and_leaves_nothing_behind(void **state)
{
	const char *text = "[defaults]\nload = lazy\n[rule a]\npath = /a/*\npath = /b/*\n";
	FILE *f = fopen(file_path, "w");
	int n = 0;

	(void)state;
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	failing = vm_sys_linux;
	failing.openat = f_openat;
	failing.close = f_close;
	failing.read = f_read;
	failing.mmap = f_mmap;
	failing.munmap = f_munmap;
	vm_sys = &failing;
	for (fail_at = 1;; fail_at++, n++) {
		int rc;

		ncalls = nopen = 0;
		mapped = 0;
		cfg = NULL;
		err[0] = 0;
		rc = pol_config_load((char *const[]){config_env, "TXMAP_PATHS=/c", NULL}, NULL, &cfg, err,
				     sizeof(err));
		assert_int_equal(nopen, 0);
		if (ncalls < fail_at) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, -EINVAL);
		assert_int_not_equal(err[0], 0);
		assert_int_equal(mapped, 0);
	}
	vm_sys = &vm_sys_linux;
	assert_true(n >= 5);
	assert_int_equal(cfg->nrules, 2);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR") ?: "/var/tmp";

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", tmp);
	if (!mkdtemp(dir))
		return -1;
	snprintf(file_path, sizeof(file_path), "%s/t.conf", dir);
	snprintf(config_env, sizeof(config_env), "TXMAP_CONFIG=%s", file_path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(file_path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_host_call_that_fails_is_reported_and_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
