/* SPDX-License-Identifier: MIT */
/* Names, and what is read by name, in memory of every kind. */
#include "place.h"
#include <dirent.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define S(text) place_string(k, text) /* the next string in a place of this kind */

static void names(enum place k)
{
	char *s, *t;
	int fd;

	s = S("dir");
	settle(k);
	told("mkdir", k, mkdir(s, 0755), 1);
	if (k >= GOOD)
		mkdir("dir", 0755);
	s = S("dir/file");
	settle(k);
	told("open", k, (fd = open(s, O_CREAT | O_RDWR, 0600)) < 0 ? -1 : 0, 1);
	if (fd < 0)
		fd = open("dir/file", O_CREAT | O_RDWR, 0600);
	close(fd);
	s = S("dir/file");
	settle(k);
	told("openat, truncating", k, (fd = openat(AT_FDCWD, s, O_WRONLY | O_TRUNC)) < 0 ? -1 : 0, 1);
	if (fd >= 0)
		close(fd);
	s = S("dir/file");
	settle(k);
	told("access", k, access(s, R_OK), 1);
	s = S("dir/file");
	settle(k);
	told("faccessat", k, faccessat(AT_FDCWD, s, R_OK, AT_EACCESS), 1);
	s = S("dir/file");
	settle(k);
	told("chmod", k, chmod(s, 0640), 1);
	s = S("dir/file");
	told("chown", k, chown(s, (uid_t)-1, (gid_t)-1), 1);
	s = S("dir/file");
	told("truncate", k, truncate(s, 10), 1);
	s = S("dir/file");
	t = S("dir/link");
	settle(k);
	told("link", k, link(s, t), 1);
	s = S("dir/link");
	t = S("dir/renamed");
	settle(k);
	told("rename", k, rename(s, t), 1);
	s = S("dir/renamed");
	settle(k);
	told("unlink", k, unlink(s), 1);
	s = S("file");
	t = S("dir/soft");
	settle(k);
	told("symlink", k, symlink(s, t), 1);
	if (k >= GOOD)
		symlink("file", "dir/soft");
	s = S("dir/soft");
	t = place(k, 4);
	settle(k);
	told("readlink", k, readlink(s, t, 4), !memcmp(t, "file", 4));
	t = place(k, 4);
	told("readlink, good name", k, readlink("dir/soft", t, 4), !memcmp(t, "file", 4));
	unlink("dir/soft");
	s = S("dir/fifo");
	told("mkfifo", k, mkfifo(s, 0600), 1);
	unlink("dir/fifo");
	s = S("dir");
	settle(k);
	told("chdir", k, chdir(s), 1);
	if (k < GOOD && chdir(".."))
		die("chdir");
	s = S("dir/nothing");
	settle(k);
	told("remove of nothing", k, remove(s), 1);
	s = place(k, PAGE / 2);
	told("getcwd", k, getcwd(s, PAGE / 2) ? 0 : -1, s[0] == '/');
	s = place(k, 2);
	told("getcwd, too short", k, getcwd(s, 2) ? 0 : -1, 0);
}

static void looks(enum place k)
{
	struct timespec ts[2] = {{1, 0}, {2, 0}}, *tsp;
	struct timeval *tv;
	struct statvfs vfs;
	struct statfs *fs;
	struct stat *st;
	struct statx *stx;
	char *s, *t;
	DIR *d;
	int in;

	st = place(k, sizeof(*st));
	s = S("dir/file");
	settle(k);
	told("stat", k, stat(s, st), S_ISREG(st->st_mode));
	stx = place(k, sizeof(*stx));
	s = S("dir/file");
	settle(k);
	told("statx", k, statx(AT_FDCWD, s, 0, STATX_BASIC_STATS, stx), S_ISREG(stx->stx_mode));
	fs = place(k, sizeof(*fs));
	s = S("dir");
	settle(k);
	told("statfs", k, statfs(s, fs), fs->f_bsize > 0);
	s = S("dir");
	told("statvfs", k, statvfs(s, &vfs), 1);
	tsp = place(k, sizeof(ts));
	if (k < GOOD)
		memcpy(tsp, ts, sizeof(ts)), settle(k);
	told("utimensat", k, utimensat(AT_FDCWD, "dir/file", tsp, 0), 1);
	if (k < GOOD) { /* else libc itself touches them */
		tv = place(k, 2 * sizeof(*tv));
		memset(tv, 0, 2 * sizeof(*tv));
		s = S("dir/file");
		settle(k);
		told("utimes", k, utimes(s, tv), 1);
	}

	s = S("dir/file");
	t = S("user.name");
	told("setxattr", k, setxattr(s, t, "value", 5, 0), 1);
	if (k >= GOOD)
		setxattr("dir/file", "user.name", "value", 5, 0);
	s = place(k, 100);
	told("getxattr", k, getxattr("dir/file", "user.name", s, 100), !memcmp(s, "value", 5));
	s = place(k, 100);
	told("listxattr", k, listxattr("dir/file", s, 100), !strcmp(s, "user.name"));
	s = S("user.name");
	settle(k);
	told("removexattr", k, removexattr("dir/file", s), 1);

	if (k < GOOD) { /* libc looks at it, too */
		s = S("dir");
		settle(k);
		told("opendir", k, (d = opendir(s)) ? 0 : -1, 1);
		closedir(d);
	}
	in = inotify_init1(IN_NONBLOCK);
	s = S("dir");
	told("inotify_add_watch", k, inotify_add_watch(in, s, IN_CREATE), 1);
	if (k >= GOOD)
		inotify_add_watch(in, "dir", IN_CREATE);
	close(open("dir/seen", O_CREAT | O_RDWR, 0600));
	s = place(k, 512);
	told("an event", k, read(in, s, 512) > 0 ? 0 : -1, !strcmp(s + sizeof(struct inotify_event), "seen"));
	unlink("dir/seen");
	close(in);
}

/* Locks, and where a copy begins. */
static void of_files(enum place k)
{
	int fd = make("from.tmp", NPAGES(2)), to = open("to.tmp", O_CREAT | O_RDWR, 0600), pi[2];
	struct flock *lk = place(k, sizeof(*lk));
	off_t *off;

	if (k < GOOD)
		*lk = (struct flock){.l_type = F_WRLCK, .l_len = 10}, settle(k);
	told("fcntl, lock", k, fcntl(fd, F_SETLK, lk), 1);
	lk = place(k, sizeof(*lk));
	if (k < GOOD)
		*lk = (struct flock){.l_type = F_RDLCK, .l_len = 10}, settle(k);
	told("fcntl, question", k, fcntl(fd, F_GETLK, lk), lk->l_type == F_UNLCK);
	off = place(k, sizeof(*off));
	if (k < GOOD)
		*off = 100, settle(k);
	told("sendfile", k, sendfile(to, fd, off, 1000), *off == 1100);
	settle(k);
	told("copy_file_range", k, copy_file_range(fd, off, to, NULL, 1000, 0), *off == 2100);
	settle(k);
	if (pipe(pi))
		die("pipe");
	told("splice", k, splice(fd, off, pi[1], NULL, 1000, 0), *off == 3100);
	close(fd), close(to), close(pi[0]), close(pi[1]);
	unlink("to.tmp");
}

static void programs(enum place k)
{
	char *argv[] = {S("/bin/sh"), S("-c"), S("exit $1"), S("sh"), S("7"), NULL}, **list,
	     *env[] = {S("A=b"), NULL};
	pid_t pid;

	list = place(k, sizeof(argv));
	if (k < GOOD)
		memcpy(list, argv, sizeof(argv));
	settle(k);
	pid = vfork();
	if (pid == 0) {
		execve(argv[0], list, env);
		_exit(errno);
	}
	ended("execve", pid);
	if (k < GOOD) {
		settle(k);
		fact("posix_spawn", posix_spawn(&pid, argv[0], NULL, NULL, list, env));
		ended("spawned", pid);
		fact("system", WEXITSTATUS(system(S("exit 9"))));
	}
}

/* Names that nobody looked at since they were in the file. */
static void untouched(void)
{
	static const char name[] = "dir/file";
	char *p, *argv[] = {(char *)"true", NULL};
	int fd = make("names.dat", NPAGES(16));
	struct stat st;
	FILE *f;

	for (int i = 0; i < 16; i++)
		if (pwrite(fd, name, sizeof(name), i * (off_t)PAGE) < 0)
			die("pwrite");
	if (pwrite(fd, "/bin/true", 10, 15 * (off_t)PAGE) < 0 || mkdir("dir", 0755))
		die("pwrite");
	p = (char *)map(fd, NPAGES(16));
	called("open", fd = open(p, O_CREAT | O_RDWR, 0600));
	called("stat", stat(p + PAGE, &st));
	called("lstat", lstat(p + NPAGES(2), &st));
	called("access", access(p + NPAGES(3), R_OK));
	called("chmod", chmod(p + NPAGES(4), 0600));
	called("truncate", truncate(p + NPAGES(5), 7));
	fact("fopen", (f = fopen(p + NPAGES(6), "r+")) != NULL);
	fact("fclose", fclose(f));
	called("rename", rename(p + NPAGES(7), "dir/other"));
	called("rename back", rename("dir/other", p + NPAGES(8)));
	called("readlink", (int)readlink(p + NPAGES(9), (char *)&st, sizeof(st)));
	called("unlink", unlink(p + NPAGES(10)));
	called("opendir", opendir(memcpy(p + NPAGES(11), "dir", 4)) ? 0 : -1);
	pid_t pid = vfork();
	if (pid == 0) {
		execv(p + NPAGES(15), argv);
		_exit(errno);
	}
	ended("execv", pid);
	close(fd);
	rmdir("dir");
}

static void facts(void)
{
	char *s;

	untouched();

	places("path.dat");
	for (enum place k = 0; k < NPLACES; k++) {
		names(k);
		looks(k);
		of_files(k);
		programs(k);
		unlink("dir/file");
		rmdir("dir");
	}
	s = (char *)place_map + NPAGES(PLACE_NPAGES - 2u);
	memset(s, 'x', NPAGES(2));
	called("a name that is too long", open(s, O_RDONLY));
	called("a name that never ends",
	       open((char *)place_map + NPAGES(PLACE_NPAGES * MISSING) - 5, O_RDONLY));
}
