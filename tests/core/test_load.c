/* SPDX-License-Identifier: MIT */
#include "rig.h"

static void an_unloaded_page_is_loaded_by_a_touch(struct rig *r)
{
	char *m;

	rig_open(r, 8 * VM_PAGE);
	m = rig_map(r->h, 0, 8);
	for (unsigned pg = 0; pg < 8; pg++)
		assert_int_equal((uint8_t)rig_load8(m + pg * VM_PAGE), rig_byte(pg));
	assert_int_equal(rig_ndirty(r->h), 0);
}

static const struct rig_case cases[] = {
	RIG_BOTH(an_unloaded_page_is_loaded_by_a_touch),
};
RIG_MAIN(cases)
