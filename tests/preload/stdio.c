/* SPDX-License-Identifier: MIT */
/* Streams on a mapped file. */
#include "fact.h"

static void facts(void)
{
	int fd = make("stdio.dat", NPAGES(4));
	unsigned char *p = map(fd, NPAGES(4)), buf[64];
	struct stat st;
	FILE *f, *g;

	p[0] = 'a';
	p[1] = '\n';
	f = fopen("stdio.dat", "r+");
	fact("fgets sees a store", (long)(fgets((char *)buf, 64, f) != NULL) * 256 + buf[0]);
	fact("position", ftell(f));
	fseek(f, 100, SEEK_SET);
	fact("fputs", fputs("hello", f) >= 0);
	fact("fflush", fflush(f));
	fact("mapping sees it", p[100] == 'h' && p[104] == 'o');
	fseek(f, 0, SEEK_END);
	fact("end", ftell(f));
	fprintf(f, "%s-%d", "tail", 7);
	called("fclose", fclose(f));
	fstat(fd, &st);
	fact("size", st.st_size);
	fact("mapping beyond its length is not there, read is", pread(fd, buf, 6, NPAGES(4)) * 256 + buf[5]);

	f = fopen("stdio.dat", "a+e");
	fact("close on exec", fcntl(fileno(f), F_GETFD));
	fputs("more", f);
	fclose(f);
	fact("appended", lseek(fd, 0, SEEK_END));

	g = fdopen(dup(fd), "r");
	fseek(g, 100, SEEK_SET);
	fact("fdopen reads", fread(buf, 1, 5, g) * 256 + buf[4]);
	called("reading stream does not write", fputc('x', g));
	called("fclose", fclose(g));
	called("fdopen of a bad mode", fdopen(fd, "q") ? 0 : -1);
	called("fopen exclusive", fopen("stdio.dat", "wx") ? 0 : -1);
	called("fopen of nothing", fopen("stdio.none.dat", "r") ? 0 : -1);
	fact("still all there", p[100]);

	f = fopen("stdio.dat", "w"); /* while mapped */
	fstat(fd, &st);
	fact("emptied", st.st_size);
	fputs("new content", f);
	fclose(f);
	fact("mapping has it", p[4]);
	fact("and zero behind", p[11] | p[4095]);
	f = fopen("stdio.dat", "r");
	f = freopen("stdio.dat", "r+", f);
	fact("freopen reads", fgetc(f));
	fseek(f, 0, SEEK_SET);
	fputc('N', f);
	called("fclose", fclose(f));
	fact("seen", p[0]);
	called("msync", msync(p, NPAGES(4), MS_SYNC));
	raw("stdio.dat");
	called("close", close(fd));
	called("munmap", munmap(p, NPAGES(4)));
	f = fopen("stdio.dat", "r+");
	fputs("unmapped", f);
	fclose(f);
	raw("stdio.dat");
}
