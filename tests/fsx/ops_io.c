/* SPDX-License-Identifier: MIT */
/* Operations on descriptors and names. */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#define NIOV 4

struct fd fds[NFILES][NFDS];
static uint8_t out[MAX_IO], in[MAX_IO];

static unsigned number(const struct file *f)
{
	return (unsigned)(f - sh->f);
}

/* ---- descriptors ---- */

struct file *random_file(void)
{
	return &sh->f[one_in(4)];
}

unsigned nfds(const struct file *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NFDS; i++)
		n += fds[number(f)][i].fd >= 0;
	return n;
}

static struct fd *free_fd(struct file *f)
{
	for (unsigned i = 0; i < NFDS; i++)
		if (fds[number(f)][i].fd < 0)
			return &fds[number(f)][i];
	return NULL;
}

int open_one(struct file *f, int flags)
{
	struct fd *d = free_fd(f);

	if (!d)
		return -1;
	d->fd = open(f->name, flags, 0600);
	if (d->fd < 0)
		mismatch("open %s %#x: %s", f->name, flags, strerror(errno));
	d->flags = flags;
	d->pos = calloc(2, sizeof(*d->pos));
	if (!d->pos)
		abort();
	d->pos[1] = 1;
	return d->fd;
}

struct fd *random_fd(struct file *f, bool readable, bool writable)
{
	unsigned first = (unsigned)below(NFDS);

	for (unsigned i = 0; i < NFDS; i++) {
		struct fd *d = &fds[number(f)][(first + i) % NFDS];
		int mode = d->flags & O_ACCMODE;

		if (d->fd >= 0 && !(readable && mode == O_WRONLY) && !(writable && mode == O_RDONLY))
			return d;
	}
	return NULL;
}

void close_one(struct fd *d)
{
	expect("close", close(d->fd), 0);
	d->fd = -1;
	if (!--d->pos[1])
		free(d->pos);
	d->pos = NULL;
}

static void op_open(void)
{
	static const int flags[] = {O_RDWR, O_RDWR, O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR | O_APPEND, O_WRONLY | O_APPEND};
	struct file *f = random_file();
	int fl = flags[below(7)];
	bool trunc = (fl & O_ACCMODE) != O_RDONLY && one_in(12);

	if (!free_fd(f))
		return;
	say("open %s flags %#x%s", f->name, (unsigned)fl, trunc ? " O_TRUNC" : "");
	(void)open_one(f, fl | (trunc ? O_TRUNC : 0));
	if (trunc)
		model_resize(f, 0);
}

static void op_dup(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false), *to = free_fd(f);

	if (!d || !to)
		return;
	say("dup %s fd %d", f->name, d->fd);
	*to = *d;
	to->fd = one_in(2) ? dup(d->fd) : fcntl(d->fd, F_DUPFD_CLOEXEC, (int)between(3, 40));
	if (to->fd < 0)
		mismatch("dup: %s", strerror(errno));
	to->pos[1]++;
}

/* dup2 over another one, perhaps of the other file. */
static void op_dup2(void)
{
	struct file *f = random_file(), *g = random_file();
	struct fd *d = random_fd(f, false, false), *over = random_fd(g, false, false), *to = free_fd(f);
	int fd;

	if (!d || !over || !to || d == over || nfds(g) < 2)
		return;
	fd = over->fd;
	say("dup2 %s fd %d over %s fd %d", f->name, d->fd, g->name, fd);
	expect("dup2", dup2(d->fd, fd), fd);
	over->fd = -1;
	if (!--over->pos[1])
		free(over->pos);
	*to = *d;
	to->fd = fd;
	to->pos[1]++;
}

static void op_close(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false);

	if (!d || (nfds(f) == 1 && !one_in(10)))
		return;
	say("close %s fd %d (of %u)", f->name, d->fd, nfds(f));
	if (nfds(f) == 1 && !nmapped(f))
		make_sure(f);
	close_one(d);
	may_be_released(f);
}

/* ---- read and write ---- */

void compare_bytes(const char *what, uint64_t off, const uint8_t *got, const uint8_t *want, size_t len)
{
	size_t i = 0, n;

	if (!memcmp(got, want, len))
		return;
	while (got[i] == want[i])
		i++;
	for (n = i; n < len && got[n] != want[n];)
		n++;
	mismatch("%s differs from offset %#lx (page %lu + %lu) on, %zu bytes: %02x %02x %02x %02x, but should be "
		 "%02x %02x %02x %02x",
		 what, (unsigned long)(off + i), (unsigned long)((off + i) / PAGE), (unsigned long)((off + i) % PAGE), n - i,
		 got[i], i + 1 < len ? got[i + 1] : 0, i + 2 < len ? got[i + 2] : 0, i + 3 < len ? got[i + 3] : 0, want[i],
		 i + 1 < len ? want[i + 1] : 0, i + 2 < len ? want[i + 2] : 0, i + 3 < len ? want[i + 3] : 0);
}

/* len bytes of buf in up to NIOV pieces. */
static int split(struct iovec *iov, uint8_t *buf, size_t len)
{
	int n = (int)between(1, NIOV);

	for (int i = 0; i < n; i++) {
		size_t part = i == n - 1 ? len : below(len + 1);

		iov[i] = (struct iovec){.iov_base = buf, .iov_len = part};
		buf += part;
		len -= part;
	}
	return n;
}

size_t available(const struct file *f, uint64_t off, size_t len)
{
	return off >= f->size ? 0 : len < f->size - off ? len : (size_t)(f->size - off);
}

static void op_read(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, true, false);
	uint64_t off = random_off(f);
	size_t len = random_len(), want;
	struct iovec iov[NIOV];
	unsigned how = (unsigned)below(5);
	ssize_t n;
	int niov;

	if (!d)
		return;
	niov = split(iov, in, len);
	if (how >= 3)
		off = (uint64_t)*d->pos;
	want = available(f, off, len);
	say("%s %s fd %d off %#lx len %#zx", (const char *[]){"pread", "preadv", "preadv2", "read", "readv"}[how],
	    f->name, d->fd, (unsigned long)off, len);
	n = how == 0   ? pread(d->fd, in, len, (off_t)off)
	    : how == 1 ? preadv(d->fd, iov, niov, (off_t)off)
	    : how == 2 ? preadv2(d->fd, iov, niov, (off_t)off, 0)
	    : how == 3 ? read(d->fd, in, len)
		       : readv(d->fd, iov, niov);
	expect("read", n, (long)want);
	compare_bytes("what was read", off, in, f->cur + off, want);
	if (how >= 3)
		*d->pos += (int)want;
}

static void op_write(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, true);
	uint64_t off = random_off(f);
	size_t len = random_len();
	struct iovec iov[NIOV];
	unsigned how = (unsigned)below(5);
	ssize_t n;
	int niov;

	if (!d)
		return;
	if (how >= 3)
		off = (uint64_t)*d->pos;
	if (d->flags & O_APPEND)
		off = f->size; /* pwrite, too: see its BUGS */
	if (off + len > set.max_size)
		return;
	niov = split(iov, out, len);
	random_bytes(out, len);
	say("%s %s fd %d%s off %#lx len %#zx", (const char *[]){"pwrite", "pwritev", "pwritev2", "write", "writev"}[how],
	    f->name, d->fd, d->flags & O_APPEND ? " O_APPEND" : "", (unsigned long)off, len);
	n = how == 0   ? pwrite(d->fd, out, len, (off_t)off)
	    : how == 1 ? pwritev(d->fd, iov, niov, (off_t)off)
	    : how == 2 ? pwritev2(d->fd, iov, niov, (off_t)off, 0)
	    : how == 3 ? write(d->fd, out, len)
		       : writev(d->fd, iov, niov);
	expect("write", n, (long)len);
	model_write(f, off, out, len);
	if (how >= 3)
		*d->pos = (int)(off + len);
}

/* Between a descriptor and mapped memory, of the same or the other file. */
static void op_read_to_map(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, true, false);
	uint32_t pg = random_page();
	uint64_t off = random_off(f), aoff = (uint64_t)pg * PAGE + skewed(PAGE);
	size_t len = available(f, off, random_len());
	ssize_t n;

	if (!d || pg == set.npages)
		return;
	len = touchable(aoff, len, true);
	if (!len || overlaps(aoff, len, f, off, len))
		return;
	say("pread %s fd %d off %#lx len %#zx into arena %#lx (%s %s page %u)", f->name, d->fd, (unsigned long)off, len,
	    (unsigned long)aoff, arena[pg].kind == SHARED ? "shared" : "private", sh->f[arena[pg].file].name,
	    arena[pg].pgoff);
	memcpy(out, f->cur + off, len);
	n = pread(d->fd, ARENA + aoff, len, (off_t)off);
	expect("pread into mapped memory", n, (long)len);
	model_store(aoff, out, len);
}

static void op_write_from_map(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, true);
	uint32_t pg = random_page();
	uint64_t off = random_off(f), aoff = (uint64_t)pg * PAGE + skewed(PAGE);
	size_t len;

	if (!d || pg == set.npages)
		return;
	if (d->flags & O_APPEND)
		off = f->size;
	len = touchable(aoff, random_len(), false);
	if (!len || off + len > set.max_size || overlaps(aoff, len, f, off, len))
		return;
	say("pwrite %s fd %d off %#lx len %#zx from arena %#lx (%s %s page %u)", f->name, d->fd, (unsigned long)off, len,
	    (unsigned long)aoff, arena[pg].kind == SHARED ? "shared" : "private", sh->f[arena[pg].file].name,
	    arena[pg].pgoff);
	model_load(aoff, out, len);
	expect("pwrite from mapped memory", pwrite(d->fd, ARENA + aoff, len, (off_t)off), (long)len);
	model_write(f, off, out, len);
}

static void op_copy(void)
{
	struct file *f = &sh->f[below(2)], *g = f == sh->f ? sh->f + 1 : sh->f;
	struct fd *from = random_fd(f, true, false), *to = random_fd(g, false, true);
	uint64_t off = random_off(f), at = random_off(g);
	size_t len = available(f, off, random_len());
	off_t offin = (off_t)off, offout = (off_t)at;
	bool sends = one_in(2);
	ssize_t n;

	if (!from || !to || (to->flags & O_APPEND))
		return;
	if (sends)
		at = (uint64_t)*to->pos;
	if (!len || at + len > set.max_size)
		return;
	say("%s %s off %#lx len %#zx to %s off %#lx", sends ? "sendfile" : "copy_file_range", f->name, (unsigned long)off,
	    len, g->name, (unsigned long)at);
	n = sends ? sendfile(to->fd, from->fd, &offin, len) : copy_file_range(from->fd, &offin, to->fd, &offout, len, 0);
	if (n <= 0 || n > (ssize_t)len)
		expect("copy", n, (long)len);
	model_write(g, at, f->cur + off, (size_t)n);
	if (sends)
		*to->pos += (int)n;
}

static void op_seek(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false);
	int64_t off = (int64_t)random_off(f), want;
	int whence = (int)below(3);

	if (!d)
		return;
	if (whence != SEEK_SET)
		off = (one_in(2) ? -1 : 1) * (int64_t)skewed((uint64_t)off + 1);
	want = off + (whence == SEEK_CUR ? *d->pos : whence == SEEK_END ? (int64_t)f->size : 0);
	if (want > (int64_t)set.max_size)
		return;
	say("lseek %s fd %d %ld whence %d", f->name, d->fd, (long)off, whence);
	expect("lseek", lseek(d->fd, off, whence), want < 0 ? -EINVAL : want);
	if (want >= 0)
		*d->pos = (int)want;
}

/* Where data are is the file system's to know, but no byte of a hole is anything but zero. */
static void op_seek_data(void)
{
	struct file *f = random_file();
	struct fd *d = random_fd(f, false, false);
	uint64_t off = random_off(f), end = f->size;
	bool data = one_in(2);
	off_t at;

	if (!d)
		return;
	say("lseek %s fd %d %#lx %s", f->name, d->fd, (unsigned long)off, data ? "SEEK_DATA" : "SEEK_HOLE");
	at = lseek(d->fd, (off_t)off, data ? SEEK_DATA : SEEK_HOLE);
	if (at < 0 && (errno != ENXIO || (off < f->size && !data)))
		expect("lseek", at, (long)off);
	if (at >= 0) {
		if (off >= f->size || at < (off_t)off || at > (off_t)f->size)
			expect("lseek", at, off >= f->size ? -ENXIO : (long)off);
		*d->pos = (int)at;
		end = (uint64_t)at;
	}
	for (uint64_t i = off; data && i < end; i++)
		if (f->cur[i])
			mismatch("lseek SEEK_DATA went over the byte at %#lx", (unsigned long)i);
	if (!data && at >= 0 && (uint64_t)at < f->size && f->cur[at])
		mismatch("lseek SEEK_HOLE has the byte at %#lx in a hole", (unsigned long)at);
}

const struct op ops_io[] = {
	{"open", 24, op_open},
	{"dup", 6, op_dup},
	{"dup2", 4, op_dup2},
	{"close", 22, op_close},
	{"read", 60, op_read},
	{"write", 80, op_write},
	{"read_to_map", 40, op_read_to_map},
	{"write_from_map", 40, op_write_from_map},
	{"copy", 15, op_copy},
	{"seek", 15, op_seek},
	{"seek_data", 10, op_seek_data},
	{NULL, 0, NULL},
};
