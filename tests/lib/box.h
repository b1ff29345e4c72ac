/* SPDX-License-Identifier: MIT */
/* A directory of a test's own on a real file system, and whole files in it. A failure ends the test. */
#ifndef BOX_H
#define BOX_H

#include <stddef.h>
#include <stdint.h>

struct box {
	char dir[256];
	char data[300];	   /* DIR/data */
	char journal[300]; /* DIR/.data.txmap */
};

void box_make(struct box *b);
/* The same in this directory. */
void box_make_in(struct box *b, const char *tmp);
void box_remove(struct box *b);
/* Write the whole file, in place: the inode stays. */
void box_put(const char *path, const void *bytes, size_t len);
/* Read the whole file; returns its length, which must not exceed max. */
size_t box_get(const char *path, void *bytes, size_t max);
/* Is there such a name? */
int box_has(const char *path);

/* A state of a small file. */
#define IMAGE_MAX (16u * 4096u)
struct image {
	uint64_t size;
	uint8_t bytes[IMAGE_MAX]; /* zeros from size on */
};

/* The next number of a sequence that is the same in each run. */
uint64_t box_random(uint64_t *state);
/* Random change: stores, and now and then another size; *ret_low is the smallest size on the way. */
void image_change(struct image *im, uint64_t *rnd, uint64_t *ret_low);
void image_put(const char *path, const struct image *im);
/* Is the file exactly this? */
int image_is_in(const struct image *im, const char *path);

#endif
