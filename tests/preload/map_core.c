/* SPDX-License-Identifier: MIT */
/* A terabyte costs nothing: not memory that is accounted for, and no time when a core is dumped. */
#include "fact.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define TIB (1ul << 40)

/* A number of KiB from a file of /proc. */
static long kib(const char *file, const char *key)
{
	char line[256];
	long n = -1;
	FILE *f = fopen(file, "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			n = atol(line + strlen(key) + 1);
	if (f)
		fclose(f);
	return n;
}

static long cores(void)
{
	DIR *d = opendir(".");
	struct dirent *e;
	struct stat st;
	long n = 0;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "core", 4) && strcmp(e->d_name, "core.dat") && !stat(e->d_name, &st)) {
			n += st.st_blocks * 512l > 64l << 20 || st.st_size > 1l << 30 ? 100 : 1;
			(void)unlink(e->d_name);
		}
	if (d)
		closedir(d);
	return n;
}

static void facts(void)
{
	int fd = make("core.dat", 16ul << 20);
	unsigned char *p, *v;
	long data, as;
	struct timespec a, b;
	struct rlimit rl;
	pid_t pid;

	p = map(fd, PAGE); /* what is needed once is there */
	data = kib("/proc/self/status", "VmData");
	as = kib("/proc/meminfo", "Committed_AS");
	v = mmap(NULL, TIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("mapped", v != MAP_FAILED);
	for (size_t off = 0; off < 16ul << 20; off += 1ul << 20)
		v[off] = 'c';
	called("msync", msync(p, PAGE, MS_SYNC));
	fact("accounted for as data", kib("/proc/self/status", "VmData") - data > 16 << 10);
	fact("accounted for", kib("/proc/meminfo", "Committed_AS") - as > 1 << 20);
	fact("resident", kib("/proc/self/status", "VmRSS") > 256 << 10);

	rl.rlim_cur = rl.rlim_max = RLIM_INFINITY;
	if (setrlimit(RLIMIT_CORE, &rl)) { /* not allowed: the hard limit */
		getrlimit(RLIMIT_CORE, &rl);
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_CORE, &rl);
	}
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &a);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_DUMPABLE, 1);
		abort();
	}
	ended("abort", pid);
	clock_gettime(CLOCK_MONOTONIC, &b);
	fact("took longer than 5 s", b.tv_sec - a.tv_sec > 5);
	fact("cores", cores());
	called("munmap", munmap(v, TIB) | munmap(p, PAGE));
	called("close", close(fd));
}
