/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "shadow.h"
#include "faulty_sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR	 512u
#define MAX_SIZE (2u << 20)
#define NFILES	 16u

struct file {
	ino_t ino;
	uint64_t size;			  /* on the disk */
	uint8_t dirty[MAX_SIZE / SECTOR]; /* written, and not on the disk */
	uint8_t bytes[MAX_SIZE];	  /* on the disk */
};

static struct shadow {
	char dir[256];
	ino_t dir_ino;
	pthread_mutex_t lock;
	struct file file[NFILES];
	unsigned nfiles;
	struct {
		char name[64];
		unsigned file;
	} name[NFILES]; /* on the disk */
	unsigned nnames;
} * sh;

static const struct vm_sys *below;
static struct vm_sys table;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

/* The file's number, or NFILES: it is none of the directory's. */
static unsigned file_of(int fd)
{
	struct stat st;
	unsigned i = 0;

	if (vm_sys_linux.fstat(fd, &st))
		return NFILES;
	while (i < sh->nfiles && sh->file[i].ino != st.st_ino)
		i++;
	return i < sh->nfiles ? i : NFILES;
}

static unsigned add_file(ino_t ino)
{
	unsigned i = 0;

	while (i < sh->nfiles && sh->file[i].ino != ino)
		i++;
	must(i < NFILES, "too many files");
	if (i < sh->nfiles)
		return i;
	sh->nfiles++;
	sh->file[i].ino = ino;
	return i;
}

/* ---- what happens ---- */

static void wrote(int fd, uint64_t off, uint64_t len)
{
	unsigned i = file_of(fd);

	if (i == NFILES)
		return;
	must(off + len <= MAX_SIZE, "too large a file");
	for (uint64_t s = off / SECTOR; s * SECTOR < off + len; s++)
		sh->file[i].dirty[s] = 1;
}

static void synced(int fd, bool failed)
{
	unsigned i = file_of(fd);
	struct file *f = &sh->file[i];
	struct stat st;

	if (i == NFILES)
		return;
	must(!vm_sys_linux.fstat(fd, &st) && st.st_size <= MAX_SIZE, "fstat");
	for (unsigned s = 0; s < MAX_SIZE / SECTOR; s++) {
		if (f->dirty[s] && !failed) {
			memset(f->bytes + s * SECTOR, 0, SECTOR); /* what is beyond the end */
			must(vm_sys_linux.pread(fd, f->bytes + s * SECTOR, SECTOR, s * SECTOR) >= 0, "pread");
		}
		f->dirty[s] = 0;
	}
	if (failed)
		return;
	if ((uint64_t)st.st_size < f->size)
		memset(f->bytes + st.st_size, 0, f->size - (uint64_t)st.st_size);
	f->size = (uint64_t)st.st_size;
}

/* The names that the directory has now are on the disk. */
static void synced_dir(void)
{
	DIR *d = opendir(sh->dir);
	struct dirent *e;

	must(d != NULL, sh->dir);
	sh->nnames = 0;
	while ((e = readdir(d))) {
		if (e->d_type != DT_REG)
			continue;
		must(sh->nnames < NFILES && strlen(e->d_name) < sizeof(sh->name[0].name), e->d_name);
		strcpy(sh->name[sh->nnames].name, e->d_name);
		sh->name[sh->nnames++].file = add_file(e->d_ino);
	}
	closedir(d);
}

static bool is_dir(int fd)
{
	struct stat st;

	return !vm_sys_linux.fstat(fd, &st) && st.st_ino == sh->dir_ino;
}

/* ---- the table ---- */

static int noting_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = below->openat(dirfd, path, flags, mode);
	size_t len = strlen(sh->dir);
	struct stat st;

	if (fd < 0 || !(flags & O_CREAT) || strncmp(path, sh->dir, len) || path[len] != '/')
		return fd;
	pthread_mutex_lock(&sh->lock);
	must(!vm_sys_linux.fstat(fd, &st), path);
	add_file(st.st_ino);
	pthread_mutex_unlock(&sh->lock);
	return fd;
}

static ssize_t noting_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t n;

	pthread_mutex_lock(&sh->lock);
	n = below->pwrite(fd, buf, len, off);
	wrote(fd, (uint64_t)off, len); /* also when it failed: a part may be there */
	pthread_mutex_unlock(&sh->lock);
	return n;
}

static ssize_t noting_pwritev(int fd, const struct iovec *iov, int niov, off_t off)
{
	ssize_t n;

	pthread_mutex_lock(&sh->lock);
	n = below->pwritev(fd, iov, niov, off);
	wrote(fd, (uint64_t)off, n > 0 ? (uint64_t)n : 0);
	pthread_mutex_unlock(&sh->lock);
	return n;
}

static int noting_ftruncate(int fd, off_t len)
{
	struct stat st;
	int err;

	pthread_mutex_lock(&sh->lock);
	must(!vm_sys_linux.fstat(fd, &st), "fstat");
	err = below->ftruncate(fd, len);
	if (!err && len < st.st_size)
		wrote(fd, (uint64_t)len, (uint64_t)(st.st_size - len));
	pthread_mutex_unlock(&sh->lock);
	return err;
}

static int note_sync(int fd, int err)
{
	if (err == -EINTR)
		return err; /* it has not been tried */
	if (!is_dir(fd))
		synced(fd, err);
	else if (!err)
		synced_dir();
	return err;
}

static int noting_fsync(int fd)
{
	int err;

	pthread_mutex_lock(&sh->lock);
	err = note_sync(fd, below->fsync(fd));
	pthread_mutex_unlock(&sh->lock);
	return err;
}

static int noting_fdatasync(int fd)
{
	int err;

	pthread_mutex_lock(&sh->lock);
	err = note_sync(fd, below->fdatasync(fd));
	pthread_mutex_unlock(&sh->lock);
	return err;
}

void shadow_use(void)
{
	below = vm_sys == &table ? below : vm_sys;
	table = *below;
	table.openat = noting_openat;
	table.pwrite = noting_pwrite;
	table.pwritev = noting_pwritev;
	table.ftruncate = noting_ftruncate;
	table.fsync = noting_fsync;
	table.fdatasync = noting_fdatasync;
	faulty_use(&table);
}

/* ---- around it ---- */

static void put(const char *path, const struct file *f)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0, path);
	must(!ftruncate(fd, 0) && pwrite(fd, f->bytes, f->size, 0) == (ssize_t)f->size, path);
	close(fd);
}

void shadow_start(const char *dir)
{
	struct stat st;

	if (!sh) {
		sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		must(sh != MAP_FAILED, "mmap");
	}
	for (unsigned i = 0; i < sh->nfiles; i++) {
		memset(sh->file[i].dirty, 0, sizeof(sh->file[i].dirty));
		memset(sh->file[i].bytes, 0, sh->file[i].size);
		sh->file[i].size = 0;
	}
	pthread_mutex_init(&sh->lock, NULL);
	sh->nfiles = 0;
	must(strlen(dir) < sizeof(sh->dir) && !stat(dir, &st), dir);
	strcpy(sh->dir, dir);
	sh->dir_ino = st.st_ino;
	synced_dir();
	for (unsigned i = 0; i < sh->nnames; i++) {
		struct file *f = &sh->file[sh->name[i].file];
		char path[512];
		ssize_t n;
		int fd;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, sh->name[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		must(fd >= 0, path);
		n = pread(fd, f->bytes, MAX_SIZE, 0);
		must(n >= 0, path);
		f->size = (uint64_t)n;
		close(fd);
	}
}

void shadow_cut_power(void)
{
	DIR *d = opendir(sh->dir);
	struct dirent *e;
	char path[512];

	must(d != NULL, sh->dir);
	while ((e = readdir(d))) {
		unsigned i = 0;

		if (e->d_type != DT_REG)
			continue;
		while (i < sh->nnames && strcmp(sh->name[i].name, e->d_name))
			i++;
		/* another file by that name, or none */
		if (i == sh->nnames || sh->file[sh->name[i].file].ino != e->d_ino)
			must(!unlinkat(dirfd(d), e->d_name, 0), e->d_name);
	}
	closedir(d);
	for (unsigned i = 0; i < sh->nnames; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", sh->dir, sh->name[i].name);
		put(path, &sh->file[sh->name[i].file]);
	}
}
