#!/bin/bash
# SPDX-License-Identifier: MIT
# LMDB: MDB_WRITEMAP stores through the mapping and calls msync twice a transaction; without it the file is written
# by pwrite and a second, O_DSYNC, descriptor, and read back through a read-only mapping.
. "$(dirname "$0")/lib.sh"
need mdb_stat

work_in_mode() {
	run "$src/lmdb_load" write . "$1" 0 200
	run "$src/lmdb_load" verify .
	run mdb_stat -e .
	plain "$src/lmdb_load" verify .
	bytes data.mdb
	run "$src/lmdb_load" write . "$1" 200 50
	plain "$src/lmdb_load" verify .
	bytes data.mdb
}
t_writemap() { work_in_mode w; }
t_writemap_mapasync() { work_in_mode wa; }
t_writemap_nosync() { work_in_mode ws; }
t_default() { work_in_mode n; }

# Three at once, which the robust mutexes in lock.mdb keep apart, managed as it is.
at_once() {
	run sh -c "for i in 1 2 3; do $src/lmdb_load write . $1 0 60 >out.\$i & done; wait; tail -qn1 out.?; rm out.?"
	run "$src/lmdb_load" verify .
	plain "$src/lmdb_load" verify .
}
t_three_writemap() { at_once w; }
t_three_default() { at_once n; }

for mode in writemap writemap_mapasync writemap_nosync default three_writemap three_default; do
	same $mode
done
done_same
