/* SPDX-License-Identifier: MIT */
/* What other processes do: children, and somebody who knows nothing of txmap. */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint8_t buf[MAX_IO];

/* ---- others ---- */

int outside_main(char **argv)
{
	int fd = open(argv[2], O_RDWR);
	off_t off = strtol(argv[3], NULL, 0);
	size_t len = strlen(argv[4]);

	if (fd < 0 || (len && pwrite(fd, argv[4], len, off) != (ssize_t)len))
		return 1;
	return strcmp(argv[5], "-1") && ftruncate(fd, strtol(argv[5], NULL, 0));
}

static void outside(const char *name, uint64_t off, const void *text, size_t len, int64_t size)
{
	char at[32], to[32], copy[256], *envp[] = {NULL};
	char *argv[] = {(char *)"fsx", (char *)"outside", (char *)name, at, copy, to, NULL};
	int status;
	pid_t pid;

	(void)snprintf(at, sizeof(at), "%lu", (unsigned long)off);
	(void)snprintf(to, sizeof(to), "%ld", (long)size);
	memcpy(copy, text, len);
	copy[len] = 0;
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, envp) || waitpid(pid, &status, 0) != pid || status)
		mismatch("the helper that writes from outside failed");
}

/* Changes within one tick of the clock that files are stamped with look like one. */
static void wait_for_tick(void)
{
	struct timespec was, ts;

	for (int i = 0; i < 2; i++) {
		clock_gettime(CLOCK_REALTIME_COARSE, &was);
		do
			clock_gettime(CLOCK_REALTIME_COARSE, &ts);
		while (was.tv_nsec == ts.tv_nsec);
	}
}

/* Somebody else writes; a commit notices, an invalidation takes it over. */
static void op_outside(void)
{
	struct file *f = random_file();
	uint64_t off = below(f->com_size);
	size_t len = between(1, 200), i;
	bool partly = one_in(2), cuts = !partly && one_in(4), notices = one_in(2);
	int64_t size = cuts ? (int64_t)random_size() : -1;
	char text[201];
	uint8_t byte = 'S';

	if (is_direct(f) || f->unsure || is_size_changed(f) || !f->size)
		return;
	if (partly && off + len > f->com_size)
		len = (size_t)(f->com_size - off);
	for (i = 0; i < len; i++)
		text[i] = (char)('a' + below(26));
	say("outside write %s off %#lx len %#zx size %ld, then invalidate %s", f->name, (unsigned long)off, len, (long)size,
	    partly ? "a part" : "all");
	if (notices)
		wait_for_tick();
	outside(f->name, off, text, len, size);
	if (notices) {
		struct fd *d = random_fd(f, false, true);
		uint64_t at = partly ? off : below(f->size);

		if (d && !(d->flags & O_APPEND)) { /* where it will be invalidated */
			expect("pwrite", pwrite(d->fd, &byte, 1, (off_t)at), 1);
			model_write(f, at, &byte, 1);
			order("commit", f, "", "EBUSY");
		}
	}
	model_outside_write(f, off, text, len);
	if (!cuts && !partly && f->com_size > f->size)
		model_resize(f, f->com_size);
	if (cuts) {
		uint64_t was = f->com_size;

		model_resize(f, (uint64_t)size);
		if ((uint64_t)size < was)
			memset(f->com + size, 0, was - (uint64_t)size);
		f->com_size = f->low = (uint64_t)size;
	}
	f->low = f->size;
	invalidate(f, partly ? off : 0, partly ? len : 0);
}

/* ---- children ---- */

static void child_stores(void)
{
	unsigned n = (unsigned)below(one_in(2) ? 2 : 6);

	for (unsigned i = 0; i < n; i++) {
		uint32_t pg = random_page();
		uint64_t aoff = (uint64_t)pg * PAGE + below(PAGE), off;
		struct file *f = random_file();
		struct fd *d = random_fd(f, false, true);
		size_t len;

		if (pg < set.npages && (len = touchable(aoff, random_len(), true))) {
			random_bytes(buf, len);
			say("  child: store arena %#lx len %#zx (%s %s page %u)", (unsigned long)aoff, len,
			    arena[pg].kind == SHARED ? "shared" : "private", sh->f[arena[pg].file].name, arena[pg].pgoff);
			memcpy(ARENA + aoff, buf, len);
			model_store(aoff, buf, len);
		}
		off = random_off(f);
		len = random_len();
		if (d && one_in(2) && !(d->flags & O_APPEND) && off + len <= set.max_size) {
			random_bytes(buf, len);
			say("  child: pwrite %s off %#lx len %#zx", f->name, (unsigned long)off, len);
			expect("pwrite", pwrite(d->fd, buf, len, (off_t)off), (long)len);
			model_write(f, off, buf, len);
		}
	}
}

static void child(int how)
{
	stored_here[0] = stored_here[1] = false;
	if (one_in(4))
		check_all();
	child_stores();
	for (unsigned i = 0; how != 2 && i < NFILES; i++)
		if (sh->f[i].live && stored_here[i])
			model_commit(&sh->f[i]);
		else if (sh->f[i].unsure)
			make_sure(&sh->f[i]);
	fflush(NULL);
	switch (how) {
	case 0:
		exit(0);
	case 1:
		_exit(0);
	default:
		kill(getpid(), SIGKILL);
		pause();
	}
}

static void op_fork(void)
{
	int how = (int)below(3), status;
	pid_t pid;

	say("fork; the child ends with %s", (const char *[]){"exit", "_exit", "kill -9"}[how]);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(how);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		mismatch("fork: %s", strerror(errno));
	if (how == 2 ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
		if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_MISMATCH)
			(void)kernel(SYS_exit_group, STATUS_MISMATCH, 0, 0, 0); /* it told */
		mismatch("the child ended with status %#x", (unsigned)status);
	}
	for (unsigned i = 0; i < NFILES; i++) { /* what it cut off or committed */
		if (!is_changed(&sh->f[i]))
			stored_here[i] = false;
	}
}

/* A child that must not have a mapping has none. */
static void op_nofork(void)
{
	uint32_t pg = random_page(), n, i;
	uint8_t *at = ARENA + (uint64_t)pg * PAGE;
	int status = 0;
	pid_t pid;

	if (pg == set.npages || arena[pg].kind != SHARED)
		return;
	n = (uint32_t)between(1, run_of(pg));
	i = (uint32_t)below(n);
	say("a child without arena page %u + %u, touches page %u", pg, n, pg + i);
	expect("madvise", madvise(at, n * (size_t)PAGE, MADV_DONTFORK), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		syscall(SYS_exit_group, probe(at + i * (size_t)PAGE, one_in(2)));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != SIGSEGV)
		mismatch("the child ended with status %#x", (unsigned)status);
	expect("madvise", madvise(at, n * (size_t)PAGE, MADV_DOFORK), 0);
}

const struct op ops_other[] = {
	{"outside", 2, op_outside},
	{"fork", 8, op_fork},
	{"nofork", 2, op_nofork},
	{NULL, 0, NULL},
};
