/* SPDX-License-Identifier: MIT */
/* Can a program be interposed? The loader ignores LD_PRELOAD without a word where it cannot, and the program
 * would then run with its files unmanaged: so this is found out before. */
#include "cli.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_SCRIPTS 5 /* interpreters of interpreters, as the kernel allows */

struct image {
	int machine; /* e_machine, -1: no ELF file of this word size */
	bool is_elf, is_elf64;
	char interp[256]; /* the dynamic loader, "": none */
};

static bool read_at(int fd, void *buf, size_t len, off_t off)
{
	return pread(fd, buf, len, off) == (ssize_t)len;
}

static void read_image(int fd, struct image *ret)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	*ret = (struct image){.machine = -1};
	if (!read_at(fd, &eh, sizeof(eh), 0) || memcmp(eh.e_ident, ELFMAG, SELFMAG))
		return;
	ret->is_elf = true;
	ret->is_elf64 = eh.e_ident[EI_CLASS] == ELFCLASS64;
	ret->machine = eh.e_machine; /* at the same place in both classes */
	if (!ret->is_elf64)
		return;
	for (int i = 0; i < eh.e_phnum; i++) {
		if (!read_at(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + (uint64_t)i * eh.e_phentsize)))
			return;
		if (ph.p_type == PT_INTERP && ph.p_filesz && ph.p_filesz < sizeof(ret->interp) &&
		    !read_at(fd, ret->interp, ph.p_filesz, (off_t)ph.p_offset))
			ret->interp[0] = 0;
	}
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int refuse(const char *path, const char *why)
{
	cli_error("%s: %s: its files would not be managed", path, why);
	return CLI_NOT_EXECUTABLE;
}

/* The interpreter of a script: what follows "#!", "" when it is none. */
static void read_script(int fd, char *interp, size_t len)
{
	ssize_t n = pread(fd, interp, len - 1, 0);
	char *p;

	interp[n > 0 ? n : 0] = 0;
	if (strncmp(interp, "#!", 2)) {
		*interp = 0;
		return;
	}
	p = interp + 2 + strspn(interp + 2, " \t");
	p[strcspn(p, " \t\n")] = 0;
	memmove(interp, p, strlen(p) + 1);
}

static int check_elf(const char *path, const struct image *im)
{
	struct image own;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		cli_error("/proc/self/exe: %s", strerror(errno));
		return CLI_FAILED;
	}
	read_image(fd, &own);
	close(fd);
	if (!im->is_elf64 || im->machine != own.machine)
		return refuse(path, "built for another kind of machine than txmap");
	if (!im->interp[0])
		return refuse(path, "statically linked, so nothing can be put between it and the kernel");
	if (strcmp(base_name(im->interp), base_name(own.interp)))
		return refuse(path, "uses another C library than txmap");
	return 0;
}

static int check_file(const char *path, int depth)
{
	char interp[PATH_MAX];
	struct image im;
	struct stat st;
	int fd, status = 0;

	if (stat(path, &st)) {
		cli_error("%s: %s", path, strerror(errno));
		return errno == ENOENT || errno == ENOTDIR ? CLI_NOT_FOUND : CLI_NOT_EXECUTABLE;
	}
	if (!S_ISREG(st.st_mode)) {
		cli_error("%s: not a program", path);
		return CLI_NOT_EXECUTABLE;
	}
	if (access(path, X_OK)) {
		cli_error("%s: %s", path, strerror(errno));
		return CLI_NOT_EXECUTABLE;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return refuse(path, "cannot be read, so the loader ignores LD_PRELOAD for it");
	read_script(fd, interp, sizeof(interp));
	read_image(fd, &im);
	if (im.is_elf) { /* privileges count for programs only: the kernel ignores them on scripts */
		if (st.st_mode & S_ISUID)
			status = refuse(path, "set-user-ID, so the loader ignores LD_PRELOAD for it");
		else if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
			status = refuse(path, "set-group-ID, so the loader ignores LD_PRELOAD for it");
		else if (fgetxattr(fd, "security.capability", NULL, 0) > 0)
			status = refuse(path,
					"has file capabilities, so the loader ignores LD_PRELOAD for it");
		else
			status = check_elf(path, &im);
	}
	close(fd);
	if (im.is_elf)
		return status;
	if (depth == MAX_SCRIPTS)
		return refuse(path, "too many interpreters");
	return check_file(*interp ? interp : "/bin/sh",
			  depth + 1); /* execvp hands a file without "#!" to sh */
}

/* As execvp looks: the first in PATH that may be executed, else the first that is there. */
static char *find_in_path(const char *name)
{
	const char *path = getenv("PATH") ?: "/bin:/usr/bin";
	char *found = NULL;

	for (;;) {
		size_t len = strcspn(path, ":");
		char *full;

		if (asprintf(&full, "%.*s%s%s", (int)len, path, len ? "/" : "", name) < 0)
			cli_need(NULL);
		if (!access(full, X_OK)) {
			free(found);
			return full;
		}
		if (!access(full, F_OK) && !found)
			found = full;
		else
			free(full);
		if (!path[len])
			return found;
		path += len + 1;
	}
}

int cli_program_check(const char *name, char **ret_path)
{
	char *path = strchr(name, '/') ? cli_need(strdup(name)) : find_in_path(name);
	int status;

	if (!path || !*name) {
		cli_error("%s: command not found", name);
		free(path);
		return CLI_NOT_FOUND;
	}
	status = check_file(path, 0);
	if (status)
		free(path);
	else
		*ret_path = path;
	return status;
}
