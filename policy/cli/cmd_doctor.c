/* SPDX-License-Identifier: MIT */
/* txmap doctor: what this machine and user can do, and what would help. */
#include "cli.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

struct doctor {
	bool json, warned;
	struct json_object *checks;
	struct libscols_table *table;
};

/* One line: fix is NULL when all is well. */
static void line(struct doctor *d, const char *what, const char *fix, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void line(struct doctor *d, const char *what, const char *fix, const char *fmt, ...)
{
	struct json_object *o = cli_need(json_object_new_object());
	char found[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	d->warned |= fix != NULL;
	json_object_object_add(o, "check", json_object_new_string(what));
	json_object_object_add(o, "state", json_object_new_string(fix ? "warn" : "ok"));
	json_object_object_add(o, "found", json_object_new_string(found));
	json_object_object_add(o, "fix", fix ? json_object_new_string(fix) : NULL);
	json_object_array_add(d->checks, o);
	cli_table_row(d->table, fix ? "warn" : "ok", what, found, fix ? fix : "");
}

static long read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	long n = -1;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}

static void check_engine(struct doctor *d)
{
	const char *why = NULL;
	int err = vm_start(VM_ENGINE_AUTO);
	enum vm_engine e;

	if (err) {
		line(d, "engine", "none works here; see the lines below", "none: %s", strerror(-err));
		return;
	}
	e = vm_engine(&why);
	if (e == VM_ENGINE_UFFD)
		line(d, "engine", NULL, "uffd%s%s", why ? ": " : "", why ? why : "");
	else
		line(d, "engine", "uffd is faster: needs Linux 6.7 and userfaultfd", "segv%s%s",
		     why ? ": " : "", why ? why : "");
	if (e == VM_ENGINE_UFFD)
		line(d, "WP_ASYNC, PAGEMAP_SCAN", NULL, "tried: a store was found");
	else
		line(d, "WP_ASYNC, PAGEMAP_SCAN", "Linux 6.7 or newer", "not in use");
	if (vm_can_load_lazily())
		line(d, "lazy loading", NULL, "pages are loaded on first touch");
	else
		line(d, "lazy loading",
		     "root, or sysctl vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd",
		     "a mapping is filled when it is made: the kernel may not touch a missing page");
}

static void check_uffd(struct doctor *d)
{
	const char *fix = "sysctl vm.unprivileged_userfaultfd=1, or let the user open /dev/userfaultfd";
	int full = (int)syscall(SYS_userfaultfd, O_CLOEXEC), user, dev;
	int full_err = errno, user_err;

	user = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	user_err = errno;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (full >= 0)
		line(d, "userfaultfd(2)", NULL, "faults of user and kernel");
	else if (user >= 0)
		line(d, "userfaultfd(2)", dev >= 0 ? NULL : fix, "user faults only (full: %s)",
		     strerror(full_err));
	else
		line(d, "userfaultfd(2)", user_err == ENOSYS ? "a kernel with CONFIG_USERFAULTFD" : fix, "%s",
		     strerror(user_err));
	line(d, "/dev/userfaultfd", dev >= 0 || full >= 0 ? NULL : "chmod or an ACL on the device", "%s",
	     dev >= 0 ? "can be opened" : strerror(errno));
	line(d, "vm.unprivileged_userfaultfd", NULL, "%ld",
	     read_number("/proc/sys/vm/unprivileged_userfaultfd"));
	if (full >= 0)
		close(full);
	if (user >= 0)
		close(user);
	if (dev >= 0)
		close(dev);
}

static void check_proc(struct doctor *d)
{
	char pid[32] = "";
	bool there = readlink("/proc/self", pid, sizeof(pid) - 1) > 0, ours = there && atol(pid) == getpid();

	line(d, "/proc", ours ? NULL : "mount -t proc proc /proc: a file is found there, and who else has it",
	     "%s",
	     ours    ? "is mounted"
	     : there ? "is that of another PID namespace"
		     : strerror(errno));
}

static void check_pagemap(struct doctor *d)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	line(d, "/proc/self/pagemap", fd >= 0 ? NULL : "mount /proc", "%s",
	     fd >= 0 ? "can be opened" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void check_memfd(struct doctor *d)
{
	int fd = memfd_create("txmap-doctor", MFD_CLOEXEC);

	line(d, "memfd_create(2)",
	     fd >= 0 ? NULL : "a kernel with CONFIG_MEMFD_CREATE; a seccomp filter that allows it", "%s",
	     fd >= 0 ? "works" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void check_limits(struct doctor *d)
{
	long maps = read_number("/proc/sys/vm/max_map_count");
	struct rlimit nofile = {0}, as = {0};

	line(d, "vm.max_map_count", maps >= 65530 ? NULL : "sysctl vm.max_map_count=65530 or more", "%ld",
	     maps);
	(void)getrlimit(RLIMIT_NOFILE, &nofile); /* cannot fail */
	line(d, "RLIMIT_NOFILE",
	     nofile.rlim_cur >= 1024 ? NULL : "ulimit -n 1024 or more: each managed file takes a few", "%llu",
	     (unsigned long long)nofile.rlim_cur);
	(void)getrlimit(RLIMIT_AS, &as); /* cannot fail */
	if (as.rlim_cur == RLIM_INFINITY)
		line(d, "RLIMIT_AS", NULL, "unlimited");
	else
		line(d, "RLIMIT_AS", "ulimit -v unlimited: a managed file is mapped once more", "%llu",
		     (unsigned long long)as.rlim_cur);
}

static void check_runtime_dir(struct doctor *d, const struct pol_config *c)
{
	char fix[PATH_MAX + 64], parent[PATH_MAX];
	struct stat st;
	char *slash;

	if (!lstat(c->runtime_dir, &st)) {
		bool ok = S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);

		snprintf(fix, sizeof(fix),
			 "remove it, or chown and chmod 0700 %s: no control sockets otherwise",
			 c->runtime_dir);
		line(d, "runtime directory", ok ? NULL : fix, "%s (mode %04o, uid %u)", c->runtime_dir,
		     st.st_mode & 07777, st.st_uid);
		return;
	}
	snprintf(parent, sizeof(parent), "%s", c->runtime_dir);
	slash = strrchr(parent, '/');
	if (slash && slash > parent)
		*slash = 0;
	snprintf(fix, sizeof(fix), "make %s writable, or set runtime_dir", parent);
	line(d, "runtime directory", access(parent, W_OK) ? fix : NULL, "%s (made when needed)",
	     c->runtime_dir);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct doctor *d = state->input;

	(void)arg;
	if (key != 'j')
		return ARGP_ERR_UNKNOWN;
	d->json = true;
	return 0;
}

int cli_doctor(int argc, char **argv, bool json)
{
	static const struct argp_option options[] = {{"json", 'j', NULL, 0, "One JSON document on stdout", 0},
						     {0}};
	static const struct argp argp = {
		options, parse, NULL, "Show what this machine and user can do, and what would help.",
		NULL,	 NULL,	NULL};
	const struct cli_settings none = {0};
	struct doctor d = {.json = json};
	const struct pol_config *c;
	struct utsname u = {0};

	if (argp_parse(&argp, argc, argv, 0, NULL, &d))
		return CLI_USAGE;
	c = cli_settings_load(&none);
	d.checks = cli_need(json_object_new_array());
	d.table = cli_table((const char *const[]){"STATE", "CHECK", "FOUND", "FIX", NULL});
	(void)uname(&u); /* cannot fail */
	line(&d, "kernel", NULL, "%s %s %s", u.sysname, u.release, u.machine);
	check_engine(&d);
	check_uffd(&d);
	check_proc(&d);
	check_pagemap(&d);
	check_memfd(&d);
	check_limits(&d);
	check_runtime_dir(&d, c);
	if (d.json) {
		struct json_object *doc = cli_need(json_object_new_object());

		json_object_object_add(doc, "ok", json_object_new_boolean(!d.warned));
		json_object_object_add(doc, "checks", d.checks);
		cli_print_json(doc);
		cli_table_free(d.table);
	} else {
		json_object_put(d.checks);
		cli_table_print(d.table);
	}
	return CLI_DONE;
}
