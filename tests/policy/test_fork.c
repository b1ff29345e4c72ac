/* SPDX-License-Identifier: MIT */
/* A fork while another thread holds the mappings still. */
#define _GNU_SOURCE 1
#include "share_rig.h"
#include "managed_priv.h"
#include "managed.h"
#include "faulty_sys.h"
#include "lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

static struct vm_sys held;
static pthread_t forker, discarder;
static sem_t frozen, waits;
static int told, fetched;

static int told_futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	if (op == FUTEX_WAIT && !told && pthread_equal(pthread_self(), forker)) {
		told = 1;
		sem_post(&waits);
	}
	return vm_sys_linux.futex(word, op, value, timeout);
}

/* What a discard reads while all stands still; its journal may be one that another process has given a new name. */
static ssize_t held_pread(int from, void *buf, size_t len, off_t off)
{
	int home = -1;

	if (!fetched && pthread_equal(pthread_self(), discarder) && !vm_lock_is_held(VM_RANK_MAP)) {
		sem_post(&frozen);
		sem_wait(&waits);
		fetched = pol_share_fetch_journal(&file->file, &home);
	}
	return vm_sys_linux.pread(from, buf, len, off);
}

static void *discard(void *arg)
{
	discarder = pthread_self();
	pol_managed_discard(path, arg);
	return NULL;
}

static void a_fork_waits_without_what_the_frozen_need(void **state)
{
	pthread_t thread;
	struct pol_result res;
	int status;
	pid_t pid;

	(void)state;
	alarm(60); /* both would wait for ever */
	assert_int_equal(use(), 0);
	map[0] = 'p';
	forker = pthread_self();
	held = vm_sys_linux;
	held.futex = told_futex;
	held.pread = held_pread;
	faulty_use(&held);
	assert_int_equal(pthread_create(&thread, NULL, discard, &res), 0);
	sem_wait(&frozen);
	pol_fork_prepare();
	pid = fork();
	if (!pid) {
		pol_fork_child();
		pol_control_stop();
		_exit(map[0]);
	}
	pol_fork_parent();
	assert_int_equal(pthread_join(thread, NULL), 0);
	faulty_use(&vm_sys_linux);
	alarm(0);
	assert_int_equal(res.err, 0);
	assert_int_equal(fetched, -ENOENT);
	assert_int_equal(map[0], 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_fork_waits_without_what_the_frozen_need),
	};

	setenv("TXMAP_LOAD", "eager", 1); /* new content is put in place of the old, in frozen mappings */
	sem_init(&frozen, 0, 0);
	sem_init(&waits, 0, 0);
	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
