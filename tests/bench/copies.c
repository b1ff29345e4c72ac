/* SPDX-License-Identifier: MIT */
/*
 * Work that goes through a whole file, by the txmap command and by plain means: scripts/bench compares the two,
 * both with a program under txmap. Prints "MODE MILLISECONDS".
 *
 *	copies snapshot cp|snapshot FILE	copy a file that is mapped and was stored to, until it is on the disk
 *	copies recover plain|recover FILE	all of the file was committed, and the program killed: recover it; or read as
 *						many bytes as the journal has and write them into the file, until they are on the disk
 */
#include "clock.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 1 << 20 };

extern char **environ;
static char txmap[PATH_MAX];

/* build/txmap, seen from build/tests/bench/copies. */
static void find_txmap(void)
{
	ssize_t n = readlink("/proc/self/exe", txmap, sizeof(txmap) - 1);

	for (int up = 0; n > 0 && up < 3; up++)
		*strrchr(txmap, '/') = 0;
	strcat(txmap, "/txmap");
}

static void run(char *const *argv)
{
	posix_spawn_file_actions_t quiet;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ) || waitpid(pid, &status, 0) != pid ||
	    status)
		die(argv[0]);
	posix_spawn_file_actions_destroy(&quiet);
}

static char *map(const char *path, size_t *ret_len)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	char *m;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		die("mmap");
	*ret_len = (size_t)st.st_size;
	return m;
}

static void sync_file(const char *path)
{
	int fd = open(path, O_RDWR);

	if (fd < 0 || fsync(fd))
		die(path);
	close(fd);
}

static double snapshot(const char *how, char *path)
{
	char out[PATH_MAX], pid[16];
	double start;
	size_t len;
	char *m = map(path, &len);

	for (size_t i = 0; i < 16; i++)
		m[i * (len / 16)]++;
	snprintf(out, sizeof(out), "%s.copy", path);
	snprintf(pid, sizeof(pid), "%d", getpid());
	start = now_usec();
	if (!strcmp(how, "cp")) {
		run((char *[]){"cp", path, out, NULL});
		sync_file(out);
	} else {
		run((char *[]){txmap, "snapshot", pid, out, NULL});
	}
	start = now_usec() - start;
	if (unlink(out))
		die(out);
	return start;
}

static void commit_and_die(const char *path)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		size_t len;
		char *m = map(path, &len);

		for (size_t off = 0; off < len; off += sizeof(uint64_t))
			*(uint64_t *)(void *)(m + off) += off + 1;
		if (msync(m, len, MS_SYNC))
			die("msync");
		kill(getpid(), SIGKILL);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		die("a commit");
}

/* As many bytes as from has, into the file at path, over and over. */
static void read_and_write(const char *from, const char *path)
{
	static char buf[BLOCK];
	int in = open(from, O_RDONLY), fd = open(path, O_RDWR);
	struct stat st;
	off_t off = 0;
	ssize_t n;

	if (in < 0 || fd < 0 || fstat(fd, &st))
		die(from);
	while ((n = read(in, buf, BLOCK)) > 0) {
		if (off + n > st.st_size)
			off = 0;
		if (pwrite(fd, buf, (size_t)n, off) != n)
			die(path);
		off += n;
	}
	if (n || fsync(fd))
		die(path);
	close(fd);
	close(in);
}

static double recover(const char *how, char *path)
{
	char journal[PATH_MAX], *slash = strrchr(path, '/');
	double start;

	snprintf(journal, sizeof(journal), "%.*s.%s.txmap", (int)(slash + 1 - path), path, slash + 1);
	if (access(journal, R_OK))
		die(journal);
	start = now_usec();
	if (!strcmp(how, "plain"))
		read_and_write(journal, path);
	else
		run((char *[]){txmap, "recover", path, NULL});
	start = now_usec() - start;
	if (!strcmp(how, "plain"))
		run((char *[]){txmap, "recover", path, NULL});
	return start;
}

int main(int argc, char **argv)
{
	double usec;

	if (argc != 4)
		return 2;
	find_txmap();
	if (!strcmp(argv[1], "recover") && getenv("LD_PRELOAD")) {
		commit_and_die(argv[3]);
		unsetenv(
			"LD_PRELOAD"); /* the rest is not under txmap, or opening the file would recover it */
		execv("/proc/self/exe", argv);
		die("exec");
	}
	unsetenv("LD_PRELOAD"); /* for the others; here it is at work */
	usec = !strcmp(argv[1], "snapshot") ? snapshot(argv[2], argv[3]) : recover(argv[2], argv[3]);
	printf("%s %.3f\n", argv[1], usec / 1e3);
	return 0;
}
