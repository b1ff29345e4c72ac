/* SPDX-License-Identifier: MIT */
/* Operations on mappings and through them. */
#include "fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD    20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static uint8_t buf[MAX_IO];

/* ---- faults ---- */

static sigjmp_buf jump;
static volatile sig_atomic_t is_probing, probe_signo;
static volatile uint8_t *volatile probe_addr;

static void on_fault(int signo, siginfo_t *info, void *uc)
{
	uint64_t off = (uint64_t)((uint8_t *)info->si_addr - ARENA);
	(void)uc;

	if (is_probing && info->si_addr == probe_addr) {
		probe_signo = signo;
		siglongjmp(jump, 1);
	}
	if (off / PAGE >= set.npages)
		mismatch("signal %d, address %p", signo, info->si_addr);
	mismatch("signal %d at arena %#lx: kind %d, prot %d, %s page %u, size %#lx", signo, (unsigned long)off,
		 arena[off / PAGE].kind, arena[off / PAGE].prot, sh->f[arena[off / PAGE].file].name,
		 arena[off / PAGE].pgoff, (unsigned long)sh->f[arena[off / PAGE].file].size);
}

void catch_faults(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
}

int probe(volatile uint8_t *p, bool write)
{
	probe_addr = p;
	probe_signo = 0;
	is_probing = 1;
	if (!sigsetjmp(jump, 1)) {
		if (write)
			*p = 0xee;
		else
			(void)*p;
	}
	is_probing = 0;
	return probe_signo;
}

static void op_probe(void)
{
	uint32_t pg = one_in(3) ? (uint32_t)below(set.npages) : random_page();
	bool write = one_in(2);
	const struct apage *a = &arena[pg];
	int want;

	if (pg == set.npages || can_touch(pg, write) || (a->prot == PROT_WRITE && !write))
		return;
	want = a->kind == NOTHING || !(a->prot & (write ? PROT_WRITE : PROT_READ)) ? SIGSEGV : SIGBUS;
	say("probe arena page %u (%s page %u) for %s", pg, sh->f[a->file].name, a->pgoff, write ? "writing" : "reading");
	if (probe(ARENA + (uint64_t)pg * PAGE + below(PAGE), write) != want)
		mismatch("probe: signal %d, but should be %d", probe_signo, want);
}

/* ---- load and store ---- */

static void say_touch(const char *what, uint64_t aoff, size_t len)
{
	const struct apage *a = &arena[aoff / PAGE];

	say("%s arena %#lx len %#zx (%s %s off %#lx)", what, (unsigned long)aoff, len,
	    a->kind == SHARED ? "shared" : "private", sh->f[a->file].name,
	    (unsigned long)a->pgoff * PAGE + aoff % PAGE);
}

static uint64_t random_aoff(uint32_t pg)
{
	return (uint64_t)pg * PAGE + (one_in(3) ? PAGE - 1 - skewed(16) : below(PAGE));
}

static void op_load(void)
{
	uint32_t pg = random_page();
	uint64_t aoff = random_aoff(pg);
	static uint8_t want[MAX_IO];
	size_t len;

	if (pg == set.npages || !(len = touchable(aoff, random_len(), false)))
		return;
	say_touch("load", aoff, len);
	model_load(aoff, want, len);
	if (len == 1)
		buf[0] = *(volatile uint8_t *)(ARENA + aoff);
	else
		memcpy(buf, ARENA + aoff, len);
	compare_bytes("the mapping", aoff, buf, want, len);
}

static void op_store(void)
{
	uint32_t pg = random_page();
	uint64_t aoff = random_aoff(pg), word;
	size_t len;

	if (pg == set.npages || !(len = touchable(aoff, random_len(), true)))
		return;
	random_bytes(buf, len);
	say_touch("store", aoff, len);
	if (len >= 8 && one_in(3)) {
		len = 8;
		memcpy(&word, buf, 8);
		if (aoff % 8 == 0)
			__atomic_store_n((uint64_t *)(ARENA + aoff), word, __ATOMIC_SEQ_CST);
		else
			memcpy(ARENA + aoff, &word, 8);
	} else {
		memcpy(ARENA + aoff, buf, len);
	}
	model_store(aoff, buf, len);
}

/* ---- map and unmap ---- */

void unmapping(void)
{
	for (unsigned i = 0; i < NFILES; i++)
		if (!nfds(&sh->f[i]))
			make_sure(&sh->f[i]);
}

void unmapped(void)
{
	for (unsigned i = 0; i < NFILES; i++)
		may_be_released(&sh->f[i]);
}

uint32_t random_npages(void)
{
	return (uint32_t)(1 + skewed(one_in(8) ? set.npages / 3 : 24));
}

static int random_prot(void)
{
	static const int prots[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
				    PROT_READ | PROT_WRITE, PROT_READ, PROT_READ, PROT_WRITE, PROT_NONE};

	return prots[below(8)];
}

static void op_map(void)
{
	static uint32_t id;
	struct file *f = random_file();
	struct fd *d = random_fd(f, !one_in(20), one_in(2));
	bool shared = !one_in(3), replaces;
	uint32_t n = random_npages(), at = (uint32_t)below(set.npages), pgoff;
	int prot = random_prot(), flags, mode, want = 0;
	struct apage a;
	void *p;

	n = n < set.npages - at ? n : set.npages - at;
	pgoff = one_in(3) ? 0 : (uint32_t)(random_off(f) / PAGE);
	if (!d)
		return;
	mode = d->flags & O_ACCMODE;
	replaces = !is_free(at, n);
	flags = replaces || one_in(2) ? MAP_FIXED : one_in(2) ? 0 : MAP_FIXED_NOREPLACE;
	if (replaces && one_in(8)) {
		flags = MAP_FIXED_NOREPLACE;
		want = -EEXIST;
	}
	if (one_in(10))
		flags |= MAP_POPULATE;
	if (mode == O_WRONLY || (shared && (prot & PROT_WRITE) && mode == O_RDONLY))
		want = -EACCES;
	say("mmap %s fd %d page %u + %u at arena page %u, %s prot %d%s%s", f->name, d->fd, pgoff, n, at,
	    shared ? "shared" : "private", prot, flags & MAP_FIXED ? " FIXED" : "",
	    flags & MAP_POPULATE ? " POPULATE" : "");
	if ((flags & MAP_FIXED) && !want)
		unmapping();
	/* MAP_SHARED_VALIDATE knows no MAP_FIXED_NOREPLACE */
	flags |= !shared ? MAP_PRIVATE : one_in(6) && !(flags & MAP_FIXED_NOREPLACE) ? MAP_SHARED_VALIDATE : MAP_SHARED;
	p = mmap(ARENA + (uint64_t)at * PAGE, n * (size_t)PAGE - (one_in(4) ? skewed(PAGE) : 0), prot, flags, d->fd,
		 (off_t)pgoff * PAGE);
	if (want == -EACCES && errno == EEXIST && p == MAP_FAILED && (flags & MAP_FIXED_NOREPLACE) && replaces)
		return; /* both are wrong: the order is the kernel's */
	if (want) {
		expect("mmap", (long)p, want);
		f->live |= shared && want == -EEXIST; /* txmap finds out when all is prepared */
		return;
	}
	if (p != ARENA + (uint64_t)at * PAGE)
		expect("mmap", (long)p, (long)(ARENA + (uint64_t)at * PAGE));
	a = (struct apage){.kind = shared ? SHARED : PRIVATE, .file = (uint8_t)(f - sh->f), .prot = (uint8_t)prot,
			   .maywrite = mode == O_RDWR || !shared,
			   .pgoff = pgoff, .id = ++id};
	model_map(at, n, &a);
	f->live |= shared;
	/* a private mapping that may be written is filled for writing, up to the first page that cannot be
	 * had */
	for (uint32_t i = 0; i < n && !shared && (flags & MAP_POPULATE) && can_touch(at + i, true); i++)
		model_own(at + i);
	unmapped();
}

static void op_unmap(void)
{
	uint32_t pg = one_in(5) ? (uint32_t)below(set.npages) : random_page(), n = random_npages();

	if (pg == set.npages)
		return;
	if (one_in(3))
		n = run_of(pg);
	n = n < set.npages - pg ? n : set.npages - pg;
	say("munmap arena page %u + %u", pg, n);
	unmapping();
	expect("munmap", munmap(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE), 0);
	model_unmap(pg, n);
	unmapped();
}

/* Something that is none of ours, over it. */
static void op_cover(void)
{
	uint32_t pg = random_page(), n = (uint32_t)between(1, 4);
	uint8_t *at = ARENA + (uint64_t)pg * PAGE;

	if (pg == set.npages)
		return;
	n = n < set.npages - pg ? n : set.npages - pg;
	say("mmap anonymous over arena page %u + %u", pg, n);
	unmapping();
	if (mmap(at, n * (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		mismatch("mmap: %s", strerror(errno));
	model_unmap(pg, n);
	for (size_t i = 0; i < n * (size_t)PAGE; i++)
		if (at[i])
			mismatch("anonymous memory has a byte at %#zx", i);
	memset(at, 1, n * (size_t)PAGE);
	expect("munmap", munmap(at, n * (size_t)PAGE), 0);
	unmapped();
}

/* ---- protect, advise, sync ---- */

static void op_protect(void)
{
	static uint32_t id = 1u << 29;
	uint32_t before = 0;
	uint32_t pg = random_page(), n, i;
	int prot = random_prot();

	if (pg == set.npages)
		return;
	if (!arena[pg].maywrite && one_in(2))
		prot |= PROT_WRITE;
	n = one_in(2) ? run_of(pg) : (uint32_t)between(1, 8);
	n = n < set.npages - pg ? n : set.npages - pg;
	if (!is_mapped(pg, n) || one_in(4))
		n = 1;
	for (i = 0; i < n && (arena[pg + i].maywrite || !(prot & PROT_WRITE)); i++)
		;
	if (i < n) /* what comes before would have changed already */
		n = 1;
	say("mprotect arena page %u + %u prot %d", pg, n, prot);
	if (!arena[pg].maywrite && (prot & PROT_WRITE)) {
		expect("mprotect", mprotect(ARENA + (uint64_t)pg * PAGE, PAGE, prot), -EACCES);
		return;
	}
	expect("mprotect", mprotect(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE, prot), 0);
	for (i = 0; i < n; i++) {
		arena[pg + i].prot = (uint8_t)prot;
		/* private pieces that became alike again are one only if their own pages came about together */
		id += !i || arena[pg + i].id != before;
		before = arena[pg + i].id;
		if (arena[pg + i].kind == PRIVATE)
			arena[pg + i].id = id;
	}
}

static void op_advise(void)
{
	static const struct {
		const char *name;
		int advice;
	} advices[] = {{"DONTNEED", MADV_DONTNEED}, {"REMOVE", MADV_REMOVE}, {"WILLNEED", MADV_WILLNEED},
		       {"COLD", MADV_COLD}, {"PAGEOUT", MADV_PAGEOUT}, {"POPULATE_READ", MADV_POPULATE_READ},
		       {"POPULATE_WRITE", MADV_POPULATE_WRITE}, {"NORMAL", MADV_NORMAL}, {"bad", 4711}};
	uint32_t pg = random_page(), n, i;
	struct file *f;
	unsigned k = (unsigned)below(9);
	int advice = advices[k].advice, want = 0;

	if (pg == set.npages)
		return;
	n = (uint32_t)between(1, run_of(pg));
	f = &sh->f[arena[pg].file];
	if (advice == MADV_REMOVE)
		want = arena[pg].kind == PRIVATE || !arena[pg].maywrite ? -EACCES : 0;
	else if (advice == 4711)
		want = -EINVAL;
	for (i = 0; i < n && (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE); i++)
		if (!can_touch(pg + i, advice == MADV_POPULATE_WRITE))
			want = want ?: arena[pg].prot & (advice == MADV_POPULATE_WRITE ? PROT_WRITE : PROT_READ) ? -EFAULT
														  : -EINVAL;
	if (advice == MADV_POPULATE_READ && arena[pg].prot == PROT_WRITE)
		return; /* write-only is readable on some machines */
	say("madvise arena page %u + %u %s", pg, n, advices[k].name);
	expect("madvise", madvise(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE, advice), want);
	if (advice == MADV_REMOVE && !want)
		model_zero(f, (uint64_t)arena[pg].pgoff * PAGE, n * (uint64_t)PAGE);
	for (i = 0; i < n && arena[pg].kind == PRIVATE; i++) {
		if (advice == MADV_DONTNEED)
			drop_own(pg + i);
		if (advice == MADV_POPULATE_WRITE && !can_touch(pg + i, true))
			break;
		if (advice == MADV_POPULATE_WRITE)
			model_own(pg + i);
	}
}

static void op_msync(void)
{
	static const int all[] = {MS_SYNC, MS_SYNC, MS_SYNC | MS_INVALIDATE, MS_ASYNC, MS_INVALIDATE, 0,
				  MS_SYNC | MS_ASYNC, 64};
	uint32_t pg = random_page(), n = random_npages(), i;
	int flags = all[below(8)], want;
	bool touched[NFILES] = {false}, shared[NFILES] = {false}, helped = false;

	if (pg == set.npages)
		return;
	if (one_in(2))
		n = run_of(pg);
	n = n < set.npages - pg ? n : set.npages - pg;
	want = flags == (MS_SYNC | MS_ASYNC) || flags == 64 ? -EINVAL : is_mapped(pg, n) ? 0 : -ENOMEM;
	for (i = pg; i < pg + n; i++) {
		touched[arena[i].file] |= arena[i].kind != NOTHING;
		shared[arena[i].file] |= arena[i].kind == SHARED;
	}
	say("msync arena page %u + %u flags %d", pg, n, flags);
	expect("msync", msync(ARENA + (uint64_t)pg * PAGE, n * (size_t)PAGE, flags), want);
	if (want == -EINVAL || !(flags & (MS_SYNC | MS_ASYNC)))
		return;
	/* MS_ASYNC: by txmap's helper, before it answers twice; there is one when something of the range is
	 * managed */
	for (i = 0; i < NFILES; i++)
		helped |= touched[i] && sh->f[i].live;
	for (i = 0; set.control && (flags & MS_ASYNC) && helped && i < 2; i++)
		(void)control("ping");
	for (i = 0; i < NFILES; i++) {
		if (shared[i])
			model_commit(&sh->f[i]);
		else if (touched[i]) /* a private mapping only */
			sh->f[i].unsure |= is_changed(&sh->f[i]);
	}
}

const struct op ops_map[] = {
	{"map", 60, op_map},	     {"unmap", 35, op_unmap},	{"cover", 3, op_cover}, {"protect", 25, op_protect},
	{"advise", 30, op_advise},   {"msync", 8, op_msync},	{"probe", 25, op_probe}, {"load", 120, op_load},
	{"store", 150, op_store},    {NULL, 0, NULL},
};
