/* SPDX-License-Identifier: MIT */
/* Who uses a view has its memory, until the last one is out. */
#include "use_rig.h"
#include "faulty_sys.h"
#include <dirent.h>

/* ---- use ---- */

static void a_user_has_the_memory_from_enter_to_leave(struct rig *r)
{
	size_t len;
	char *p;

	rig_open(r, 8 * VM_PAGE);
	open_view(r, 3 * VM_PAGE + 100, 2 * VM_PAGE);
	p = enter(&len);
	assert_int_equal(len, 3 * VM_PAGE + 100);
	assert_int_equal((uint8_t)rig_load8(p), rig_byte(2));
	rig_store8(p + VM_PAGE, 'u');
	leave();
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 'u');
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(vm_fileh_nvmas(r->h), 0);
}

static void a_use_makes_no_host_call(struct rig *r)
{
	rig_open(r, VM_PAGE);
	open_view(r, VM_PAGE, 0);
	faulty_arm(FAULTY_ALL, 0, 0, 0);
	(void)enter(NULL);
	(void)export();
	leave();
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(faulty_disarm(), 0);
}

static void to_leave_without_having_entered_is_a_bug(struct rig *r)
{
	pid_t pid;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	(void)export();
	pid = rig_fork();
	if (!pid) {
		(void)close(STDERR_FILENO);
		(void)vm_view_leave(&view);
		_exit(0);
	}
	assert_int_equal(rig_reap(pid), -SIGABRT);
}

/* ---- close ---- */

static void a_close_with_nobody_there_gives_the_mapping_back(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(ngone, 1);
	assert_false(vm_is_mapped(view.addr, VM_PAGE));
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(ngone, 1);
}

static void a_close_leaves_the_memory_to_those_inside_and_refuses_others(struct rig *r)
{
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	p = enter(NULL);
	(void)enter(NULL);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(try_enter(), -EBADF);
	assert_int_equal(try_export(), -EBADF);
	assert_int_equal(resize(5), -EBADF);
	leave();
	assert_int_equal(ngone, 0);
	rig_store8(p, 'c');
	leave();
	assert_int_equal(ngone, 1);
	assert_false(vm_is_mapped(p, VM_PAGE));
	assert_int_equal(rig_ndirty(r->h), 1); /* the store is not lost with the mapping */
	assert_int_equal(try_enter(), -EBADF);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(ngone, 1);
}

static void an_export_outlives_a_close_and_is_the_last_one_out(struct rig *r)
{
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	(void)enter(NULL);
	p = export();
	assert_int_equal(vm_view_close(&view), 0);
	leave();
	assert_int_equal(ngone, 0);
	rig_store8(p + VM_PAGE, 'e');
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(ngone, 1);
	assert_false(vm_is_mapped(p, VM_PAGE));
}

static unsigned nfds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static struct vm_fileh *closed_by_gone;
static void gone_with_its_handle(struct vm_view *v)
{
	closed_by_gone = v->fileh;
	assert_int_equal(rig_close(v->fileh), 0);
	memset(v, 0xee, sizeof(*v)); /* as a free would */
	ngone++;
}

static void after_the_last_export_mapping_and_descriptors_are_gone(struct rig *r)
{
	unsigned before;
	char *p;

	rig_open(r, 4 * VM_PAGE);
	assert_int_equal(rig_close(r->h), 0);
	before = nfds();
	r->h = rig_handle(r->f, r->load);
	ngone = 0;
	assert_int_equal(vm_view_open(&view, r->h, 4 * VM_PAGE, RW, MAP_SHARED, 0, gone_with_its_handle), 0);
	p = export();
	(void)rig_load8(p);
	assert_int_equal(vm_view_close(&view), 0);
	assert_true(nfds() > before);
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(ngone, 1);
	assert_ptr_equal(closed_by_gone, r->h);
	assert_true(unmapped_all(p, 4));
	assert_int_equal(nfds(), before);
}

static void a_close_whose_unmapping_fails_can_be_tried_again(struct rig *r)
{
	unsigned nth;
	int err;

	rig_open(r, 4 * VM_PAGE);
	for (nth = 1;; nth++) {
		open_view(r, 4 * VM_PAGE, 0);
		rig_store8(enter(NULL), (char)(100 + nth));
		leave();
		faulty_arm(FAULTY_BIT(mprotect) | FAULTY_BIT(ioctl), nth, ENOMEM, 0);
		err = vm_view_close(&view);
		(void)faulty_disarm();
		if (!faulty_has_failed())
			break;
		assert_true(err == -ENOMEM || (!err && ngone == 1));
		assert_int_equal(ngone, !err);
		assert_int_equal(try_enter(), -EBADF);
		assert_int_equal(vm_view_close(&view), 0);
		assert_int_equal(ngone, 1);
		assert_int_equal(vm_fileh_nvmas(r->h), 0);
		assert_int_equal(rig_commit(r->h), 1);
		assert_int_equal(rig_get_byte(r->f, 0), 100 + nth);
	}
	assert_int_equal(err, 0);
	assert_true(nth > 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_user_has_the_memory_from_enter_to_leave),
	RIG_EAGER(a_use_makes_no_host_call),
	RIG_BOTH(a_close_with_nobody_there_gives_the_mapping_back),
	RIG_BOTH(a_close_leaves_the_memory_to_those_inside_and_refuses_others),
	RIG_BOTH(an_export_outlives_a_close_and_is_the_last_one_out),
	RIG_BOTH(after_the_last_export_mapping_and_descriptors_are_gone),
	RIG_BOTH(a_close_whose_unmapping_fails_can_be_tried_again),
	RIG_EAGER(to_leave_without_having_entered_is_a_bug),
};
RIG_MAIN(cases)
