/* SPDX-License-Identifier: MIT */
/* The supervisor looks at the files as any program without txmap has them: while nobody stores, and after all
 * were killed. */
#include "chaos.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANG_SECONDS 40

static uint8_t image[NFILES][NPAGES * PAGE];

static struct view image_of(unsigned f)
{
	return (struct view){.base = image[f], .stride = 1};
}

static off_t file_off(unsigned f, size_t page)
{
	return (off_t)(page * file_view(f, NULL).stride * PAGE);
}

static void failed(const char *what, unsigned f)
{
	violation("%s of %s: %s", what, file_name(f), strerror(errno));
}

static void read_file(unsigned f)
{
	int fd = open(file_name(f), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		failed("open", f);
	for (size_t p = 0; p < NPAGES; p++)
		if (pread(fd, image[f] + p * PAGE, PAGE, file_off(f, p)) != (ssize_t)PAGE)
			failed("pread", f);
	(void)close(fd);
}

static void write_page(int fd, unsigned f, size_t p)
{
	if (pwrite(fd, image[f] + p * PAGE, PAGE, file_off(f, p)) != (ssize_t)PAGE)
		failed("pwrite", f);
}

/* Nobody holds what a killed process held, nor finds out that it did. */
static void free_locks(unsigned f)
{
	int fd = open(file_name(f), O_RDWR | O_CLOEXEC);

	*(uint64_t *)page_at(image_of(f), AT_PAIR_Y) = *(uint64_t *)page_at(image_of(f), AT_PAIR_X);
	memset(page_at(image_of(f), AT_LOCK), 0, PAGE);
	memset(page_at(image_of(f), AT_MUTEX), 0, PAGE);
	mutex_make(page_at(image_of(f), AT_MUTEX));
	write_page(fd, f, AT_LOCK);
	write_page(fd, f, AT_MUTEX);
	write_page(fd, f, AT_PAIR_Y);
	(void)close(fd);
}

void make_files(void)
{
	for (unsigned f = 0; f < NFILES; f++) {
		int fd = open(file_name(f), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		if (fd < 0 || ftruncate(fd, (off_t)file_len(f)))
			failed("making", f);
		for (unsigned a = 0; a < NACCOUNTS; a++)
			*account_at(image_of(f), a) = TOTAL / NACCOUNTS;
		for (size_t p = AT_ACCOUNTS; p < AT_RECORDS; p++)
			write_page(fd, f, p);
		(void)close(fd);
		free_locks(f);
		anchor(f, image_of(f));
	}
}

/* ---- all are alive, and nobody stores ---- */

static void tell_who_hangs(const char *what)
{
	for (unsigned i = 0; i <= NSLOTS; i++) {
		struct slot *s = &ledger->slot[i];

		for (unsigned t = 0; t < NTHREADS; t++)
			if (s->pid && (s->is_live[t] || !t))
				fprintf(stderr,
					"slot %u: process %u, thread %u: %s, last at %s of %s; its child: "
					"%u\n",
					i, s->pid, t, s->parked[t] == ledger->quiet ? "is quiet" : "works",
					doing_names[s->doing[t] % NDOING], file_name(s->file[t] % NFILES),
					s->child[t]);
	}
	violation("%s: not within %d s", what, HANG_SECONDS);
}

static bool is_quiet(const struct slot *s)
{
	return !get32(&s->pid) || (get32(&s->parked[0]) == ledger->quiet &&
				   (!get32(&s->is_live[1]) || get32(&s->parked[1]) == ledger->quiet));
}

/* Until then nobody may have the files open. */
static bool is_no_keeper_to_come(const struct slot *s)
{
	return s != &ledger->slot[KEEPER] || get32(&s->has_files);
}

static bool has_obeyed(const struct slot *s)
{
	return !get32(&s->pid) || !get32(&s->has_files) || get32(&s->order_done) == ledger->order;
}

static bool wait_for_all(bool (*is_so)(const struct slot *s), const char *what, void (*reap)(void))
{
	time_t begin = time(NULL);

	while (!get(&ledger->violations)) {
		uint32_t seen = get32(&ledger->answer);
		unsigned i;

		reap();
		for (i = 0; i <= NSLOTS && is_so(&ledger->slot[i]); i++)
			;
		if (i > NSLOTS)
			return true;
		if (time(NULL) > begin + HANG_SECONDS)
			tell_who_hangs(what);
		await(&ledger->answer, seen, 20);
	}
	return false;
}

/* What each process sees is what is in the file. */
static void compare_views(unsigned f)
{
	uint64_t raw = image_hash(image_of(f));

	for (unsigned i = 0; i <= NSLOTS; i++) {
		struct slot *s = &ledger->slot[i];

		if (s->pid && s->order_done == ledger->order && s->hash[f] != raw)
			violation("slot %u sees %lx in %s, which all are quiet in and slot %u has committed; "
				  "in the file is %lx",
				  i, (unsigned long)s->hash[f], file_name(f), ledger->order_committer,
				  (unsigned long)raw);
	}
}

static void look_at_all(const char *what)
{
	struct bounds low, high;

	for (unsigned f = 0; f < NFILES; f++) {
		read_file(f);
		bounds_low(f, &low);
		bounds_high(f, &high);
		check_image(what, f, image_of(f), &low, &high);
	}
}

/* Nothing was committed since the last quiet point but by who said so: it is some whole commit. */
static void look_before_the_commit(void)
{
	struct bounds high;

	for (unsigned f = 0; f < NFILES; f++) {
		if (get32(&ledger->file[f].is_unsure))
			continue;
		read_file(f);
		bounds_high(f, &high);
		check_image("the last commit", f, image_of(f), &ledger->file[f].floor, &high);
	}
}

void quiet_point(void (*reap)(void), uint64_t *random)
{
	uint32_t n = (uint32_t)++ledger->quiets;

	if (!wait_for_all(is_no_keeper_to_come, "the keeper has the files", reap))
		return;
	put32(&ledger->quiet, n);
	ring(&ledger->bell);
	if (wait_for_all(is_quiet, "all are quiet", reap)) {
		look_before_the_commit();
		do
			ledger->order_committer = (uint32_t)random_below(random, NSLOTS + 1);
		while (!ledger->slot[ledger->order_committer].pid ||
		       !ledger->slot[ledger->order_committer].has_files);
		put32(&ledger->order, n);
		ring(&ledger->bell);
		if (wait_for_all(has_obeyed, "all have hashed what they see", reap)) {
			look_at_all("the commit of all");
			for (unsigned f = 0; f < NFILES; f++) {
				compare_views(f);
				anchor(f, image_of(f));
			}
		}
	}
	put32(&ledger->quiet, 0);
	ring(&ledger->bell);
}

/* ---- nobody is alive ---- */

static int run(const char *const *argv, bool quietly)
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		if (quietly)
			(void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
		(void)alarm(HANG_SECONDS);
		(void)execv(argv[0], (char *const *)argv);
		_exit(98);
	}
	return pid < 0 || waitpid(pid, &st, 0) != pid || !WIFEXITED(st) ? -1 : WEXITSTATUS(st);
}

static void command(const char *txmap, const char *what)
{
	const char *argv[NFILES + 3] = {txmap, what};
	int st;

	for (unsigned f = 0; f < NFILES; f++)
		argv[2 + f] = file_name(f);
	st = run(argv, true);
	if (st)
		violation("txmap %s: status %d", what, st);
}

static void touch(const char *preload)
{
	pid_t pid = fork();
	int st = 0;

	if (pid == 0) {
		(void)alarm(HANG_SECONDS);
		exec_self(preload, "touch", KEEPER, 0);
	}
	if (pid < 0 || waitpid(pid, &st, 0) != pid || st)
		violation("the one who opens the files after the crash: status %x", st);
	for (unsigned f = 0; f < NFILES; f++) {
		read_file(f);
		if (memcmp(image[f], ledger->dump[f], sizeof(image[f])))
			violation("who opens %s after the crash sees other bytes than are in the file",
				  file_name(f));
	}
}

static void expect_no_journal(void)
{
	DIR *d = opendir(".");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strstr(e->d_name, ".txmap"))
			violation("%s is left", e->d_name);
	(void)closedir(d);
}

void look_at_what_is_left(const char *txmap, const char *preload, bool by_command)
{
	struct bounds high;

	if (txmap && by_command) {
		command(txmap, "recover");
		command(txmap, "check");
	} else {
		touch(preload);
	}
	expect_no_journal();
	for (unsigned f = 0; f < NFILES; f++) {
		read_file(f);
		bounds_high(f, &high);
		check_image(by_command ? "what txmap recover left" : "what was left", f, image_of(f),
			    &ledger->file[f].floor, &high);
		free_locks(f);
		anchor(f, image_of(f));
	}
}

void look_at_the_end(const char *txmap)
{
	/* of one that was killed, if nobody who lived on ever committed */
	if (txmap)
		command(txmap, "recover");
	expect_no_journal();
	look_at_all("what is there in the end");
}
