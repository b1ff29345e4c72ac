/* SPDX-License-Identifier: MIT */
/*
 * Many cuts, of one file and of a group of three, while threads and system calls store: none is torn. RIG_CUTS
 * says how many of each; the long form is RIG_CUTS=50000, which with both is 10^5 for each engine.
 */
#include "crew.h"

static unsigned ncuts(void)
{
	const char *text = getenv("RIG_CUTS");

	if (text)
		return (unsigned)strtoul(text, NULL, 10);
	return rig_is_tsan() || rig_is_asan() ? 30 : 500;
}

/* Who stores: a thread, read(2) from a pipe, and pread(2). */
static void check_many(struct rig *r, unsigned nfiles)
{
	struct crew c = {.npages = 12,
			 .nwriters = 3,
			 .in_bursts = true,
			 .ncuts = ncuts(),
			 .w = {{.how = BY_STORE}, {.how = BY_READ}, {.how = BY_PREAD}}};

	crew_open(&c, r, nfiles);
	crew_check_cuts(&c);
	print_message("%u cuts of %u file%s, 0 torn; in the middle of a round: %u of stores, %u of read, %u "
		      "of pread\n",
		      c.ncuts, nfiles, nfiles > 1 ? "s" : "", c.w[0].nshown, c.w[1].nshown, c.w[2].nshown);
}

static void no_cut_of_one_file_is_torn(struct rig *r)
{
	check_many(r, 1);
}

static void no_cut_of_three_files_is_torn(struct rig *r)
{
	check_many(r, 3);
}

static const struct rig_case cases[] = {
	RIG_EAGER(no_cut_of_one_file_is_torn),
	RIG_EAGER(no_cut_of_three_files_is_torn),
};

RIG_MAIN(cases)
