/* SPDX-License-Identifier: MIT */
/* Others come, close and commit while a view is resized, or while somebody waits to. */
#include "use_rig.h"
#include "faulty_sys.h"
#include <sched.h>

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
	RIG_EAGER(during_a_resize_everybody_gets_eagain),
	RIG_EAGER(a_close_during_a_resize_is_accepted_and_the_one_who_resizes_disposes),
	RIG_EAGER(checks_come_in_the_order_closed_exclusive_exported_in_use),
	RIG_EAGER(one_who_waits_to_resize_stalls_no_newcomer),
	RIG_BOTH(users_come_and_go_while_a_resize_waits_for_a_commit),
	RIG_EAGER(one_who_waits_to_resize_lets_go_of_the_embedders_lock),
};
RIG_MAIN(cases)
