/* SPDX-License-Identifier: MIT */
/*
 * Settings of any bytes: refused with one line, or taken, and then complete. The first byte says where they are:
 * odd: NUL-separated words of the environment; even: the settings file.
 */
#define _GNU_SOURCE 1
#include "config.h"
#include "fuzz.h"
#include "log.h"
#include "vm_sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NMAPS  256
#define NWORDS 64

/* Settings stay for the life of a process. Not here: what was mapped for them goes afterwards. */
static struct {
	void *p;
	size_t len;
} maps[NMAPS];
static unsigned nmaps;
static struct vm_sys table;

static void *noting_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = vm_sys_linux.mmap(addr, len, prot, flags, fd, off);

	CLAIM(nmaps < NMAPS);
	if (!vm_sys_err(p)) {
		maps[nmaps].p = p;
		maps[nmaps++].len = len;
	}
	return p;
}

static int noting_munmap(void *addr, size_t len)
{
	for (unsigned i = 0; i < nmaps; i++)
		if (maps[i].p == addr)
			maps[i] = maps[--nmaps];
	return vm_sys_linux.munmap(addr, len);
}

static int fd;
static char file_word[64];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	fd = memfd_create("settings", MFD_CLOEXEC);
	CLAIM(fd >= 0);
	(void)snprintf(file_word, sizeof(file_word), "TXMAP_CONFIG=/proc/self/fd/%d", fd);
	table = vm_sys_linux;
	table.mmap = noting_mmap;
	table.munmap = noting_munmap;
	vm_sys = &table;
	return 0;
}

/* Words of the environment that name no file: the one there is stays what it is. */
static size_t split(char *text, size_t len, char **ret)
{
	size_t n = 0;

	for (char *p = text; p < text + len && n < NWORDS; p += strlen(p) + 1)
		if (strncmp(p, "TXMAP_CONFIG=", 13))
			ret[n++] = p;
	ret[n] = NULL;
	return n;
}

static void check_config(const struct pol_config *c)
{
	static const char *const paths[] = {"/", "/srv/db/a.gdbm", "/a", "/srv/.a.txmap",
					    "/\xff\x01]/[a-/\\"};

	CLAIM(c->runtime_dir && *c->runtime_dir == '/');
	for (size_t i = 0; i <= c->nrules; i++) {
		const struct pol_rule *r = i < c->nrules ? &c->rules[i] : &c->process;

		CLAIM(r->name && r->backend && r->globs);
		for (int o = 0; o < POL_OPT_N; o++)
			CLAIM(r->text[o]);
		for (const char *const *g = r->globs; *g; g++) {
			CLAIM((*g)[**g == '!'] == '/');
			(void)pol_match(*g, *g); /* must only come back */
		}
	}
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const struct pol_rule *r = pol_config_rule(c, paths[i]);

		CLAIM(!r || (r >= c->rules && r < c->rules + c->nrules));
	}
	CLAIM(!pol_config_rule(c, "/srv/.a.txmap")); /* a journal */
}

static void check_message(const char *text, size_t max)
{
	size_t len = strnlen(text, max);

	CLAIM(len && len < max);
	for (size_t i = 0; i < len; i++)
		CLAIM((unsigned char)text[i] >= ' ' && text[i] != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	bool is_env = len && (*in & 1);
	size_t n = len - !!len;
	char *text = malloc(n + 1), *words[NWORDS + 2], err[512] = "";
	const struct pol_config *c = NULL;
	int rc;

	memcpy(text, in + !!len, n);
	text[n] = 0;
	if (is_env) {
		(void)split(text, n, words);
	} else {
		CLAIM(!ftruncate(fd, 0) && pwrite(fd, text, n, 0) == (ssize_t)n);
		words[0] = file_word;
		words[1] = NULL;
	}
	rc = pol_config_load(words, NULL, &c, err, sizeof(err));
	if (rc) {
		CLAIM(rc == -EINVAL && !c);
		check_message(err, sizeof(err));
	} else {
		check_config(c);
	}
	while (nmaps)
		(void)noting_munmap(maps[nmaps - 1].p, maps[nmaps - 1].len);
	free(text);
	return 0;
}
