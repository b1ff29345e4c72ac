/* SPDX-License-Identifier: MIT */
/* Threads read and store while the file and its mapping grow and shrink. */
#include "fact.h"
#include <pthread.h>
#include <sched.h>

#define NREADERS 8
#define KEPT	 4u   /* pages that are always there */
#define GROWN	 500u /* pages more, one at a time */
#define ROOM	 (KEPT + GROWN)

static unsigned char *p;
static size_t npages;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int fd, stop, nbad;

static void bad(void)
{
	__atomic_add_fetch(&nbad, 1, __ATOMIC_RELAXED);
}

static int is_over(void)
{
	return __atomic_load_n(&stop, __ATOMIC_ACQUIRE);
}

static void start(pthread_t *th, void *(*fn)(void *arg))
{
	size_t i;

	__atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
	nbad = 0;
	for (i = 0; i < NREADERS; i++)
		if (pthread_create(&th[i], NULL, fn, (void *)i))
			die("pthread_create");
}

static void join(pthread_t *th)
{
	size_t i;

	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < NREADERS; i++)
		pthread_join(th[i], NULL);
}

static uint64_t load(const unsigned char *at)
{
	return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
}

static void store(unsigned char *at, uint64_t value)
{
	__atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED);
}

/* ---- readers that keep a moving mapping still with a lock ---- */

static void *read_locked(void *arg)
{
	size_t me = (size_t)arg, pg;
	uint64_t n = 0, v;

	while (!is_over()) {
		pthread_rwlock_rdlock(&lock);
		pg = n % npages;
		v = load(p + NPAGES(pg) + 8 * NREADERS);
		if (v != (pg < KEPT ? pg : pg + 1))
			bad();
		if (load(p + 8 * me) != n)
			bad();
		store(p + 8 * me, ++n);
		pthread_rwlock_unlock(&lock);
		sched_yield();
	}
	if (pread(fd, &v, 8, (off_t)(8 * me)) != 8 || v != n)
		bad();
	return NULL;
}

static void move_by_a_page(void)
{
	unsigned char *q;

	pthread_rwlock_wrlock(&lock);
	if (ftruncate(fd, (off_t)NPAGES(npages + 1)))
		die("ftruncate");
	q = mremap(p, NPAGES(npages), NPAGES(npages + 1), MREMAP_MAYMOVE);
	if (q == MAP_FAILED)
		die("mremap");
	p = q;
	store(p + NPAGES(npages) + 8 * NREADERS, npages + 1);
	npages++;
	pthread_rwlock_unlock(&lock);
}

static void begin(const char *name)
{
	size_t pg;

	(void)unlink(name);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)NPAGES(KEPT)))
		die(name);
	npages = KEPT;
	p = map(fd, NPAGES(npages));
	for (pg = 0; pg < KEPT; pg++)
		store(p + NPAGES(pg) + 8 * NREADERS, pg);
}

static void grow_under_a_lock(void)
{
	pthread_t th[NREADERS];

	begin("locked.dat");
	start(th, read_locked);
	while (npages < ROOM) {
		move_by_a_page();
		if (npages % 100 == 0 && msync(p, NPAGES(npages), MS_SYNC))
			bad();
	}
	join(th);
	fact("readers with a lock, wrong", nbad);
	fact("pages", (long)npages);
	called("munmap", munmap(p, NPAGES(npages)));
	called("close", close(fd));
}

/* ---- readers without one: where a mapping grows in place nobody has to know ---- */

static int zero_fd, other_fd;

static void *read_unlocked(void *arg)
{
	size_t me = (size_t)arg;
	unsigned char *mine = p + NPAGES(me % KEPT) + 512 * (1 + me / KEPT), buf[64];
	uint64_t n = 0, zeros[8] = {0};

	while (!is_over()) {
		if (load(mine) != n)
			bad();
		store(mine, ++n);
		if (load(p + NPAGES(n % KEPT) + 8 * NREADERS) != n % KEPT)
			bad();
		/* the kernel reads and writes there, too */
		if (me == 0 && (read(zero_fd, mine + 64, 64) != 64 || memcmp(mine + 64, zeros, 64)))
			bad();
		if (me == 1) {
			memset(mine + 64, (int)n, 64);
			if (pwrite(other_fd, mine + 64, 64, 0) != 64 || pread(other_fd, buf, 64, 0) != 64 ||
			    memcmp(buf, mine + 64, 64))
				bad();
		}
	}
	if (load(mine) != n)
		bad();
	return NULL;
}

static void grow_in_place(void)
{
	unsigned char *q;
	pthread_t th[NREADERS];
	size_t n = 0;

	begin("inplace.dat");
	zero_fd = open("/dev/zero", O_RDONLY);
	other_fd = open("/dev/shm/.", O_TMPFILE | O_RDWR, 0600);
	if (zero_fd < 0 || other_fd < 0)
		die("open");
	q = mmap(NULL, NPAGES(ROOM), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mremap(p, NPAGES(npages), NPAGES(npages), MREMAP_MAYMOVE | MREMAP_FIXED, q) != q)
		die("mremap");
	p = q;
	start(th, read_unlocked);
	while (npages < ROOM) {
		if (munmap(p + NPAGES(npages), PAGE)) /* room for one more */
			die("munmap");
		if (ftruncate(fd, (off_t)NPAGES(npages + 1)) ||
		    mremap(p, NPAGES(npages), NPAGES(npages + 1), 0) != p)
			bad();
		npages++;
		p[NPAGES(npages) - 1] = 'l';
		if (npages % 50 == 0 && msync(p, NPAGES(npages), MS_SYNC))
			bad();
	}
	while (npages > KEPT) {
		npages -= 10;
		if (mremap(p, NPAGES(npages + 10), NPAGES(npages), 0) != p ||
		    ftruncate(fd, (off_t)NPAGES(npages)))
			bad();
		n++;
	}
	join(th);
	fact("readers without a lock, wrong", nbad);
	fact("shrunk", (long)n);
	called("munmap", munmap(p, NPAGES(npages)));
	called("close", close(fd));
	close(zero_fd);
	close(other_fd);
}

static void facts(void)
{
	grow_under_a_lock();
	grow_in_place();
}
