/* SPDX-License-Identifier: MIT */
/* Cancellation: a request that waits is acted upon in the calls that POSIX says, before they do anything, and
 * in no other; an asynchronous one arrives in the middle of stores. What was locked is free again. */
#include "fact.h"
#include <pthread.h>
#include <sys/uio.h>

static unsigned char *p;
static int fd;
static int (*volatile doing)(void);

static int do_pread(void) { return (int)pread(fd, (char[8]){0}, 8, 0); }
static int do_pwrite(void) { return (int)pwrite(fd, "cancelled", 9, 0); }
static int do_read(void) { return (int)read(fd, (char[8]){0}, 8); }
static int do_write(void) { return (int)write(fd, "cancelled", 9); }
static int do_readv(void) { return (int)readv(fd, &(struct iovec){(char[8]){0}, 8}, 1); }
static int do_writev(void) { return (int)writev(fd, &(struct iovec){(char *)"cancelled", 9}, 1); }
static int do_preadv(void) { return (int)preadv(fd, &(struct iovec){(char[8]){0}, 8}, 1, 0); }
static int do_pwritev(void) { return (int)pwritev(fd, &(struct iovec){(char *)"cancelled", 9}, 1, 0); }
static int do_msync(void) { return msync(p, PAGE, MS_SYNC); }
static int do_fsync(void) { return fsync(fd); }
static int do_fdatasync(void) { return fdatasync(fd); }
static int do_open(void) { return open("points.dat", O_RDWR); }
static int do_open_trunc(void) { return open("points.dat", O_RDWR | O_TRUNC); }
static int do_openat(void) { return openat(AT_FDCWD, "points.dat", O_RDWR); }
static int do_creat(void) { return creat("points.dat", 0600); }
static int do_close(void) { return close(fd); }
static int do_fallocate(void) { return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4); }
static int do_lock(void) { return fcntl(fd, F_SETLKW, &(struct flock){.l_type = F_WRLCK}); }
static int do_copy(void) { return (int)copy_file_range(fd, &(off_t){8}, fd, &(off_t){0}, 4, 0); }
static int do_lseek(void) { return (int)lseek(fd, 0, SEEK_SET); }
static int do_fstat(void) { return fstat(fd, &(struct stat){0}); }
static int do_ftruncate(void) { return ftruncate(fd, (off_t)NPAGES(4)); }
static int do_dup(void) { return dup(fd); }
static int do_mprotect(void) { return mprotect(p, PAGE, PROT_READ | PROT_WRITE); }
static int do_rename(void) { return rename("points.dat", "points.dat"); }
static int do_map(void)
{
	void *q = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);

	return q == MAP_FAILED ? -1 : munmap(q, PAGE);
}
static int do_store(void) { return p[NPAGES(3)]++ * 0; }

static const struct {
	const char *name;
	int (*call)(void);
} calls[] = {
	{"pread", do_pread},	   {"pwrite", do_pwrite},	{"read", do_read},	   {"write", do_write},
	{"readv", do_readv},	   {"writev", do_writev},	{"preadv", do_preadv},	   {"pwritev", do_pwritev},
	{"msync", do_msync},	   {"fsync", do_fsync},		{"fdatasync", do_fdatasync}, {"open", do_open},
	{"open, truncating", do_open_trunc}, {"openat", do_openat}, {"creat", do_creat},   {"close", do_close},
	{"copy_file_range", do_copy}, {"fallocate", do_fallocate}, {"a lock that is waited for", do_lock}, {"lseek", do_lseek}, {"fstat", do_fstat},
	{"ftruncate", do_ftruncate}, {"dup", do_dup},		{"mprotect", do_mprotect}, {"rename", do_rename},
	{"mmap", do_map},	   {"a store", do_store},
};

static void *with_a_request(void *arg)
{
	int old;

	(void)arg;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	return (void *)(long)(doing() >= 0 ? 1 : 2);
}

static volatile int going;

static void *storing(void *arg)
{
	int old;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	going = 1;
	for (size_t i = 0;; i++)
		p[i % NPAGES(4)] = (unsigned char)(long)arg;
	return NULL;
}

static void facts(void)
{
	pthread_t th;
	void *res;
	int n = 0;

	fd = make("points.dat", NPAGES(4));
	p = map(fd, NPAGES(4));
	p[0] = '#';
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct stat st;

		doing = calls[i].call;
		pthread_create(&th, NULL, with_a_request, NULL);
		pthread_join(th, &res);
		fstat(fd, &st);
		printf("%s: %s, first byte %c, size %ld, position %ld\n", calls[i].name,
		       res == PTHREAD_CANCELED ? "cancelled" : res == (void *)1 ? "done" : "failed", p[0], (long)st.st_size,
		       (long)lseek(fd, 0, SEEK_CUR));
		lseek(fd, 0, SEEK_SET);
		fflush(stdout);
	}
	for (long i = 0; i < 60; i++) {
		going = 0;
		pthread_create(&th, NULL, storing, (void *)i);
		while (!going)
			sched_yield();
		if (i % 3 == 0 && msync(p, NPAGES(4), MS_SYNC))
			die("msync");
		pthread_cancel(th);
		pthread_join(th, &res);
		n += res == PTHREAD_CANCELED;
		if (i % 3 == 1 && msync(p, NPAGES(4), MS_SYNC))
			die("msync");
	}
	fact("cancelled while storing", n);
	memset(p, 'a', NPAGES(4));
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	called("munmap", munmap(p, NPAGES(4)));
	called("close", close(fd));
	raw("points.dat");
}
