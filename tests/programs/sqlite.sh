#!/bin/bash
# SPDX-License-Identifier: MIT
# sqlite3 with mmap_size: a read-only mapping beside pwrite, mremap, and cuts below the mapping. In WAL mode its -shm is
# mapped shared, and both files are managed.
. "$(dirname "$0")/lib.sh"
need sqlite3

rows=$(count 10000 100000)
fill="create table t(a integer primary key, b);
	with recursive c(x) as (select 1 union all select x + 1 from c where x < $rows)
		insert into t select x, printf('%0100d', x * 7919) from c;
	update t set b = b || b where a % 3 = 0;
	delete from t where a % 5 = 0;
	pragma integrity_check;"
check='pragma integrity_check; select count(*), sum(a), sum(length(b)) from t;'
t_mmap() {
	run sqlite3 t.db "pragma mmap_size=268435456; $fill vacuum; pragma integrity_check;"
	plain sqlite3 t.db "$check" | says '^ok'
	bytes t.db
	run sqlite3 t.db "pragma mmap_size=268435456; delete from t where a % 2; pragma incremental_vacuum; vacuum; $check"
	run sh -c 'sqlite3 t.db .dump | sha256sum'
	plain sh -c 'sqlite3 t.db .dump | sha256sum'
	bytes t.db
}
t_wal() {
	run sqlite3 t.db "pragma mmap_size=268435456; pragma journal_mode=wal; $fill
		pragma wal_checkpoint(truncate); insert into t(b) values('after'); $check"
	plain sqlite3 t.db "$check" | says '^ok'
	bytes t.db
	run sqlite3 t.db "pragma mmap_size=268435456; begin; update t set b = 'gone'; rollback; update t set b = 'here' where
		a % 7 = 0; pragma wal_checkpoint; $check pragma journal_mode=delete;"
	bytes t.db
}
# Left behind by a process and found by the next: the log and its index.
t_wal_stays() {
	run sqlite3 t.db "pragma journal_mode=wal; $fill" '.filectrl persist_wal 1' "insert into t(b) values('in the log');"
	plain ls -s t.db-shm
	run sqlite3 t.db "pragma mmap_size=100000000; $check" | says '^ok'
	plain sqlite3 t.db "$check" | says '^ok'
	bytes t.db
}
# Many small transactions, each with its fsync.
t_commits() {
	for mode in delete truncate persist wal; do
		{
			echo "pragma journal_mode=$mode; pragma mmap_size=1000000; create table if not exists t(a integer primary key, b);"
			for ((i = 0; i < $(count 20 500); i++)); do echo "insert into t(b) values('$mode $i');"; done
			echo "$check"
		} | run sqlite3 t.db | says '^ok'
		plain sqlite3 t.db "$check" | says '^ok'
	done
	bytes t.db
}
# Three writers at once: the locks and the index of the log are in the -shm that all of them have.
t_three_wal() {
	run sqlite3 t.db 'pragma journal_mode=wal; create table t(p, i);'
	run sh -c 'for p in 1 2 3; do
		seq 40 | sed "s/.*/insert into t values($p, &);/" |
			sqlite3 -cmd ".timeout 20000" -cmd "pragma mmap_size=100000000" t.db >/dev/null &
		done; wait'
	run sqlite3 t.db 'pragma integrity_check; select p, count(*), sum(i) from t group by p;' | says '^ok'
	plain sqlite3 t.db 'pragma integrity_check; select p, count(*), sum(i) from t group by p;' | says '^ok'
}
for t in mmap wal wal_stays commits three_wal; do
	same $t
done
done_same
