/* SPDX-License-Identifier: MIT */
/* A signal handler makes the same calls that it interrupts. */
#include "fact.h"
#include <sys/time.h>

static unsigned char *p;
static int fd;
static volatile int nhandled, nbad;

static void handler(int signo)
{
	int saved = errno, f, i = nhandled++;
	char c = 'h';

	(void)signo;
	p[NPAGES(8) + (unsigned)i % PAGE]++;
	f = open("handlers.dat", O_RDWR);
	if (f < 0 || pwrite(f, &c, 1, (off_t)NPAGES(9)) != 1 || pread(fd, &c, 1, (off_t)NPAGES(9)) != 1 ||
	    c != 'h')
		nbad++;
	if (i % 4 == 0 && msync(p + NPAGES(8), PAGE, MS_SYNC))
		nbad++;
	if (close(f))
		nbad++;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	errno = saved;
}

static void facts(void)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct itimerval it = {{0, 500}, {0, 500}};
	unsigned char buf[PAGE], *q;
	struct stat st;
	int i, f;

	fd = make("handlers.dat", NPAGES(16));
	p = map(fd, NPAGES(16));
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	for (i = 0; i < 100000 && nhandled < 400; i++) {
		p[(unsigned)i % NPAGES(8)] = (unsigned char)i;
		f = dup(fd);
		if (pwrite(f, buf, 100, NPAGES(10)) != 100 ||
		    pread(f, buf, PAGE, NPAGES(11)) != (ssize_t)PAGE || close(f) || fstat(fd, &st) ||
		    st.st_size != (off_t)NPAGES(16))
			nbad++;
		q = mmap(NULL, NPAGES(2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, NPAGES(12));
		if (q == MAP_FAILED || mprotect(q, PAGE, PROT_READ) || munmap(q, NPAGES(2)))
			nbad++;
		if (i % 16 == 0 && msync(p, NPAGES(16), MS_SYNC))
			nbad++;
	}
	memset(&it, 0, sizeof(it));
	setitimer(ITIMER_REAL, &it, NULL);
	fact("handled some", nhandled > 100);
	fact("wrong", nbad);
	memset(p, 'z', NPAGES(12));
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("handlers.dat");
}
