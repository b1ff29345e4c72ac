/* SPDX-License-Identifier: MIT */
/* Commits in the ways there are. One that fails is a violation: nothing here is a reason to. */
#include "chaos.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void commit_mark(struct worker *w, unsigned f, bool on)
{
	put32(&slot_of(w)->commits[w->thread][f], on);
}

/* By the control socket of anybody, who may be killed meanwhile. 0: it was not acknowledged. */
static int by_socket(struct worker *w, unsigned f)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	uint32_t pid = get32(&ledger->slot[random_below(&w->random, NSLOTS + 1)].pid);
	char line[600];
	size_t n = 0;
	ssize_t got = 1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), len;

	len = snprintf(to.sun_path, sizeof(to.sun_path), "%s/%u.sock", ledger->runtime, pid);
	if (fd < 0 || len >= (int)sizeof(to.sun_path) || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		(void)close(fd);
		return 0;
	}
	put32(&ledger->file[f].is_unsure, 1); /* it goes on if we die */
	len = snprintf(line, sizeof(line), "commit %s/%s\n", ledger->dir, file_name(f));
	if (send(fd, line, (size_t)len, MSG_NOSIGNAL) != len)
		got = 0;
	while (got > 0 && n < sizeof(line) - 1 && !memchr(line, '\n', n)) {
		got = recv(fd, line + n, sizeof(line) - 1 - n, 0);
		n += got > 0 ? (size_t)got : 0;
	}
	(void)close(fd);
	line[got > 0 ? n : 0] = 0;
	if (strstr(line, "\"ok\":true"))
		return 1;
	/* it may not have the file just now, or have been killed */
	if (line[0] && !strstr(line, "no such") && !strstr(line, "ENOENT") && !strstr(line, "ESRCH"))
		violation("commit of %s by the socket of process %u: %s", file_name(f), pid, line);
	return 0;
}

static int ask_for_it(struct worker *w, unsigned f)
{
	uint64_t r = random_below(&w->random, 10);
	int ret;

	if (r < 1 && ledger->has_txmap)
		return by_socket(w, f);
	if (r < 5)
		ret = msync(w->view[f].base, file_len(f), MS_SYNC);
	else if (r < 7)
		ret = msync(page_at(w->view[f], random_below(&w->random, NPAGES)), PAGE, MS_SYNC);
	else if (r < 9)
		ret = fsync(w->fd[f]);
	else
		ret = fdatasync(w->fd[f]);
	if (ret)
		violation("lane %u: the commit of %s: %s", w->lane, file_name(f), strerrorname_np(errno));
	return !ret;
}

bool commit_now(struct worker *w, unsigned f)
{
	struct bounds low;
	uint32_t did = get32(&slot_of(w)->doing[w->thread]);
	bool is_done;

	put32(&slot_of(w)->doing[w->thread], DOES_COMMIT);
	put32(&slot_of(w)->file[w->thread], f);
	bounds_low(f, &low);
	commit_mark(w, f, true);
	is_done = ask_for_it(w, f);
	if (is_done) {
		raise_floor(f, &low);
		count(&ledger->commits);
	}
	commit_mark(w, f, false);
	put32(&slot_of(w)->doing[w->thread], did);
	return is_done;
}

void commit(struct worker *w, unsigned f)
{
	if (random_below(&w->random, 10)) {
		(void)commit_now(w, f);
		return;
	}
	put32(&ledger->file[f].is_unsure, 1); /* it ends sometime */
	if (msync(w->view[f].base, file_len(f), MS_ASYNC))
		violation("lane %u: MS_ASYNC of %s: %s", w->lane, file_name(f), strerrorname_np(errno));
}
