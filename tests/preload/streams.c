/* SPDX-License-Identifier: MIT */
/* Streams on a file that is mapped: how they begin, how they end, and what they show. */
#include "fact.h"
#include <pthread.h>
#include <stdio_ext.h>

static unsigned char *p;
static int fd;

static void modes(void)
{
	static const char *const mode[] = {"r", "rb", "re", "rm", "rce", "r+", "r+b", "rb+", "a", "a+", "ab", "w+", "w", "wx", "w+x", "q", ""};

	for (size_t i = 0; i < sizeof(mode) / sizeof(*mode); i++) {
		FILE *f;
		int c, n, fl;

		if (ftruncate(fd, (off_t)NPAGES(4)))
			die("ftruncate");
		memset(p, 'a' + (int)i, 8);
		f = fopen("streams.dat", mode[i]);
		if (!f) {
			printf("%s: %s\n", mode[i], strerrorname_np(errno));
			continue;
		}
		c = fgetc(f);
		clearerr(f);
		fseek(f, 0, SEEK_CUR);
		n = fputc('!', f) == '!' && fflush(f) == 0;
		fl = fcntl(fileno(f), F_GETFL) & (O_ACCMODE | O_APPEND);
		printf("%s: reads %d, writes %d, flags %x %d, at %ld, size %ld, seen %d %d\n", mode[i], c == EOF ? EOF : c - (int)i, n,
		       fl, fcntl(fileno(f), F_GETFD), ftell(f), (long)lseek(fd, 0, SEEK_END),
		       lseek(fd, 0, SEEK_END) > 0 ? p[0] == '!' : -1, lseek(fd, 0, SEEK_END) > 1 ? p[1] == '!' : -1);
		fclose(f);
	}
	ftruncate(fd, (off_t)NPAGES(4));
}

static void calls(void)
{
	FILE *f = fopen("streams.dat", "r+"), *g;
	char *got = NULL;
	size_t len = 0;
	fpos_t pos;
	int a, b;

	memcpy(p, "one two\n3 4\nlast", 17);
	fact("getline", getline(&got, &len, f));
	fact("fscanf", fscanf(f, "%d %d", &a, &b) * 100 + a * 10 + b);
	fact("fgetpos", fgetpos(f, &pos));
	fact("ungetc", ungetc('u', f) == 'u' && fgetc(f) == 'u');
	fact("getc_unlocked", getc_unlocked(f));
	p[12] = 'L'; /* in the stream's buffer already */
	fact("buffered", fgetc(f));
	fseek(f, 12, SEEK_SET);
	fflush(f);
	fact("after a flush", fgetc(f));
	fsetpos(f, &pos);
	fact("fsetpos", ftell(f));
	rewind(f);
	fact("fseeko", fseeko(f, -3, SEEK_END) * 256 + (long)(ftello(f) == (off_t)NPAGES(4) - 3));
	fact("setvbuf", setvbuf(f, NULL, _IONBF, 0));
	rewind(f);
	fputs("raw", f);
	fact("unbuffered", p[2]);
	g = fdopen(dup(fileno(f)), "r");
	rewind(g);
	fact("two streams", fgetc(g));
	fact("and a mapping of the stream's descriptor",
	     *(char *)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(g), 0));
	fclose(g);
	fact("writable", __fwritable(f) * 2 + __freadable(f));
	fact("vfprintf", fprintf(f, "%5.2f|%-4s|", 1.5, "x"));
	fact("fputs far", fseek(f, (long)NPAGES(3), SEEK_SET) + (fputs("far", f) >= 0));
	fact("fwrite of much", (long)fwrite(p, 1, NPAGES(2), f));
	fflush(f);
	fact("size", lseek(fd, 0, SEEK_END));
	fact("feof", fseek(f, 0, SEEK_END) == 0 && fgetc(f) == EOF && feof(f));
	fact("fileno closed under it", close(fileno(f)) + (fputs("lost", f), fflush(f)));
	fact("errno", errno == EBADF);
	fclose(f);
	free(got);
	ftruncate(fd, (off_t)NPAGES(4));
}

static void freopens(void)
{
	FILE *f = fopen("streams.dat", "r"), *g;

	memcpy(p, "freopen", 8);
	fgetc(f);
	g = freopen("streams.dat", "r+", f);
	fact("the same stream", g == f);
	fact("from the beginning", fgetc(f));
	g = freopen(NULL, "a", f);
	fact("another mode", g == f);
	fputs("end", f);
	fflush(f);
	fact("appended", lseek(fd, 0, SEEK_END));
	g = freopen("other.dat", "w+", f);
	fact("another file", g == f);
	fputs("other", f);
	g = freopen("streams.dat", "w", f);
	fact("back, and emptied", (g == f) * 100 + lseek(fd, 0, SEEK_END));
	fputs("new", f);
	fclose(f);
	fact("seen", p[2] * 256 + p[3]);
	f = fopen("streams.dat", "r");
	g = freopen("none/none", "r", f);
	fact("of nothing", !g);
	f = fopen("other.dat", "r");
	fact("other", fgetc(f));
	fclose(f);
	ftruncate(fd, (off_t)NPAGES(4));
}

static void *many(void *arg)
{
	for (int i = 0; i < 50; i++) {
		FILE *f = fopen("streams.dat", "a");

		fputs("x", f);
		fclose(f);
	}
	return arg;
}

static void threads(void)
{
	pthread_t th[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, many, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	fact("appended by threads", lseek(fd, 0, SEEK_END) - (off_t)NPAGES(4));
	ftruncate(fd, (off_t)NPAGES(4));
}

/* What is in a buffer when the process ends. */
static void ends(void)
{
	static const char *const how[] = {"exit", "return of a thread's main", "_exit", "fcloseall", "quick_exit"};

	for (int i = 0; i < 5; i++) {
		pid_t pid;

		memset(p + PAGE, 0, 16);
		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			FILE *f = fopen("streams.dat", "r+");

			fseek(f, PAGE, SEEK_SET);
			fprintf(f, "way %d", i);
			if (i == 1)
				pthread_exit(NULL);
			if (i == 2)
				_exit(0);
			if (i == 3)
				fcloseall();
			if (i == 4)
				quick_exit(0);
			exit(0);
		}
		ended(how[i], pid);
		fact("has it", p[PAGE + 4]);
		called("fsync", fsync(fd));
		raw("streams.dat");
	}
}

static void facts(void)
{
	fd = make("streams.dat", NPAGES(4));
	p = map(fd, NPAGES(4));
	modes();
	calls();
	freopens();
	threads();
	ends();
}
