/* SPDX-License-Identifier: MIT */
/* docs/journal.md is enough to write a reader from: tests/crash/read_journal.py, which knows nothing of these
 * sources, makes of a journal what the code makes of it. */
#include "group_rig.h"
#include "jrig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define READER "tests/crash/read_journal.py"

#define REFUSED (-1)

/* How many commits it says that there are, or REFUSED. */
static int read_with(const char *journal, const char *data)
{
	char cmd[800], line[100] = "";
	int n = REFUSED, status;
	FILE *out;

	(void)snprintf(cmd, sizeof(cmd), "exec python3 " READER " %s %s 2>&1", journal, data);
	out = popen(cmd, "r");
	assert_non_null(out);
	assert_non_null(fgets(line, sizeof(line), out));
	status = pclose(out);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 3)
		return REFUSED;
	assert_int_equal(status, 0);
	assert_int_equal(sscanf(line, "%d commits", &n), 1);
	return n;
}

static void it_replays_the_journal_of_one_file(void **state)
{
	static struct image now, next, old;
	struct vm_txn txn = {.txid = 99};
	uint64_t rnd = 21, low;
	struct jrig r;

	(void)state;
	jrig_make(&r);
	for (int round = 0; round < 3; round++) {
		old = now;
		for (int i = 0; i < 10; i++) {
			next = now;
			image_change(&next, &rnd, &low);
			assert_int_equal(jrig_commit(&r, &now, &next, low, i % 2), 0);
			now = next;
		}
		/* with a base run */
		vm_journal_begin(&r.j);
		txn.size = now.size;
		assert_int_equal(vm_journal_add(&r.j, 0, now.bytes, now.size, VM_RUN_BASE), 0);
		assert_int_equal(vm_journal_add(&r.j, now.size / 2, "Z", 1, 0), 0);
		assert_int_equal(vm_journal_commit(&r.j, &txn, true), 0);
		now.bytes[now.size / 2] = 'Z';
		image_put(r.box.data, &old);
		assert_int_equal(read_with(r.box.journal, r.box.data), 11);
		assert_true(image_is_in(&now, r.box.data));
		assert_int_equal(vm_journal_checkpoint(&r.j, &r.files), 0);
		assert_int_equal(read_with(r.box.journal, r.box.data), 0);
		assert_true(image_is_in(&now, r.box.data));
	}
	jrig_remove(&r);
}

static void make_stub(const char *stub, uint64_t group)
{
	struct vm_journal_id id = {.name = "f0"};
	int fd = open(stub, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(vm_journal_write_stub(fd, &id, group, ".data.txmap"), 0);
	close(fd);
}

static void from_a_stub_it_replays_the_journal_of_the_group(void **state)
{
	struct rig *g = *state;
	struct group_image old;
	char stub[320];

	(void)snprintf(stub, sizeof(stub), "%s/.f0.txmap", g->r.box.dir);
	make_stub(stub, g->r.j.group);
	for (int round = 0; round < 3; round++) {
		old = g->now;
		for (int i = 0; i < 10; i++)
			commit_change(g, i % 2);
		group_put(&g->r, &old);
		assert_int_equal(read_with(stub, ""), 10);
		assert_true(group_is_in(&g->now, &g->r));
		assert_int_equal(vm_journal_checkpoint(&g->r.j, &g->r.files), 0);
		assert_int_equal(read_with(stub, ""), 0);
	}
}

static void it_leaves_all_files_alone_when_one_is_not_the_one_that_is_meant(void **state)
{
	struct rig *g = *state;
	struct group_image empty = {0}, next = {0};
	char stub[320];

	(void)snprintf(stub, sizeof(stub), "%s/.f0.txmap", g->r.box.dir);
	make_stub(stub, g->r.j.group);
	for (unsigned i = 0; i < GRIG_N; i++)
		next.f[i].bytes[next.f[i].size++] = 1;
	assert_int_equal(grig_commit(&g->r, &empty, &next, NULL, true), 0);
	assert_int_equal(rename(g->r.path[2], stub), 0); /* the inode stays in use */
	image_put(g->r.path[2], &empty.f[2]);
	assert_int_equal(rename(stub, g->r.box.data), 0);
	make_stub(stub, g->r.j.group);
	assert_int_equal(read_with(stub, ""), REFUSED);
	assert_true(group_is_in(&empty, &g->r));
	assert_int_equal(unlink(g->r.path[2]), 0);
	assert_int_equal(read_with(stub, ""), REFUSED);
	image_put(g->r.path[2], &empty.f[2]);
	assert_true(group_is_in(&empty, &g->r));
	make_stub(stub, g->r.j.group + 1);
	assert_int_equal(read_with(stub, ""), REFUSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_replays_the_journal_of_one_file),
		TEST(from_a_stub_it_replays_the_journal_of_the_group),
		TEST(it_leaves_all_files_alone_when_one_is_not_the_one_that_is_meant),
	};

	if (system("python3 -c '' 2>/dev/null")) {
		puts("python3 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
