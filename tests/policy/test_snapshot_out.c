/* SPDX-License-Identifier: MIT */
/* Copies of a live file when host calls fail: the copy is whole or not there, the file and its stores are as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control_rig.h"
#include "faulty_sys.h"
#include "managed_priv.h"

#include <dirent.h>

#define LEN 16384u
static char out[128];

static void snapshot(bool replace, struct pol_result *r)
{
	pol_managed_snapshot(path, out, replace, r);
}

/* Files of the directory that a copy is made as. */
static unsigned count_temporary(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strstr(e->d_name, ".txmap-copy") != NULL;
	closedir(d);
	return n;
}

static bool is_there(void)
{
	return !access(out, F_OK);
}

static void check_copy(void)
{
	static char got[LEN + 1];
	int f = open(out, O_RDONLY);

	assert_true(f >= 0);
	assert_int_equal(read(f, got, sizeof(got)), LEN);
	close(f);
	assert_memory_equal(got, map, LEN);
}

static unsigned ndirty(void)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(file->h, true, &st);
	return (unsigned)st.npages_dirty;
}

static void the_socket_makes_one(void **state)
{
	char request[300];

	(void)state;
	snprintf(request, sizeof(request), "snapshot %s %s\n", path, out);
	ANSWERS(request, "{\"ok\":true,\"txid\":0,\"files\":1,\"instants\":1,", "\"bytes\":16384,");
	check_copy();
	ANSWERS(request, "{\"ok\":false,\"errno\":\"EEXIST\",", "it exists");
	snprintf(request, sizeof(request), "snapshot %s %s force\n", path, out);
	ANSWERS(request, "{\"ok\":true,");
	assert_int_equal(unlink(out), 0);
}

/* The nth call fails. Returns whether there was one. */
static bool try_with(unsigned nth, int err, unsigned how, bool replace)
{
	struct pol_result r;
	unsigned ncalls;

	map[0]++;
	map[8192]++;
	faulty_arm(FAULTY_ALL, nth, err, how);
	snapshot(replace, &r);
	ncalls = faulty_disarm();
	if (!r.err)
		check_copy();
	else if (replace || strstr(r.error, "it is there"))
		assert_true(is_there());
	else
		assert_false(is_there());
	if (r.err) {
		assert_non_null(strstr(r.error, "snapshot to"));
		assert_int_equal(r.err, -err);
	}
	if (!(how & FAULTY_FOR_EVER))
		assert_int_equal(count_temporary(), 0);
	assert_int_equal(ndirty(), 2);
	snapshot(true, &r); /* and the next one works */
	assert_int_equal(r.err, 0);
	check_copy();
	assert_int_equal(count_temporary(), 0);
	assert_int_equal(ndirty(), 2);
	if (!replace)
		assert_int_equal(unlink(out), 0);
	return ncalls >= nth;
}

static void a_copy_is_whole_or_not_there_whichever_host_call_fails(void **state)
{
	static const int errs[] = {EIO, ENOSPC, ENOMEM};
	struct pol_result r;
	unsigned n;

	(void)state;
	for (unsigned how = 0; how <= FAULTY_FOR_EVER; how++)
		for (unsigned e = 0; e < 3; e++) {
			for (n = 1; try_with(n, errs[e], how, false); n++)
				;
			assert_true(n > 20);
		}
	snapshot(false, &r);
	assert_int_equal(r.err, 0);
	for (n = 1; try_with(n, EIO, 0, true); n++)
		;
	assert_int_equal(unlink(out), 0);
}

static void a_write_that_comes_short_is_gone_on_with(void **state)
{
	struct pol_result r;
	unsigned n, ncalls = 2;

	(void)state;
	for (n = 1; ncalls >= n; n++) {
		map[0]++;
		faulty_arm(FAULTY_BIT(pwrite), n, EIO, FAULTY_SHORT);
		snapshot(true, &r);
		ncalls = faulty_disarm();
		assert_int_equal(r.err, 0);
		check_copy();
	}
	assert_true(n > 2);
	assert_int_equal(unlink(out), 0);
}

/* No copy_file_range, no rename that does not replace. */
static void what_a_file_system_cannot_do_is_done_by_hand(void **state)
{
	static const uint64_t cannot[] = {FAULTY_BIT(copy_file_range), FAULTY_BIT(renameat2)};
	struct pol_result r;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		uint64_t kinds = 0;

		for (unsigned k = 0; k < 2; k++)
			kinds |= i & 1u << k ? cannot[k] : 0;
		map[4096]++;
		faulty_arm(kinds, 1, EINVAL, FAULTY_FOR_EVER);
		snapshot(false, &r);
		(void)faulty_disarm();
		assert_string_equal(r.error, "");
		check_copy();
		snapshot(false, &r);
		assert_int_equal(r.err, -EEXIST);
		faulty_arm(kinds, 1, EINVAL, FAULTY_FOR_EVER);
		snapshot(false, &r);
		(void)faulty_disarm();
		assert_int_equal(r.err, -EEXIST);
		assert_int_equal(count_temporary(), 0);
		assert_int_equal(unlink(out), 0);
	}
}

/* Somebody makes the name just before the rename. */
static bool cannot_rename;
static int make_and_rename(int a, const char *b, int c, const char *d, unsigned flags)
{
	int g = open(out, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(g >= 0);
	assert_int_equal(write(g, "late", 4), 4);
	close(g);
	return cannot_rename ? -EINVAL : vm_sys_linux.renameat2(a, b, c, d, flags);
}

static void a_name_that_comes_late_is_not_replaced(void **state)
{
	struct vm_sys table = *vm_sys;
	struct pol_result r;
	struct stat st;

	(void)state;
	table.renameat2 = make_and_rename;
	for (unsigned i = 0; i < 2; i++) {
		cannot_rename = i;
		faulty_use(&table);
		snapshot(false, &r);
		faulty_use(&vm_sys_linux);
		assert_int_equal(r.err, -EEXIST);
		assert_int_equal(stat(out, &st), 0);
		assert_int_equal(st.st_size, 4);
		assert_int_equal(count_temporary(), 0);
		assert_int_equal(unlink(out), 0);
	}
}

/* ---- in which order ---- */

static char done[8];

static void note(char what)
{
	size_t n = strlen(done);

	if (n < sizeof(done) - 1)
		done[n] = what;
}

static int note_fsync(int f)
{
	struct stat st;

	note(!fstat(f, &st) && S_ISDIR(st.st_mode) ? 'd' : is_there() ? 'x' : 'f');
	return vm_sys_linux.fsync(f);
}

static int note_renameat2(int a, const char *b, int c, const char *d, unsigned flags)
{
	note('r');
	return vm_sys_linux.renameat2(a, b, c, d, flags);
}

static ssize_t note_pwrite(int f, const void *buf, size_t len, off_t off)
{
	note('w');
	return vm_sys_linux.pwrite(f, buf, len, off);
}

static void it_is_on_the_disk_before_it_has_its_name_and_then_the_name_is(void **state)
{
	struct vm_sys table = *vm_sys;
	struct pol_result r;

	(void)state;
	map[0]++;
	table.fsync = note_fsync;
	table.renameat2 = note_renameat2;
	table.pwrite = note_pwrite;
	faulty_use(&table);
	snapshot(false, &r);
	faulty_use(&vm_sys_linux);
	assert_int_equal(r.err, 0);
	assert_non_null(strstr(done, "wfrd"));
	assert_int_equal(unlink(out), 0);
}

static int setup(void **state)
{
	int err = rig_setup(state);

	snprintf(out, sizeof(out), "%s/out", dir);
	if (!err)
		map[100] = 'x';
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_socket_makes_one),
		cmocka_unit_test(a_copy_is_whole_or_not_there_whichever_host_call_fails),
		cmocka_unit_test(a_write_that_comes_short_is_gone_on_with),
		cmocka_unit_test(what_a_file_system_cannot_do_is_done_by_hand),
		cmocka_unit_test(it_is_on_the_disk_before_it_has_its_name_and_then_the_name_is),
		cmocka_unit_test(a_name_that_comes_late_is_not_replaced),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
