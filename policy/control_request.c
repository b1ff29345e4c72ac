/* SPDX-License-Identifier: MIT */
/* What can be asked over the control socket. */
#include "config_priv.h"
#include "control_priv.h"
#include "log.h"
#include "managed.h"
#include "version.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void put_result(struct pol_out *o, const struct pol_result *r)
{
	if (r->err) {
		pol_out_error(o, r->err, "%s", *r->error ? r->error : "failed");
		return;
	}
	pol_out_text(o, "{\"ok\":true,\"txid\":%lu,\"files\":%lu,\"pages\":%lu,\"bytes\":%lu,\"usec\":%lu}\n",
		     r->txid, r->nfiles, r->npages, r->nbytes, r->usec);
}

static void serve_commit(const struct pol_request *q, struct pol_out *o)
{
	struct pol_result r = {0};

	pol_managed_commit(q->words[1], &r);
	put_result(o, &r);
}

static void serve_discard(const struct pol_request *q, struct pol_out *o)
{
	struct pol_result r = {0};

	pol_managed_discard(q->words[1], &r);
	put_result(o, &r);
}

static void serve_invalidate(const struct pol_request *q, struct pol_out *o)
{
	struct pol_result r = {0};
	uint64_t off = 0, len = 0;

	if (q->nwords > 2 && (pol_parse_size(q->words[2], &off) || pol_parse_size(q->words[3], &len))) {
		pol_out_error(o, EINVAL, "invalidate %s %s %s: OFFSET and LENGTH are sizes (units K M G T)",
			      q->words[1], q->words[2], q->words[3]);
		return;
	}
	pol_managed_invalidate(q->words[1], off, len, &r);
	put_result(o, &r);
}

static void put_file(const struct pol_file_status *st, void *arg)
{
	struct pol_out *o = arg;

	if (o->mem[o->len - 1] == '}')
		pol_out_text(o, ",");
	pol_out_text(o, "{\"path\":");
	pol_out_string(o, st->path);
	pol_out_text(o, ",\"rule\":");
	pol_out_string(o, st->rule);
	pol_out_text(o, ",\"backend\":");
	pol_out_string(o, st->backend);
	pol_out_text(o, ",\"size\":%lu,\"pages\":%lu,\"dirty\":%lu,\"size_dirty\":%s,\"txid\":%lu", st->size,
		     st->npages_resident, st->npages_dirty, st->size_dirty ? "true" : "false", st->txid);
	pol_out_text(o, ",\"last_commit_usec\":%lu,\"commits\":%lu,\"failed\":%lu", st->last_commit_usec,
		     st->ncommits, st->nfailed);
	pol_out_text(o,
		     ",\"mappings\":%u,\"descriptors\":%u,\"share\":\"%s\",\"on_disk\":%s,\"needs_recovery\":"
		     "%s,\"last_error\":",
		     st->nvmas, st->nfds, st->snapshot ? "process" : "user", st->on_disk ? "true" : "false",
		     st->needs_recovery ? "true" : "false");
	if (*st->last_error)
		pol_out_string(o, st->last_error);
	else
		pol_out_text(o, "null");
	pol_out_text(o, "}");
}

/* The name of the program (of its first thread, not of this one). */
static void read_comm(char *buf, size_t len)
{
	int fd = vm_sys->openat(AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? 0 : vm_sys->read(fd, buf, len - 1);

	if (fd >= 0)
		(void)vm_sys->close(fd); /* only read from */
	buf[n > 0 ? n : 0] = 0;
	buf[strcspn(buf, "\n")] = 0;
}

static void serve_status(const struct pol_request *q, struct pol_out *o)
{
	static const char *const engines[] = {"auto", "uffd", "segv"};
	const char *why = NULL;
	enum vm_engine engine = vm_engine(&why);
	char comm[64];

	(void)q;
	read_comm(comm, sizeof(comm));
	pol_out_text(o, "{\"ok\":true,\"pid\":%d,\"comm\":", vm_sys->getpid());
	pol_out_string(o, comm);
	pol_out_text(o, ",\"engine\":\"%s\",\"engine_reason\":", engines[engine]);
	if (why)
		pol_out_string(o, why);
	else
		pol_out_text(o, "null");
	pol_out_text(o, ",\"files\":[");
	if (!o->failed)
		pol_managed_status(put_file, o);
	pol_out_text(o, "]}\n");
}

static void serve_snapshot(const struct pol_request *q, struct pol_out *o)
{
	struct pol_result r = {0};

	if (q->words[2][0] != '/') {
		pol_out_error(o, EINVAL, "snapshot to %.200s: not an absolute path", q->words[2]);
		return;
	}
	if (q->words[3] && strcmp(q->words[3], "force")) {
		pol_out_error(o, EINVAL, "snapshot: %.100s: only `force' may follow OUT", q->words[3]);
		return;
	}
	pol_managed_snapshot(q->words[1], q->words[2], q->words[3], &r);
	if (r.err)
		put_result(o, &r);
	else
		pol_out_text(o,
			     "{\"ok\":true,\"txid\":%lu,\"files\":%lu,\"instants\":%lu,\"reflinked\":%lu,"
			     "\"pages\":%lu,\"bytes\":%lu,\"usec\":%lu}\n",
			     r.txid, r.nfiles, r.ninstants, r.nreflinked, r.npages, r.nbytes, r.usec);
}

static void serve_set(const struct pol_request *q, struct pol_out *o)
{
	const char *key = q->words[1], *value = q->words[2], *reason;
	int opt = pol_opt_find(key, strlen(key));
	struct pol_config c = {0};
	struct pol_rule r = {0};

	if (opt < 0) {
		pol_out_error(o, EINVAL, "set %s: unknown key; allowed: log", key);
	} else if (opt != POL_OPT_log) {
		pol_out_error(o, EOPNOTSUPP, "set %s: only at the start of a program; at run time: log", key);
	} else if (pol_value_parse(POL_OPT_log, value, &r, &c, &reason)) {
		pol_out_error(o, EINVAL, "set log = %s: %s; allowed: %s", value, reason,
			      pol_opt_values(POL_OPT_log));
	} else {
		pol_log_set_level(c.log);
		pol_out_text(o, "{\"ok\":true}\n");
	}
}

static void serve_ping(const struct pol_request *q, struct pol_out *o)
{
	(void)q;
	pol_out_text(o, "{\"ok\":true,\"pid\":%d,\"version\":\"%s\"}\n", vm_sys->getpid(), TXMAP_VERSION);
}

static const struct verb {
	const char *name, *usage;
	void (*serve)(const struct pol_request *q, struct pol_out *o);
	bool has_path;	   /* words[1], when given, is a path */
	unsigned nargs_ok; /* bit n: n arguments are allowed */
} verbs[] = {
	{"status", "status", serve_status, false, 1u << 0},
	{"commit", "commit [PATH]", serve_commit, true, 1u << 0 | 1u << 1},
	{"discard", "discard [PATH]", serve_discard, true, 1u << 0 | 1u << 1},
	{"invalidate", "invalidate PATH [OFFSET LENGTH]", serve_invalidate, true, 1u << 1 | 1u << 3},
	{"snapshot", "snapshot PATH OUT [force]", serve_snapshot, true, 1u << 2 | 1u << 3},
	{"set", "set KEY VALUE", serve_set, false, 1u << 2},
	{"ping", "ping", serve_ping, false, 1u << 0},
};

void pol_request_serve(char *line, struct pol_out *o)
{
	const struct verb *v = NULL;
	struct pol_request q;
	const char *why;

	if (pol_request_parse(line, &q, &why)) {
		pol_out_error(o, EINVAL, "%s", why);
		return;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(verbs[i].name, q.words[0]))
			v = &verbs[i];
	}
	if (!v)
		pol_out_error(
			o, EINVAL,
			"%.64s: unknown request; allowed: status commit discard invalidate snapshot set ping",
			q.words[0]);
	else if (!(v->nargs_ok >> (q.nwords - 1) & 1))
		pol_out_error(o, EINVAL, "%s: wrong number of words; allowed: %s", v->name, v->usage);
	else if (v->has_path && q.words[1] && q.words[1][0] != '/')
		pol_out_error(o, EINVAL, "%s %.200s: not an absolute path", v->name, q.words[1]);
	else
		v->serve(&q, o);
}
