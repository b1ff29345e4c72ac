/* SPDX-License-Identifier: MIT */
/* The processes under txmap: found by their control sockets, asked over them. */
#include "cli.h"
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <json-c/json_visit.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SEC 30	       /* a process that has not answered a short question for so long is stuck */
#define ANSWER_MAX (64u << 20) /* bytes: no answer is as long, and root asks processes of anybody */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct cli_target *t = state->input;
	char *end;
	long pid;

	switch (key) {
	case 'p':
		if (t->glob)
			argp_error(state, "--path may be given once");
		t->glob = cli_glob_absolute(arg);
		return 0;
	case 'a':
		t->all = true;
		return 0;
	case 'j':
		t->json = true;
		return 0;
	case ARGP_KEY_ARG:
		pid = strtol(arg, &end, 10);
		if (t->pid || *end || pid <= 0 || pid > INT32_MAX)
			return ARGP_ERR_UNKNOWN;
		t->pid = (pid_t)pid;
		return 0;
	case ARGP_KEY_END:
		if (t->all && (t->pid || t->glob))
			argp_error(state, "--all, or a pid or --path, not both");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"path", 'p', "GLOB", 0, "The managed files that match, in every process or in that of PID", 0},
	{"all", 'a', NULL, 0, "Every process", 0},
	{"json", 'j', NULL, 0, "One JSON document on stdout", 0},
	{0},
};
const struct argp cli_target_argp = {.options = options, .parser = parse};

bool cli_target_is_given(const struct cli_target *t)
{
	return t->pid || t->glob || t->all;
}

int cli_no_target(const struct cli_target *t)
{
	if (t->pid && t->glob)
		cli_error("pid %d has no managed file that matches %s", t->pid, t->glob);
	else if (t->pid)
		cli_error("pid %d does not run under txmap, or has no managed file", t->pid);
	else
		cli_error("no process under txmap has a managed file%s%s", t->glob ? " that matches " : "",
			  t->glob ? t->glob : "");
	return CLI_NO_TARGET;
}

char *cli_encode(const char *word)
{
	char *out = cli_need(malloc(strlen(word) * 3 + 1)), *p = out;

	for (; *word; word++) {
		if ((unsigned char)*word > ' ' && *word != '%' && *word != 0x7f)
			*p++ = *word;
		else
			p += sprintf(p, "%%%02X", (unsigned char)*word);
	}
	*p = 0;
	return out;
}

struct json_object *cli_reply_error(int err, const char *text)
{
	struct json_object *o = cli_need(json_object_new_object());

	json_object_object_add(o, "ok", json_object_new_boolean(false));
	json_object_object_add(o, "errno", json_object_new_string(pol_errno_name(err)));
	json_object_object_add(o, "error", json_object_new_string(text));
	return o;
}

/* ---- one process ---- */

/* Connect to dirfd/name. A descriptor, or -errno; -ECONNREFUSED: nobody listens. */
static int connect_to(int dirfd, const char *name, uid_t owner)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return -errno;
	/* through the descriptor: a socket's name has at most 108 bytes, a directory's has more */
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%.32s", dirfd, name);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		err = -errno;
	else if (peer.uid != owner)
		err = -EPERM; /* not whose directory it is: a link leads elsewhere, to a service of root, say */
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

/* Stopped by a signal or a debugger: it would not answer before somebody lets it go on. */
static bool is_stopped(pid_t pid)
{
	char path[32], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	/* the name in brackets may hold anything, also brackets: the state follows the last one */
	for (int c, last = 0; (c = getc(f)) != EOF; last = c) {
		if (last == ')' && c == ' ')
			state = (char)getc(f);
	}
	fclose(f);
	return state == 'T' || state == 't';
}

/* Wait for the answer's next bytes; on a terminal, say that we wait. */
static int wait_readable(int fd, pid_t pid, const char *request, time_t start, bool is_long)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool shown = false;
	int n;

	for (;;) {
		if (!is_long && time(NULL) - start > ANSWER_SEC) {
			errno = ETIMEDOUT;
			n = -1;
			break;
		}
		n = poll(&p, 1, 1000);
		if (n > 0 || (n < 0 && errno != EINTR))
			break;
		if (is_stopped(pid)) {
			errno = EAGAIN;
			n = -1;
			break;
		}
		if (isatty(STDERR_FILENO)) {
			fprintf(stderr, "\rpid %d: %.*s ... %ld s", pid, (int)strcspn(request, " "), request,
				(long)(time(NULL) - start));
			shown = true;
		}
	}
	if (shown)
		fputs("\r\033[K", stderr);
	return n > 0 ? 0 : -errno;
}

static struct json_object *converse(int fd, pid_t pid, const char *request)
{
	bool is_long = strncmp(request, "status", 6) && strncmp(request, "ping", 4);
	struct json_tokener *tok = cli_need(json_tokener_new());
	struct json_object *reply = NULL;
	time_t start = time(NULL);
	char buf[16384];
	size_t total = 0;
	ssize_t n = -1;
	int err = 0;

	if (is_stopped(pid)) {
		json_tokener_free(tok);
		return cli_reply_error(
			-EAGAIN,
			"the process is stopped; nothing was asked of it (kill -CONT lets it go on)");
	}
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0 || send(fd, "\n", 1, MSG_NOSIGNAL) < 0)
		err = -errno;
	while (!err && !reply) {
		err = wait_readable(fd, pid, request, start, is_long);
		if (err)
			break;
		n = recv(fd, buf, sizeof(buf), 0);
		if (n <= 0) {
			err = n ? -errno : -ECONNRESET;
			break;
		}
		total += (size_t)n;
		if (total > ANSWER_MAX) {
			err = -EMSGSIZE;
			break;
		}
		reply = json_tokener_parse_ex(tok, buf, (int)n);
		if (!reply && json_tokener_get_error(tok) != json_tokener_continue)
			err = -EPROTO;
	}
	json_tokener_free(tok);
	if (json_object_is_type(reply, json_type_object))
		return reply;
	if (reply) { /* JSON, but no answer */
		json_object_put(reply);
		err = -EPROTO;
	}
	snprintf(buf, sizeof(buf), "no answer: %s",
		 err == -ECONNRESET ? "the process ended"
		 : err == -EAGAIN   ? "the process is stopped; it will do it when it goes on (kill -CONT)"
				    : strerror(-err));
	return cli_reply_error(err, buf);
}

/* What another user's process answers is shown on our terminal, which must not take orders from it. */
static int make_plain(json_object *o, int flags, json_object *parent, const char *key, size_t *index,
		      void *arg)
{
	char *text;

	(void)flags, (void)parent, (void)key, (void)index, (void)arg;
	if (!json_object_is_type(o, json_type_string))
		return JSON_C_VISIT_RETURN_CONTINUE;
	text = cli_need(strdup(json_object_get_string(o)));
	for (unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p < ' ' || *p == 0x7f)
			*p = '?';
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) /* the same in UTF-8 */
			p[0] = p[1] = '?';
	}
	if (!json_object_set_string(o, text))
		cli_need(NULL);
	free(text);
	return JSON_C_VISIT_RETURN_CONTINUE;
}

/* ---- all processes ---- */

struct search {
	const struct cli_target *target;
	const char *request;
	cli_reply_fn *fn;
	void *arg;
	unsigned nfound;
	struct {
		dev_t dev;
		ino_t ino;
	} seen[64]; /* directories; the same one may have several names */
	size_t nseen;
};

static bool is_new_dir(struct search *s, const struct stat *st)
{
	for (size_t i = 0; i < s->nseen; i++) {
		if (s->seen[i].dev == st->st_dev && s->seen[i].ino == st->st_ino)
			return false;
	}
	if (s->nseen < sizeof(s->seen) / sizeof(s->seen[0])) {
		s->seen[s->nseen].dev = st->st_dev;
		s->seen[s->nseen++].ino = st->st_ino;
	}
	return true;
}

static void ask_one(struct search *s, int dirfd, const char *name, pid_t pid, uid_t owner)
{
	struct json_object *reply;
	int fd = connect_to(dirfd, name, owner);

	if (fd == -ECONNREFUSED) { /* left by a process that is gone */
		if (owner == geteuid())
			unlinkat(dirfd, name, 0);
		return;
	}
	if (fd == -ENOENT)
		return;
	if (fd < 0) {
		char text[128];

		snprintf(text, sizeof(text), "cannot connect: %s", strerror(-fd));
		reply = cli_reply_error(fd, text);
	} else {
		reply = converse(fd, pid, s->request);
		close(fd);
		if (!s->target->json)
			(void)json_c_visit(reply, 0, make_plain, NULL); /* it visits all */
	}
	s->nfound++;
	s->fn(pid, reply, s->arg);
	json_object_put(reply);
}

/* Only a directory that its owner alone can write to, the owner being us unless we are root: anyone could put
 * something that answers into another. */
static void ask_dir(struct search *s, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *e;
	struct stat st;
	DIR *dir;

	if (fd < 0)
		return;
	if (fstat(fd, &st) || (geteuid() && st.st_uid != geteuid()) || (st.st_mode & 022) ||
	    !is_new_dir(s, &st)) {
		close(fd);
		return;
	}
	dir = cli_need(fdopendir(fd));
	while ((e = readdir(dir))) {
		char *end;
		long pid = strtol(e->d_name, &end, 10);

		if (pid <= 0 || pid > INT32_MAX || strcmp(end, ".sock"))
			continue;
		if (s->target->pid && s->target->pid != pid)
			continue;
		ask_one(s, fd, e->d_name, (pid_t)pid, st.st_uid);
	}
	closedir(dir);
}

/* Wherever a process of ours may have put its socket: it may have had other variables than we. */
unsigned cli_ask(const struct cli_target *t, const char *request, cli_reply_fn *fn, void *arg)
{
	static const char *const of_user[] = {"/run/user/%u/txmap", "/run/txmap-%u", "/tmp/txmap-%u"};
	static const char *const of_all[] = {"/run/user/*/txmap", "/run/txmap-*", "/tmp/txmap-*"};
	struct search s = {.target = t, .request = request, .fn = fn, .arg = arg};
	const struct cli_settings none = {0};
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	ask_dir(&s, cli_settings_load(&none)->runtime_dir);
	if (xdg && *xdg == '/') {
		char *path;

		if (asprintf(&path, "%s/txmap", xdg) < 0)
			cli_need(NULL);
		ask_dir(&s, path);
		free(path);
	}
	for (size_t i = 0; i < 3; i++) {
		char path[64];
		glob_t g;

		snprintf(path, sizeof(path), of_user[i], geteuid());
		ask_dir(&s, path);
		if (geteuid() || glob(of_all[i], GLOB_NOSORT, NULL, &g))
			continue;
		for (size_t j = 0; j < g.gl_pathc; j++)
			ask_dir(&s, g.gl_pathv[j]);
		globfree(&g);
	}
	return s.nfound;
}
