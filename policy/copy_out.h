/* SPDX-License-Identifier: MIT */
/* A copy of a file that is made under another name, .NAME.txmap-copy, and gets its own when it is whole and
 * durable. Who is killed leaves that name behind; the next copy to the same place removes it. */
#ifndef POL_COPY_OUT_H
#define POL_COPY_OUT_H

#include "vm.h"
#include <limits.h>
#include <sys/stat.h>

struct pol_copy_out {
	struct vm_copy copy;	    /* the first: what core is handed */
	const struct vm_bigfile *f; /* the file behind a handle, or NULL (fixed) */
	const int *from;	    /* home of a descriptor of the file; only its content is used (fixed) */
	bool replace;		    /* what has its name already (fixed) */
	bool is_made;		    /* it is there, under the temporary name */
	bool by_hand;		    /* the file system cannot tell its extents */
	bool reflinked;		    /* its base shares the file's blocks */
	const char *what;	    /* what was being done when it failed, or NULL: nothing here did */
	int fd, dirfd;		    /* the copy, and the directory (homes) */
	char *buf;		    /* or NULL */
	void (*progress)(uint64_t done, uint64_t total, void *arg); /* or NULL */
	void *arg;
	char *name;	    /* the last component of out */
	char out[PATH_MAX]; /* where it goes */
	char tmp[NAME_MAX + 1];
};

/* f or from: the file at path. out: absolute; a directory means a file of path's last component in there. *c is the
 * caller's, zeroed, and stays where it is until the end. 0: pol_copy_out_end must follow. */
int pol_copy_out_begin(struct pol_copy_out *c, const char *path, const char *out, bool must_be_dir);
/* The file's first len bytes, without a look at any journal; for a file that has no handle. */
int pol_copy_out_base(struct pol_copy_out *c, uint64_t len);
/* It is size bytes long, durable, and has its name. */
int pol_copy_out_place(struct pol_copy_out *c, uint64_t size);
/* If it has no name of its own by now it is gone. */
void pol_copy_out_end(struct pol_copy_out *c);

#endif
