/* SPDX-License-Identifier: MIT */
/*
 * Any bytes at the control socket, in pieces of any length: each answer is one line of JSON that says whether it
 * was done, the connection ends, and the files' bytes stay what was committed. The first byte is the length of a
 * piece.
 */
#define _GNU_SOURCE 1
#include "control_priv.h"
#include "fuzz.h"
#include "log.h"
#include "managed.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* No copy is made wherever some bytes happen to say, or of what. */
static int openat_but_copies(int dirfd, const char *path, int flags, mode_t mode)
{
	return strstr(path, ".txmap-copy") ? -EROFS : vm_sys_linux.openat(dirfd, path, flags, mode);
}

static struct pol_client client = {.fd = -1};
static volatile char *map;
static struct vm_sys sys;

/* A managed file of four pages in a directory that goes again at once: by name nobody needs them. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char dir[] = "/dev/shm/txmap-fuzz-XXXXXX", path[64], run[64];
	struct pol_file *file = NULL;
	void *addr;
	int fd;

	(void)argc, (void)argv;
	CLAIM(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/data", dir);
	(void)snprintf(run, sizeof(run), "%s/run", dir);
	CLAIM(!setenv("TXMAP_PATHS", path, 1) && !setenv("TXMAP_COMMIT", "none", 1) &&
	      !setenv("TXMAP_RUNTIME_DIR", run, 1) && !setenv("TXMAP_CONTROL", "off", 1) &&
	      !setenv("TXMAP_LOG", "off", 1));
	CLAIM(pol_start() == 1);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CLAIM(fd >= 0 && !ftruncate(fd, 16384) && pol_fd_open(fd, &file) >= 0 && file);
	CLAIM(!pol_mmap(file, fd, NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, 0, &addr));
	map = addr;
	sys = vm_sys_linux;
	sys.openat = openat_but_copies;
	vm_sys = &sys;
	(void)snprintf(path, sizeof(path), "rm -rf %s", dir);
	CLAIM(!system(path));
	return 0;
}

static void check_answer(char *line)
{
	struct json_object *o = json_tokener_parse(line), *ok, *name;

	CLAIM(json_object_is_type(o, json_type_object));
	CLAIM(json_object_object_get_ex(o, "ok", &ok) && json_object_is_type(ok, json_type_boolean));
	CLAIM(json_object_get_boolean(ok) ||
	      (json_object_object_get_ex(o, "errno", &name) && *json_object_get_string(name) == 'E'));
	json_object_put(o);
}

/* What has come, line by line; half a line stays. */
static size_t check_answers(int s, char *buf, size_t have, size_t max)
{
	ssize_t n;

	while ((n = recv(s, buf + have, max - 1 - have, MSG_DONTWAIT)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		CLAIM(strlen(buf) == have);
		while ((end = strchr(line, '\n'))) {
			*end = 0;
			check_answer(line);
			line = end + 1;
		}
		have = strlen(line);
		memmove(buf, line, have + 1);
	}
	return have;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	static char buf[1 << 20];
	size_t piece = len ? *in + 1 : 1, at = !!len, have = 0;
	int s[2];

	CLAIM(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s));
	*map = 1; /* something is dirty */
	client.fd = s[1];
	CLAIM(!vm_fd_adopt(&client.fd));
	pol_client_begin(&client);
	for (unsigned turns = 0; client.fd >= 0; turns++) {
		size_t n = len - at < piece ? len - at : piece;

		CLAIM(turns < 100000); /* it ends */
		if (n && send(s[0], in + at, n, MSG_NOSIGNAL) > 0)
			at += n;
		else
			(void)shutdown(s[0], SHUT_WR);
		(void)pol_client_serve(&client);
		have = check_answers(s[0], buf, have, sizeof(buf));
	}
	have = check_answers(s[0], buf, have, sizeof(buf));
	CLAIM(!have);
	close(s[0]);
	return 0;
}
