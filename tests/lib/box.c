/* SPDX-License-Identifier: MIT */
#include "box.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

void box_make(struct box *b)
{
	const char *tmp = getenv("TMPDIR");

	box_make_in(b, tmp && *tmp ? tmp : "/var/tmp");
}

void box_make_in(struct box *b, const char *tmp)
{
	(void)snprintf(b->dir, sizeof(b->dir), "%s/txmap-test-XXXXXX", tmp);
	must(mkdtemp(b->dir) != NULL, "mkdtemp");
	(void)snprintf(b->data, sizeof(b->data), "%s/data", b->dir);
	(void)snprintf(b->journal, sizeof(b->journal), "%s/.data.txmap", b->dir);
}

void box_remove(struct box *b)
{
	DIR *d = opendir(b->dir);
	struct dirent *e;

	must(d != NULL, b->dir);
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			must(!unlinkat(dirfd(d), e->d_name, 0), e->d_name);
	closedir(d);
	must(!rmdir(b->dir), b->dir);
}

void box_put(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0, path);
	must(pwrite(fd, bytes, len, 0) == (ssize_t)len, path);
	must(!ftruncate(fd, (off_t)len), path);
	close(fd);
}

size_t box_get(const char *path, void *bytes, size_t max)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	must(fd >= 0, path);
	must(!fstat(fd, &st) && (size_t)st.st_size <= max, path);
	must(pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size, path);
	close(fd);
	return (size_t)st.st_size;
}

int box_has(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

uint64_t box_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static void image_resize(struct image *im, uint64_t size)
{
	if (size < im->size)
		memset(im->bytes + size, 0, im->size - size);
	im->size = size;
}

void image_change(struct image *im, uint64_t *rnd, uint64_t *ret_low)
{
	unsigned nstores = (unsigned)(box_random(rnd) % 5);

	*ret_low = im->size;
	if (box_random(rnd) % 3 == 0) {
		image_resize(im, box_random(rnd) % IMAGE_MAX);
		*ret_low = im->size < *ret_low ? im->size : *ret_low;
		if (box_random(rnd) % 2)
			image_resize(im, box_random(rnd) % IMAGE_MAX);
		*ret_low = im->size < *ret_low ? im->size : *ret_low;
	}
	for (unsigned i = 0; i < nstores && im->size; i++) {
		uint64_t off = box_random(rnd) % im->size, len = 1 + box_random(rnd) % 200;

		if (box_random(rnd) % 16 == 0)
			len = 1 + box_random(rnd) % 9000;
		len = len < im->size - off ? len : im->size - off;
		/* few values: so that old bytes often equal new ones */
		for (uint64_t k = 0; k < len; k++)
			im->bytes[off + k] = (uint8_t)(box_random(rnd) % 3);
	}
}

void image_put(const char *path, const struct image *im)
{
	box_put(path, im->bytes, im->size);
}

int image_is_in(const struct image *im, const char *path)
{
	static uint8_t buf[4 * IMAGE_MAX];
	size_t len = box_get(path, buf, sizeof(buf));

	return len == im->size && !memcmp(buf, im->bytes, len);
}
