/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "work.h"
#include "backend_file.h"
#include "managed_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_SIZE (8u * 4096u)
#define LAST	 5 /* version */

const char *const op_names[OP_N] = {"open",	  "commit", "lazy commit", "grow",
				    "checkpoint", "shrink", "end of use",  "recovery"};
const int op_version[OP_N] = {[OP_COMMIT] = 1, [OP_LAZY] = 2, [OP_GROW] = 3, [OP_SHRINK] = 4, [OP_END] = 5};

static const uint64_t sizes[LAST + 1] = {12388, 12388, 12388, 20487, 4146, 4146};
static const char *const names[] = {"data", "other"};
#define LEFT 2 /* number of the file that a crash left */

bool op_is_durable(enum op op)
{
	return op != OP_LAZY;
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static void path_of(const struct work *w, unsigned file, char *path)
{
	(void)snprintf(path, PATH_MAX, "%s/%s", w->dir, file == LEFT ? "left" : names[file]);
}

/* Where a version stores: the ends of pages and of the file, and pages alone. */
static unsigned places(int version, uint64_t *ret)
{
	static const uint64_t all[] = {10, 700, 4090, 4095, 4096, 4100, 8200, 12287, 16384, 20000};
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i] < sizes[version] && (i + (unsigned)version) % 3)
			ret[n++] = all[i];
	ret[n++] = sizes[version] - 1;
	return n;
}

static void store(uint8_t *bytes, int version, unsigned file)
{
	uint64_t place[16];
	unsigned n = places(version, place);

	for (unsigned i = 0; i < n; i++)
		bytes[place[i]] = (uint8_t)(version * 40 + (int)(i * 3 + file + 1));
}

static void image(uint8_t *bytes, int version, unsigned file)
{
	for (uint64_t i = 0; i < MAX_SIZE; i++)
		bytes[i] = i < sizes[0] ? (uint8_t)(i * 131 + i / 4096 + file) : 0;
	for (int v = 1; v <= version; v++) {
		if (sizes[v] < sizes[v - 1])
			memset(bytes + sizes[v], 0, MAX_SIZE - sizes[v]);
		store(bytes, v, file);
	}
}

/* ---- before ---- */

static void put(const char *path, const uint8_t *bytes, uint64_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, bytes, size, 0) == (ssize_t)size, path);
	close(fd);
}

static ssize_t get(const char *path, uint8_t *bytes, size_t max)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pread(fd, bytes, max, 0);

	if (fd >= 0)
		close(fd);
	return n;
}

static void put_version(const struct work *w, unsigned file, int version)
{
	uint8_t bytes[MAX_SIZE];
	char path[PATH_MAX];

	path_of(w, file, path);
	image(bytes, version, file);
	put(path, bytes, sizes[version]);
}

/* Where journals are. */
static void remove_others(const struct work *w)
{
	DIR *d = opendir(w->dir);
	struct dirent *e;

	must(d != NULL, w->dir);
	while ((e = readdir(d)))
		if (e->d_type == DT_REG && e->d_name[0] == '.')
			must(!unlinkat(dirfd(d), e->d_name, 0), e->d_name);
	closedir(d);
}

/* ---- the process ---- */

static struct {
	int fd;
	struct pol_file *m;
	uint8_t *map;
} file[LEFT + 1];
static int stage;     /* of the operation that is being done */
static unsigned done; /* files that the stage is through with */

static void fault(int signo, siginfo_t *info, void *ucontext)
{
	(void)signo;
	if (pol_fault(info, ucontext) != 1)
		_exit(99);
}

void work_begin(const struct work *w)
{
	const struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	char conf[160];

	(void)snprintf(conf, sizeof(conf), "%s.conf", w->run);
	must(!setenv("TXMAP_CONFIG", conf, 1) && !setenv("TXMAP_RUNTIME_DIR", w->run, 1), "setenv");
	must(!sigaction(SIGSEGV, &sa, NULL), "sigaction");
	must(pol_start() == 1, "pol_start");
	for (unsigned i = 0; i <= LEFT; i++) {
		char path[PATH_MAX];

		path_of(w, i, path);
		file[i].fd = i < w->nfiles || i == LEFT ? open(path, O_RDWR | O_CLOEXEC) : -1;
	}
}

static int go_live(unsigned i)
{
	void *addr;
	int err = file[i].m ? 0 : pol_fd_open(file[i].fd, &file[i].m);

	if (err < 0)
		return err;
	if (!file[i].m)
		return -ENODEV; /* what it is cannot be found out: the call would go to the file */
	err = pol_mmap(file[i].m, file[i].fd, NULL, MAX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, &addr);
	if (!err) {
		file[i].map = addr;
		return 0;
	}
	(void)pol_fd_close(file[i].m); /* what is refused is so as long as it is open */
	file[i].m = NULL;
	return err;
}

static int end_use(unsigned i)
{
	int err = 0;

	if (!file[i].m) /* again: its stores stay for whoever comes, and if nobody does, for the exit */
		return pol_event_all(POL_EV_EXIT);
	if (file[i].map)
		err = pol_munmap(file[i].map, MAX_SIZE);
	if (err)
		return err;
	file[i].map = NULL;
	err = pol_fd_close(file[i].m);
	file[i].m = NULL;
	return err;
}

/* One thing with each file, the next time from the one where it failed. */
static int each(const struct work *w, int (*fn)(unsigned i, enum op op), enum op op)
{
	for (; done < w->nfiles; done++) {
		int err = fn(done, op);

		if (err)
			return err;
	}
	done = 0;
	stage++;
	return 0;
}

static int resize_one(unsigned i, enum op op)
{
	return pol_truncate(file[i].m, (off_t)sizes[op_version[op]]);
}

static int store_one(unsigned i, enum op op)
{
	store(file[i].map, op_version[op], i);
	return 0;
}

static int open_one(unsigned i, enum op op)
{
	(void)op;
	return go_live(i);
}

static int end_one(unsigned i, enum op op)
{
	(void)op;
	return end_use(i);
}

static int checkpoint_one(unsigned i, enum op op)
{
	(void)op;
	return vm_fileh_checkpoint(file[i].m->h);
}

static int commit(const struct work *w, enum op op)
{
	struct vm_commit_result res;

	(void)w;
	if (op == OP_LAZY)
		return pol_commit_file(file[0].m, false, false, &res);
	return pol_msync(file[0].map, 4096, MS_SYNC);
}

int work_do(const struct work *w, enum op op)
{
	int err = 0;

	switch (op) {
	case OP_OPEN:
		err = each(w, open_one, op);
		break;
	case OP_CHECKPOINT:
		err = each(w, checkpoint_one, op);
		break;
	case OP_RECOVER:
		err = go_live(LEFT);
		break;
	default:
		if (!stage)
			err = op == OP_GROW || op == OP_SHRINK ? each(w, resize_one, op) : (stage++, 0);
		if (!err && stage == 1)
			err = each(w, store_one, op);
		if (!err && stage == 2)
			err = op == OP_END ? each(w, end_one, op) : commit(w, op);
	}
	if (!err)
		stage = 0;
	return err;
}

bool work_keeps_stores(const struct work *w, enum op op)
{
	bool is_dirty = false;

	if (stage < 2 || op == OP_END || !op_version[op])
		return true; /* nothing was stored, or the mapping is gone */
	for (unsigned i = 0; i < w->nfiles; i++) {
		struct vm_fileh_stat st;
		uint8_t bytes[MAX_SIZE];

		image(bytes, op_version[op], i);
		vm_fileh_stat(file[i].m->h, true, &st);
		is_dirty |= st.npages_dirty || st.size_dirty;
		if (st.size != sizes[op_version[op]] || memcmp(bytes, file[i].map, st.size))
			return false;
	}
	return is_dirty;
}

/* ---- after ---- */

static bool is_version(const struct work *w, unsigned i, int version)
{
	uint8_t want[MAX_SIZE], got[MAX_SIZE + 1];
	char path[PATH_MAX];

	path_of(w, i, path);
	image(want, version, i);
	return get(path, got, sizeof(got)) == (ssize_t)sizes[version] && !memcmp(want, got, sizes[version]);
}

static int recover(const struct work *w, unsigned i, struct pol_journal_report *r)
{
	char path[PATH_MAX];

	path_of(w, i, path);
	return pol_journal_recover(path, NULL, NULL, NULL, r);
}

int work_version(const struct work *w, char *ret_why, size_t len)
{
	struct pol_journal_report r;

	*ret_why = 0;
	for (unsigned i = 0; i < w->nfiles; i++) {
		if (!recover(w, i, &r))
			continue;
		(void)snprintf(ret_why, len, "%s", r.text);
		return -1;
	}
	for (int v = 0; v <= LAST; v++) {
		unsigned i = 0;

		while (i < w->nfiles && is_version(w, i, v))
			i++;
		if (i == w->nfiles)
			return v;
	}
	return -1;
}

bool work_is_recovered(const struct work *w)
{
	struct pol_journal_report r;

	return !recover(w, LEFT, &r) && is_version(w, LEFT, 2);
}

/* ---- the file that a crash left ---- */

/* Its journal holds both commits that a process made which was killed, and the file neither. */
static void leave_behind(const struct work *w, uint8_t *journal, ssize_t *ret_len)
{
	char path[PATH_MAX];
	int status;
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (!pid) {
		struct vm_commit_result res;

		work_begin(w);
		must(!go_live(LEFT), "go_live");
		for (int v = 1; v <= 2; v++) {
			store(file[LEFT].map, v, LEFT);
			must(!pol_commit_file(file[LEFT].m, true, false, &res), "commit");
		}
		(void)kill(getpid(), SIGKILL);
	}
	must(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "the process that leaves a journal");
	(void)snprintf(path, sizeof(path), "%s/.left.txmap", w->dir);
	*ret_len = get(path, journal, 1u << 20);
	must(*ret_len > 0, path);
}

static void put_settings(const struct work *w)
{
	char conf[160];
	FILE *f;

	(void)snprintf(conf, sizeof(conf), "%s.conf", w->run);
	f = fopen(conf, "w");
	must(f &&
		     fprintf(f,
			     "[defaults]\ncontrol = off\n"
			     "[rule several]\npath = %s/data\npath = %s/other\nscope = %s\n"
			     "[rule left]\npath = %s/left\n",
			     w->dir, w->dir, w->nfiles > 1 ? "group" : "file", w->dir) > 0 &&
		     !fclose(f),
	     conf);
}

void work_prepare(const struct work *w)
{
	static uint8_t journal[1u << 20];
	static ssize_t len;
	char path[PATH_MAX];

	for (unsigned i = 0; i <= LEFT; i++)
		if (i < w->nfiles || i == LEFT)
			put_version(w, i, 0);
	if (!len)
		put_settings(w), leave_behind(w, journal, &len);
	put_version(w, LEFT, 0);
	remove_others(w);
	(void)snprintf(path, sizeof(path), "%s/.left.txmap", w->dir);
	put(path, journal, (uint64_t)len);
}
