/* SPDX-License-Identifier: MIT */
/* The backend of a rig's file. */
#include "rig.h"
#include "rig_file.h"
#include "rig_group.h"

enum { NOT_STORED, STORED_CHANGES, STORED_WHOLE };

static void get_page(int fd, uint64_t pgoff, void *buf)
{
	rig_get_bytes(fd, pgoff * VM_PAGE, buf, VM_PAGE);
}

static void put_page(int fd, uint64_t pgoff, const void *buf)
{
	rig_put_bytes(fd, pgoff * VM_PAGE, buf, VM_PAGE);
}

/* ---- the backend ---- */

static struct rig_file *of(struct vm_bigfile *file)
{
	return (struct rig_file *)file; /* its first member */
}

/* In an operation: what core promises, the hook, the failure. */
static int enter(struct rig_file *f, enum rig_op op, uint64_t pgoff)
{
	rig_must(!vm_lock_is_held(VM_RANK_MAP) && !vm_lock_is_held(VM_RANK_FILEH) && !vm_lock_is_held(VM_RANK_FD),
	     "a lock is held while the backend runs");
	__atomic_add_fetch(&f->ncalls[op], 1, __ATOMIC_SEQ_CST);
	rig_hook *hook = __atomic_load_n(&f->hook[op], __ATOMIC_SEQ_CST);

	if (hook)
		hook(f, pgoff);
	if (!__atomic_load_n(&f->fail_nth[op], __ATOMIC_SEQ_CST) ||
	    __atomic_sub_fetch(&f->fail_nth[op], 1, __ATOMIC_SEQ_CST))
		return 0;
	return -f->fail_err[op];
}

static void begin_single(struct rig_file *f)
{
	rig_must(!__atomic_exchange_n(&f->busy, true, __ATOMIC_SEQ_CST), "two operations at a time");
}

static void end_single(struct rig_file *f)
{
	__atomic_store_n(&f->busy, false, __ATOMIC_SEQ_CST);
}

static int rig_op_open(struct vm_bigfile *file, const char *arg)
{
	(void)arg;
	return enter(of(file), RIG_OPEN, 0);
}

static int rig_op_attach(struct vm_bigfile *file, const char *arg)
{
	(void)arg;
	return enter(of(file), RIG_ATTACH, 0);
}

static int rig_op_close(struct vm_bigfile *file)
{
	struct rig_file *f = of(file);

	rig_must(!f->in_txn, "closed in a transaction");
	return enter(f, RIG_CLOSE, 0);
}

static void rig_op_detach(struct vm_bigfile *file)
{
	(void)enter(of(file), RIG_DETACH, 0);
}

static int rig_op_getsize(struct vm_bigfile *file, uint64_t *ret_size)
{
	int err = enter(of(file), RIG_GETSIZE, 0);

	if (!err)
		*ret_size = rig_size(of(file));
	return err;
}

static int rig_op_loadblk(struct vm_bigfile *file, uint64_t pgoff, size_t npages, void *buf)
{
	struct rig_file *f = of(file);
	int err = enter(f, RIG_LOADBLK, pgoff);
	uint64_t bad;

	if (err)
		return err;
	bad = __atomic_load_n(&f->bad_pgoff, __ATOMIC_SEQ_CST);
	err = __atomic_load_n(&f->bad_err, __ATOMIC_SEQ_CST);
	if (err && pgoff <= bad && bad < pgoff + npages)
		return -err;
	__atomic_add_fetch(&f->npages_loaded, npages, __ATOMIC_SEQ_CST);
	rig_get_bytes(f->fd, pgoff * VM_PAGE, buf, npages * VM_PAGE);
	return 0;
}

static int rig_op_nextdata(struct vm_bigfile *file, uint64_t off, uint64_t *ret_start, uint64_t *ret_stop)
{
	struct rig_file *f = of(file);
	int err = enter(f, RIG_NEXTDATA, off / VM_PAGE);
	off_t start, stop;

	if (err)
		return err;
	start = vm_sys_linux.lseek(f->fd, (off_t)off, SEEK_DATA);
	if (start < 0)
		return (int)start;
	stop = vm_sys_linux.lseek(f->fd, start, SEEK_HOLE);
	rig_must(stop > start, "SEEK_HOLE");
	*ret_start = (uint64_t)start;
	*ret_stop = (uint64_t)stop;
	return 0;
}

static int rig_op_begin(struct vm_bigfile *file)
{
	struct rig_file *f = of(file);
	int err;

	begin_single(f);
	err = enter(f, RIG_BEGIN, 0);
	rig_must(!f->in_txn, "begin in a transaction");
	f->in_txn = !err;
	if (!err && f->group)
		rig_group_begin(f);
	end_single(f);
	return err;
}

static void stage(struct rig_file *f, uint64_t pgoff, const char *page, bool again)
{
	char base[VM_BLKSIZE];

	rig_must(pgoff < RIG_MAX_PGOFF, "page offset");
	rig_must(f->how[pgoff] == NOT_STORED || again, "stored twice without VM_STORE_AGAIN");
	if (f->how[pgoff] == NOT_STORED)
		f->order[f->norder++] = pgoff;
	if (again) {
		f->how[pgoff] = STORED_WHOLE;
	} else {
		f->how[pgoff] = STORED_CHANGES;
		get_page(f->fd, pgoff, base);
		put_page(f->base, pgoff, base);
	}
	put_page(f->staged, pgoff, page);
}

static int rig_op_storeblk(struct vm_bigfile *file, uint64_t pgoff, size_t npages, const void *buf, unsigned flags)
{
	struct rig_file *f = of(file);
	int err;

	begin_single(f);
	err = enter(f, RIG_STOREBLK, pgoff);
	rig_must(f->in_txn, "storeblk outside of a transaction");
	for (size_t i = 0; !err && i < npages; i++)
		stage(f, pgoff + i, (const char *)buf + i * VM_PAGE, flags & VM_STORE_AGAIN);
	end_single(f);
	return err;
}

/* As a backend that keeps differences does it: bytes that were equal when they were stored are not written. */
static bool apply(struct rig_file *f, uint64_t pgoff, uint64_t size)
{
	char page[VM_BLKSIZE], base[VM_BLKSIZE], now[VM_BLKSIZE], old[VM_BLKSIZE];
	uint64_t off = pgoff * VM_PAGE, len = off >= size ? 0 : size - off < VM_PAGE ? size - off : VM_PAGE;

	get_page(f->staged, pgoff, page);
	get_page(f->fd, pgoff, now);
	memcpy(old, now, sizeof(old));
	for (size_t i = len; i < VM_PAGE; i++)
		rig_must(!page[i], "bytes beyond the size are not zero");
	if (f->how[pgoff] == STORED_CHANGES)
		get_page(f->base, pgoff, base);
	for (size_t i = 0; i < len; i++)
		if (f->how[pgoff] == STORED_WHOLE || page[i] != base[i])
			now[i] = page[i];
	if (!memcmp(old, now, len))
		return false;
	rig_put_bytes(f->fd, off, now, len);
	return true;
}

static void end_txn(struct rig_file *f)
{
	for (size_t i = 0; i < f->norder; i++)
		f->how[f->order[i]] = NOT_STORED;
	f->norder = 0;
	if (f->in_txn && f->group)
		rig_group_end(f);
	f->in_txn = false;
}

bool rig_file_apply(struct rig_file *f, const struct vm_txn *txn)
{
	bool changed = f->txn_is_never_needless || txn->size != rig_size(f) || txn->size_low < rig_size(f);

	rig_must(!vm_sys_linux.ftruncate(f->fd, (off_t)txn->size_low), "ftruncate");
	rig_must(!vm_sys_linux.ftruncate(f->fd, (off_t)txn->size), "ftruncate");
	for (size_t i = 0; i < f->norder; i++)
		changed |= apply(f, f->order[i], txn->size);
	end_txn(f);
	return changed;
}

static int rig_op_commit(struct vm_bigfile *file, const struct vm_txn *txn, unsigned flags)
{
	struct rig_file *f = of(file);
	int err;

	begin_single(f);
	err = enter(f, RIG_COMMIT, 0);
	rig_must(f->in_txn, "commit outside of a transaction");
	rig_must(f->group ? txn->txid > f->txid : txn->txid == f->txid + 1, "transaction ids rise by one");
	rig_must(f->group || !(flags & VM_COMMIT_PART), "a part of no group");
	rig_must(txn->size_low <= txn->size && txn->size_low <= rig_size(f), "size_low");
	if (!err && f->group) {
		err = rig_group_commit(f, txn, flags);
	} else if (!err) {
		err = !rig_file_apply(f, txn);
		f->txid += !err;
	}
	end_single(f);
	return err;
}

static void rig_op_abort(struct vm_bigfile *file)
{
	struct rig_file *f = of(file);

	begin_single(f);
	(void)enter(f, RIG_ABORT, 0);
	rig_must(f->in_txn, "abort outside of a transaction");
	end_txn(f);
	end_single(f);
}

static int rig_op_mend(struct vm_bigfile *file)
{
	struct rig_file *f = of(file);
	int err = enter(f, RIG_MEND, 0);

	if (err)
		return err;
	end_txn(f);
	f->busy = false;
	return 0;
}

static int single(struct vm_bigfile *file, enum rig_op op)
{
	int err;

	begin_single(of(file));
	err = enter(of(file), op, 0);
	end_single(of(file));
	return err;
}

static int rig_op_checkpoint(struct vm_bigfile *file)
{
	return single(file, RIG_CHECKPOINT);
}

static int rig_op_reserve(struct vm_bigfile *file, uint64_t off, uint64_t len)
{
	(void)off, (void)len;
	return single(file, RIG_RESERVE);
}

static int rig_op_idle(struct vm_bigfile *file)
{
	return single(file, RIG_IDLE);
}

static int rig_op_changed(struct vm_bigfile *file, int accept)
{
	struct rig_file *f = of(file);
	int changed = f->version != f->seen_version;

	if (accept)
		f->seen_version = f->version;
	return changed;
}

const struct vm_backend_ops rig_ops = {
	.abi = VM_BACKEND_ABI,
	.name = "rig",
	.open = rig_op_open,
	.attach = rig_op_attach,
	.close = rig_op_close,
	.detach = rig_op_detach,
	.getsize = rig_op_getsize,
	.loadblk = rig_op_loadblk,
	.nextdata = rig_op_nextdata,
	.begin = rig_op_begin,
	.storeblk = rig_op_storeblk,
	.commit = rig_op_commit,
	.abort = rig_op_abort,
	.mend = rig_op_mend,
	.checkpoint = rig_op_checkpoint,
	.reserve = rig_op_reserve,
	.idle = rig_op_idle,
	.changed = rig_op_changed,
};
