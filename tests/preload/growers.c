/* SPDX-License-Identifier: MIT */
/* Four processes, two of them started anew, append records to one file under a record lock; who needs room
 * makes the file longer, and who finds it longer maps it anew, while a reader polls the count. No record is
 * lost, torn, or counted too early. */
#include "fact.h"

#define NWRITERS 4u
#define NEACH	 150u

struct record {
	uint64_t who, seq, sum;
	char text[40];
};
struct header {
	uint64_t n;
	char pad[56];
};

static struct view {
	int fd;
	unsigned char *p;
	size_t len;
} view;

static uint64_t sum_of(const struct record *r)
{
	return sum((const unsigned char *)r->text, sizeof(r->text)) ^ r->who << 32 ^ r->seq;
}

static void lock(short type)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

	if (fcntl(view.fd, F_SETLKW, &fl))
		die("lock");
}

/* The whole file, as long as it is now, or as long as need be. */
static void look(size_t need)
{
	struct stat st;

	if (fstat(view.fd, &st))
		die("fstat");
	if ((size_t)st.st_size < need) {
		if (ftruncate(view.fd, (off_t)(need + PAGE - need % PAGE)))
			die("ftruncate");
		st.st_size = (off_t)(need + PAGE - need % PAGE);
	}
	if (view.p && view.len == (size_t)st.st_size)
		return;
	if (view.p)
		munmap(view.p, view.len);
	view.len = (size_t)st.st_size;
	view.p = map(view.fd, view.len);
}

static struct header *header(void)
{
	return (struct header *)view.p;
}

static struct record *record(uint64_t i)
{
	return (struct record *)(view.p + sizeof(struct header)) + i;
}

static int writer(uint64_t who)
{
	view = (struct view){.fd = open("grow.dat", O_RDWR)};
	for (uint64_t i = 0; i < NEACH; i++) {
		struct record r = {.who = who, .seq = i};
		uint64_t at;

		memset(r.text, (int)('a' + (who * 7 + i) % 26), sizeof(r.text));
		r.sum = sum_of(&r);
		lock(F_WRLCK);
		look(sizeof(struct header));
		at = header()->n;
		look(sizeof(struct header) + (at + 1) * sizeof(r));
		*record(at) = r;
		__atomic_store_n(&header()->n, at + 1, __ATOMIC_SEQ_CST);
		if (i % 16 == 0 && msync(view.p, view.len, MS_SYNC))
			die("msync");
		lock(F_UNLCK);
	}
	return 0;
}

static pid_t start(uint64_t who)
{
	char number[8], *argv[] = {(char *)"growers", NULL};
	pid_t pid = fork();

	if (pid)
		return pid;
	if (who % 2)
		_exit(writer(who));
	(void)snprintf(number, sizeof(number), "%d", (int)who);
	setenv("GROWER", number, 1);
	execv("/proc/self/exe", argv);
	_exit(98);
}

/* Does the count only ever rise? */
static int reader(void)
{
	int fd = open("grow.dat", O_RDWR);
	volatile uint64_t *n = (void *)map(fd, PAGE);
	uint64_t last = 0;

	while (last < (uint64_t)NWRITERS * NEACH) {
		uint64_t now = *n;

		if (now < last || now > (uint64_t)NWRITERS * NEACH)
			return 1;
		last = now;
	}
	return 0;
}

static void facts(void)
{
	unsigned seen[NWRITERS] = {0};
	pid_t pid[NWRITERS], poll;
	long nbad = 0;

	if (getenv("GROWER"))
		exit(writer((uint64_t)atoi(getenv("GROWER"))));
	view.fd = make("grow.dat", 0);
	if (ftruncate(view.fd, PAGE))
		die("ftruncate");
	poll = fork();
	if (!poll)
		_exit(reader());
	for (unsigned i = 0; i < NWRITERS; i++)
		pid[i] = start(i);
	for (unsigned i = 0; i < NWRITERS; i++)
		ended("writer", pid[i]);
	ended("reader", poll);
	look(0);
	fact("records", (long)header()->n);
	for (uint64_t i = 0; i < header()->n; i++) {
		const struct record *r = record(i);

		if (r->who >= NWRITERS || r->seq != seen[r->who]++ || r->sum != sum_of(r))
			nbad++;
	}
	fact("bad records", nbad);
	fact("length", (long)view.len);
	called("msync", msync(view.p, view.len, MS_SYNC));
	munmap(view.p, view.len);
	close(view.fd);
}
