#!/bin/bash
# SPDX-License-Identifier: MIT
# PHP, which loads its extensions with RTLD_DEEPBIND: they find libc's functions before ours. LMDB by way of one of them.
. "$(dirname "$0")/lib.sh"
need php
php -r 'exit(in_array("lmdb", dba_handlers()) ? 0 : 1);' 2>/dev/null || skip 'no dba extension with lmdb here'

n=$(count 500 20000)
t_lmdb() {
	run php -r '[$_, $n] = $argv; $d = dba_open("a.db", "c", "lmdb");
		for ($i = 0; $i < $n; $i++) dba_insert("key $i", str_repeat("v$i ", $i % 50), $d);
		for ($i = 0; $i < $n; $i += 3) dba_delete("key $i", $d); dba_sync($d); dba_close($d); echo "stored\n";' "$n"
	# The library itself, when it is here, reads what came of it.
	! command -v mdb_dump >/dev/null || plain mdb_dump -n a.db | sha256sum
	run php -r '[$_, $n] = $argv; $d = dba_open("a.db", "r", "lmdb"); $bad = 0; $found = 0;
		for ($i = 0; $i < $n; $i++) { $v = dba_fetch("key $i", $d);
			$bad += $i % 3 ? $v !== str_repeat("v$i ", $i % 50) : $v !== false; $found += $v !== false; }
		echo "$found found, $bad bad\n";' "$n"
}
same lmdb
done_same
