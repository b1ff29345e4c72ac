/* SPDX-License-Identifier: MIT */
/* Those with a snapshot come and go: what they need, what fails, and what the dead left. */
#define _GNU_SOURCE 1
#include "snapshot_rig.h"

static void a_journal_of_members_is_in_use_and_is_none_for_those_who_share_an_overlay(void **state)
{
	struct pol_journal_report rep;
	struct member other;

	(void)state;
	come(&one, O_RDWR);
	commit_byte(&one, 1, 'a');
	assert_int_equal(pol_journal_check(box.data, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
	assert_int_equal(pol_journal_recover(box.data, NULL, NULL, NULL, &rep), -EBUSY);
	memset(&other, 0, sizeof(other));
	other.f = one.f;
	other.f.shared = other.shared;
	assert_int_equal(pol_backend_file.open(&other.f, NULL), 0);
	assert_int_equal(pol_backend_file.open_write(&other.f), -EBUSY);
	assert_int_equal(pol_backend_file.close(&other.f), 0);
	assert_int_equal(pol_journal_check(box.data, NULL, &rep), 0);
	assert_int_equal(rep.state, POL_JOURNAL_IN_USE);
}

/* But a lock that cannot be given up: that is none of the kernel's. And an empty journal, until the next one
 * comes. */
static void whatever_fails_when_it_comes_leaves_nothing(void **state)
{
	unsigned n = 0;
	int err, fds = open("/dev/null", O_RDONLY), after;

	(void)state;
	close(fds);
	for (int flags = O_RDONLY; flags <= O_RDWR; flags += O_RDWR) {
		do {
			faulty_arm(FAULTY_ALL & ~FAULTY_BIT(fcntl), ++n, EIO, 0);
			err = try_open(&one, flags);
			(void)faulty_disarm();
			if (err) {
				assert_null(one.f.priv);
				close(one.f.fd);
				after = open("/dev/null", O_RDONLY);
				assert_int_equal(after, fds);
				close(after);
			}
			one.f.fd = err ? 0 : one.f.fd;
			come(&two, flags);
			go(&two);
			go(&one);
			assert_false(box_has(box.journal));
		} while (err || n < 40);
		n = 0;
	}
}

static void snapshots_name(char *ret, size_t len)
{
	struct stat st;

	assert_int_equal(stat(box.data, &st), 0);
	(void)snprintf(ret, len, "%s/snapshots-%llx-%llx", run_dir, (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
}

static void a_file_in_the_runtime_directory_that_is_none_of_ours_is_refused(void **state)
{
	char name[400];
	int fd;

	(void)state;
	snapshots_name(name, sizeof(name));
	/* what the dead left, whatever it is, is begun anew */
	fd = open(name, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "nonsense", 8), 8);
	come(&one, O_RDWR);
	go(&one);
	close(fd);
	/* of another version, and somebody lives */
	come(&one, O_RDWR);
	fd = open(name, O_RDWR);
	assert_int_equal(pwrite(fd, "\7", 1, offsetof(struct pol_snapshots, version)), 1);
	assert_int_equal(try_open(&two, O_RDWR), -EPROTO);
	assert_int_equal(pwrite(fd, "\1", 1, offsetof(struct pol_snapshots, version)), 1);
	close(fd);
	close(two.f.fd);
	come(&two, O_RDWR);
}

static void what_the_dead_left_is_swept_and_nothing_of_the_living(void **state)
{
	char name[400];
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(stat(box.data, &st), 0);
	snapshots_name(name, sizeof(name));
	fd = open(name, O_RDWR | O_CREAT, 0600);
	close(fd);
	pol_snapshot_sweep(st.st_dev, st.st_ino);
	assert_false(box_has(name));
	come(&one, O_RDWR);
	pol_snapshot_sweep(st.st_dev, st.st_ino);
	assert_true(box_has(name));
	assert_true(pol_snapshot_has_somebody(st.st_dev, st.st_ino));
	go(&one);
	assert_false(pol_snapshot_has_somebody(st.st_dev, st.st_ino));
	pol_snapshot_sweep(st.st_dev, st.st_ino); /* it is not there */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_journal_of_members_is_in_use_and_is_none_for_those_who_share_an_overlay),
		TEST(whatever_fails_when_it_comes_leaves_nothing),
		TEST(a_file_in_the_runtime_directory_that_is_none_of_ours_is_refused),
		TEST(what_the_dead_left_is_swept_and_nothing_of_the_living),
	};

	return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
