/* SPDX-License-Identifier: MIT */
/* A discard of several files: at one instant, or none of them is committed. */
#include "crew.h"
#include "faulty_sys.h"

enum { NFILES = 3, NPAGES = 6, NSLOTS = NFILES * NPAGES };

static struct rig_set s;
static char *m[NFILES];
static bool stop; /* (atomic) */

static void open_files(struct rig *r)
{
	rig_open_set(r, &s, NFILES, rig_file_make_sparse, NPAGES * VM_PAGE);
	for (unsigned i = 0; i < NFILES; i++)
		m[i] = rig_map(s.h[i], 0, NPAGES);
}

static uint64_t committed(unsigned file, uint64_t pg)
{
	uint64_t value;

	rig_get(s.f[file], pg * VM_PAGE, &value, sizeof(value));
	return value;
}

static uint64_t get(unsigned file, uint64_t pg)
{
	return get_acquire(m[file] + pg * VM_PAGE);
}

static void put(unsigned file, uint64_t pg, uint64_t value)
{
	put_release(m[file] + pg * VM_PAGE, value);
}

/* Store number n goes to slot n % NSLOTS, file by file. */
static void *number_main(void *arg)
{
	(void)arg;
	for (uint64_t n = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++)
		put(n % NSLOTS % NFILES, n % NSLOTS / NFILES, n);
	return NULL;
}

static void numbers(uint64_t *ret)
{
	for (unsigned i = 0; i < NSLOTS; i++)
		ret[i] = committed(i % NFILES, i / NFILES);
}

/* The newest stores follow each other without a gap; whatever is older was committed before. */
static void is_what_was_stored_since_an_instant(const uint64_t *was, const uint64_t *now)
{
	uint64_t top = 0, n;

	for (unsigned i = 0; i < NSLOTS; i++)
		top = now[i] > top ? now[i] : top;
	for (n = top; n && n + NSLOTS > top && now[n % NSLOTS] == n; n--)
		;
	for (; n && n + NSLOTS > top; n--)
		if (now[n % NSLOTS] != was[n % NSLOTS])
			fail_msg("slot %d holds %d, and held %d; the newest is %d", (int)(n % NSLOTS),
				 (int)now[n % NSLOTS], (int)was[n % NSLOTS], (int)top);
}

static void a_discard_takes_all_stores_up_to_one_instant(struct rig *r)
{
	const unsigned nrounds = rig_is_tsan() ? 20 : 300;
	uint64_t was[NSLOTS] = {0}, now[NSLOTS];
	pthread_t thread;

	open_files(r);
	stop = false;
	assert_int_equal(pthread_create(&thread, NULL, number_main, NULL), 0);
	for (unsigned i = 0; i < nrounds; i++) {
		assert_int_equal(vm_discard(s.h, NFILES), 0);
		rig_commit_set(&s);
		numbers(now);
		is_what_was_stored_since_an_instant(was, now);
		memcpy(was, now, sizeof(was));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(vm_discard(s.h, NFILES), 0);
	for (unsigned i = 0; i < NSLOTS; i++)
		assert_int_equal(get(i % NFILES, i / NFILES), now[i]);
}

static void a_discard_that_fails_in_one_file_keeps_all_from_a_commit_until_one_works(struct rig *r)
{
	open_files(r);
	for (unsigned i = 0; i < NFILES; i++)
		put(i, 2, 5);
	rig_commit_set(&s);
	(void)rig_map_with(s.h[1], 0, NPAGES, PROT_READ, MAP_PRIVATE); /* so that pages are loaded at once */
	for (unsigned i = 0; i < NFILES; i++)
		put(i, 2, 6);
	rig_fail_page(s.f[1], 2, EIO);
	assert_int_equal(vm_discard(s.h, NFILES), -EIO);
	rig_fail_none(s.f[1]);
	assert_int_equal(rig_try_commit_set(&s), -EIO);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(committed(i, 2), 5);
	assert_int_equal(vm_discard(s.h, NFILES), 0);
	for (unsigned i = 0; i < NFILES; i++) {
		assert_int_equal(get(i, 2), 5);
		put(i, 2, 7);
	}
	rig_commit_set(&s);
	for (unsigned i = 0; i < NFILES; i++)
		assert_int_equal(committed(i, 2), 7);
}

/* ---- all of them stand still ---- */

static unsigned nlooks, nthawed; /* before a page goes or is replaced */
static struct vm_sys looking_sys;

static void look(void)
{
	nlooks++;
	for (unsigned i = 0; i < NFILES; i++)
		nthawed += s.h[i]->frozen == VM_THAWED;
}

static void look_at_load(struct rig_file *f, uint64_t pgoff)
{
	(void)f, (void)pgoff;
	look();
}

static int looking_fallocate(int fd, int mode, off_t off, off_t len)
{
	look();
	return vm_sys_linux.fallocate(fd, mode, off, len);
}

static void all_files_stand_still_before_the_first_page_of_any_goes(struct rig *r)
{
	struct idle idle;

	if (rig_is_tsan())
		skip(); /* the table of host calls is exchanged below a running thread */
	open_files(r);
	for (unsigned i = 0; i < NSLOTS; i++)
		put(i % NFILES, i / NFILES, 5);
	rig_commit_set(&s);
	for (unsigned i = 0; i < NSLOTS; i += 2)
		put(i % NFILES, i / NFILES, 6);
	idle_begin(&idle);
	for (unsigned i = 0; i < NFILES; i++)
		rig_hook_at(s.f[i], RIG_LOADBLK, look_at_load, NULL);
	looking_sys = vm_sys_linux;
	looking_sys.fallocate = looking_fallocate;
	faulty_use(&looking_sys);
	nlooks = nthawed = 0;
	assert_int_equal(vm_discard(s.h, NFILES), 0);
	faulty_use(&vm_sys_linux);
	for (unsigned i = 0; i < NFILES; i++)
		rig_hook_at(s.f[i], RIG_LOADBLK, NULL, NULL);
	idle_end(&idle);
	assert_true(nlooks >= NFILES);
	assert_int_equal(nthawed, 0);
	for (unsigned i = 0; i < NSLOTS; i++)
		assert_int_equal(get(i % NFILES, i / NFILES), 5);
}

static const struct rig_case cases[] = {
	RIG_BOTH(a_discard_takes_all_stores_up_to_one_instant),
	RIG_BOTH(all_files_stand_still_before_the_first_page_of_any_goes),
	RIG_BOTH(a_discard_that_fails_in_one_file_keeps_all_from_a_commit_until_one_works),
};
RIG_MAIN(cases)
