/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "backends.h"
#include "box.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char example[4096]; /* the built example plugin */
static char err[400];

/* DIR/plugins/ram_backend.so in one of the folders above this program. */
static int find_example(void **state)
{
	char dir[3000];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	(void)state;
	assert_true(n > 0);
	dir[n] = 0;
	for (char *slash; (slash = strrchr(dir, '/'));) {
		*slash = 0;
		(void)snprintf(example, sizeof(example), "%s/plugins/ram_backend.so", dir);
		if (!access(example, R_OK))
			return 0;
	}
	print_error("plugins/ram_backend.so is not built\n");
	return -1;
}

static const struct vm_backend_ops *get(const char *arg, const char **ret_arg)
{
	*err = 0;
	*ret_arg = NULL;
	return pol_backend_get("plugin", arg, ret_arg, err, sizeof(err));
}

static int commit(const struct vm_backend_ops *ops, struct vm_bigfile *f, uint64_t pgoff, const char *text,
		  uint64_t size, uint64_t low)
{
	struct vm_txn txn = {.txid = 1, .size = size, .size_low = low};
	static char blk[VM_BLKSIZE];
	int e = ops->begin(f);

	memset(blk, 0, sizeof(blk));
	strcpy(blk, text);
	if (!e)
		e = ops->storeblk(f, pgoff, 1, blk, 0);
	return e ? e : ops->commit(f, &txn, VM_COMMIT_DURABLE);
}

static void assert_block(const struct vm_backend_ops *ops, struct vm_bigfile *f, uint64_t pgoff,
			 const char *text)
{
	static char blk[VM_BLKSIZE], want[VM_BLKSIZE];

	memset(want, 0, sizeof(want));
	strcpy(want, text);
	assert_int_equal(ops->loadblk(f, pgoff, 1, blk), 0);
	assert_memory_equal(blk, want, sizeof(want));
}

static void commits_and_loads_go_through_the_example(void **state)
{
	struct vm_bigfile f = {.path = "/x", .fd = -1};
	const struct vm_backend_ops *ops;
	const char *arg;
	uint64_t size;

	(void)state;
	ops = get(example, &arg);
	assert_non_null(ops);
	assert_null(arg);
	assert_int_equal(ops->open(&f, arg), 0);
	assert_int_equal(commit(ops, &f, 2, "hello", 3 * VM_BLKSIZE, 0), 0);
	assert_int_equal(ops->getsize(&f, &size), 0);
	assert_int_equal(size, 3 * VM_BLKSIZE);
	assert_block(ops, &f, 2, "hello");
	assert_block(ops, &f, 1, "");
	assert_block(ops, &f, 100, "");
	/* cut on the way: block 2 is gone, block 0 is stored */
	assert_int_equal(commit(ops, &f, 0, "again", 3 * VM_BLKSIZE, 0), 0);
	assert_block(ops, &f, 0, "again");
	assert_block(ops, &f, 2, "");
	/* given up */
	assert_int_equal(ops->begin(&f), 0);
	assert_int_equal(ops->storeblk(&f, 0, 1, example, 0), 0);
	ops->abort(&f);
	assert_block(ops, &f, 0, "again");
	assert_int_equal(ops->close(&f), 0);
}

static void the_argument_names_a_store_that_outlives_the_handle(void **state)
{
	struct vm_bigfile f = {.path = "/x", .fd = -1};
	const struct vm_backend_ops *ops;
	char spec[5000], store[400];
	struct box box;
	const char *arg;

	(void)state;
	box_make(&box);
	(void)snprintf(store, sizeof(store), "%s/store", box.dir);
	(void)snprintf(spec, sizeof(spec), "%s:%s", example, store);
	ops = get(spec, &arg);
	assert_non_null(ops);
	assert_string_equal(arg, store);
	assert_int_equal(ops->open(&f, arg), 0);
	assert_int_equal(commit(ops, &f, 0, "kept", 100, 0), 0);
	assert_int_equal(ops->close(&f), 0);
	assert_int_equal(ops->open(&f, arg), 0);
	assert_block(ops, &f, 0, "kept");
	assert_int_equal(ops->close(&f), 0);
	box_remove(&box);
}

static void assert_refused(const char *arg, const char *why)
{
	const char *ret;

	assert_null(get(arg, &ret));
	if (!strstr(err, why))
		print_error("got: %s\n", err);
	assert_non_null(strstr(err, why));
	assert_null(strchr(err, '\n'));
}

static void a_missing_object_is_one_clear_line(void **state)
{
	(void)state;
	assert_refused("/no/such/plugin.so", "/no/such/plugin.so cannot be loaded");
	assert_refused("/no/such/plugin.so:arg", "/no/such/plugin.so cannot be loaded");
	assert_refused("plugin.so", "not a path");
	assert_refused("", "names no shared object");
	assert_refused(NULL, "names no shared object");
	assert_refused(":arg", "names no shared object");
}

/* Build a plugin from a line of C. */
static void build(const struct box *b, const char *so, const char *source)
{
	char cmd[1200], c[400];

	(void)snprintf(c, sizeof(c), "%s/p.c", b->dir);
	box_put(c, source, strlen(source));
	(void)snprintf(cmd, sizeof(cmd), "${CC:-cc} -shared -fPIC -o %s %s", so, c);
	assert_int_equal(system(cmd), 0);
}

static void an_object_that_is_no_backend_is_one_clear_line(void **state)
{
	char so[3][400];
	struct box b;

	(void)state;
	box_make(&b);
	for (int i = 0; i < 3; i++)
		(void)snprintf(so[i], sizeof(so[i]), "%s/p%d.so", b.dir, i);
	build(&b, so[0], "int x;");
	assert_refused(so[0], "exports no txmap_backend");
	build(&b, so[1],
	      "struct { unsigned abi, reserved; const char *name; void *ops[16]; } txmap_backend = { 999 };");
	assert_refused(so[1], "ABI 999");
	build(&b, so[2],
	      "struct { unsigned abi, reserved; const char *name; void *ops[16]; } txmap_backend = { 1 };");
	assert_refused(so[2], "has no operation open");
	box_remove(&b);
}

static void an_unknown_backend_is_not_available(void **state)
{
	const char *arg;

	(void)state;
	assert_null(pol_backend_get("sqlite", "x", &arg, err, sizeof(err)));
	assert_non_null(strstr(err, "sqlite is not available"));
	assert_ptr_equal(pol_backend_get("file", "/dir", &arg, err, sizeof(err)), &pol_backend_file);
	assert_string_equal(arg, "/dir");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commits_and_loads_go_through_the_example),
		cmocka_unit_test(the_argument_names_a_store_that_outlives_the_handle),
		cmocka_unit_test(a_missing_object_is_one_clear_line),
		cmocka_unit_test(an_object_that_is_no_backend_is_one_clear_line),
		cmocka_unit_test(an_unknown_backend_is_not_available),
	};

	return cmocka_run_group_tests(tests, find_example, NULL);
}
