/* SPDX-License-Identifier: MIT */
#include "rig.h"
#include "faulty_sys.h"
#include <sys/stat.h>

static void what_was_put_is_copied_out_and_the_rest_is_zeros(struct rig *r)
{
	char in[2 * VM_BLKSIZE], out[4 * VM_BLKSIZE];
	struct vm_ram ram;

	(void)r;
	memset(in, 'r', sizeof(in));
	memset(out, 'x', sizeof(out));
	assert_int_equal(vm_ram_open(&ram, 5 * VM_PAGE), 0);
	assert_int_equal(vm_ram_fill(&ram, 2, 2, in, 5 * VM_PAGE), 0);
	assert_int_equal(vm_ram_copy(&ram, 1, 4, out), 0);
	assert_int_equal(out[VM_PAGE - 1], 0);
	assert_memory_equal(out + VM_PAGE, in, sizeof(in));
	assert_int_equal(out[3 * VM_PAGE], 0);
	assert_int_equal(vm_ram_copy(&ram, 4, 4, out), 0); /* beyond the end, too */
	assert_int_equal(out[3 * VM_PAGE], 0);
	vm_ram_close(&ram);
	assert_int_equal(ram.fd, -1);
}

static void nothing_is_put_beyond_the_size(struct rig *r)
{
	char in[3 * VM_BLKSIZE];
	struct vm_ram ram;
	struct stat st;

	(void)r;
	memset(in, 'r', sizeof(in));
	assert_int_equal(vm_ram_open(&ram, VM_PAGE + 100), 0);
	assert_int_equal(vm_ram_fill(&ram, 0, 3, in, VM_PAGE + 100), 0);
	assert_int_equal(vm_ram_fill(&ram, 5, 1, in, VM_PAGE + 100), 0);
	assert_int_equal(fstat(ram.fd, &st), 0);
	assert_int_equal(st.st_size, VM_PAGE + 100);
	vm_ram_close(&ram);
}

static void held_pages_are_found_and_punched_ones_are_not(struct rig *r)
{
	char in[8 * VM_BLKSIZE] = "x";
	struct vm_ram ram;
	uint64_t stop;

	(void)r;
	assert_int_equal(vm_ram_open(&ram, 1ull << 40), 0);
	assert_int_equal(vm_ram_next(&ram, 0, 1ull << 28, &stop), 1ull << 28);
	assert_int_equal(vm_ram_fill(&ram, 1000, 8, in, 1ull << 40), 0);
	assert_int_equal(vm_ram_next(&ram, 0, 1ull << 28, &stop), 1000);
	assert_int_equal(stop, 1008);
	assert_int_equal(vm_ram_next(&ram, 1003, 1005, &stop), 1003);
	assert_int_equal(stop, 1005);
	assert_int_equal(vm_ram_next(&ram, 0, 1000, &stop), 1000);
	assert_int_equal(vm_ram_punch(&ram, 1002, 1004), 0);
	assert_int_equal(vm_ram_punch(&ram, 7, 7), 0);
	assert_int_equal(vm_ram_next(&ram, 0, 1ull << 28, &stop), 1000);
	assert_int_equal(stop, 1002);
	assert_int_equal(vm_ram_next(&ram, 1002, 1ull << 28, &stop), 1004);
	vm_ram_close(&ram);
}

static void who_cannot_ask_takes_all_pages_for_held(struct rig *r)
{
	struct vm_ram ram;
	uint64_t stop;

	(void)r;
	assert_int_equal(vm_ram_open(&ram, 64 * VM_PAGE), 0);
	faulty_arm(FAULTY_BIT(lseek), 1, EACCES, FAULTY_FOR_EVER);
	assert_int_equal(vm_ram_next(&ram, 3, 9, &stop), 3);
	assert_int_equal(stop, 9);
	(void)faulty_disarm();
	vm_ram_close(&ram);
}

static void missing_pages_that_cannot_be_put_are_still_missing(struct rig *r)
{
	static char in[64 * VM_BLKSIZE];
	struct vm_ram ram;
	uint64_t stop;

	(void)r;
	assert_int_equal(vm_ram_open(&ram, 64 * VM_PAGE), 0);
	faulty_arm(FAULTY_BIT(pwrite), 1, ENOSPC, FAULTY_TORN);
	assert_int_equal(vm_ram_fill_missing(&ram, 0, 64, in, 64 * VM_PAGE), -ENOSPC);
	(void)faulty_disarm();
	assert_int_equal(vm_ram_next(&ram, 0, 64, &stop), 64);
	vm_ram_close(&ram);
}

static void what_cannot_be_opened_leaves_nothing_open(struct rig *r)
{
	struct vm_ram ram;
	bool failed = true;

	(void)r;
	for (unsigned nth = 1; failed; nth++) {
		int err;

		faulty_arm(FAULTY_ALL & ~FAULTY_BIT(memfd_create), nth, EMFILE, FAULTY_FOR_EVER);
		err = vm_ram_open(&ram, VM_PAGE);
		failed = faulty_has_failed();
		(void)faulty_disarm();
		if (err) {
			assert_true(failed);
			assert_int_equal(ram.fd, -1);
		} else {
			vm_ram_close(&ram);
		}
	}
}

static const struct rig_case cases[] = {
	RIG_EAGER(what_was_put_is_copied_out_and_the_rest_is_zeros),
	RIG_EAGER(nothing_is_put_beyond_the_size),
	RIG_EAGER(held_pages_are_found_and_punched_ones_are_not),
	RIG_EAGER(who_cannot_ask_takes_all_pages_for_held),
	RIG_EAGER(missing_pages_that_cannot_be_put_are_still_missing),
	RIG_EAGER(what_cannot_be_opened_leaves_nothing_open),
};
RIG_MAIN(cases)
