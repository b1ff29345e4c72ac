/* SPDX-License-Identifier: MIT */
/* What happens to mappings, descriptors and processes while others store. */
#include "chaos.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void failed(const struct worker *w, const char *what, unsigned f)
{
	violation("slot %u: %s of %s: %s", w->slot, what, file_name(f), strerrorname_np(errno));
	_exit(0);
}

static uint8_t *map_file(struct worker *w, unsigned f)
{
	void *p = mmap(NULL, file_len(f), PROT_READ | PROT_WRITE, MAP_SHARED, w->fd[f], 0);

	if (p == MAP_FAILED)
		failed(w, "mmap", f);
	return p;
}

static void unmap_file(struct worker *w, unsigned f, void *at)
{
	if (munmap(at, file_len(f)))
		failed(w, "munmap", f);
}

void open_file(struct worker *w, unsigned f)
{
	w->fd[f] = open(file_name(f), O_RDWR | O_CLOEXEC);
	if (w->fd[f] < 0)
		failed(w, "open", f);
	w->view[f] = file_view(f, map_file(w, f));
}

void close_files(struct worker *w)
{
	for (unsigned f = 0; f < NFILES; f++) {
		commit_mark(w, f, true);
		unmap_file(w, f, w->view[f].base);
		w->view[f].base = NULL;
		if (close(w->fd[f]))
			failed(w, "close", f);
		commit_mark(w, f, false);
	}
}

void remap_file(struct worker *w, unsigned f)
{
	size_t len = file_len(f);
	void *old = w->view[f].base, *to;

	switch (random_below(&w->random, 3)) {
	case 0:
		unmap_file(w, f, old);
		w->view[f].base = map_file(w, f);
		break;
	case 1:
		w->view[f].base = map_file(w, f);
		store_anything(w, f);
		unmap_file(w, f, old);
		break;
	case 2:
		to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (to == MAP_FAILED || mremap(old, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
			failed(w, "mremap", f);
		w->view[f].base = to;
		break;
	}
}

void reopen_file(struct worker *w, unsigned f)
{
	int fd = open(file_name(f), O_RDWR | O_CLOEXEC);

	if (fd < 0)
		failed(w, "open", f);
	if (close(w->fd[f]))
		failed(w, "close", f);
	w->fd[f] = fd;
}

/* ---- processes ---- */

void commits_are_unsure(unsigned slot)
{
	for (unsigned t = 0; t < NTHREADS; t++)
		for (unsigned f = 0; f < NFILES; f++)
			if (__atomic_exchange_n(&ledger->slot[slot].commits[t][f], 0, __ATOMIC_SEQ_CST))
				put32(&ledger->file[f].is_unsure, 1);
}

void end_children(unsigned slot)
{
	for (unsigned t = 0; t < NTHREADS; t++) {
		uint32_t pid = get32(&ledger->slot[slot].child[t]);

		if (!pid)
			continue;
		(void)kill((pid_t)pid, SIGKILL);
		(void)waitpid((pid_t)pid, NULL, 0);
		put32(&ledger->slot[slot].child[t], 0);
	}
}

/* Whatever is committed by the end of a process: it may be under way from now on. */
static void mark_all(struct worker *w)
{
	for (unsigned f = 0; f < NFILES; f++)
		commit_mark(w, f, true);
}

static void child_works(struct worker *w, uint32_t parent)
{
	struct slot *s = slot_of(w);

	put32(&s->child[w->thread], (uint32_t)getpid());
	if (get32(&s->pid) != parent || get32(&s->incarnation) != w->incarnation)
		_exit(0); /* the parent is no more, and nobody will know of this one */
	w->random ^= (uint64_t)getpid() << 20;
	for (uint64_t n = 1 + random_below(&w->random, 30); n; n--) {
		unsigned f = (unsigned)random_below(&w->random, NFILES);

		store_anything(w, f);
		if (!random_below(&w->random, 4))
			look(w, f);
		if (!random_below(&w->random, 20))
			commit(w, f);
		if (!random_below(&w->random, 40))
			remap_file(w, f);
	}
	put32(&s->doing[w->thread], DOES_EXIT);
	if (!random_below(&w->random, 3))
		raise(SIGKILL);
	mark_all(w);
	if (random_below(&w->random, 2))
		_exit(0);
	exit(0);
}

void fork_child(struct worker *w)
{
	struct slot *s = slot_of(w);
	uint32_t self = (uint32_t)getpid();
	int st = 0;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		struct worker c = *w;

		c.is_child = true;
		child_works(&c, self);
	}
	count(&ledger->forks);
	if (pid < 0 || waitpid(pid, &st, 0) != pid)
		failed(w, "fork", 0);
	if (WIFSIGNALED(st)) {
		if (WTERMSIG(st) != SIGKILL)
			violation("slot %u: its child %d, doing %s, ended by SIG%s", w->slot, pid,
				  doing_names[get32(&s->doing[w->thread]) % NDOING],
				  sigabbrev_np(WTERMSIG(st)));
		for (unsigned f = 0; f < NFILES; f++)
			if (get32(&s->commits[w->thread][f]))
				put32(&ledger->file[f].is_unsure, 1);
	} else if (WEXITSTATUS(st)) {
		violation("slot %u: its child %d ended with status %d", w->slot, pid, WEXITSTATUS(st));
	}
	put32(&s->child[w->thread], 0);
	for (unsigned f = 0; f < NFILES; f++) {
		commit_mark(w, f, false);
		settle(w, f);
	}
}

static void go_on(const struct worker *w)
{
	struct worker me = *w;

	for (unsigned s = NMAIN; s < NSLOTS && !get32(&ledger->crash); s++) {
		uint32_t free = 0;

		if (!__atomic_compare_exchange_n(&ledger->slot[s].pid, &free, (uint32_t)getpid(), false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		me.slot = s;
		me.thread = 0;
		me.random ^= (uint64_t)getpid() << 20;
		worker_run(&me);
	}
	_exit(0);
}

void fork_worker(struct worker *w)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (fork() == 0)
			go_on(w);
		_exit(0);
	}
	count(&ledger->forks);
	count(&ledger->forks);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		failed(w, "fork", 0);
}

void exec_self(const char *preload, const char *what, unsigned slot, uint64_t seed)
{
	char number[16], seeds[32];

	(void)snprintf(number, sizeof(number), "%u", slot);
	(void)snprintf(seeds, sizeof(seeds), "%lu", (unsigned long)seed);
	if (preload)
		(void)setenv("LD_PRELOAD", preload, 1);
	(void)execl("/proc/self/exe", "chaos", what, number, seeds, (char *)NULL);
	_exit(98);
}

void exec_again(struct worker *w)
{
	count(&ledger->execs);
	mark_all(w);
	exec_self(NULL, "worker", w->slot, w->random);
}

void end_process(struct worker *w)
{
	put32(&slot_of(w)->is_ending, 1);
	mark_all(w);
	count(&ledger->exits);
	switch (random_below(&w->random, 5)) {
	case 0:
		(void)raise(SIGTERM);
		break;
	case 1:
		(void)raise(SIGKILL);
		break;
	case 2:
		__builtin_trap();
	case 3:
		_exit(0);
	}
	exit(0);
}
