/* SPDX-License-Identifier: MIT */
/* Consistent copies of live files, by order of the command: of one instant, those that commit together. */
#include "managed_priv.h"
#include "copy_out.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct order {
	const char *path, *out;
	bool replace;
	unsigned nmeant; /* files, as the order began */
};

/* Files of one instant. */
struct set {
	unsigned n, max;
	struct pol_file **m;	/* [n], each with a reference */
	struct vm_fileh **h;	/* [n] */
	struct vm_copy **copy;	/* [n] */
	struct pol_copy_out *c; /* [n] */
	void *mem;
	size_t len;
};

/* ---- who they are ---- */

static void add(struct set *s, struct vm_fileh *h)
{
	s->m[s->n] = pol_file_of_handle(h); /* it is live, the caller has a reference */
	s->h[s->n] = h;
	s->copy[s->n] = &s->c[s->n].copy;
	s->n++;
}

static int gather(struct set *s, struct pol_file *m, const struct order *o, uint64_t order)
{
	s->n = 0;
	s->max = m->rule->group ? o->nmeant : 1;
	s->len = s->max * (sizeof(*s->c) + sizeof(*s->m) + sizeof(*s->h) + sizeof(*s->copy));
	s->mem = vm_own_map(s->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm_sys_err(s->mem))
		return vm_sys_err(s->mem);
	s->c = s->mem;
	s->m = (struct pol_file **)(s->c + s->max);
	s->h = (struct vm_fileh **)(s->m + s->max);
	s->copy = (struct vm_copy **)(s->h + s->max);
	add(s, m->h);
	for (struct pol_file *f = s->max > 1 ? pol_file_next(NULL) : NULL; f; f = pol_file_next(f))
		if (f != m && f->rule == m->rule && f->order != order && s->n < s->max &&
		    pol_file_is_meant(f, o->path))
			add(s, f->h);
	return 0;
}

/* ---- their copies ---- */

static void fail(struct pol_result *ret, const struct pol_file *m, const char *out, const char *what, int err)
{
	if (*ret->error)
		return;
	(void)snprintf(ret->error, sizeof(ret->error), "%.80s: snapshot to %.80s: %s: %s", m->path, out, what,
		       pol_errno_name(err));
}

/* Of which of them is an error that all share? */
static unsigned find_failed(const struct set *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->c[i].what)
			return i;
	return 0;
}

static int copy(struct set *s, const struct order *o, struct pol_result *ret)
{
	unsigned nbegun = 0, i = 0;
	int err = 0;

	for (; !err && i < s->n; i += !err) {
		s->c[i].f = &s->m[i]->file;
		s->c[i].from = &s->m[i]->file.fd;
		s->c[i].replace = o->replace;
		err = pol_copy_out_begin(&s->c[i], s->m[i]->path, o->out, o->nmeant > 1);
		nbegun += !err;
	}
	if (!err) {
		err = vm_copy_out(s->h, s->copy, s->n, s->m[0]->rule->overwrite);
		i = err ? find_failed(s) : 0;
	}
	for (; !err && i < s->n; i += !err)
		err = pol_copy_out_place(&s->c[i], s->c[i].copy.size);
	if (err)
		fail(ret, s->m[i], *s->c[i].out ? s->c[i].out : o->out,
		     s->c[i].what    ? s->c[i].what
		     : err == -EBUSY ? "the file was changed by somebody else; invalidate it, or set "
				       "conflict=overwrite"
				     : "copy",
		     err);
	while (nbegun)
		pol_copy_out_end(&s->c[--nbegun]);
	return err;
}

static int snapshot_set(struct pol_file *m, struct pol_result *ret, void *arg)
{
	const struct order *o = arg;
	struct set s;
	int err = gather(&s, m, o, ret->order);

	if (err) {
		fail(ret, m, o->out, "memory", err);
		return err;
	}
	err = copy(&s, o, ret);
	ret->nfiles += s.n - 1;
	ret->ninstants++;
	for (unsigned i = 0; i < s.n; i++) {
		s.m[i]->order = ret->order;
		ret->txid = s.c[i].copy.txid;
		ret->npages += s.c[i].copy.npages;
		ret->nbytes += s.c[i].copy.size;
		ret->nreflinked += s.c[i].reflinked;
		pol_file_put(s.m[i]);
	}
	(void)vm_sys->munmap(s.mem, s.len); /* ours, whole: cannot fail */
	return err;
}

/* How many files are meant. That two of them have one name is an error. */
static int count(struct order *o, struct pol_result *ret)
{
	int err = 0;

	pol_lock();
	for (struct pol_file *m = pol_files; m; m = m->next) {
		if (!m->h || !pol_file_is_meant(m, o->path))
			continue;
		o->nmeant++;
		for (struct pol_file *f = m->next; f; f = f->next)
			if (f->h && pol_file_is_meant(f, o->path) &&
			    !strcmp(strrchr(f->path, '/'), strrchr(m->path, '/'))) {
				err = -EEXIST;
				(void)snprintf(ret->error, sizeof(ret->error),
					       "%.110s and %.110s have one name", m->path, f->path);
			}
	}
	pol_unlock();
	return err;
}

void pol_managed_snapshot(const char *path, const char *out, bool replace, struct pol_result *ret)
{
	struct order o = {.path = path, .out = out, .replace = replace};

	memset(ret, 0, sizeof(*ret));
	ret->err = count(&o, ret);
	if (!ret->err)
		pol_for_each_meant(path, ret, snapshot_set, &o);
}
