/* SPDX-License-Identifier: MIT */
/* A process that gives up what it could do, with files mapped, goes on with them; and so do its children, who
 * may not open anew what it has: without privileges, not dumpable, without capabilities, in another root,
 * with nothing new to come. */
#include "fact.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LEN NPAGES(600)

static unsigned char *p;
static int fd;

static void begin(const char *name)
{
	fd = make(name, LEN);
	fchmod(fd, 0666);
	p = map(fd, LEN);
	p[0] = 'a';
	called("before", msync(p, LEN, MS_SYNC));
}

/* Stores in pages that nobody touched before, by the program, by the kernel, and by children. */
static void go_on(const char *name)
{
	unsigned char *q;
	int zero = open("/dev/zero", O_RDONLY), own;
	pid_t pid;

	p[NPAGES(1)] = 'b';
	called("after", msync(p, LEN, MS_SYNC));
	fact("by the kernel", zero < 0 ? 10 : read(zero, p + NPAGES(20), 10));
	pid = fork();
	if (pid == 0) {
		p[NPAGES(300)] = 'c';
		fact("child reads", p[NPAGES(301)]);
		fact("by the kernel", zero < 0 ? 10 : read(zero, p + NPAGES(320), 10));
		fact("from there", pwrite(fd, p + NPAGES(400), PAGE, (off_t)NPAGES(401)));
		called("child", msync(p, LEN, MS_SYNC));
		p[NPAGES(302)] = 'd';
		own = open("wide/spare.dat", O_RDWR);
		q = own < 0 ? MAP_FAILED : mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
		if (q != MAP_FAILED) {
			q[NPAGES(100)]++;
			q[NPAGES(500)]++;
			called("one of its own", msync(q, LEN, MS_SYNC));
			fact("stored", q[NPAGES(100)] + q[NPAGES(500)]);
		}
		_exit(0);
	}
	ended("child", pid);
	fact("seen", p[NPAGES(300)] == 'c' && p[NPAGES(302)] == 'd');
	p[NPAGES(2)] = 'e';
	called("at last", msync(p, LEN, MS_SYNC));
	raw(name);
	p[NPAGES(3)] = 'f';
	called("munmap", munmap(p, LEN));
	close(fd);
	raw(name);
}

static void in_child(const char *what, void (*fn)(void))
{
	pid_t pid;

	printf("-- %s\n", what);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		fn();
		exit(0);
	}
	ended(what, pid);
}

static void not_dumpable(void)
{
	begin("dumpable.dat");
	called("prctl", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	go_on("dumpable.dat");
}

static void another_user(void)
{
	begin("user.dat");
	if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
		die("setuid");
	go_on("user.dat");
}

static void without_capabilities(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {0};

	begin("capabilities.dat");
	called("capset", (int)syscall(SYS_capset, &head, none));
	go_on("capabilities.dat");
}

static void nothing_new(void)
{
	begin("new.dat");
	called("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	go_on("new.dat");
}

static void facts(void)
{
	int spare;

	mkdir("wide", 0777);
	chmod("wide", 0777); /* where it may make a journal */
	spare = make("wide/spare.dat", LEN);

	fchmod(spare, 0666);
	in_child("not dumpable", not_dumpable);
	in_child("another user", another_user);
	in_child("without capabilities", without_capabilities);
	in_child("nothing new", nothing_new);
	raw("wide/spare.dat");
}
