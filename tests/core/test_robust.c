/* SPDX-License-Identifier: MIT */
/* The lock between processes, waited for only so long. */
#define _GNU_SOURCE 1
#include "lock.h"
#include "robust.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* A process that has the lock, until it is killed. */
static pid_t hold(struct vm_robust *r)
{
	int at[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(at), 0);
	pid = fork();
	if (!pid) {
		c = (char)vm_robust_lock(r);
		(void)!write(at[1], &c, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(at[0], &c, 1), 1);
	assert_int_equal(c, 0);
	close(at[0]);
	close(at[1]);
	return pid;
}

static void who_waits_for_a_lock_only_so_long_gives_up_or_follows_the_dead(void **state)
{
	struct vm_robust *r = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t soon = vm_deadline(900); /* looking again now and then takes a second */
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(r, MAP_FAILED);
	pid = hold(r);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(vm_robust_lock_within(r, 20), -ETIMEDOUT);
	assert_int_equal(vm_robust_try(r), -EBUSY);
	assert_false(vm_is_past(soon));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(vm_robust_lock_within(r, 5000), -EOWNERDEAD);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	vm_robust_unlock(r);
	assert_int_equal(vm_robust_lock_within(r, 0), 0);
	vm_robust_unlock(r);
	munmap(r, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_for_a_lock_only_so_long_gives_up_or_follows_the_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
