/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <dirent.h>
#include <sched.h>

#define RW (PROT_READ | PROT_WRITE)

static struct vm_view view;
static unsigned ngone;

static void gone(struct vm_view *v)
{
	assert_ptr_equal(v, &view);
	ngone++;
}

static void open_view(struct rig *r, size_t len, uint64_t off)
{
	ngone = 0;
	assert_int_equal(vm_view_open(&view, r->h, len, RW, MAP_SHARED, off, gone), 0);
}

static char *enter(size_t *ret_len)
{
	void *addr;
	size_t len;

	assert_int_equal(vm_view_enter(&view, &addr, &len), 0);
	if (ret_len)
		*ret_len = len;
	return addr;
}

static void leave(void)
{
	assert_int_equal(vm_view_leave(&view), 0);
}

static char *export(void)
{
	void *addr;
	size_t len;

	assert_int_equal(vm_view_export(&view, &addr, &len), 0);
	return addr;
}

static int try_enter(void)
{
	void *addr;
	size_t len;

	return vm_view_enter(&view, &addr, &len);
}

static int try_export(void)
{
	void *addr;
	size_t len;

	return vm_view_export(&view, &addr, &len);
}

static int resize(uint64_t npages)
{
	return vm_view_resize(&view, npages * VM_PAGE, 0, NULL);
}

static size_t len_of_view(void)
{
	size_t len;

	(void)enter(&len);
	leave();
	return len;
}

/* Nothing of ours, nor anything else, can be put right behind the view: it cannot grow where it is. */
static void *wall(void)
{
	char *at = (char *)view.addr + view.maplen;
	void *p = mmap(at, VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_true(p == at || (p == MAP_FAILED && errno == EEXIST)); /* something else does as well */
	return p == MAP_FAILED ? NULL : p;
}

static void unwall(void *p)
{
	if (p)
		assert_int_equal(munmap(p, VM_PAGE), 0);
}

/* Room behind the view: it can. The view lies in a place that was wide enough. */
static void open_view_with_room(struct rig *r, uint64_t npages, uint64_t npages_room)
{
	char *place =
		mmap(NULL, (npages + npages_room) * VM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	assert_ptr_not_equal(place, MAP_FAILED);
	open_view(r, npages * VM_PAGE, 0);
	assert_int_equal(
		vm_remap(view.addr, view.maplen, view.maplen, MREMAP_MAYMOVE | MREMAP_FIXED, place, &p), 0);
	view.addr = place;
	rig_store8(place, rig_load8(place)); /* what core maps for its first store must not take the room */
	if (npages_room)
		assert_int_equal(munmap(place + npages * VM_PAGE, npages_room * VM_PAGE), 0);
}

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

static int unmapped_all(const char *p, uint64_t npages)
{
	unsigned char in[64];

	for (uint64_t i = 0; i < npages; i++)
		if (!mincore((void *)(p + i * VM_PAGE), VM_PAGE, in) || errno != ENOMEM)
			return 0;
	return 1;
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

/* ---- resize ---- */

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

/* ---- what comes in while a resize is under way ---- */

static struct vm_sys hooked;
static void (*within)(void);

static int hooked_ftruncate(int fd, off_t len)
{
	within();
	return vm_sys_linux.ftruncate(fd, len);
}

/* fn runs in the middle of the next resize. */
static int resize_with(uint64_t npages, void (*fn)(void))
{
	int err;

	within = fn;
	hooked = vm_sys_linux;
	hooked.ftruncate = hooked_ftruncate;
	faulty_use(&hooked);
	err = resize(npages);
	faulty_use(&vm_sys_linux);
	return err;
}

static int saw[4];
static void try_all(void)
{
	saw[0] = try_enter();
	saw[1] = try_export();
	saw[2] = resize(1);
}

static void close_and_try_all(void)
{
	saw[3] = vm_view_close(&view);
	try_all();
}

static void during_a_resize_everybody_gets_eagain(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	assert_int_equal(resize_with(8, try_all), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(saw[i], -EAGAIN);
	assert_int_equal(len_of_view(), 8 * VM_PAGE);
	assert_int_equal(resize(4), 0);
}

static void a_close_during_a_resize_is_accepted_and_the_one_who_resizes_disposes(struct rig *r)
{
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	assert_int_equal(resize_with(8, close_and_try_all), 0);
	assert_int_equal(saw[3], 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(saw[i], -EBADF);
	assert_int_equal(ngone, 1);
	assert_int_equal(vm_fileh_nvmas(r->h), 0);
	assert_int_equal(vm_fileh_size(r->h), 8 * VM_PAGE);
}

static void checks_come_in_the_order_closed_exclusive_exported_in_use(struct rig *r)
{
	void *w;

	rig_open(r, 4 * VM_PAGE);
	open_view_with_room(r, 4, 12);
	(void)export();
	assert_int_equal(resize_with(5, try_all),
			 0); /* exclusive, exported, and the one who resizes is there */
	assert_int_equal(saw[2], -EAGAIN);
	w = wall();
	(void)enter(NULL);
	assert_int_equal(resize(8), -EBUSY); /* exported, in use */
	assert_int_equal(resize(1), -EBUSY);
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(resize(8), -EAGAIN); /* in use */
	leave();
	unwall(w);
	(void)export();
	assert_int_equal(resize_with(6, close_and_try_all), 0); /* closed, exclusive, exported */
	assert_int_equal(saw[2], -EBADF);
	assert_int_equal(ngone, 0);
	assert_int_equal(vm_view_unexport(&view), 0);
	assert_int_equal(ngone, 1);
}

/* ---- failures ---- */

/* One host call after the other fails in a resize: all is as it was, and then it works. */
static void fail_each(struct rig *r, uint64_t npages, bool in_place)
{
	struct vm_fileh_stat before, after;
	unsigned nth, nfailed = 0;
	int err = 0;

	for (nth = 1;; nth++) {
		void *w, *addr;
		char *p;

		open_view_with_room(r, 8, in_place ? 32 : 0);
		w = in_place ? NULL : wall();
		p = enter(NULL);
		rig_store8(p + 3 * VM_PAGE, (char)(100 + nth));
		leave();
		vm_fileh_stat(r->h, true, &before);
		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(madvise), nth, ENOMEM, 0);
		err = vm_view_resize(&view, npages * VM_PAGE, 0, &addr);
		(void)faulty_disarm();
		if (err) {
			nfailed++;
			assert_int_equal(err, -ENOMEM);
			assert_int_equal(len_of_view(), 8 * VM_PAGE);
			assert_ptr_equal(view.addr, p);
			vm_fileh_stat(r->h, true, &after);
			assert_int_equal(after.size, before.size);
			assert_int_equal(after.size_dirty, before.size_dirty);
			assert_int_equal(after.npages_dirty, before.npages_dirty);
			assert_int_equal(after.npages_resident, before.npages_resident);
			for (unsigned pg = 0; pg < 8; pg++)
				assert_int_equal((uint8_t)rig_load8(p + pg * VM_PAGE),
						 pg == 3 ? 100 + nth : rig_byte(pg));
			assert_int_equal(vm_view_resize(&view, npages * VM_PAGE, 0, &addr), 0);
		}
		assert_int_equal((uint8_t)rig_load8((char *)addr + 3 * VM_PAGE), 100 + nth);
		if (npages > 8)
			rig_store8((char *)addr + (npages - 1) * VM_PAGE, 'z');
		assert_false(vm_is_mapped((char *)addr + view.maplen, 32 * VM_PAGE));
		assert_int_equal(vm_view_close(&view), 0);
		unwall(w);
		assert_int_equal(vm_fileh_nvmas(r->h), 0);
		vm_check();
		rig_discard(r->h);
		if (!faulty_has_failed())
			break;
	}
	assert_int_equal(err, 0);
	assert_true(nfailed > 0);
}

static void a_growth_that_moves_and_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 24, false);
}

static void a_growth_in_place_that_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 24, true);
}

static void a_shrink_that_fails_changes_nothing(struct rig *r)
{
	rig_open(r, 8 * VM_PAGE);
	fail_each(r, 5, true);
}

static void a_growth_beyond_the_address_space_is_enomem_and_changes_nothing(struct rig *r)
{
	char *p;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	p = enter(NULL);
	rig_store8(p, 'k');
	leave();
	assert_int_equal(vm_view_resize(&view, 1ull << 47, 0, NULL), -ENOMEM);
	assert_ptr_equal(enter(NULL), p);
	assert_int_equal(rig_load8(p), 'k');
	leave();
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	assert_int_equal(rig_ndirty(r->h), 1);
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

/* ---- waiting ---- */

static void *resize_until_done(void *arg)
{
	int err, n = 0;

	(void)arg;
	while ((err = resize(8)) == -EAGAIN && ++n)
		(void)sched_yield();
	return (void *)(intptr_t)(err ? err : n);
}

static void one_who_waits_to_resize_stalls_no_newcomer(struct rig *r)
{
	pthread_t thread;
	void *n;

	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	(void)enter(NULL); /* a slow reader */
	assert_int_equal(pthread_create(&thread, NULL, resize_until_done, NULL), 0);
	for (unsigned i = 0; i < 2000; i++) {
		(void)enter(NULL); /* must succeed, each time */
		leave();
		if (i % 100 == 0)
			(void)sched_yield();
	}
	leave();
	assert_int_equal(pthread_join(thread, &n), 0);
	assert_true((intptr_t)n >= 0);
	assert_int_equal(len_of_view(), 8 * VM_PAGE);
}

/* A commit that hangs in the backend. */
static pthread_barrier_t in_commit, out_of_commit;
static void hang(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	(void)pthread_barrier_wait(&in_commit);
	(void)pthread_barrier_wait(&out_of_commit);
}

static void *commit_thread(void *arg)
{
	return (void *)(intptr_t)rig_try_commit(arg);
}

static void *resize_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)resize(8);
}

static uint64_t users_of_view(void)
{
	return __atomic_load_n(&view.state, __ATOMIC_ACQUIRE) & 0xffff;
}

static void users_come_and_go_while_a_resize_waits_for_a_commit(struct rig *r)
{
	pthread_t committer, resizer;
	void *err;

	(void)pthread_barrier_init(&in_commit, NULL, 2);
	(void)pthread_barrier_init(&out_of_commit, NULL, 2);
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	rig_store8(enter(NULL), 'w');
	leave();
	rig_hook_at(r->f, RIG_COMMIT, hang, NULL);
	assert_int_equal(pthread_create(&committer, NULL, commit_thread, r->h), 0);
	(void)pthread_barrier_wait(&in_commit);
	assert_int_equal(pthread_create(&resizer, NULL, resize_thread, NULL), 0);
	while (!users_of_view())
		(void)sched_yield();
	for (unsigned i = 0; i < 100; i++) {
		rig_store8(enter(NULL), (char)i);
		leave();
	}
	assert_int_equal(vm_view_close(&view), 0); /* accepted at once, too */
	assert_int_equal(ngone, 0);
	(void)pthread_barrier_wait(&out_of_commit);
	assert_int_equal(pthread_join(committer, &err), 0);
	assert_null(err);
	assert_int_equal(pthread_join(resizer, &err), 0);
	assert_int_equal((int)(intptr_t)err, -EBADF); /* its turn came after the close */
	assert_int_equal(ngone, 1);
	assert_int_equal(vm_fileh_size(r->h), 4 * VM_PAGE);
	rig_hook_at(r->f, RIG_COMMIT, NULL, NULL);
}

/* An embedder's lock that its backend needs, too. */
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
static __thread bool has_gil;

static void take_gil(void)
{
	(void)pthread_mutex_lock(&gil);
	has_gil = true;
}

static void drop_gil(void)
{
	has_gil = false;
	(void)pthread_mutex_unlock(&gil);
}

static void *release_gil(void)
{
	if (!has_gil)
		return NULL;
	drop_gil();
	return &gil;
}

static void reacquire_gil(void *token)
{
	if (token)
		take_gil();
}

static void commit_with_gil(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	(void)pthread_barrier_wait(&in_commit);
	take_gil();
	drop_gil();
}

static void one_who_waits_to_resize_lets_go_of_the_embedders_lock(struct rig *r)
{
	pthread_t committer;
	void *err;

	(void)pthread_barrier_init(&in_commit, NULL, 2);
	rig_open(r, 4 * VM_PAGE);
	open_view(r, 4 * VM_PAGE, 0);
	rig_store8(enter(NULL), 'g');
	leave();
	rig_hook_at(r->f, RIG_COMMIT, commit_with_gil, NULL);
	vm_set_lock_hook(&(struct vm_lock_hook){release_gil, reacquire_gil});
	take_gil();
	assert_int_equal(pthread_create(&committer, NULL, commit_thread, r->h), 0);
	(void)pthread_barrier_wait(&in_commit);
	assert_int_equal(resize(8), 0); /* would never return with the lock held */
	drop_gil();
	assert_int_equal(pthread_join(committer, &err), 0);
	vm_set_lock_hook(&(struct vm_lock_hook){0});
	assert_null(err);
	rig_hook_at(r->f, RIG_COMMIT, NULL, NULL);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_user_has_the_memory_from_enter_to_leave),
	RIG_EAGER(a_use_makes_no_host_call),
	RIG_BOTH(a_close_with_nobody_there_gives_the_mapping_back),
	RIG_BOTH(a_close_leaves_the_memory_to_those_inside_and_refuses_others),
	RIG_BOTH(an_export_outlives_a_close_and_is_the_last_one_out),
	RIG_BOTH(after_the_last_export_mapping_and_descriptors_are_gone),
	RIG_BOTH(a_close_whose_unmapping_fails_can_be_tried_again),
	RIG_BOTH(a_resize_makes_view_and_file_longer_together),
	RIG_BOTH(a_resize_to_an_odd_length_ends_the_file_there),
	RIG_BOTH(a_shrink_gives_the_addresses_back),
	RIG_BOTH(a_resize_to_the_same_length_picks_up_the_files_end),
	RIG_EAGER(what_cannot_be_resized_says_so),
	RIG_EAGER(a_resize_with_others_inside_is_eagain_and_works_when_they_left),
	RIG_EAGER(one_who_resizes_from_inside_does_not_count_itself),
	RIG_EAGER(to_tell_more_than_is_true_is_a_bug),
	RIG_EAGER(to_leave_without_having_entered_is_a_bug),
	RIG_BOTH(exported_memory_is_ebusy_to_a_resize_that_would_move_it),
	RIG_BOTH(exported_memory_grows_where_it_is_when_there_is_room),
	RIG_EAGER(during_a_resize_everybody_gets_eagain),
	RIG_EAGER(a_close_during_a_resize_is_accepted_and_the_one_who_resizes_disposes),
	RIG_EAGER(checks_come_in_the_order_closed_exclusive_exported_in_use),
	RIG_BOTH(a_growth_that_moves_and_fails_changes_nothing),
	RIG_BOTH(a_growth_in_place_that_fails_changes_nothing),
	RIG_BOTH(a_shrink_that_fails_changes_nothing),
	RIG_EAGER(a_growth_beyond_the_address_space_is_enomem_and_changes_nothing),
	RIG_BOTH(another_mapping_stays_while_a_view_is_resized),
	RIG_BOTH(a_file_that_another_process_made_longer_is_picked_up),
	RIG_EAGER(one_who_waits_to_resize_stalls_no_newcomer),
	RIG_BOTH(users_come_and_go_while_a_resize_waits_for_a_commit),
	RIG_EAGER(one_who_waits_to_resize_lets_go_of_the_embedders_lock),
};
RIG_MAIN(cases)
