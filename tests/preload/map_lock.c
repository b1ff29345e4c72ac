/* SPDX-License-Identifier: MIT */
/* mlock and its relatives: what is locked is there and counted, limits are the kernel's. */
#include "fact.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

static int fd;

/* Where nobody maps anything by himself: holes stay holes. */
static unsigned char *map_far(int of, size_t len)
{
	unsigned char *p = mmap((void *)0x2000000000, len, PROT_READ | PROT_WRITE, MAP_SHARED, of, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* A number of KiB from /proc/self/status. */
static long status(const char *key)
{
	char line[256];
	long n = -1;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			n = atol(line + strlen(key) + 1);
	if (f)
		fclose(f);
	return n;
}

static long npresent(void *p, size_t npages)
{
	unsigned char vec[64];
	long n = 0;

	if (mincore(p, NPAGES(npages), vec))
		return -1;
	for (size_t i = 0; i < npages; i++)
		n += vec[i] & 1;
	return n;
}

static void parts(void)
{
	unsigned char *p = map_far(fd, NPAGES(32)), *none;

	called("mlock", mlock(p, NPAGES(4)));
	fact("locked KiB", status("VmLck"));
	fact("present", npresent(p, 4));
	p[0] = 'a';
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	called("msync invalidate", msync(p, NPAGES(4), MS_INVALIDATE));
	called("msync sync and invalidate", msync(p, NPAGES(4), MS_SYNC | MS_INVALIDATE));
	called("msync invalidate, of what is not locked", msync(p + NPAGES(4), NPAGES(4), MS_SYNC | MS_INVALIDATE));
	called("dontneed", madvise(p, NPAGES(8), MADV_DONTNEED));
	fact("kept", p[0]);
	called("mlock again", mlock(p + 100, PAGE));
	fact("locked KiB", status("VmLck"));
	called("munlock of a part", munlock(p + PAGE, PAGE));
	fact("locked KiB", status("VmLck"));
	called("mlock2 on fault", mlock2(p + NPAGES(8), NPAGES(8), MLOCK_ONFAULT));
	fact("locked KiB", status("VmLck"));
	called("mlock2 bad flags", mlock2(p, PAGE, 4));
	called("mlock of nothing", mlock(p, 0));
	called("mlock around the end", mlock(p, SIZE_MAX - PAGE));
	called("munlock around the end", munlock(p, SIZE_MAX - PAGE));
	p[NPAGES(8)] = 'b';
	called("munlock", munlock(p, NPAGES(32)));
	fact("locked KiB", status("VmLck"));

	none = p + NPAGES(16);
	called("unmap", munmap(none + NPAGES(2), PAGE));
	called("mlock over a hole", mlock(none, NPAGES(4)));
	fact("locked KiB", status("VmLck"));
	called("munlock over a hole", munlock(none, NPAGES(4)));
	called("munlock", munlock(none, NPAGES(2)));
	called("munlock", munlock(none + NPAGES(3), PAGE));
	called("no access", mprotect(none, PAGE, PROT_NONE));
	called("mlock of what cannot be accessed", mlock(none, PAGE));
	fact("locked KiB", status("VmLck"));
	called("munlock", munlock(none, PAGE));
	called("write-only", mprotect(p + NPAGES(4), PAGE, PROT_WRITE));
	called("mlock of that", mlock(p + NPAGES(4), PAGE));
	called("munmap", munmap(p, NPAGES(32)));
	fact("locked KiB", status("VmLck"));
	p = map(fd, NPAGES(64));
	called("mlock beyond the end of the file", mlock(p + NPAGES(24), NPAGES(16)));
	fact("locked KiB", status("VmLck"));
	called("munmap", munmap(p, NPAGES(64)));
	called("fsync", fsync(fd));
	raw("lock.dat");
}

static void at_mmap(void)
{
	unsigned char *p, *q;

	p = mmap(NULL, NPAGES(8), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_LOCKED, fd, 0);
	fact("MAP_LOCKED", p != MAP_FAILED);
	fact("locked KiB", status("VmLck"));
	fact("present", npresent(p, 8));
	p[1] = 'c';
	q = mremap(p, NPAGES(8), NPAGES(16), MREMAP_MAYMOVE);
	fact("grown", q != MAP_FAILED);
	fact("locked KiB", status("VmLck"));
	fact("stored", q[1]);
	fact("what it grew by", q[NPAGES(15)] == pattern(NPAGES(15)));
	called("munmap", munmap(q, NPAGES(16)));
	fact("locked KiB", status("VmLck"));
	p = mmap(NULL, NPAGES(8), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_LOCKED, fd, 0);
	fact("private MAP_LOCKED", p != MAP_FAILED);
	fact("locked KiB", status("VmLck"));
	p[2] = 'p';
	called("munmap", munmap(p, NPAGES(8)));
	p = mmap(NULL, NPAGES(64), PROT_NONE, MAP_SHARED | MAP_LOCKED, fd, 0);
	fact("MAP_LOCKED without access", p != MAP_FAILED);
	fact("locked KiB", status("VmLck"));
	called("munmap", munmap(p, NPAGES(64)));
}

static void everything(void)
{
	unsigned char *p, *q;
	long before, after;

	called("munlockall", munlockall());
	p = map(fd, NPAGES(8));
	p[3] = 'd';
	called("mlockall of the future", mlockall(MCL_FUTURE));
	before = status("VmLck");
	q = map(fd, NPAGES(16));
	after = status("VmLck");
	fact("a new mapping is locked", after - before);
	fact("present", npresent(q, 16));
	fact("one memory", q[3]);
	q[4] = 'e';
	called("munmap", munmap(q, NPAGES(16)));
	called("mlockall on fault", mlockall(MCL_FUTURE | MCL_ONFAULT));
	before = status("VmLck");
	q = map(fd, NPAGES(16));
	after = status("VmLck");
	fact("a new mapping is locked", after - before);
	q[5] = 'f';
	called("munmap", munmap(q, NPAGES(16)));
	called("munlockall", munlockall());
	fact("locked KiB", status("VmLck"));
	called("mlockall bad flags", mlockall(8));
	called("mlockall nothing", mlockall(0));
	called("munmap", munmap(p, NPAGES(8)));
	called("fsync", fsync(fd));
	raw("lock.dat");
}

static void limited(void)
{
	struct rlimit rl = {65536, 65536};
	int is_free = geteuid() == 0; /* root may lock what it likes */
	unsigned char *p, *q;

	p = map(fd, NPAGES(32));
	called("setrlimit", setrlimit(RLIMIT_MEMLOCK, &rl));
	called("mlock within the limit", mlock(p, NPAGES(16)));
	called("mlock beyond it", mlock(p, NPAGES(32)));
	called("munlock", munlock(p, NPAGES(32)));
	p[6] = 'g';
	q = mmap(NULL, NPAGES(32), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_LOCKED, fd, 0);
	fact("MAP_LOCKED beyond the limit", q == MAP_FAILED ? errno : 0);
	if (q != MAP_FAILED)
		called("munmap", munmap(q, NPAGES(32)));
	if (is_free)
		return;
	called("mlockall of what there is", mlockall(MCL_CURRENT | MCL_FUTURE));
	called("mlockall of the future", mlockall(MCL_FUTURE));
	q = mmap(NULL, 1ul << 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("a large mapping then", q == MAP_FAILED ? errno : 0);
	q = mmap(NULL, 1ul << 30, PROT_NONE, MAP_SHARED, fd, 0);
	fact("without access, too", q == MAP_FAILED ? errno : 0);
	q = mmap(NULL, NPAGES(4), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("a small one", q == MAP_FAILED ? errno : 0);
	if (q != MAP_FAILED)
		q[7] = 'h';
	called("msync", msync(p, NPAGES(32), MS_SYNC));
	raw("lock.dat");
	called("munlockall", munlockall());
}

static void facts(void)
{
	fd = make("lock.dat", NPAGES(32));
	parts();
	at_mmap();
	everything();
	limited();
	called("fsync", fsync(fd));
	called("close", close(fd));
	raw("lock.dat");
}
