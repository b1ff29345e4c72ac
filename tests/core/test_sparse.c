/* SPDX-License-Identifier: MIT */
/* A terabyte of mapping costs what is touched, in memory, and so in the work that goes over it: what is not
 * there is not looked at. */
#include "rig.h"
#include <sys/stat.h>

#define NPAGES	 (1ull << 28) /* 1 TiB */
#define NTOUCHED 1000u
#define STEP	 (NPAGES / NTOUCHED)

static uint64_t kib_of(int fd)
{
	struct stat st;

	assert_int_equal(vm_sys->fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks / 2;
}

/* What the process and its handle take, in KiB. */
struct cost {
	uint64_t rss, pte, map, ram;
};

static struct cost cost_now(struct rig *r)
{
	return (struct cost){
		.rss = rig_status_kib("VmRSS:"),
		.pte = rig_status_kib("VmPTE:"),
		.map = kib_of(r->h->ctl_fd),
		.ram = kib_of(r->h->ram.fd),
	};
}

static void check_grew_by(struct rig *r, const struct cost *was, const struct cost *most)
{
	struct cost now = cost_now(r);

	if (now.rss > was->rss + most->rss || now.pte > was->pte + most->pte ||
	    now.map > was->map + most->map || now.ram > was->ram + most->ram)
		fail_msg("grew, in KiB, by: resident %ld of %ld, page tables %ld of %ld, page map %ld of "
			 "%ld, ram %ld of %ld",
			 (long)(now.rss - was->rss), (long)most->rss, (long)(now.pte - was->pte),
			 (long)most->pte, (long)(now.map - was->map), (long)most->map,
			 (long)(now.ram - was->ram), (long)most->ram);
}

/* Hardly anything: what the allocator, the counters' coarseness and a few shared tables make. */
static const struct cost nothing = {.rss = 1024, .pte = 256, .map = 16, .ram = 0};

static char *touched(char *m, unsigned i)
{
	return m + i * STEP * VM_PAGE;
}

/* The sanitizer's shadow does not cover so much. */
static void need_address_space(void)
{
	if (rig_is_tsan())
		skip();
}

static char *open_and_map(struct rig *r)
{
	need_address_space();
	rig_open_sparse(r, NPAGES * VM_PAGE);
	return rig_map(r->h, 0, NPAGES);
}

/* The file gets data in the touched pages, behind the handle's back. */
static void put_data(struct rig *r)
{
	for (unsigned i = 0; i < NTOUCHED; i++)
		rig_put_byte(r->f, i * STEP * VM_PAGE, (uint8_t)(i % 255 + 1));
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, NULL), 0);
}

static void a_large_mapping_of_a_small_file_costs_nothing(struct rig *r)
{
	struct cost was;
	char *m;

	need_address_space();
	rig_open(r, 10 * VM_PAGE);
	was = cost_now(r);
	m = rig_map(r->h, 0, NPAGES);
	check_grew_by(r, &was, &nothing);
	assert_int_equal((uint8_t)rig_load8(m + 9 * VM_PAGE), rig_byte(9));
	assert_int_equal(rig_touch(m + 10 * VM_PAGE), SIGBUS);
	assert_int_equal(rig_touch(m + (NPAGES - 1) * VM_PAGE), SIGBUS);
	rig_store8(m + 9 * VM_PAGE, 0);
	assert_int_equal(rig_commit(r->h), 1);
	rig_discard(r->h);
	rig_unmap(m, NPAGES);
	was.ram += 40; /* the file itself */
	check_grew_by(r, &was, &nothing);
}

static void opening_a_large_file_costs_what_it_holds(struct rig *r)
{
	struct cost was;
	char *m = open_and_map(r);

	put_data(r);
	was = cost_now(r);
	rig_unmap(m, NPAGES);
	assert_int_equal(rig_close(r->h), 0);
	r->h = rig_handle(r->f, r->load);
	assert_int_equal(rig_nresident(r->h), rig_is_lazy(r) ? 0 : NTOUCHED);
	check_grew_by(r, &was, &nothing);
}

static void a_harvest_finds_exactly_the_pages_stored_into(struct rig *r)
{
	char *m = open_and_map(r);
	unsigned nstores;

	put_data(r);
	for (unsigned i = 0; i < NTOUCHED; i++)
		if (i % 2)
			rig_store8(touched(m, i) + 1, 1);
		else
			assert_int_equal((uint8_t)rig_load8(touched(m, i)), i % 255 + 1);
	assert_int_equal(rig_ndirty(r->h), NTOUCHED / 2);
	for (unsigned i = 0; i < NTOUCHED; i++)
		assert_int_equal(vm_page_state(r->h, i * STEP), i % 2 ? VM_DIRTY : VM_LOADED);
	nstores = rig_ncalls(r->f, RIG_STOREBLK);
	assert_int_equal(rig_commit(r->h), NTOUCHED / 2);
	assert_int_equal(rig_ncalls(r->f, RIG_STOREBLK) - nstores, NTOUCHED / 2);
	for (unsigned i = 0; i < NTOUCHED; i++) {
		assert_int_equal(rig_get_byte(r->f, i * STEP * VM_PAGE), i % 255 + 1);
		assert_int_equal(rig_get_byte(r->f, i * STEP * VM_PAGE + 1), i % 2);
	}
	assert_int_equal(rig_ndirty(r->h), 0);
	rig_store8(touched(m, 500), 0);
	assert_int_equal(rig_commit(r->h), 1);
}

static void harvests_and_commits_build_nothing_where_nothing_is(struct rig *r)
{
	char *m = open_and_map(r);
	struct cost was;

	put_data(r);
	for (unsigned i = 0; i < NTOUCHED; i++)
		rig_store8(touched(m, i), 7);
	(void)rig_commit(r->h);
	was = cost_now(r);
	for (unsigned i = 0; i < 20; i++) {
		rig_store8(touched(m, i), (char)(100 + i));
		assert_int_equal(rig_ndirty(r->h), 1);
		if (i % 2)
			assert_int_equal(rig_commit(r->h), 1);
		else
			rig_discard(r->h);
	}
	check_grew_by(r, &was, &nothing);
}

static void an_invalidation_of_everything_builds_nothing_where_nothing_is(struct rig *r)
{
	uint64_t npages;
	struct cost was;
	char *m = open_and_map(r);

	put_data(r);
	for (unsigned i = 0; i < NTOUCHED; i++)
		(void)rig_touch(touched(m, i));
	for (unsigned i = 0; i < NTOUCHED; i++)
		rig_put_byte(r->f, i * STEP * VM_PAGE, 200);
	was = cost_now(r);
	assert_int_equal(vm_fileh_invalidate(r->h, 0, 0, VM_DIRTY_DROP, &npages), 0);
	assert_true(npages >= NTOUCHED);
	check_grew_by(r, &was, &nothing);
	if (rig_is_lazy(r)) {
		assert_int_equal(rig_nresident(r->h), 0);
		assert_int_equal(kib_of(r->h->ram.fd), 0);
	}
	for (unsigned i = 0; i < NTOUCHED; i++)
		assert_int_equal((uint8_t)rig_load8(touched(m, i)), 200);
	assert_int_equal(rig_ndirty(r->h), 0);
}

static void use_and_close(struct rig *r)
{
	char *m = rig_map(r->h, 0, NPAGES);

	for (unsigned i = 0; i < NTOUCHED; i++)
		rig_store8(touched(m, i), rig_load8(touched(m, i)) + 1);
	(void)rig_commit(r->h);
	rig_unmap(m, NPAGES);
	assert_int_equal(rig_close(r->h), 0);
	r->h = NULL;
}

static void unmap_and_close_give_everything_back(struct rig *r)
{
	static const char *const keys[] = {"VmRSS:", "VmPTE:", "VmSize:"};
	uint64_t was[3];

#ifdef __SANITIZE_ADDRESS__
	skip(); /* its shadow of what was touched stays */
#endif
	need_address_space();
	rig_open_sparse(r, NPAGES * VM_PAGE);
	use_and_close(r); /* warms up */
	for (unsigned i = 0; i < 3; i++)
		was[i] = rig_status_kib(keys[i]);
	for (unsigned i = 0; i < 3; i++) {
		r->h = rig_handle(r->f, r->load);
		r->f->txid = 0; /* a new handle counts from the beginning */
		use_and_close(r);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_true(rig_status_kib(keys[i]) <= was[i] + 1024);
	assert_int_equal(rig_get_byte(r->f, 999 * STEP * VM_PAGE), 4);
}

static void a_fork_builds_nothing_where_nothing_is(struct rig *r)
{
	char *m = open_and_map(r);
	pid_t pid;

	put_data(r);
	for (unsigned i = 0; i < NTOUCHED; i += 10)
		rig_store8(touched(m, i), 9);
	pid = rig_fork();
	if (!pid) {
		/* the touched pages' tables, not a terabyte's: 2 GiB */
		int n = rig_status_kib("VmPTE:") > 64 * 1024;

		for (unsigned i = 0; i < NTOUCHED; i++)
			n += (uint8_t)rig_load8(touched(m, i)) != (i % 10 ? i % 255 + 1 : 9);
		rig_store8(touched(m, 1), 9);
		n += rig_try_commit(r->h) != 0;
		n += rig_status_kib("VmPTE:") > 64 * 1024;
		_exit(n > 255 ? 255 : n);
	}
	assert_int_equal(rig_reap(pid), 0);
	(void)rig_commit(r->h);
	for (unsigned i = 0; i < NTOUCHED; i++)
		assert_int_equal(rig_get_byte(r->f, i * STEP * VM_PAGE), i % 10 && i != 1 ? i % 255 + 1 : 9);
	assert_true(rig_status_kib("VmPTE:") < 64 * 1024);
}

static void protections_and_moves_of_parts_cost_no_more_than_the_parts(struct rig *r)
{
	char *m = open_and_map(r);
	struct cost was;
	void *moved;

	put_data(r);
	was = cost_now(r);
	was.map += 10 * VM_PAGE / 1024;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(vm_protect(touched(m, i), VM_PAGE, PROT_READ), 0);
	assert_int_equal(vm_unmap(touched(m, 500), NPAGES / 4 * VM_PAGE), 0);
	assert_int_equal(vm_remap(touched(m, 100), 2 * STEP * VM_PAGE, 100 * STEP * VM_PAGE, MREMAP_MAYMOVE,
				  NULL, &moved),
			 0);
	check_grew_by(r, &was, &nothing);
	assert_int_equal(rig_store(touched(m, 3), 1), SIGSEGV);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal((uint8_t)rig_load8(touched(moved, i)), (100 + i) % 255 + 1);
	rig_store8(touched(moved, 7), 1);
	assert_int_equal(rig_commit(r->h), 1);
	assert_int_equal(rig_get_byte(r->f, 107 * STEP * VM_PAGE), 1);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_large_mapping_of_a_small_file_costs_nothing),
	RIG_BOTH(opening_a_large_file_costs_what_it_holds),
	RIG_BOTH(a_harvest_finds_exactly_the_pages_stored_into),
	RIG_BOTH(harvests_and_commits_build_nothing_where_nothing_is),
	RIG_BOTH(an_invalidation_of_everything_builds_nothing_where_nothing_is),
	RIG_BOTH(unmap_and_close_give_everything_back),
	RIG_BOTH(a_fork_builds_nothing_where_nothing_is),
	RIG_BOTH(protections_and_moves_of_parts_cost_no_more_than_the_parts),
};

RIG_MAIN(cases)
