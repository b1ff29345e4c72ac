/* SPDX-License-Identifier: MIT */
/*
 * A program that does what its stdin says, one order a line, and answers each with a line: "ok", a value, or
 * the name of an errno or signal. It knows nothing of txmap. Numbers take K M G.
 *
 *	open PATH ro|rw|wo|creat	the descriptor that the orders below use
 *	file N			from here on the descriptor and mapping number N, 0 to 9; those of the others stay
 *	map LEN [ro|private]	LEN 0: the file's size; the mapping that the orders below use
 *	store OFF TEXT		fill OFF LEN CHAR	through the mapping
 *	load OFF LEN		same OFF LEN		the bytes; or the one byte that all of them are, "mixed"
 *	read OFF LEN		write OFF TEXT		by descriptor
 *	msync [async|invalidate]  fsync  unmap  close  size  truncate N  remap LEN
 *	rename OLD NEW		unlink PATH		sig NAME (set to a handler that counts)
 *	fork			a child that goes on; the parent waits for it and ends as it does
 *	flock ex|sh|un		fcntl w|r|un		ofd w|r|un		lockf lock|un
 *	exec PROGRAM		spawn PROGRAM (posix_spawn)		vfork PROGRAM (vfork and exec): the status
 *	exit N			_exit N			raise N
 */
#define _GNU_SOURCE 1
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd = -1;
static char *map = MAP_FAILED;
static size_t map_len;
static struct file {
	int fd;
	char *map;
	size_t map_len;
} files[10]; /* those that are not in use; fd 0: none yet */
static unsigned in_use;
static sigjmp_buf out;
static volatile sig_atomic_t armed;

static void on_fault(int signo)
{
	if (armed)
		siglongjmp(out, signo);
	signal(signo, SIG_DFL);
	raise(signo);
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

static void say_result(long ret)
{
	say(ret < 0 ? strerrorname_np(errno) : "ok");
}

static size_t number(const char *text)
{
	char *end;
	size_t n = text ? strtoull(text, &end, 0) : 0;

	if (!text)
		return 0;
	switch (toupper((unsigned char)*end)) {
	case 'G':
		n <<= 10; /* fall through */
	case 'M':
		n <<= 10; /* fall through */
	case 'K':
		n <<= 10;
	}
	return n;
}

static void do_open(const char *path, const char *how)
{
	int flags = !strcmp(how, "ro") ? O_RDONLY : !strcmp(how, "wo") ? O_WRONLY : O_RDWR;

	fd = open(path, flags | (strcmp(how, "creat") ? 0 : O_CREAT) | O_NONBLOCK, 0644);
	say_result(fd);
}

static void do_file(size_t n)
{
	files[in_use] = (struct file){fd, map, map_len};
	in_use = n % 10;
	fd = files[in_use].fd ? files[in_use].fd : -1;
	map = files[in_use].fd ? files[in_use].map : MAP_FAILED;
	map_len = files[in_use].map_len;
	say("ok");
}

static void do_map(const char *len, const char *how)
{
	int prot = PROT_READ | (how && !strcmp(how, "ro") ? 0 : PROT_WRITE);
	struct stat st;

	map_len = number(len);
	if (!map_len && !fstat(fd, &st))
		map_len = (size_t)st.st_size;
	map = mmap(NULL, map_len, prot, how && !strcmp(how, "private") ? MAP_PRIVATE : MAP_SHARED, fd, 0);
	say_result(map == MAP_FAILED ? -1 : 0);
}

static void do_load(size_t off, size_t len)
{
	char buf[4096];

	len = len < sizeof(buf) ? len : sizeof(buf) - 1;
	memcpy(buf, map + off, len);
	for (size_t i = 0; i < len; i++)
		buf[i] = isprint((unsigned char)buf[i]) ? buf[i] : '.';
	buf[len] = 0;
	say(buf);
}

static void do_same(size_t off, size_t len)
{
	char text[2] = {map[off], 0};

	for (size_t i = 1; i < len; i++) {
		if (map[off + i] != *text) {
			say("mixed");
			return;
		}
	}
	say(isprint((unsigned char)*text) ? text : ".");
}

static void do_read(off_t off, size_t len)
{
	char buf[4096];
	ssize_t n = pread(fd, buf, len < sizeof(buf) ? len : sizeof(buf) - 1, off);

	if (n < 0) {
		say_result(n);
		return;
	}
	for (ssize_t i = 0; i < n; i++)
		buf[i] = isprint((unsigned char)buf[i]) ? buf[i] : '.';
	buf[n] = 0;
	say(buf);
}

static void do_size(void)
{
	struct stat st;

	if (fstat(fd, &st)) {
		say_result(-1);
		return;
	}
	printf("%lld\n", (long long)st.st_size);
	fflush(stdout);
}

static void do_fcntl(int cmd, const char *how)
{
	struct flock lk = {.l_type = *how == 'w' ? F_WRLCK : *how == 'r' ? F_RDLCK : F_UNLCK, .l_len = 8};

	say_result(fcntl(fd, cmd, &lk));
}

static void say_status(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) < 0) {
		say_result(-1);
		return;
	}
	printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	fflush(stdout);
}

static void do_spawn(char *program)
{
	char *argv[] = {program, NULL};
	pid_t pid;
	int err = posix_spawn(&pid, program, NULL, NULL, argv, environ);

	errno = err;
	say_status(err ? -1 : pid);
}

static void do_vfork(char *program)
{
	char *argv[] = {program, NULL};
	pid_t pid = vfork();

	if (!pid) {
		execv(program, argv);
		_exit(127);
	}
	say_status(pid);
}

static void do_fork(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		say("ok");
		return;
	}
	if (pid < 0) {
		say_result(-1);
		return;
	}
	(void)waitpid(pid, &status, 0);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void obey(const char *what, char *a, char *b, char *c)
{
	if (!strcmp(what, "open")) {
		do_open(a, b ? b : "rw");
	} else if (!strcmp(what, "file")) {
		do_file(number(a));
	} else if (!strcmp(what, "map")) {
		do_map(a, b);
	} else if (!strcmp(what, "store")) {
		memcpy(map + number(a), b, strlen(b));
		say("ok");
	} else if (!strcmp(what, "fill")) {
		memset(map + number(a), *c, number(b));
		say("ok");
	} else if (!strcmp(what, "load")) {
		do_load(number(a), number(b));
	} else if (!strcmp(what, "same")) {
		do_same(number(a), number(b));
	} else if (!strcmp(what, "read")) {
		do_read((off_t)number(a), number(b));
	} else if (!strcmp(what, "write")) {
		say_result(pwrite(fd, b, strlen(b), (off_t)number(a)));
	} else if (!strcmp(what, "msync")) {
		say_result(msync(map, map_len,
				 !a ? MS_SYNC : !strcmp(a, "async") ? MS_ASYNC : MS_SYNC | MS_INVALIDATE));
	} else if (!strcmp(what, "fsync")) {
		say_result(fsync(fd));
	} else if (!strcmp(what, "unmap")) {
		say_result(munmap(map, map_len));
	} else if (!strcmp(what, "remap")) {
		char *p = mremap(map, map_len, number(a), MREMAP_MAYMOVE);

		if (p != MAP_FAILED) {
			map = p;
			map_len = number(a);
		}
		say_result(p == MAP_FAILED ? -1 : 0);
	} else if (!strcmp(what, "close")) {
		say_result(close(fd));
	} else if (!strcmp(what, "size")) {
		do_size();
	} else if (!strcmp(what, "truncate")) {
		say_result(ftruncate(fd, (off_t)number(a)));
	} else if (!strcmp(what, "rename")) {
		say_result(rename(a, b));
	} else if (!strcmp(what, "unlink")) {
		say_result(unlink(a));
	} else if (!strcmp(what, "fork")) {
		do_fork();
	} else if (!strcmp(what, "flock")) {
		say_result(flock(fd, !strcmp(a, "ex") ? LOCK_EX : !strcmp(a, "sh") ? LOCK_SH : LOCK_UN));
	} else if (!strcmp(what, "fcntl")) {
		do_fcntl(F_SETLKW, a);
	} else if (!strcmp(what, "ofd")) {
		do_fcntl(F_OFD_SETLKW, a);
	} else if (!strcmp(what, "lockf")) {
		say_result(lockf(fd, !strcmp(a, "lock") ? F_LOCK : F_ULOCK, 8));
	} else if (!strcmp(what, "exec")) {
		say_result(execl(a, a, (char *)NULL));
	} else if (!strcmp(what, "spawn")) {
		do_spawn(a);
	} else if (!strcmp(what, "vfork")) {
		do_vfork(a);
	} else if (!strcmp(what, "exit")) {
		exit(atoi(a));
	} else if (!strcmp(what, "_exit")) {
		_exit(atoi(a));
	} else if (!strcmp(what, "raise")) {
		raise(atoi(a));
		say("ok");
	} else {
		say("what?");
	}
}

int main(void)
{
	struct sigaction sa = {.sa_handler = on_fault};
	char line[8192], *words[4], *save;
	int signo;

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	while (fgets(line, sizeof(line), stdin)) {
		words[0] = strtok_r(line, " \n", &save);
		if (!words[0])
			continue;
		for (int i = 1; i < 4; i++)
			words[i] = words[i - 1] ? strtok_r(NULL, " \n", &save) : NULL;
		signo = sigsetjmp(out, 1);
		if (signo) {
			armed = 0;
			say(signo == SIGBUS ? "SIGBUS" : "SIGSEGV");
			continue;
		}
		armed = 1;
		obey(words[0], words[1], words[2], words[3]);
		armed = 0;
	}
	return 0;
}
