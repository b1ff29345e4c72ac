#!/bin/bash
# SPDX-License-Identifier: MIT
# tdb: fcntl locks for each record chain, fallocate and a new mapping to grow, transactions with msync of parts. The
# file's length is no multiple of a page at first, and its mapping may be live at exit.
. "$(dirname "$0")/lib.sh"
need tdbtool
/usr/bin/python3 -c 'import tdb' 2>/dev/null || skip 'no tdb (python3-tdb)'

load() { run /usr/bin/python3 "$src/tdb_load.py" write k.tdb "$@"; }
check() {
	run /usr/bin/python3 "$src/tdb_load.py" verify k.tdb
	plain /usr/bin/python3 "$src/tdb_load.py" verify k.tdb
	# With words, not with its status, it says how it went.
	run tdbtool k.tdb check | says 'integrity is OK'
	plain tdbtool k.tdb check | says 'integrity is OK'
	bytes k.tdb
}
t_updates() {
	load "$(count 100 1000)"
	check
	load 20 NOSYNC leave
	check
}
t_transactions() {
	load "$(count 100 1000)" tx
	check
	load 20 tx leave
	check
}
# Robust process-shared mutexes in the file instead of fcntl locks.
t_mutexes() {
	load "$(count 50 1000)" CLEAR_IF_FIRST INCOMPATIBLE_HASH MUTEX_LOCKING
	check
}
t_tools() {
	run tdbtool k.tdb create k.tdb
	load 20 tx
	run tdbtool k.tdb store key value
	run tdbtool k.tdb show key
	run tdbtool k.tdb delete key
	run tdbtool k.tdb repack
	check
	run tdbbackup -v k.tdb
	run tdbbackup k.tdb
	bytes k.tdb k.tdb.bak
	run sh -c 'tdbdump k.tdb >dump && tdbrestore r.tdb <dump'
	plain tdbtool r.tdb check | says 'integrity is OK'
	bytes dump r.tdb
}
# How many keys are left goes by who came when.
t_two_at_once() {
	run sh -c "for how in '' tx; do
		/usr/bin/python3 $src/tdb_load.py write k.tdb 60 \$how >out.\$how & done; wait; tail -qn1 out.*; rm out.*"
	run /usr/bin/python3 "$src/tdb_load.py" verify k.tdb | sed 's/entries [0-9]*/entries/'
	plain /usr/bin/python3 "$src/tdb_load.py" verify k.tdb | sed 's/entries [0-9]*/entries/'
	plain tdbtool k.tdb check | grep -o 'integrity is OK'
}
for t in updates transactions mutexes tools two_at_once; do
	same $t
done
done_same
