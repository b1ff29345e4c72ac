/* SPDX-License-Identifier: MIT */
/* Operations on a file's size and holes, and by stdio. */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t out[MAX_IO], in[MAX_IO];

/* ---- size ---- */

static void op_truncate(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, true);
	uint64_t size = random_size();

	if (!d)
		return;
	if (one_in(4)) {
		say("truncate %s %#lx -> %#lx", f->name, (unsigned long)f->size, (unsigned long)size);
		expect("truncate", truncate(f->name, (off_t)size), 0);
	} else {
		say("ftruncate %s fd %d %#lx -> %#lx", f->name, d->fd, (unsigned long)f->size, (unsigned long)size);
		expect("ftruncate", ftruncate(d->fd, (off_t)size), 0);
	}
	model_resize(f, size);
}

static void op_fallocate(void)
{
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE};
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, true);
	int mode = modes[below(7)];
	uint64_t off = random_off(f), len = one_in(8) ? below(set.max_size) : random_len();
	int ret;

	if (!d || off + len > set.max_size)
		return;
	say("fallocate %s fd %d mode %#x off %#lx len %#lx", f->name, d->fd, (unsigned)mode, (unsigned long)off,
	    (unsigned long)len);
	ret = fallocate(d->fd, mode, (off_t)off, (off_t)len);
	if (!len || mode == FALLOC_FL_PUNCH_HOLE || (mode & FALLOC_FL_COLLAPSE_RANGE)) {
		if (!ret || (errno != EOPNOTSUPP && errno != EINVAL))
			expect("fallocate", ret, -EOPNOTSUPP);
		return;
	}
	if (ret && errno == EOPNOTSUPP && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)))
		return; /* this file system cannot */
	expect("fallocate", ret, 0);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > f->size)
		model_resize(f, off + len);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		model_zero(f, off, len);
}

static void op_stat(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false);
	struct statx stx;
	struct stat st;

	say("stat %s", f->name);
	expect("stat", stat(f->name, &st), 0);
	expect("the size by stat", st.st_size, (long)f->size);
	expect("lstat", lstat(f->name, &st), 0);
	expect("the size by lstat", st.st_size, (long)f->size);
	expect("statx", statx(AT_FDCWD, f->name, 0, STATX_SIZE, &stx), 0);
	expect("the size by statx", (long)stx.stx_size, (long)f->size);
	if (!d)
		return;
	expect("fstat", fstat(d->fd, &st), 0);
	expect("the size by fstat", st.st_size, (long)f->size);
}

/* ---- stdio ---- */

static void stdio_append(struct file *f)
{
	size_t len = random_len();
	FILE *s;

	if (f->size + len > set.max_size)
		return;
	random_bytes(out, len);
	say("fopen %s a, fwrite len %#zx", f->name, len);
	s = fopen(f->name, "a");
	if (!s)
		mismatch("fopen: %s", strerror(errno));
	expect("fwrite", (long)fwrite(out, 1, len, s), (long)len);
	expect("fclose", fclose(s), 0);
	model_write(f, f->size, out, len);
}

static void stdio_update(struct file *f)
{
	uint64_t off = random_off(f), roff = random_off(f);
	size_t len = random_len(), rlen = random_len(), want;
	FILE *s;

	if (off + len > set.max_size)
		return;
	random_bytes(out, len);
	say("fopen %s r+, fwrite off %#lx len %#zx, fread off %#lx len %#zx", f->name, (unsigned long)off, len,
	    (unsigned long)roff, rlen);
	s = fopen(f->name, "r+");
	if (!s)
		mismatch("fopen: %s", strerror(errno));
	expect("fseek", fseeko(s, (off_t)off, SEEK_SET), 0);
	expect("fwrite", (long)fwrite(out, 1, len, s), (long)len);
	if (one_in(2))
		expect("fflush", fflush(s), 0);
	model_write(f, off, out, len);
	expect("fseek", fseeko(s, (off_t)roff, SEEK_SET), 0);
	want = available(f, roff, rlen);
	expect("fread", (long)fread(in, 1, rlen, s), (long)want);
	compare_bytes("what fread gave", roff, in, f->cur + roff, want);
	expect("fseek", fseeko(s, 0, SEEK_END), 0);
	expect("ftell", ftello(s), (long)f->size);
	expect("fclose", fclose(s), 0);
}

static void op_stdio(void)
{
	struct file *f = random_file();

	if (!nfds(f) && !nmapped(f))
		make_sure(f);
	if (one_in(3))
		stdio_append(f);
	else
		stdio_update(f);
	may_be_released(f);
}

const struct op ops_size[] = {
	{"truncate", 25, op_truncate}, {"fallocate", 25, op_fallocate}, {"stat", 10, op_stat},
	{"stdio", 12, op_stdio},       {NULL, 0, NULL},
};
