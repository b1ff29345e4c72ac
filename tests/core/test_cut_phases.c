/* SPDX-License-Identifier: MIT */
/* The three phases of a cut (uffd), one by one: copy, freeze what stays hot, freeze all. */
#include "crew.h"
#include "faulty_sys.h"

static struct {
	char *m;
	uint64_t npages;
	uint64_t last_pg; /* stores go to one page after the other until there */
	bool same_page;	  /* stores go to page 0 until it is frozen */
	unsigned nstores;
	unsigned nhot, nall; /* freezes */
} phase;

static int counting_mprotect(void *addr, size_t len, int prot)
{
	bool ours = (char *)addr >= phase.m && (char *)addr < phase.m + phase.npages * VM_PAGE;

	if (ours && !(prot & PROT_WRITE)) {
		phase.nall += len == phase.npages * VM_PAGE;
		phase.nhot += len < phase.npages * VM_PAGE;
	}
	return vm_sys_linux.mprotect(addr, len, prot);
}

static struct vm_sys counting_sys;

/* Stores after the pages of a round were copied, as another thread could. */
static void store_meanwhile(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	if (phase.nall || phase.nstores == phase.last_pg || (phase.same_page && phase.nhot))
		return;
	phase.nstores++;
	put_release(phase.m + (phase.same_page ? 0 : phase.nstores * VM_PAGE), phase.nstores);
}

/* One commit while store_meanwhile stores; checks that its last store is in. */
static void cut_with_stores(struct rig *r, uint64_t npages)
{
	uint64_t value;
	struct idle idle;

	if (!rig_is_uffd())
		skip(); /* segv freezes at once */
	rig_open_sparse(r, npages * VM_PAGE);
	phase.m = rig_map(r->h, 0, npages);
	phase.npages = npages;
	for (uint64_t pg = 0; pg < npages; pg++)
		(void)rig_load8(phase.m + pg * VM_PAGE);
	(void)rig_commit(r->h); /* reading a hole of an eager file looks like a store */
	idle_begin(&idle);
	counting_sys = vm_sys_linux;
	counting_sys.mprotect = counting_mprotect;
	faulty_use(&counting_sys);
	rig_hook_at(r->f, RIG_STOREBLK, store_meanwhile, NULL);
	put_release(phase.m, 100);
	(void)rig_commit(r->h);
	faulty_use(&vm_sys_linux);
	idle_end(&idle);
	rig_get(r->f, phase.same_page ? 0 : phase.nstores * VM_PAGE, &value, sizeof(value));
	assert_int_equal(value, phase.nstores);
	assert_int_equal(rig_ndirty(r->h), 0);
	crew_check_protections(phase.m, npages);
}

static void a_program_that_pauses_is_never_frozen(struct rig *r)
{
	memset(&phase, 0, sizeof(phase));
	phase.last_pg = 1;
	cut_with_stores(r, 64);
	assert_int_equal(phase.nstores, 1);
	assert_int_equal(phase.nhot + phase.nall, 0);
}

static void pages_that_stay_hot_are_frozen_and_only_they(struct rig *r)
{
	memset(&phase, 0, sizeof(phase));
	phase.last_pg = 1000;
	phase.same_page = true;
	cut_with_stores(r, 64);
	assert_true(phase.nhot > 0);
	assert_int_equal(phase.nall, 0);
}

static void a_program_that_wanders_is_frozen_whole_in_the_end(struct rig *r)
{
	memset(&phase, 0, sizeof(phase));
	phase.last_pg = 60;
	cut_with_stores(r, 64);
	assert_true(phase.nhot > 0);
	assert_true(phase.nall > 0);
	assert_true(phase.nstores < 60);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_program_that_pauses_is_never_frozen),
	RIG_BOTH(pages_that_stay_hot_are_frozen_and_only_they),
	RIG_BOTH(a_program_that_wanders_is_frozen_whole_in_the_end),
};

RIG_MAIN(cases)
