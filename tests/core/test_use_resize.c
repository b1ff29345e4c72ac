/* SPDX-License-Identifier: MIT */
/* A view and its file change their length together, or say why not. */
#include "use_rig.h"

static void a_resize_makes_view_and_file_longer_together(struct rig *r)
{
	void *addr;
	char *p;

	rig_open(r, 17 * VM_PAGE);
	open_view(r, VM_PAGE, 16 * VM_PAGE);
	rig_store8(enter(NULL), 'o');
	leave();
	assert_int_equal(vm_view_resize(&view, 2 * VM_PAGE, 0, &addr), 0);
	assert_int_equal(vm_fileh_size(r->h), 18 * VM_PAGE);
	p = enter(NULL);
	assert_ptr_equal(p, addr);
	assert_int_equal(rig_load8(p), 'o');
	assert_int_equal((uint8_t)rig_load8(p + 1), rig_byte(16));
	rig_store8(p + VM_PAGE, 'n');
	leave();
	rig_commit(r->h);
	assert_int_equal(rig_size(r->f), 18 * VM_PAGE);
	assert_int_equal(rig_get_byte(r->f, 16 * VM_PAGE), 'o');
	assert_int_equal(rig_get_byte(r->f, 17 * VM_PAGE), 'n');
}

static void a_resize_to_an_odd_length_ends_the_file_there(struct rig *r)
{
	size_t len;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 2 * VM_PAGE, VM_PAGE);
	assert_int_equal(vm_view_resize(&view, 5000, 0, NULL), 0);
	assert_int_equal(vm_fileh_size(r->h), VM_PAGE + 5000);
	assert_int_equal((uint8_t)rig_load8(enter(&len) + 4999), rig_byte(2));
	assert_int_equal(len, 5000);
	assert_int_equal(rig_load8((char *)view.addr + 5000), 0);
	leave();
}

static void a_shrink_gives_the_addresses_back(struct rig *r)
{
	char *p;

	rig_open(r, 8 * VM_PAGE);
	open_view(r, 8 * VM_PAGE, 0);
	p = enter(NULL);
	leave();
	assert_int_equal(resize(2), 0);
	assert_int_equal(vm_fileh_size(r->h), 2 * VM_PAGE);
	assert_ptr_equal(enter(NULL), p);
	leave();
	assert_true(unmapped_all(p + 2 * VM_PAGE, 6));
	assert_int_equal(rig_touch(p + 3 * VM_PAGE), SIGSEGV);
	assert_int_equal(resize(8), 0);
	assert_int_equal(rig_load8(enter(NULL) + 3 * VM_PAGE),
			 0); /* what the shrink took does not come back */
	leave();
}

static void a_resize_to_the_same_length_picks_up_the_files_end(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	assert_int_equal(resize(4), 0);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	rig_resize(r->h, 2 * VM_PAGE); /* by another descriptor */
	assert_int_equal(resize(4), 0);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	assert_int_equal(rig_load8(enter(NULL) + 3 * VM_PAGE), 0);
	leave();
}

static void what_cannot_be_resized_says_so(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	assert_int_equal(resize(0), -EINVAL);
	assert_int_equal(vm_view_resize(&view, SIZE_MAX, 0, NULL), -EINVAL);
	assert_int_equal(vm_view_resize(&view, SIZE_MAX - 2 * VM_PAGE, 0, NULL), -EINVAL);
	assert_int_equal(vm_view_resize(&view, (size_t)-1 >> 1, 0, NULL), -EINVAL);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(resize(0), -EBADF);
	assert_int_equal(vm_view_open(&view, r->h, VM_PAGE, PROT_READ, MAP_SHARED, 0, NULL), 0);
	assert_int_equal(resize(2), -EACCES);
	assert_int_equal(resize(0), -EINVAL);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(vm_view_open(&view, r->h, VM_PAGE, RW, MAP_PRIVATE, 0, NULL), 0);
	assert_int_equal(resize(2), -EACCES);
	assert_int_equal(vm_view_close(&view), 0);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	assert_int_equal(vm_view_open(&view, r->h, 0, RW, MAP_SHARED, 0, NULL), -EINVAL);
	assert_int_equal(vm_view_open(&view, r->h, VM_PAGE, RW, MAP_SHARED, 100, NULL), -EINVAL);
	assert_int_equal(vm_view_open(&view, r->h, VM_PAGE, RW, MAP_SHARED | MAP_FIXED, 0, NULL), -EINVAL);
}

static void a_resize_with_others_inside_is_eagain_and_works_when_they_left(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	(void)enter(NULL);
	assert_int_equal(resize(8), -EAGAIN);
	assert_int_equal(resize(2), -EAGAIN);
	assert_int_equal(len_of_view(), 4 * VM_PAGE);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	leave();
	assert_int_equal(resize(8), 0);
}

static void one_who_resizes_from_inside_does_not_count_itself(struct rig *r)
{
	void *addr;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	(void)enter(NULL);
	assert_int_equal(resize(8), -EAGAIN); /* not told: an answer, no wait */
	assert_int_equal(vm_view_resize(&view, 8 * VM_PAGE, 1, &addr), 0);
	rig_store8((char *)addr + 7 * VM_PAGE, 'i');
	(void)enter(NULL);
	assert_int_equal(vm_view_resize(&view, 9 * VM_PAGE, 1, &addr), -EAGAIN);
	assert_int_equal(vm_view_resize(&view, 9 * VM_PAGE, 2, &addr), 0);
	leave();
	leave();
	assert_int_equal(len_of_view(), 9 * VM_PAGE);
}

static void to_tell_more_than_is_true_is_a_bug(struct rig *r)
{
	pid_t pid;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	pid = rig_fork();
	if (!pid) {
		(void)close(STDERR_FILENO);
		(void)vm_view_resize(&view, VM_PAGE, 1, NULL);
		_exit(0);
	}
	assert_int_equal(rig_reap(pid), -SIGABRT);
}

static void exported_memory_is_ebusy_to_a_resize_that_would_move_it(struct rig *r)
{
	void *w;
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	w = wall();
	p = export();
	rig_store8(p, 'x');
	assert_int_equal(resize(8), -EBUSY);
	assert_int_equal(resize(2), -EBUSY);
	assert_int_equal(rig_load8(p), 'x');
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	assert_int_equal(len_of_view(), 4 * VM_PAGE);
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(resize(8), 0); /* never afterwards */
	unwall(w);
	assert_int_equal(rig_load8(enter(NULL)), 'x');
	leave();
}

static void exported_memory_grows_where_it_is_when_there_is_room(struct rig *r)
{
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view_with_room(r, 4, 12);
	p = export();
	rig_store8(p + VM_PAGE, 'x');
	rig_resize(r->h, 16 * VM_PAGE); /* the file was made longer before */
	assert_int_equal(resize(16), 0);
	assert_ptr_equal(view.addr, p);
	assert_int_equal(rig_load8(p + VM_PAGE), 'x'); /* by the old pointer */
	rig_store8(p + 15 * VM_PAGE, 'y');
	assert_int_equal(resize(16), 0);
	assert_int_equal(resize(15), -EBUSY);
	assert_int_equal(vm_view_unexport(&view), 0);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 15 * VM_PAGE), 'y');
	assert_int_equal(rig_get_byte(r->f, VM_PAGE), 'x');
}

/* ---- other mappings of the file ---- */

static void another_mapping_stays_while_a_view_is_resized(struct rig *r)
{
	char *other;

	rig_open(r, 8 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	other = rig_map(r->h, 0, 12);
	rig_store8(other, 'o');
	assert_int_equal(resize(12), 0);
	rig_store8(other + 11 * VM_PAGE, 'p');
	assert_int_equal(rig_load8(enter(NULL) + 11 * VM_PAGE), 'p');
	leave();
	assert_int_equal(resize(2), 0);
	assert_int_equal(rig_load8(other), 'o');
	assert_int_equal(rig_touch(other + 3 * VM_PAGE), SIGBUS);
	assert_int_equal(resize(12), 0);
	assert_int_equal(rig_load8(other + 11 * VM_PAGE), 0);
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 0), 'o');
	assert_int_equal(rig_get_byte(r->f, 3 * VM_PAGE), 0);
	assert_int_equal(rig_size(r->f), 12 * VM_PAGE);
}

static void a_file_that_another_process_made_longer_is_picked_up(struct rig *r)
{
	pid_t pid;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	rig_store8(enter(NULL), 'm');
	leave();
	pid = rig_fork();
	if (!pid)
		_exit(vm_fileh_resize(r->h, 9 * VM_PAGE) ? 1 : 0);
	assert_int_equal(rig_reap(pid), 0);
	assert_int_equal(rig_load8(enter(NULL)), 'm');
	leave();
	assert_int_equal(vm_fileh_size(r->h), 9 * VM_PAGE);
	assert_int_equal(resize(9), 0);
	rig_store8(enter(NULL) + 8 * VM_PAGE, 'n');
	leave();
	rig_commit(r->h);
	assert_int_equal(rig_get_byte(r->f, 0), 'm');
	assert_int_equal(rig_get_byte(r->f, 8 * VM_PAGE), 'n');
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_resize_makes_view_and_file_longer_together),
	RIG_BOTH(a_resize_to_an_odd_length_ends_the_file_there),
	RIG_BOTH(a_shrink_gives_the_addresses_back),
	RIG_BOTH(a_resize_to_the_same_length_picks_up_the_files_end),
	RIG_EAGER(what_cannot_be_resized_says_so),
	RIG_EAGER(a_resize_with_others_inside_is_eagain_and_works_when_they_left),
	RIG_EAGER(one_who_resizes_from_inside_does_not_count_itself),
	RIG_EAGER(to_tell_more_than_is_true_is_a_bug),
	RIG_BOTH(exported_memory_is_ebusy_to_a_resize_that_would_move_it),
	RIG_BOTH(exported_memory_grows_where_it_is_when_there_is_room),
	RIG_BOTH(another_mapping_stays_while_a_view_is_resized),
	RIG_BOTH(a_file_that_another_process_made_longer_is_picked_up),
};
RIG_MAIN(cases)
