#!/bin/bash
# SPDX-License-Identifier: MIT
# QDBM maps its header and buckets only; records are appended by write(2) and start within the mapping's last page.
. "$(dirname "$0")/lib.sh"
need dptsv

records=$(count 4000 40000)
tsv() { seq "$1" "$2" | sed 's/.*/key&\tvalue&&&&/'; }
t_depot() {
	tsv 1 "$records" | run dptsv import b.dp
	run dpmgr inform b.dp | grep -vE 'inode|time'
	run dptsv export b.dp
	plain dptsv export b.dp
	tsv 2000 2100 | sed 's/$/longer than before/' | run dptsv import b.dp
	for k in key1 key2050 key7; do run dpmgr out b.dp $k; done
	run dpmgr put -cat b.dp key8 more
	run dpmgr get b.dp key8
	bytes b.dp
	run dpmgr optimize b.dp
	run dpmgr repair b.dp
	plain dptsv export b.dp
	bytes b.dp
}
t_relic() {
	tsv 1 "$records" | run sh -c 'rlmgr create b; while IFS="	" read -r k v; do [ "${k#key}" -gt 30 ] || rlmgr store b $k $v; done'
	run rlmgr list b
	bytes b.dir b.pag
}
t_villa() {
	tsv 1 "$records" | run vltsv import b.vl
	run vltsv export b.vl
	plain vltsv export b.vl
	run vlmgr out b.vl key8
	run vlmgr get b.vl key9
	bytes b.vl
	run vlmgr optimize b.vl
	bytes b.vl
}
t_curia() {
	tsv 1 "$records" | run crtsv import b.cr
	run crtsv export b.cr
	run crmgr out b.cr key8
	run crmgr get b.cr key9
	plain find b.cr -type f -exec sha256sum {} +
	run crmgr optimize b.cr
	plain crtsv export b.cr
}
same depot
same relic
same villa
same curia
done_same
