/* SPDX-License-Identifier: MIT */
/* How many threads could be storing: those of the process, less the helpers that never do. */
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static uint32_t nhelpers; /* (atomic) */
static __thread uint8_t is_helper;

#define PROC_PATH 32

bool vm_process_is_visible(void)
{
	char text[16], *p = text;
	ssize_t n = vm_sys->readlinkat(AT_FDCWD, "/proc/self", text, sizeof(text) - 1);
	int32_t pid = 0;

	for (text[n > 0 ? n : 0] = 0; *p >= '0' && *p <= '9'; p++)
		pid = pid * 10 + (*p - '0');
	return pid == vm_sys->getpid();
}

bool vm_process_has_ended(int32_t pid)
{
	struct pollfd p = {.fd = (int)vm_sys_raw(__NR_pidfd_open, pid, 0, 0, 0, 0, 0), .events = POLLIN};
	bool ended = p.fd == -ESRCH;

	if (p.fd >= 0) {
		ended = vm_sys->poll(&p, 1, 0) > 0;
		(void)vm_sys->close(p.fd); /* was only asked */
	}
	return ended;
}

/* Our own number may be another in the /proc that is mounted here; then others' mean nothing. */
static bool proc_path(char *ret_path, int32_t pid, const char *name)
{
	if (pid)
		(void)snprintf(ret_path, PROC_PATH, "/proc/%d/%s", pid, name);
	else
		(void)snprintf(ret_path, PROC_PATH, "/proc/self/%s", name);
	return !pid || vm_process_is_visible();
}

unsigned vm_process_nthreads(int32_t pid)
{
	char path[PROC_PATH];
	struct stat st;

	/* a directory has a link for each subdirectory, and two: here one for each thread */
	return !proc_path(path, pid, "task") || vm_sys->fstatat(AT_FDCWD, path, &st, 0) || st.st_nlink < 2 ? 0 : (unsigned)st.st_nlink - 2;
}

unsigned vm_process_nknown(void)
{
	return 1 + __atomic_load_n(&nhelpers, __ATOMIC_SEQ_CST);
}

bool vm_process_has_one_thread(void)
{
	return vm_process_nthreads(0) == vm_process_nknown();
}

bool vm_thread_is_alone(void)
{
	return !is_helper && vm_process_has_one_thread(); /* a helper works while the program runs */
}

int vm_process_open_stat(int32_t pid)
{
	char path[PROC_PATH];

	if (!proc_path(path, pid, "stat"))
		return -ENOENT;
	return vm_sys->openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

const char *vm_process_read_stat(int fd, char text[VM_STAT_LEN])
{
	ssize_t n = vm_sys->pread(fd, text, VM_STAT_LEN - 1, 0);
	const char *end;

	text[n > 0 ? n : 0] = 0;
	end = strrchr(text, ')');
	return end && end[1] ? end + 2 : NULL;
}

static const char *stat_of(int32_t pid, char text[VM_STAT_LEN])
{
	int fd = vm_process_open_stat(pid);
	const char *p = fd < 0 ? NULL : vm_process_read_stat(fd, text);

	if (fd >= 0)
		(void)vm_sys->close(fd); /* was only read */
	return p;
}

uint64_t vm_process_field(const char *p, int n)
{
	uint64_t value = 0;

	for (int i = 3; p && i < n; i++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	for (; p && *p >= '0' && *p <= '9'; p++)
		value = value * 10 + (uint64_t)(*p - '0');
	return value;
}

char vm_process_state(int32_t pid)
{
	char text[VM_STAT_LEN];
	const char *p = stat_of(pid, text);

	return p ? *p : 0;
}

uint64_t vm_process_ran(int32_t pid)
{
	/* clock_getcpuclockid(3): the scheduler's own count */
	const int clock = (int)(~(unsigned)pid << 3 | 2);
	struct timespec t;

	return vm_sys_raw(__NR_clock_gettime, clock, (long)&t, 0, 0, 0, 0)
		       ? 0
		       : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t started_here; /* of this process, once it was asked for (atomic) */

uint64_t vm_process_started(int32_t pid)
{
	uint64_t n = pid ? 0 : __atomic_load_n(&started_here, __ATOMIC_RELAXED);
	char text[VM_STAT_LEN];

	if (n)
		return n;
	n = vm_process_field(stat_of(pid, text), VM_STAT_STARTED);
	if (!pid)
		__atomic_store_n(&started_here, n, __ATOMIC_RELAXED);
	return n;
}

bool vm_thread_is_last(void)
{
	/* the main thread counts for as long as the process lives */
	return vm_process_has_one_thread() && vm_process_state(0) == 'Z';
}

struct start {
	void *(*fn)(void *arg);
	void *arg;
	uint32_t begun; /* (atomic, futex) */
};

static void *helper_main(void *arg)
{
	struct start *there = arg, s = *there;

	is_helper = 1;
	__atomic_add_fetch(&nhelpers, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&there->begun, 1, __ATOMIC_RELEASE);
	(void)vm_sys->futex(&there->begun, FUTEX_WAKE, 1, NULL); /* it may be gone: then it wakes nobody */
	(void)s.fn(s.arg);
	/* the kernel counts it a moment longer: that is the safe side */
	__atomic_sub_fetch(&nhelpers, 1, __ATOMIC_SEQ_CST);
	vm_harvest_doubt(); /* one of the program's could take its place in that count */
	return NULL;
}

static int add_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS)
			*(size_t *)arg += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
	return 0;
}

/* The thread-local variables of the whole program lie on a thread's stack. Those that are loaded later do
 * not, so it is asked once: not in a forked child, where the loader may be locked for ever. */
static size_t tls_len(void)
{
	static size_t len; /* (atomic) */
	size_t n = __atomic_load_n(&len, __ATOMIC_RELAXED);

	if (!n) {
		(void)dl_iterate_phdr(add_tls, &n);
		__atomic_store_n(&len, n, __ATOMIC_RELAXED);
	}
	return n;
}

int vm_thread_start(void *(*fn)(void *arg), void *arg, size_t stack_len)
{
	/* glibc's two internal signals stay: setuid() waits for every thread to answer one */
	const uint64_t all = ~(3ull << 31);
	struct start s = {fn, arg, 0};
	pthread_attr_t attr;
	pthread_t thread;
	uint64_t old;
	int err;

	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED); /* valid arguments */
	(void)pthread_attr_setstacksize(&attr, stack_len + tls_len()); /* or the default */
	(void)vm_sys->sigprocmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&thread, &attr, helper_main, &s);
	(void)vm_sys->sigprocmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	/* a fork that comes next must not find a thread that is half begun: it could be inside of a
	 * sanitizer's allocator, whose locks the child would have for ever */
	while (!err && !__atomic_load_n(&s.begun, __ATOMIC_ACQUIRE))
		(void)vm_sys->futex(&s.begun, FUTEX_WAIT, 0, NULL);
	return -err;
}

void vm_thread_fork_child(void)
{
	__atomic_store_n(&nhelpers, 0, __ATOMIC_RELAXED);
	is_helper = 0;
	started_here = 0;
}
