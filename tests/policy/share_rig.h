/* SPDX-License-Identifier: MIT */
/* A file that may be managed here, and the registry that says who else has it. */
#ifndef SHARE_RIG_H
#define SHARE_RIG_H

#include "share.h"
#include "pol.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { LEN = 16384 };

static char dir[64], run_dir[96], path[128];
static struct pol_file *file;
static int fd = -1;
static char *map;

static inline int make_dirs(void **state)
{
	char glob[96];

	(void)state;
	snprintf(dir, sizeof(dir), "%.40s/txmap-XXXXXX", getenv("TMPDIR") ?: "/var/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	snprintf(path, sizeof(path), "%s/data", dir);
	snprintf(glob, sizeof(glob), "%s/data", dir);
	setenv("TXMAP_PATHS", glob, 1);
	setenv("TXMAP_COMMIT", "none", 1);
	setenv("TXMAP_RUNTIME_DIR", run_dir, 1);
	setenv("TXMAP_LOG", getenv("SHOW") ?: "off", 1);
	return mkdir(run_dir, 0700) || pol_start() != 1;
}

static inline int remove_dirs(void **state)
{
	char name[160];

	(void)state;
	pol_control_stop();
	snprintf(name, sizeof(name), "%s/shares", run_dir);
	unlink(name);
	return rmdir(run_dir) || rmdir(dir);
}

/* A file of its own for each test: the kernel may give it the inode number of the last one. */
static inline int make_file(void **state)
{
	(void)state;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	return fd < 0 || ftruncate(fd, LEN);
}

static inline int remove_file(void **state)
{
	(void)state;
	if (map)
		(void)pol_munmap(map, LEN);
	map = NULL;
	if (file)
		(void)pol_fd_close(file);
	file = NULL;
	close(fd);
	return unlink(path);
}

static inline int use(void)
{
	void *addr;
	int err = pol_fd_open(fd, &file);

	if (err < 0)
		return err;
	err = pol_mmap(file, fd, NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, 0, &addr);
	if (!err)
		map = addr;
	return err;
}

static inline void registry_name(char *name, size_t len)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	snprintf(name, len, "%s/share-%llx-%llx", run_dir, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

/* What others wrote: with, as they do, the count that says that it is there. */
static inline void write_registry(const char *text)
{
	char name[160];
	struct stat st;
	int r;

	registry_name(name, sizeof(name));
	r = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(r >= 0);
	assert_int_equal(write(r, text, strlen(text)), strlen(text));
	close(r);
	assert_int_equal(fstat(fd, &st), 0);
	pol_hint_open();
	pol_hint_count(st.st_dev, st.st_ino, 1);
}

static inline void read_registry(char *text, size_t len)
{
	char name[160];
	ssize_t n;
	int r;

	registry_name(name, sizeof(name));
	r = open(name, O_RDONLY);
	n = r < 0 ? 0 : read(r, text, len - 1);
	text[n > 0 ? n : 0] = 0;
	if (r >= 0)
		close(r);
}

static inline void is_in_registry(pid_t pid, bool alone)
{
	char text[4096], want[32];

	read_registry(text, sizeof(text));
	snprintf(want, sizeof(want), "%d\n", pid);
	assert_non_null(strstr(text, want));
	if (alone)
		assert_string_equal(text, want);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_file, remove_file)

#endif
