/* SPDX-License-Identifier: MIT */
/* A commit of a file, or of all files of its rule (scope=group): which they are, what is tried again, what is
 * counted and said. */
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- the files of a commit ---- */

/* Held while files of a group are at work together, and while one of them ends: so none ends under the others'
 * hands. Before pol_lock, and before any handle's busy. */
static pthread_mutex_t together = PTHREAD_MUTEX_INITIALIZER;

void pol_set_fork_child(void)
{
	together = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void add(struct pol_set *s, struct pol_file *m)
{
	s->m[s->n] = m;
	s->h[s->n++] = m->h;
}

static int add_others_locked(struct pol_set *s, struct pol_file *m)
{
	size_t n = 0;

	for (struct pol_file *f = pol_files; f; f = f->next)
		n += f->rule == m->rule;
	s->len = n * (sizeof(*s->m) + sizeof(*s->h) + sizeof(*s->res) + sizeof(*s->before));
	s->mem = vm_own_map(s->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm_sys_err(s->mem))
		return vm_sys_err(s->mem);
	s->res = s->mem;
	s->m = (struct pol_file **)(s->res + n);
	s->h = (struct vm_fileh **)(s->m + n);
	s->before = (uint64_t *)(s->h + n);
	add(s, m);
	for (struct pol_file *f = pol_files; f; f = f->next) {
		if (f == m || f->rule != m->rule || !f->h)
			continue;
		f->refs++;
		add(s, f);
	}
	return 0;
}

int pol_set_get(struct pol_file *m, struct pol_set *s)
{
	int err;

	*s = (struct pol_set){.m = &s->one_m, .h = &s->one_h, .res = &s->one_res, .before = &s->one_before};
	if (!m->rule->group) {
		add(s, m);
		return 0;
	}
	(void)pthread_mutex_lock(&together);
	pol_lock();
	err = add_others_locked(s, m);
	pol_unlock();
	if (err) {
		(void)pthread_mutex_unlock(&together);
		pol_file_failed(m, "the files of its group cannot be gathered", err);
	}
	return err;
}

void pol_set_put(struct pol_set *s)
{
	if (!s->mem)
		return;
	(void)pthread_mutex_unlock(&together); /* a release may be due with the last reference */
	for (unsigned i = 1; i < s->n; i++)
		pol_file_put(s->m[i]);
	(void)vm_sys->munmap(s->mem, s->len); /* whole, ours: cannot fail */
}

uint64_t pol_next_order(void)
{
	static uint64_t norders;

	return __atomic_add_fetch(&norders, 1, __ATOMIC_RELAXED);
}

void pol_set_order(struct pol_file *m, uint64_t order)
{
	m->order = order;
	pol_lock();
	for (struct pol_file *f = m->rule->group ? pol_files : NULL; f; f = f->next)
		if (f->rule == m->rule)
			f->order = order;
	pol_unlock();
}

/* ---- a commit ---- */

/* How long the journal is kept when nothing happens: a lazy commit reaches the disk soon, a durable one only
 * has to leave the journal. */
#define LAZY_USEC 50000u
#define IDLE_USEC 3000000u

static bool stored_here(struct pol_set *s)
{
	struct vm_fileh_stat st;
	bool stored = false;

	for (unsigned i = 0; i < s->n && !stored; i++) {
		vm_fileh_stat(s->h[i], true, &st);
		stored = st.stored_here;
	}
	return stored;
}

/* Those that were only read so far. Are all writable now? */
static bool make_writable(struct pol_set *s)
{
	bool did = false;

	for (unsigned i = 0; i < s->n; i++) {
		if (s->m[i]->file.writable)
			continue;
		if (!pol_file_make_writable(s->m[i])) /* one that ends waits for this set */
			return false;
		did = true;
	}
	return did;
}

static int checkpoint(struct pol_set *s)
{
	int err = 0;

	for (unsigned i = 0; i < s->n && !err; i++)
		err = vm_fileh_checkpoint(s->h[i]);
	return err;
}

static int commit(struct pol_set *s, bool durable, bool own_only)
{
	bool overwrite = s->m[0]->rule->overwrite;
	int err = vm_commit(s->h, s->n, durable, overwrite, s->res);

	/* one that was stored into only after the others had begun is to join its group before that */
	for (unsigned i = 1; err == -EAGAIN && i < s->n; i++)
		err = vm_commit(s->h, s->n, durable, overwrite, s->res);
	/* a forked child wrote, and was killed: this process, that only reads the file, has to bring it home */
	if (err == -EBADF && !own_only && make_writable(s))
		err = vm_commit(s->h, s->n, durable, overwrite, s->res);
	/* the journal may be full of what is in the file by now: from its beginning there is more room */
	if ((err == -ENOSPC || err == -EDQUOT) && !checkpoint(s))
		err = vm_commit(s->h, s->n, durable, overwrite, s->res);
	return err;
}

static void tell_failure(struct pol_set *s, int err)
{
	const char *what = "commit: nothing was written, the stores are kept";
	struct pol_file *m = s->m[0];

	if (err == -EBUSY && m->rule->snapshot)
		what = "commit: others have committed what was changed here, too; discard it, or set "
		       "conflict=overwrite";
	else if (err == -EBUSY)
		what = "commit: the file was changed by somebody else; invalidate it, or set "
		       "conflict=overwrite";
	for (unsigned i = 1; i < s->n; i++)
		if (s->res[i].conflict)
			m = s->m[i];
	pol_file_failed(m, what, err);
}

/* So much journal, and the kernel begins to write the file back, while commits go on: the checkpoint, for which
 * one of them has to wait, finds little left. */
#define WRITEBACK_LEN (4u << 20)

static bool want_writeback_locked(struct pol_file *m)
{
	uint64_t n = pol_backend_is_file(&m->file) ? pol_backend_file_journal_fill(&m->file) / WRITEBACK_LEN : 0;
	bool wants = n > m->nwritebacks;

	m->nwritebacks = n;
	if (wants)
		__atomic_or_fetch(&m->wanted, POL_WANT_WRITEBACK, __ATOMIC_SEQ_CST);
	return wants;
}

/* Count what happened to m, which had txid before. Has the helper thread something to do that it does not know of? */
static bool note_locked(struct pol_file *m, const struct vm_commit_result *res, uint64_t before, bool durable)
{
	bool was_idle = !m->checkpoint_usec;

	if (res->txid == before)
		return false;
	m->ncommits++;
	m->last_commit_usec = pol_now_usec(CLOCK_REALTIME);
	m->checkpoint_usec = pol_now_usec(CLOCK_MONOTONIC) + (durable ? IDLE_USEC : LAZY_USEC);
	return want_writeback_locked(m) || was_idle;
}

static void tell_overwritten(const struct pol_file *m, const struct vm_commit_result *res)
{
	if (res->overwrote)
		pol_log(POL_LOG_WARN,
			"%s: %llu pages%s that others had committed since were overwritten: "
			"conflict=overwrite",
			m->path, (unsigned long long)res->noverwritten,
			res->noverwritten ? "" : ", but the size,");
}

int pol_set_commit(struct pol_set *s, bool durable, bool own_only, struct vm_commit_result *ret)
{
	bool news = false;
	int err;

	for (unsigned i = 0; i < s->n; i++) {
		struct vm_fileh_stat st;

		vm_fileh_stat(s->h[i], false, &st);
		s->before[i] = st.txid;
	}
	*ret = (struct vm_commit_result){.txid = s->before[0]};
	if (own_only && !stored_here(s))
		return 0;
	err = commit(s, durable, own_only);
	pol_lock();
	for (unsigned i = 0; i < s->n; i++) {
		if (!err)
			s->m[i]->end_again_usec = 0;
		if (err)
			s->m[i]->nfailed++;
		else
			news |= note_locked(s->m[i], &s->res[i], s->before[i], durable);
	}
	pol_unlock();
	if (err) {
		tell_failure(s, err);
		return err;
	}
	ret->txid = s->res[0].txid;
	for (unsigned i = 0; i < s->n; i++) {
		tell_overwritten(s->m[i], &s->res[i]);
		ret->npages += s->res[i].npages;
	}
	if (news)
		pol_control_kick(); /* the helper thread has a time to wait for now; a later one it finds by itself */
	return 0;
}

int pol_commit_file(struct pol_file *m, bool durable, bool own_only, struct vm_commit_result *ret)
{
	struct pol_set s;
	int err;

	memset(ret, 0, sizeof(*ret));
	err = pol_set_get(m, &s);
	if (err)
		return err;
	err = pol_set_commit(&s, durable, own_only, ret);
	pol_set_put(&s);
	return err;
}
