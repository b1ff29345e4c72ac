/* SPDX-License-Identifier: MIT */
/* What can be done to managed files from outside: by the command and the socket, by signals and timers. */
#define _GNU_SOURCE 1
#include "managed_priv.h"
#include "backends.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- orders ---- */

bool pol_file_is_meant(const struct pol_file *m, const char *path)
{
	return !path || pol_match(path, m->path) || !strcmp(path, m->path);
}

void pol_for_each_meant(const char *path, struct pol_result *ret, pol_order_fn *op, void *arg)
{
	uint64_t start = pol_now_usec(CLOCK_MONOTONIC);
	struct pol_file *m;

	ret->order = pol_next_order();
	for (m = pol_file_next(NULL); m; m = pol_file_next(m)) {
		if (pol_file_is_meant(m, path) && m->order != ret->order) {
			int err = op(m, ret, arg);

			ret->nfiles++;
			if (err && !ret->err) {
				ret->err = err;
				if (!*ret->error)
					(void)snprintf(ret->error, sizeof(ret->error), "%.150s: %s", m->path,
						       strerror(-err));
			}
		}
	}
	if (!ret->nfiles && path) {
		ret->err = -ENOENT;
		(void)snprintf(ret->error, sizeof(ret->error), "%.200s: no managed file matches", path);
	}
	ret->usec = pol_now_usec(CLOCK_MONOTONIC) - start;
}

/* All of s are done, whichever of them was meant. */
static void note_set(struct pol_set *s, struct pol_result *ret)
{
	pol_set_order(s->m[0], ret->order);
	ret->nfiles += s->n - 1;
}

static int commit_set(struct pol_file *m, struct pol_result *ret, void *arg)
{
	struct vm_commit_result res;
	struct pol_set s;
	int err = pol_set_get(m, &s);

	(void)arg;
	if (err)
		return err;
	err = pol_set_commit(&s, true, false, &res);
	note_set(&s, ret);
	pol_set_put(&s);
	ret->txid = res.txid;
	ret->npages += res.npages;
	ret->nbytes += res.npages * VM_BLKSIZE;
	return err;
}

void pol_managed_commit(const char *path, struct pol_result *ret)
{
	memset(ret, 0, sizeof(*ret));
	pol_for_each_meant(path, ret, commit_set, NULL);
}

/* What somebody else made of the files is theirs, too, from now on: the next commit has no conflict with that. */
static int take_in_changes(struct pol_set *s)
{
	struct vm_dropped d;
	int err = 0;

	for (unsigned i = 0; err >= 0 && i < s->n; i++)
		err = vm_fileh_refresh(s->h[i], false, VM_DIRTY_DROP, &d);
	return err < 0 ? err : 0;
}

static int discard_set(struct pol_file *m, struct pol_result *ret, void *arg)
{
	uint64_t npages = 0;
	struct pol_set s;
	int err = pol_set_get(m, &s);

	(void)arg;
	if (err)
		return err;
	for (unsigned i = 0; i < s.n; i++) {
		struct vm_fileh_stat st;

		vm_fileh_stat(s.h[i], true, &st);
		npages += st.npages_dirty;
		if (!i)
			ret->txid = st.txid;
	}
	err = vm_discard(s.h, s.n);
	if (!err)
		err = take_in_changes(&s);
	note_set(&s, ret);
	pol_set_put(&s);
	ret->npages += npages;
	if (err)
		pol_file_failed(m, "discard", err);
	return err;
}

void pol_managed_discard(const char *path, struct pol_result *ret)
{
	memset(ret, 0, sizeof(*ret));
	pol_for_each_meant(path, ret, discard_set, NULL);
}

struct range {
	uint64_t off, len;
};

static int invalidate_one(struct pol_file *m, struct pol_result *ret, void *arg)
{
	const struct range *r = arg;
	uint64_t npages = 0, size = vm_fileh_size(m->h), len = r->len;
	int err;

	if (r->off && r->off >= size) {
		if (!ret->err)
			(void)snprintf(ret->error, sizeof(ret->error),
				       "%.150s: offset %llu is not below the size %llu", m->path,
				       (unsigned long long)r->off, (unsigned long long)size);
		return -ERANGE;
	}
	if (len >= size - r->off) /* to the end, wherever that is by now */
		len = 0;
	err = vm_fileh_invalidate(m->h, r->off, len, (enum vm_on_dirty)m->rule->on_invalid_dirty, &npages);
	ret->npages += npages;
	if (err)
		pol_file_failed(m, "invalidate", err);
	return err;
}

void pol_managed_invalidate(const char *path, uint64_t off, uint64_t len, struct pol_result *ret)
{
	struct range r = {off, len};

	memset(ret, 0, sizeof(*ret));
	pol_for_each_meant(path, ret, invalidate_one, &r);
}

void pol_managed_status(void (*fn)(const struct pol_file_status *st, void *arg), void *arg)
{
	struct pol_file *m;

	for (m = pol_file_next(NULL); m; m = pol_file_next(m)) {
		struct pol_file_status s = {
			.path = m->path, .rule = m->rule->name, .backend = m->file.ops->name};
		struct vm_fileh_stat st;

		vm_fileh_stat(m->h, true, &st);
		s.nvmas = vm_fileh_nvmas(m->h);
		s.on_disk = !pol_backend_is_file(&m->file) || pol_backend_file_is_on_disk(&m->file);
		s.snapshot = m->rule->snapshot;
		s.needs_recovery = pol_backend_is_file(&m->file) && pol_backend_file_needs_recovery(&m->file);
		pol_lock();
		s.size = st.size;
		s.npages_resident = st.npages_resident;
		s.npages_dirty = st.npages_dirty;
		s.size_dirty = st.size_dirty;
		s.txid = st.txid;
		s.last_commit_usec = m->last_commit_usec;
		s.ncommits = m->ncommits;
		s.nfailed = m->nfailed;
		s.nfds = m->nfds;
		memcpy(s.last_error, m->last_error, sizeof(s.last_error));
		pol_unlock();
		fn(&s, arg);
	}
}

/* ---- signals ---- */

static uint32_t signalled; /* enum order bits (atomic) */
enum order { ORDER_COMMIT = 1, ORDER_DISCARD = 2, ORDER_INVALIDATE = 4 };

static uint64_t bit(int signo)
{
	return signo > 0 ? 1ull << (signo - 1) : 0;
}

static uint64_t configured(void)
{
	const struct pol_config *c = pol_config_get();

	return bit(c->commit_signal) | bit(c->discard_signal) | bit(c->invalidate_signal);
}

static bool term_triggers(void)
{
	const struct pol_config *c = pol_config_get();

	for (size_t i = 0; i < c->nrules; i++)
		if (c->rules[i].commit & (1u << POL_EV_TERM))
			return true;
	return false;
}

uint64_t pol_signals_wanted(void)
{
	const uint64_t terms = bit(SIGTERM) | bit(SIGINT) | bit(SIGHUP);

	if (!pol_has_live())
		return configured();
	return configured() | bit(SIGSEGV) | bit(SIGBUS) | (term_triggers() ? terms : 0);
}

bool pol_signal_is_trigger(int signo)
{
	return pol_signals_wanted() & bit(signo) & ~(bit(SIGSEGV) | bit(SIGBUS));
}

void pol_signal(int signo, bool is_default)
{
	const struct pol_config *c = pol_config_get();
	uint32_t orders = 0;

	if (signo == c->commit_signal)
		orders |= ORDER_COMMIT;
	if (signo == c->discard_signal)
		orders |= ORDER_DISCARD;
	if (signo == c->invalidate_signal)
		orders |= ORDER_INVALIDATE;
	if (orders) {
		__atomic_or_fetch(&signalled, orders, __ATOMIC_SEQ_CST);
		pol_control_kick();
	} else if (is_default) {
		(void)pol_event_all(POL_EV_TERM); /* logged; the process ends as the signal says */
	}
}

static void obey(uint32_t orders)
{
	struct pol_result res;

	if (orders & ORDER_DISCARD)
		pol_managed_discard(NULL, &res);
	if (orders & ORDER_INVALIDATE)
		pol_managed_invalidate(NULL, 0, 0, &res);
	if (orders & ORDER_COMMIT)
		pol_managed_commit(NULL, &res);
}

/* ---- the helper thread's work ---- */

void pol_managed_deferred(void)
{
	struct vm_commit_result res;
	struct pol_file *m;
	uint32_t wanted;

	obey(__atomic_exchange_n(&signalled, 0, __ATOMIC_SEQ_CST));
	for (m = pol_file_next(NULL); m; m = pol_file_next(m)) {
		wanted = __atomic_exchange_n(&m->wanted, 0, __ATOMIC_SEQ_CST);
		if (wanted & POL_WANT_COMMIT)
			(void)pol_commit_file(m, !m->rule->lazy, false,
					      &res); /* MS_ASYNC has nobody to tell: logged */
		if (wanted & POL_WANT_WRITEBACK) /* an error is seen again, and told, by the checkpoint's fdatasync */
			(void)vm_sys->sync_file_range(m->file.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	}
}

#define POLL_USEC 500000u /* only for rules with a dirty limit, and those that see changes */

/* Earlier of two times, 0 meaning never. */
static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static bool is_over_dirty_limit(struct pol_file *m)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(m->h, true, &st);
	return st.npages_dirty * VM_BLKSIZE >= m->rule->dirty_limit;
}

/* Do what is due for m; returns when it wants to be looked at again. */
static uint64_t tick_one(struct pol_file *m, uint64_t now)
{
	uint64_t next;

	if (m->next_interval_usec && now >= m->next_interval_usec) {
		(void)pol_event(m, POL_EV_INTERVAL); /* logged; the next interval tries again */
		m->next_interval_usec = pol_now_usec(CLOCK_MONOTONIC) + m->rule->interval_usec;
	}
	pol_see_change(m);
	if (m->rule->dirty_limit && is_over_dirty_limit(m))
		(void)pol_event(m, POL_EV_DIRTY);
	if (m->checkpoint_usec && now >= m->checkpoint_usec) {
		int err = vm_fileh_checkpoint(m->h);

		if (err)
			pol_file_failed(m, "checkpoint: what was committed stays in the journal", err);
		m->checkpoint_usec = 0;
	}
	next = earlier(m->next_interval_usec, m->checkpoint_usec);
	return m->rule->dirty_limit || m->rule->invalidate == POL_INV_CHANGE ? earlier(next, now + POLL_USEC)
									     : next;
}

int64_t pol_managed_tick(void)
{
	uint64_t now = pol_now_usec(CLOCK_MONOTONIC), next = 0;
	struct pol_file *m;

	for (m = pol_file_next(NULL); m; m = pol_file_next(m))
		next = earlier(next, tick_one(m, now));
	if (!next)
		return -1;
	return next > now ? (int64_t)(next - now) : 0;
}
