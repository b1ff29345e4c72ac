/* SPDX-License-Identifier: MIT */
/* The kernel is asked to write the file back while commits go on, so that no commit has to wait for all of it. */
#define _GNU_SOURCE 1
#include "share_rig.h"
#include "faulty_sys.h"
#include "managed.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <time.h>

enum { MIB = 1 << 20 };

static struct vm_sys told;
static pthread_t committer;
static sem_t asked;
static int nwrong;

static int told_sync_file_range(int of, off_t off, off_t len, unsigned flags)
{
	struct stat a, b;

	nwrong += fstat(of, &a) || fstat(fd, &b) || a.st_ino != b.st_ino || flags != SYNC_FILE_RANGE_WRITE || off || len ||
		  pthread_equal(pthread_self(), committer);
	sem_post(&asked);
	return -EIO; /* is nobody's business: the checkpoint finds out */
}

/* Other bytes in all of it, so that the journal takes all of them. */
static void commit_anew(unsigned char round)
{
	struct pol_result res;

	memset(map, round, LEN);
	pol_managed_commit(path, &res);
	assert_int_equal(res.err, 0);
}

static void the_helper_thread_asks_as_the_journal_grows(void **state)
{
	struct timespec until;
	int n, left;

	(void)state;
	committer = pthread_self();
	told = vm_sys_linux;
	told.sync_file_range = told_sync_file_range;
	faulty_use(&told);
	assert_int_equal(use(), 0);
	for (n = 0; n < MIB / LEN; n++)
		commit_anew((unsigned char)(n + 1));
	assert_int_equal(sem_getvalue(&asked, &left), 0);
	assert_int_equal(left, 0); /* a little is not worth it */
	for (; n < 5 * MIB / LEN; n++)
		commit_anew((unsigned char)(n + 1));
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	assert_int_equal(sem_timedwait(&asked, &until), 0);
	assert_int_equal(nwrong, 0);
	assert_int_equal(pol_munmap(map, LEN), 0);
	map = NULL;
	assert_int_equal(pol_fd_close(file), 0);
	file = NULL;
	pol_control_stop();
	faulty_use(&vm_sys_linux);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_helper_thread_asks_as_the_journal_grows),
	};

	sem_init(&asked, 0, 0);
	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
