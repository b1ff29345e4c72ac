/* SPDX-License-Identifier: MIT */
/*
 * Which commit changed which page, for those who have a snapshot from before it. The numbers are written
 * after the commit has happened; what they will be is noted before, so that another process can do it for one
 * who was killed.
 */
#define _GNU_SOURCE 1
#include "backend_file_snapshot.h"
#include "vm.h"

#include <errno.h>
#include <unistd.h>

#define PART	  512u	     /* numbers read or written at once */
#define MAX_CUT	  (1u << 20) /* most pages of a cut that each get a number */
#define ALL_PAGES (INT64_MAX / VM_BLKSIZE)

static struct pol_snapshots *all_of(struct vm_bigfile *f)
{
	return pol_file_priv(f)->snapshot->all;
}

static uint64_t stamp_off(uint64_t pgoff)
{
	return POL_SNAPSHOTS_STAMPS + pgoff * sizeof(uint64_t);
}

void pol_news_all(struct vm_bigfile *f)
{
	struct pol_snapshots *all = all_of(f);

	all->all_seq = ++all->seq;
}

/* ---- writing ---- */

static int stamp(int fd, const struct pol_file_extent *e, uint64_t seq)
{
	uint64_t stamps[PART], pg = e->pgoff, stop = e->pgoff + e->npages;
	int err = 0;

	for (unsigned i = 0; i < PART && i < e->npages; i++)
		stamps[i] = seq;
	for (; !err && pg < stop; pg += PART) {
		uint64_t n = stop - pg < PART ? stop - pg : PART;

		err = vm_sys_pwrite_full(fd, stamps, n * sizeof(*stamps), (off_t)stamp_off(pg));
	}
	return err;
}

/* What a cut takes away changes. */
static int add_cut(struct pol_file_priv *p, uint64_t size, const struct vm_txn *txn, bool *is_any)
{
	uint64_t start = txn->size_low / VM_BLKSIZE, stop = (size + VM_BLKSIZE - 1) / VM_BLKSIZE;

	*is_any = stop > start && stop - start > MAX_CUT;
	return stop <= start || *is_any ? 0 : pol_file_extents_add(&p->changed, start, stop - start);
}

int pol_news_begin(struct vm_bigfile *f, const struct vm_txn *txn)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_snapshots *all = all_of(f);
	bool is_any = false;
	uint64_t size;
	int err = pol_file_size(f, &size);

	if (!err)
		err = add_cut(p, size, txn, &is_any);
	all->is_any = is_any;
	all->resizes = txn->size != size || txn->size_low < size;
	all->nruns = p->changed.n;
	if (!err && all->nruns <= POL_SNAPSHOTS_MAX_RUNS)
		err = vm_sys_pwrite_full(p->snapshot->fd, p->changed.e, p->changed.n * sizeof(*p->changed.e),
					 POL_SNAPSHOTS_RUNS);
	if (!err)
		__atomic_store_n(&all->is_under_way, 1, __ATOMIC_RELEASE);
	return err;
}

/* The commit under way counts. stamped: its runs have their number. */
static void count(struct pol_snapshots *all, bool stamped)
{
	uint64_t seq = all->seq + 1;

	if (all->is_any || !stamped)
		all->all_seq = seq;
	if (all->resizes)
		all->size_seq = seq;
	__atomic_store_n(&all->seq, seq, __ATOMIC_RELEASE);
	__atomic_store_n(&all->is_under_way, 0, __ATOMIC_RELEASE);
}

void pol_news_end(struct vm_bigfile *f, bool happened)
{
	struct pol_file_priv *p = pol_file_priv(f);
	struct pol_snapshots *all = all_of(f);
	int err = 0;

	for (size_t i = 0; happened && !err && i < p->changed.n; i++)
		err = stamp(p->snapshot->fd, &p->changed.e[i], all->seq + 1);
	if (happened)
		count(all, !err);
	else
		__atomic_store_n(&all->is_under_way, 0, __ATOMIC_RELEASE);
}

void pol_news_mend(struct vm_bigfile *f)
{
	int fd = pol_file_priv(f)->snapshot->fd, err;
	struct pol_snapshots *all = all_of(f);
	struct pol_file_extent e;

	if (!all->is_under_way)
		return;
	err = all->nruns > POL_SNAPSHOTS_MAX_RUNS ? -E2BIG : 0;
	for (uint64_t i = 0; !err && i < all->nruns; i++) {
		err = vm_sys_pread_full(fd, &e, sizeof(e), (off_t)(POL_SNAPSHOTS_RUNS + i * sizeof(e)));
		if (!err)
			err = stamp(fd, &e, all->seq + 1);
	}
	count(all, !err);
}

/* ---- reading ---- */

/* Neighbours become one run. */
struct teller {
	struct vm_news *news;
	uint64_t start, stop;
};

static int tell(struct teller *t)
{
	int err = t->start < t->stop ? t->news->pages(t->news, t->start, t->stop) : 0;

	t->start = t->stop = 0;
	return err;
}

static int add(struct teller *t, uint64_t pgoff)
{
	int err = 0;

	if (t->stop != pgoff || t->start == t->stop) {
		err = tell(t);
		t->start = pgoff;
	}
	t->stop = pgoff + 1;
	return err;
}

static int tell_stamps(int fd, uint64_t seq, struct vm_news *news)
{
	struct teller t = {.news = news};
	uint64_t stamps[PART], pg = 0;
	int err = 0;

	while (!err) {
		off_t off = vm_sys->lseek(fd, (off_t)stamp_off(pg), SEEK_DATA);

		if (off < 0) {
			err = off == -ENXIO ? 0 : (int)off;
			break;
		}
		pg = ((uint64_t)off - POL_SNAPSHOTS_STAMPS) / sizeof(*stamps);
		err = vm_sys_pread_full(fd, stamps, sizeof(stamps),
					(off_t)stamp_off(pg)); /* zeros beyond the end */
		for (unsigned i = 0; !err && i < PART; i++, pg++)
			if (stamps[i] > seq)
				err = add(&t, pg);
	}
	return err ? err : tell(&t);
}

int pol_news_tell(struct vm_bigfile *f, uint64_t seq, struct vm_news *news)
{
	const struct pol_snapshots *all = all_of(f);
	int err = pol_file_size(f, &news->size);

	news->txid = all->seq;
	news->resized = all->size_seq > seq || all->all_seq > seq;
	if (err || all->seq == seq)
		return err;
	if (all->all_seq > seq)
		return news->pages(news, 0, ALL_PAGES);
	return tell_stamps(pol_file_priv(f)->snapshot->fd, seq, news);
}
