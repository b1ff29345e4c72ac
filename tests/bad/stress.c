/* SPDX-License-Identifier: MIT */
/*
 * Threads that store, msync, read, write, map, fork and talk to the control socket, all on one file; and its
 * checker.
 *
 *	stress run FILE SECONDS NFORKERS SOCKET-DIR	then exit 0, or 1 when something was not as it should be
 *	stress check FILE				is the file one instant?
 *	stress many DIR N				N files mapped at once, each stored into and committed
 *
 * A storer owns a pair of words in different pages, and stores a number into the first, then into the second.
 * So at any instant first == second or first == second + 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	4096u
#define NSTORES 9u
#define NPAIRS	64u		     /* of each storer */
#define STRIDE	(NPAIRS * 2u)	     /* pages of a storer */
#define IO_OFF	(NSTORES * STRIDE * PAGE) /* the readers' and writers' own part */
#define LEN	(IO_OFF + (1u << 20))

static char *map;
static int fd;
static const char *file, *socket_dir;
static atomic_bool stop;
static atomic_uint wrong;
static atomic_ullong nstores, nsyncs, nforks, nmaps, nasks, nios;

static void complain(const char *what)
{
	if (atomic_fetch_add(&wrong, 1) < 10)
		fprintf(stderr, "WRONG: %s: %s\n", what, strerror(errno));
}

/* The first pages of all pairs come before all second ones. */
static _Atomic(uint64_t) *word(char *base, unsigned storer, unsigned pair, unsigned which)
{
	unsigned page = storer * STRIDE + which * NPAIRS + pair;

	return (_Atomic(uint64_t) *)(base + (size_t)page * PAGE + pair % 500 * 8);
}

static void *storer(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint64_t n = atomic_load(word(map, me, 0, 0));

	/* first what a kill interrupted, so that no pair is ever two behind */
	for (; !stop; n++) {
		for (unsigned i = 0; i < NPAIRS; i++) {
			atomic_store(word(map, me, i, 0), n);
			atomic_store(word(map, me, i, 1), n);
		}
		atomic_fetch_add(&nstores, NPAIRS);
		for (unsigned i = 0; i < NPAIRS; i++)
			if (atomic_load(word(map, me, i, 0)) != n || atomic_load(word(map, me, i, 1)) != n)
				complain("a store is gone");
	}
	return NULL;
}

static void *syncer(void *arg)
{
	while (!stop) {
		if (arg ? fsync(fd) : msync(map, PAGE, MS_SYNC))
			complain("sync");
		atomic_fetch_add(&nsyncs, 1);
	}
	return NULL;
}

/* read(2) into the mapping, write(2) out of it, pread and pwrite of the file: one half of the last MiB each. */
static void *reader_writer(void *arg)
{
	size_t off = IO_OFF + ((uintptr_t)arg << 19);
	unsigned char buf[PAGE];
	int p[2], zero = open("/dev/zero", O_RDONLY);
	unsigned char c = 1;

	if (pipe(p) || zero < 0)
		complain("pipe");
	for (unsigned i = 0; !stop; i = (i + 1) % 64, c++) {
		char *at = map + off + i * 2 * PAGE;

		memset(buf, c, sizeof(buf));
		if (write(p[1], buf, sizeof(buf)) != sizeof(buf) || read(p[0], at, sizeof(buf)) != sizeof(buf))
			complain("read into the mapping");
		if (memcmp(at, buf, sizeof(buf)))
			complain("what was read into the mapping is not there");
		if (pread(fd, buf, sizeof(buf), at - map) != sizeof(buf) || buf[0] != c || buf[PAGE - 1] != c)
			complain("pread");
		memset(buf, c ^ 0x55, sizeof(buf));
		if (pwrite(fd, buf, sizeof(buf), at - map + PAGE) != sizeof(buf) || memcmp(at + PAGE, buf, sizeof(buf)))
			complain("pwrite");
		if (write(p[1], at + PAGE, PAGE) != PAGE || read(p[0], buf, PAGE) != PAGE || buf[17] != (c ^ 0x55))
			complain("write out of the mapping");
		atomic_fetch_add(&nios, 1);
	}
	close(p[0]);
	close(p[1]);
	close(zero);
	return NULL;
}

static void *forker(void *arg)
{
	(void)arg;
	while (!stop) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			for (unsigned i = 0; i < NSTORES * STRIDE; i++)
				if (((volatile char *)map)[(size_t)i * PAGE + 4090] != 'x')
					_exit(1);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			complain("a child sees something else");
		atomic_fetch_add(&nforks, 1);
		usleep(2000);
	}
	return NULL;
}

static void *mapper(void *arg)
{
	(void)arg;
	for (unsigned i = 0; !stop; i = (i + 7) % (NSTORES * STRIDE)) {
		char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)i * PAGE);

		if (p == MAP_FAILED) {
			complain("mmap");
			continue;
		}
		if (p[4090] != 'x')
			complain("a new mapping shows something else");
		p[4090] = 'x';
		if (munmap(p, 3 * PAGE))
			complain("munmap");
		atomic_fetch_add(&nmaps, 1);
	}
	return NULL;
}

static void *asker(void *arg)
{
	static const char *const asks[] = {"status\n", "commit\n", "ping\n", "nonsense\n"};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char reply[8192];

	(void)arg;
	snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/%d.sock", socket_dir, getpid());
	for (unsigned i = 0; !stop; i++) {
		int s = socket(AF_UNIX, SOCK_STREAM, 0);
		const char *ask = asks[i % 4];

		if (connect(s, (struct sockaddr *)&a, sizeof(a)) || write(s, ask, strlen(ask)) < 0 ||
		    read(s, reply, sizeof(reply)) <= 0 || strncmp(reply, i % 4 == 3 ? "{\"ok\":false" : "{\"ok\":true", 10))
			complain("control socket");
		close(s);
		atomic_fetch_add(&nasks, 1);
	}
	return NULL;
}

static int run(unsigned seconds, unsigned nforkers)
{
	pthread_t t[32];
	unsigned n = 0;

	fd = open(file, O_RDWR);
	map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (unsigned i = 0; i < NSTORES; i++)
		pthread_create(&t[n++], NULL, storer, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < 3; i++)
		pthread_create(&t[n++], NULL, syncer, (void *)(uintptr_t)(i == 2));
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&t[n++], NULL, reader_writer, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < nforkers && i < 4; i++)
		pthread_create(&t[n++], NULL, forker, NULL);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&t[n++], NULL, mapper, NULL);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&t[n++], NULL, asker, NULL);
	printf("running\n");
	fflush(stdout);
	sleep(seconds);
	stop = true;
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	printf("%llu stores, %llu syncs, %llu forks, %llu mappings, %llu requests, %llu reads and writes, %u wrong\n", nstores,
	       nsyncs, nforks, nmaps, nasks, nios, wrong);
	/* each thread has to have come to something */
	return wrong || !nstores || !nsyncs || (nforkers && !nforks) || !nmaps || !nios || !nasks;
}

static int check(void)
{
	unsigned bad = 0;

	fd = open(file, O_RDONLY);
	map = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (unsigned s = 0; s < NSTORES; s++) {
		uint64_t before = UINT64_MAX;

		for (unsigned i = 0; i < NPAIRS; i++) {
			uint64_t a = *word(map, s, i, 0), b = *word(map, s, i, 1);

			/* and in the order of the stores: a pair is never ahead of the one before it */
			if ((a != b && a != b + 1) || a > before) {
				if (bad++ < 5)
					printf("storer %u, pair %u: %llu and %llu, before %llu\n", s, i, (unsigned long long)a,
					       (unsigned long long)b, (unsigned long long)before);
			}
			before = b;
		}
	}
	printf("%u pairs wrong\n", bad);
	return bad > 0;
}

static int many(const char *dir, unsigned n)
{
	char path[4096], **maps = calloc(n, sizeof(*maps));

	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%u.dat", dir, i);
		fd = open(path, O_RDWR | O_CREAT, 0644);
		if (fd < 0 || ftruncate(fd, 8192)) {
			perror(path);
			return 1;
		}
		maps[i] = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (maps[i] == MAP_FAILED) {
			perror(path);
			return 1;
		}
		snprintf(maps[i], 100, "file %u", i);
		close(fd);
	}
	for (unsigned i = 0; i < n; i += 2)
		if (msync(maps[i], 8192, MS_SYNC))
			complain("msync");
	for (unsigned i = 0; i < n; i++) {
		snprintf(path, 100, "file %u", i);
		if (strcmp(maps[i], path))
			complain("another file's bytes");
	}
	printf("%u files, %u wrong\n", n, wrong);
	return wrong > 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	file = argv[2];
	if (!strcmp(argv[1], "check"))
		return check();
	if (argc < 4)
		return 2;
	if (!strcmp(argv[1], "many"))
		return many(file, (unsigned)atoi(argv[3]));
	if (argc < 6)
		return 2;
	socket_dir = argv[5];
	return run((unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
}
