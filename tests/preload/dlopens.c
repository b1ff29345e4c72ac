/* SPDX-License-Identifier: MIT */
/* Libraries come and go, in several threads, while a file is mapped, stored into and committed. */
#include "fact.h"
#include <dlfcn.h>
#include <pthread.h>

static const char *const names[] = {"libm.so.6",	"libdl.so.2",	  "librt.so.1",	   "libpthread.so.0", "libutil.so.1",
				    "libanl.so.1",	"libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2", "libgcc_s.so.1",
				    "libBrokenLocale.so.1", "libnss_compat.so.2", "libc_malloc_debug.so.0", "libthread_db.so.1",
				    "libmvec.so.1",	"libnsl.so.1",	  "libmemusage.so", "libpcprofile.so", "libc.so.6", "none.so"};
#define N (sizeof(names) / sizeof(*names))

static unsigned char *p;
static volatile int done;

static void *opener(void *arg)
{
	long n = 0;

	for (int round = 0; round < 10; round++) {
		void *h[N];

		for (size_t i = 0; i < N; i++) {
			/* those that change the process for good are left alone */
			int skip = strstr(names[i], "malloc") || strstr(names[i], "memusage") || strstr(names[i], "pcprofile");

			h[i] = skip ? NULL : dlopen(names[i], i % 2 ? RTLD_NOW : RTLD_LAZY);
			p[(size_t)arg * PAGE + i]++;
			n += h[i] != NULL;
		}
		for (size_t i = 0; i < N; i++)
			if (h[i] && dlclose(h[i]))
				return (void *)-1;
	}
	return (void *)n;
}

static void *committer(void *arg)
{
	while (!done)
		if (msync(p, NPAGES(16), MS_SYNC))
			return (void *)1;
	return arg;
}

static void facts(void)
{
	pthread_t th[3], c;
	double (*cosine)(double);
	void *m, *res;

	p = map(make("dlopens.dat", NPAGES(16)), NPAGES(16));
	m = dlopen("libm.so.6", RTLD_NOW);
	cosine = m ? (double (*)(double))dlsym(m, "cos") : NULL;
	fact("a library's function", cosine ? (long)cosine(0) : -1);
	fact("by any name", dlsym(RTLD_DEFAULT, "no_such_name_at_all") == NULL);
	fact("one of ours to find", dlsym(RTLD_DEFAULT, "mmap") != NULL && dlsym(RTLD_NEXT, "mmap") != NULL);
	pthread_create(&c, NULL, committer, NULL);
	for (size_t i = 0; i < 3; i++)
		pthread_create(&th[i], NULL, opener, (void *)i);
	for (size_t i = 0; i < 3; i++) {
		pthread_join(th[i], &res);
		fact("opened", (long)res);
	}
	done = 1;
	pthread_join(c, &res);
	fact("commits", (long)res);
	called("msync", msync(p, NPAGES(16), MS_SYNC));
	raw("dlopens.dat");
}
