/* SPDX-License-Identifier: MIT */
/* Looking, commits, ends. */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static uint8_t buf[MAX_IO];

/* ---- looking ---- */

static void check_file(struct file *f)
{
	int fd = open(f->name, O_RDONLY);
	struct stat st;
	ssize_t n;

	expect("fstat", fstat(fd, &st), 0);
	expect("the size", st.st_size, (long)f->size);
	for (uint64_t off = 0; off <= f->size; off += sizeof(buf)) {
		size_t want = f->size - off < sizeof(buf) ? (size_t)(f->size - off) : sizeof(buf);

		n = pread(fd, buf, sizeof(buf), (off_t)off);
		expect("pread", n, (long)want);
		compare_bytes(f->name, off, buf, f->cur + off, want);
	}
	expect("close", close(fd), 0);
}

static void check_page(uint32_t pg)
{
	size_t n = touchable((uint64_t)pg * PAGE, PAGE, false);

	if (!n)
		return;
	model_load((uint64_t)pg * PAGE, buf, n);
	compare_bytes("the arena", (uint64_t)pg * PAGE, ARENA + (uint64_t)pg * PAGE, buf, n);
	for (; n < PAGE && arena[pg].kind == SHARED; n++)
		if (ARENA[(uint64_t)pg * PAGE + n])
			mismatch("a byte beyond the file's end is not zero: arena page %u + %zu", pg, n);
}

void check_all(void)
{
	for (unsigned i = 0; i < NFILES; i++)
		if (nfds(&sh->f[i]) || nmapped(&sh->f[i]))
			check_file(&sh->f[i]);
	for (uint32_t pg = 0; pg < set.npages; pg++)
		check_page(pg);
}

/* What somebody without txmap would read: system calls that nobody sees. */
static void op_view(void)
{
	struct file *f = random_file();
	int fd;
	struct stat st;

	if (f->unsure)
		return;
	say("view %s", f->name);
	fd = (int)kernel(SYS_openat, AT_FDCWD, (long)f->name, O_RDONLY, 0);
	expect("open", fd < 0 ? fd : 0, 0);
	st.st_size = kernel(SYS_lseek, fd, 0, SEEK_END, 0);
	expect("the size in the storage", st.st_size, (long)f->com_size);
	for (uint64_t off = 0; off < f->com_size; off += sizeof(buf)) {
		size_t want = f->com_size - off < sizeof(buf) ? (size_t)(f->com_size - off) : sizeof(buf);

		expect("pread", kernel(SYS_pread64, fd, (long)buf, (long)want, (long)off), (long)want);
		compare_bytes("the storage", off, buf, f->com + off, want);
	}
	(void)kernel(SYS_close, fd, 0, 0, 0);
}

void begin_worker(void)
{
	for (unsigned i = 0; i < NFILES; i++) {
		struct file *f = &sh->f[i];

		stored_here[i] = false;
		for (unsigned k = 0; k < NFDS; k++)
			fds[i][k].fd = -1;
		(void)open_one(f, O_RDWR | O_CREAT);
		check_file(f);
	}
}

/* ---- commits ---- */

void make_sure(struct file *f)
{
	unsigned i = (unsigned)(f - sh->f);
	int fd;

	if (is_direct(f) || !(f->unsure || (is_changed(f) && !stored_here[i])))
		return;
	fd = open(f->name, O_RDWR);
	expect("fsync", fsync(fd), 0);
	model_commit(f);
	expect("close", close(fd), 0);
}

void may_be_released(struct file *f)
{
	if (!f->live || nfds(f) || nmapped(f))
		return;
	if (set.control)
		model_commit(f);
	f->live = false;
	(void)open_one(f, O_RDWR);
}

/* Everything goes; the file is committed, and begins anew. */
static void op_release(void)
{
	struct file *f = random_file();
	unsigned i = (unsigned)(f - sh->f);

	say("release of %s", f->name);
	make_sure(f);
	for (uint32_t pg = 0; pg < set.npages; pg++)
		if (arena[pg].kind != NOTHING && &sh->f[arena[pg].file] == f) {
			uint32_t n = run_of(pg);

			expect("munmap", munmap(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE), 0);
			model_unmap(pg, n);
		}
	for (unsigned k = 0; k < NFDS; k++)
		if (fds[i][k].fd >= 0)
			close_one(&fds[i][k]);
	may_be_released(f);
	if (!nfds(f))
		(void)open_one(f, O_RDWR);
	check_file(f);
}

static void op_fsync(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false);

	if (!d)
		return;
	say("fsync %s", f->name);
	expect("fsync", one_in(2) ? fsync(d->fd) : fdatasync(d->fd), 0);
	model_commit(f);
}

const char *control(const char *request)
{
	static char answer[512], err[32];
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *p;
	size_t n = 0;
	ssize_t got;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d.sock", set.control, getpid());
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		mismatch("%s: %s", addr.sun_path, strerror(errno));
	(void)snprintf(answer, sizeof(answer), "%s\n", request);
	if (write(fd, answer, strlen(answer)) != (ssize_t)strlen(answer))
		mismatch("control socket: %s", strerror(errno));
	while (n < sizeof(answer) - 1 && (got = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0) {
		n += (size_t)got;
		if (answer[n - 1] == '\n')
			break;
	}
	answer[n] = 0;
	close(fd);
	if (strstr(answer, "\"ok\":true"))
		return "";
	p = strstr(answer, "\"errno\":\"");
	if (!p || sscanf(p + 9, "%31[A-Z]", err) != 1)
		mismatch("'%s' is answered: %s", request, answer);
	return err;
}

void order(const char *verb, const struct file *f, const char *more, const char *want)
{
	char request[4300], path[4096];
	const char *got;

	if (!realpath(f->name, path))
		mismatch("realpath: %s", strerror(errno));
	(void)snprintf(request, sizeof(request), "%s %s%s", verb, path, more);
	got = control(request);
	if (strcmp(got, want))
		mismatch("%s: '%s', but should be '%s'", request, got, want);
}

static void op_commit(void)
{
	struct file *f = random_file();

	if (is_direct(f))
		return;
	say("commit %s", f->name);
	order("commit", f, "", "");
	model_commit(f);
}

static void op_discard(void)
{
	struct file *f = random_file();

	if (is_direct(f))
		return;
	if (f->unsure)
		make_sure(f);
	say("discard %s: size %#lx -> %#lx", f->name, (unsigned long)f->size, (unsigned long)f->com_size);
	order("discard", f, "", "");
	model_discard(f);
}

void invalidate(struct file *f, uint64_t off, uint64_t len)
{
	char more[64] = "";

	if (off || len)
		(void)snprintf(more, sizeof(more), " %lu %lu", (unsigned long)off, (unsigned long)len);
	order("invalidate", f, more, "");
	model_invalidate(f, off, len);
}

static void op_invalidate(void)
{
	struct file *f = random_file();
	uint64_t off = below(f->size), len = random_len();

	if (is_direct(f))
		return;
	if (f->unsure)
		make_sure(f);
	if (one_in(3) || !f->size)
		off = len = 0;
	say("invalidate %s off %#lx len %#lx", f->name, (unsigned long)off, (unsigned long)len);
	invalidate(f, off, len);
}

/* ---- ends ---- */

static void op_quit(void)
{
	say("exit");
	make_sure(&sh->f[0]);
	make_sure(&sh->f[1]);
	if (one_in(2))
		_exit(STATUS_QUIT);
	exit(STATUS_QUIT);
}

static void op_kill(void)
{
	say("kill -9");
	for (unsigned i = 0; i < NFILES; i++)
		if (sh->f[i].unsure)
			make_sure(&sh->f[i]);
	sh->killed = true;
	kill(getpid(), SIGKILL);
	pause();
}

const struct op ops_life[] = {
	{"fsync", 4, op_fsync},	  {"commit", 8, op_commit},   {"discard", 8, op_discard}, {"invalidate", 12, op_invalidate},
	{"view", 5, op_view},	  {"release", 3, op_release}, {"quit", 1, op_quit},	  {"kill", 1, op_kill},
	{NULL, 0, NULL},
};
